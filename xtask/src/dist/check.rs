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
/// What the user of a laptop has besides a minimal Debian, and the script needs to move a server.
const USERS_PACKAGES: [&str; 5] = ["fuse3", "git", "git-annex", "iproute2", "procps"];
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
    let root = fresh_root(&archive, &[])?;
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
            "the packages fail the check; the root is left in {}",
            root.display()
        );
    }
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    images(out, &archive)
}

/// The first hour of a new user with these packages, on two machines with roots of their own
/// (`dist/debian/first-hour.sh`).
///
/// # Errors
/// Something of it does not go as users expect, or cannot be tried here.
pub(super) fn first_hour(out: &Path, packages: &[PathBuf]) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "--first-hour needs root"
    );
    let archive = out.join(format!("{SUITE}-first-hour.tar"));
    let root = fresh_root(&archive, &USERS_PACKAGES)?;
    let mut install = Command::new("dpkg");
    install.arg("--root").arg(&root).arg("-i").args(packages);
    ensure!(
        sh::follow(&mut install)?.success,
        "the packages cannot be installed"
    );
    let mut script = Command::new("bash");
    script.arg(sh::root().join("dist/debian/first-hour.sh"));
    ensure!(
        sh::follow(script.arg(&root))?.success,
        "the first hour does not go as users expect; the root is left in {}",
        root.display()
    );
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
}

/// A clean root beside its archive, with these of Debian's packages besides the least.
fn fresh_root(archive: &Path, included: &[&str]) -> Result<PathBuf> {
    if !archive.exists() {
        bootstrap(archive, included)?;
    }
    let root = archive.with_extension("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    fs::create_dir_all(&root)?;
    let mut tar = Command::new("tar");
    sh::capture(tar.arg("-xpf").arg(archive).arg("-C").arg(&root))?;
    Ok(root)
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
fn bootstrap(archive: &Path, included: &[&str]) -> Result<()> {
    ensure!(
        sh::has_program("debootstrap"),
        "debootstrap is missing: apt-get install debootstrap"
    );
    let fresh = archive.with_extension("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let mut make = Command::new("debootstrap");
    make.arg("--variant=minbase");
    if !included.is_empty() {
        make.arg(format!("--include={}", included.join(",")));
    }
    make.arg(SUITE).arg(&fresh);
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
