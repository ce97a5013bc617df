//! Packages in a clean Debian root: installed, used, updated, removed, purged. The script beside the
//! packages' own (`dist/debian/check.sh`) says what must hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::output;
use crate::sh;

/// The Debian whose root is made.
const SUITE: &str = "bookworm";
/// A network, mounts and processes of its own, which end with it.
const APART: [&str; 7] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation=private",
];

/// Checks packages; the root is made below `out`, and its archive kept there for the next time.
///
/// # Errors
/// Something of it is not as it should be, or cannot be tried here.
pub(super) fn run(out: &Path, packages: &[PathBuf]) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "--check needs root");
    if sh::has_program("lintian") {
        let mut lintian = Command::new("lintian");
        lintian
            .args(["--fail-on", "error", "--allow-root"])
            .args(packages);
        ensure!(sh::follow(&mut lintian)?.success, "lintian finds errors");
    } else {
        output::note("LEFT OUT: lintian, which is not installed");
    }
    let archive = out.join(format!("{SUITE}.tar"));
    if !archive.exists() {
        bootstrap(&archive)?;
    }
    let root = out.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    fs::create_dir_all(&root)?;
    let mut tar = Command::new("tar");
    sh::capture(tar.arg("-xpf").arg(&archive).arg("-C").arg(&root))?;
    let script = sh::root().join("dist/debian/check.sh");
    let mut check = Command::new("unshare");
    check
        .args(APART)
        .arg("bash")
        .arg(script)
        .arg(&root)
        .arg(out);
    if !sh::follow(&mut check)?.success {
        bail!(
            "the packages do not hold; the root is left in {}",
            root.display()
        );
    }
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
}

/// Makes the archive of a clean root.
fn bootstrap(archive: &Path) -> Result<()> {
    ensure!(
        sh::has_program("debootstrap"),
        "debootstrap is missing: apt-get install debootstrap"
    );
    let fresh = archive.with_extension("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let mut make = Command::new("debootstrap");
    make.args(["--variant=minbase", SUITE]).arg(&fresh);
    ensure!(sh::follow(&mut make)?.success, "debootstrap failed");
    let unfinished = archive.with_extension("tar.new");
    let mut tar = Command::new("tar");
    sh::capture(
        tar.arg("-cpf")
            .arg(&unfinished)
            .arg("-C")
            .arg(&fresh)
            .arg("."),
    )?;
    fs::rename(&unfinished, archive)?;
    fs::remove_dir_all(&fresh).with_context(|| format!("removing {}", fresh.display()))
}
