//! `cargo xtask dist`: Debian packages of afar.
//!
//! - `binary`: the binary, without what only a debugger needs, and that apart
//! - `contents`: what is in each package, and where
//! - `package`: a package's tree, and dpkg-deb
//! - `check`: the packages in a clean Debian root

mod binary;
mod check;
mod contents;
mod package;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::output;
use crate::sh;

/// What makes packages, each with the Debian package it is in.
const TOOLS: [(&str, &str); 5] = [
    ("dpkg-deb", "dpkg"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("objcopy", "binutils"),
    ("readelf", "binutils"),
    ("gzip", "gzip"),
];
/// What a release build needs besides.
const BUILD_TOOL: (&str, &str) = ("protoc", "protobuf-compiler libprotobuf-dev");

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this binary of afar [default: a release build with all features]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where to write the packages [default: target/dist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The packages' version [default: that of the workspace; before it is tagged, with the time of the
    /// last commit]
    #[arg(long, value_name = "VERSION")]
    package_version: Option<String>,
    /// Then install the packages in a clean Debian root, run a cell and a mount there, update, remove and
    /// purge; needs root and debootstrap
    #[arg(long)]
    check: bool,
    /// Then play a new user's first hour on two machines with such roots, 20 ms apart: a cell, a film,
    /// git, git-annex, another address, a closed lid; needs root, debootstrap and three minutes
    #[arg(long)]
    first_hour: bool,
}

/// What all packages of a run have in common.
struct Release {
    /// Such as `0.1.0-1`.
    version: String,
    /// Such as `amd64`.
    architecture: String,
    /// A name and an address.
    maintainer: String,
    /// When the last commit was made, in seconds since 1970: no file in a package is younger.
    epoch: String,
    /// The same for readers of mail.
    date: String,
}

/// Does what `cargo xtask dist` was asked for.
///
/// # Errors
/// A tool is missing, the build fails, or the packages are not as they should be.
pub(crate) fn run(args: &Args) -> Result<()> {
    for (tool, package) in TOOLS {
        ensure!(
            sh::has_program(tool),
            "{tool} is missing: apt-get install {package}"
        );
    }
    let release = release(args)?;
    let built = match &args.binary {
        Some(binary) => fs::canonicalize(binary)
            .with_context(|| format!("no binary at {}", binary.display()))?,
        None => build()?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => sh::root().join("target/dist"),
    };
    let stage = out.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("removing {}", stage.display()))?;
    }
    fs::create_dir_all(&stage).with_context(|| format!("making {}", stage.display()))?;
    // Tools run in folders of their own.
    let stage = fs::canonicalize(stage)?;
    let out = fs::canonicalize(out)?;
    let binary = binary::split(&built, &stage, args.binary.is_none())?;
    remove_older(&out)?;
    let mut packages = vec![
        contents::afar(&release, &binary, &stage)?.build(&out)?,
        contents::openafs_names(&release, &stage)?.build(&out)?,
    ];
    match binary.debug {
        Some(debug) => packages.push(contents::symbols(&release, &debug, &stage)?.build(&out)?),
        None => output::note("no symbols in the binary, so no package of them"),
    }
    // Else docker would send it to its daemon with the packages when it builds an image.
    fs::remove_dir_all(&stage).with_context(|| format!("removing {}", stage.display()))?;
    for package in &packages {
        let size = fs::metadata(package)?.len();
        output::line(&format!("{} ({} kB)", package.display(), size / 1000));
    }
    if args.check {
        check::run(&out, &packages)?;
    }
    if args.first_hour {
        check::first_hour(&out, &packages)?;
    }
    Ok(())
}

/// Packages of other versions would be taken for those of this one.
fn remove_older(out: &Path) -> Result<()> {
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("afar") && name.ends_with(".deb") {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let (tool, packages) = BUILD_TOOL;
    ensure!(
        sh::has_program(tool),
        "{tool} is missing: apt-get install {packages}"
    );
    let what = [
        "rustc",
        "--release",
        "--locked",
        "-p",
        "afar",
        "--bin",
        "afar",
    ];
    let mut cargo = sh::cargo(what);
    cargo.args(["--features", "etcd"]);
    // Many generic functions come out alike. The linker that Rust uses here keeps one of each; others do not know how.
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        cargo.args(["--", "-Clink-arg=-Wl,--icf=all"]);
    }
    if !sh::follow(&mut cargo)?.success {
        bail!("afar cannot be built");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(target
        .unwrap_or_else(|| sh::root().join("target"))
        .join("release/afar"))
}

fn release(args: &Args) -> Result<Release> {
    let version = match &args.package_version {
        Some(version) => version.clone(),
        None => version(env!("CARGO_PKG_VERSION"))?,
    };
    let maintainer = match (std::env::var("DEBFULLNAME"), std::env::var("DEBEMAIL")) {
        (Ok(name), Ok(address)) => format!("{name} <{address}>"),
        _ => git(&["show", "-s", "--format=%an <%ae>", "HEAD"])?,
    };
    let architecture = sh::capture(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(Release {
        version,
        maintainer,
        architecture: architecture.trim().to_owned(),
        epoch: git(&["show", "-s", "--format=%ct", "HEAD"])?,
        date: git(&["show", "-s", "--format=%cD", "HEAD"])?,
    })
}

/// Each commit's version is above those before, and below that of the release it leads to.
fn version(workspace: &str) -> Result<String> {
    let tagged = git(&["tag", "--points-at", "HEAD"])?;
    if tagged.lines().any(|tag| tag == format!("v{workspace}")) {
        return Ok(format!("{workspace}-1"));
    }
    let format = ["--date=format-local:%Y%m%d.%H%M%S", "--format=%cd", "HEAD"];
    let mut command = Command::new("git");
    command.args(["show", "-s"]).args(format).env("TZ", "UTC");
    let when = sh::capture(command.current_dir(sh::root()))?;
    Ok(format!("{workspace}~{}-1", when.trim()))
}

fn git(args: &[&str]) -> Result<String> {
    let said = sh::capture(Command::new("git").args(args).current_dir(sh::root()))?;
    Ok(said.trim().to_owned())
}
