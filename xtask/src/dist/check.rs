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
/// What images are made of here, instead of what a registry has.
const BASE: &str = "localhost/debian:base";
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
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    images(out, &archive)
}

/// Builds the images of `dist/oci` on the clean root, by buildah, which needs no daemon.
fn images(out: &Path, archive: &Path) -> Result<()> {
    if !sh::has_program("buildah") {
        output::note("LEFT OUT: images, as there is no buildah");
        return Ok(());
    }
    let store = out.join("images");
    let buildah = |command: &str| {
        let mut buildah = Command::new("buildah");
        buildah.args(["--storage-driver", "vfs", "--root"]);
        buildah.arg(&store).arg("--runroot").arg(store.join("run"));
        buildah.arg(command).current_dir(out);
        buildah
    };
    let container = sh::capture(buildah("from").arg("scratch"))?;
    let container = container.trim();
    sh::capture(buildah("add").arg(container).arg(archive).arg("/"))?;
    sh::capture(buildah("commit").args(["--rm", container, BASE]))?;
    let file = sh::root().join("dist/oci/Dockerfile");
    for target in ["server", "mount"] {
        let mut build = buildah("build");
        build.args(["--isolation", "chroot", "--build-arg"]);
        build.arg(format!("BASE={BASE}")).arg("-f").arg(&file);
        build.args(["--target", target, "-t", target, "."]);
        ensure!(
            sh::follow(&mut build)?.success,
            "no image can be made for {target}"
        );
    }
    fs::remove_dir_all(&store).with_context(|| format!("removing {}", store.display()))
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
