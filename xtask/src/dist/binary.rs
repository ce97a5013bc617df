//! The binary of a package: what runs, and what only a debugger needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::output;
use crate::sh;

/// Bytes the binary may take in a package.
const SIZE: u64 = 45_000_000;

/// A binary, taken apart.
pub(super) struct Binary {
    /// What runs.
    pub(super) program: PathBuf,
    pub(super) debug: Option<Debug>,
}

/// The symbols of a binary.
pub(super) struct Debug {
    pub(super) file: PathBuf,
    /// What the binary and they know each other by: hexadecimal digits.
    pub(super) build_id: String,
}

/// Takes a binary apart, into files below `stage`. One that is `ours` is held to its size.
///
/// # Errors
/// It is no program of this machine, or takes too much.
pub(super) fn split(binary: &Path, stage: &Path, ours: bool) -> Result<Binary> {
    let said = sh::capture(Command::new(binary).arg("version"))
        .with_context(|| format!("{} is not a binary of afar", binary.display()))?;
    output::line(&said.lines().collect::<Vec<_>>().join(", "));
    let program = stage.join("afar.stripped");
    let file = stage.join("afar.debug");
    let sections = sh::capture(Command::new("readelf").args(["-SW"]).arg(binary))?;
    let debug = match (sections.contains(".debug_line"), build_id(binary)?) {
        (true, Some(build_id)) => {
            objcopy(
                &["--only-keep-debug", "--compress-debug-sections"],
                binary,
                &file,
            )?;
            Some(Debug { file, build_id })
        }
        _ => None,
    };
    objcopy(
        &["--strip-all", "--remove-section=.comment"],
        binary,
        &program,
    )?;
    let size = fs::metadata(&program)?.len();
    output::line(&format!("the binary takes {} kB", size / 1000));
    ensure!(
        size <= SIZE || !ours,
        "the binary takes {size} bytes, more than the {SIZE} it may"
    );
    Ok(Binary { program, debug })
}

fn objcopy(options: &[&str], from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("objcopy");
    sh::capture(command.args(options).arg(from).arg(to)).map(drop)
}

fn build_id(binary: &Path) -> Result<Option<String>> {
    let notes = sh::capture(Command::new("readelf").arg("-nW").arg(binary))?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID:"));
    Ok(id.map(|id| id.trim().to_owned()).filter(|id| id.len() > 2))
}

/// What the libraries that a binary is linked with are called, as a package depends on them.
///
/// # Errors
/// A library is of no package.
pub(super) fn libraries(program: &Path, stage: &Path) -> Result<String> {
    let folder = stage.join("libraries");
    fs::create_dir_all(folder.join("debian"))?;
    // dpkg-shlibdeps wants to stand in the source of a package.
    let source = "Source: afar\n\nPackage: afar\nArchitecture: any\n";
    fs::write(folder.join("debian/control"), source)?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.arg("-O").arg("-e").arg(program);
    let said = sh::capture(command.current_dir(&folder))?;
    let found = said
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="));
    let found = found.with_context(|| format!("dpkg-shlibdeps gives no usable answer: {said}"))?;
    Ok(found.trim().to_owned())
}
