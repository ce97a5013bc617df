//! What is in each package, and where.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Release;
use super::binary::{self, Binary, Debug};
use super::package::Package;
use crate::sh;

/// The names of OpenAFS's programs that the binary answers to.
const NAMES: [&str; 4] = ["vos", "pts", "fs", "bos"];
/// Where completions lie, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/afar"),
    ("zsh", "usr/share/zsh/vendor-completions/_afar"),
    ("fish", "usr/share/fish/vendor_completions.d/afar.fish"),
];
/// Where systemd looks for units of packages.
const UNITS: &str = "lib/systemd/system";
/// Folders with what other programs take to watch a server: a dashboard, alerts, scripts.
const MONITORING: [&str; 3] = ["grafana", "prometheus", "bpftrace"];
/// Where manual pages lie, but for their section.
const PAGES: &str = "usr/share/man/man";

/// The package of the program.
pub(super) fn afar(release: &Release, binary: &Binary, stage: &Path) -> Result<Package> {
    let description = "AFS for long and fat links: client, servers, administration
afar is AFS-3 in one program: it mounts AFS (FUSE), copies and synchronises
files without a mount, serves files, volumes, locations, users and groups,
and has the commands vos, pts, fs and bos.

It interoperates with OpenAFS's servers and clients. Between two afar peers
it fills a link of any length.";
    let names = ("afar", release.architecture.as_str());
    let mut package = Package::new(release, stage, names, description)?;
    package.field("Section", "net");
    package.field("Priority", "optional");
    package.field("Depends", binary::libraries(&binary.program, stage)?);
    // fusermount3 mounts for those who are not root; libkrb5 is loaded where a ticket is asked for.
    package.field("Recommends", "fuse3, libkrb5-3");
    package.field("Suggests", "afar-openafs-names, krb5-user");
    let dist = sh::root().join("dist");
    package.file(&binary.program, "usr/bin/afar", 0o755)?;
    package.link("usr/sbin/mount.afar", "../bin/afar")?;
    pages(&mut package, &binary.program, stage)?;
    for (shell, to) in COMPLETIONS {
        let mut ask = Command::new(&binary.program);
        let script = stage.join(shell);
        fs::write(&script, sh::capture(ask.args(["completions", shell]))?)?;
        package.file(&script, to, 0o644)?;
    }
    for unit in listed(&dist.join("systemd"))? {
        let from = dist.join("systemd").join(&unit);
        package.file(&from, &format!("{UNITS}/{unit}"), 0o644)?;
    }
    package.conffile(&dist.join("CellServDB"), "etc/afar/CellServDB")?;
    package.conffile(
        &dist.join("debian/afar-mount.default"),
        "etc/default/afar-mount",
    )?;
    let doc = "usr/share/doc/afar";
    for example in listed(&dist.join("examples"))? {
        let from = dist.join("examples").join(&example);
        package.file(&from, &format!("{doc}/examples/{example}"), 0o644)?;
    }
    for folder in MONITORING {
        for file in listed(&dist.join(folder))? {
            let from = dist.join(folder).join(&file);
            package.file(&from, &format!("usr/share/afar/{folder}/{file}"), 0o644)?;
        }
    }
    package.file(
        &dist.join("debian/copyright"),
        &format!("{doc}/copyright"),
        0o644,
    )?;
    let changes = fs::read(sh::root().join("CHANGELOG.md")).context("reading CHANGELOG.md")?;
    package.compressed(&changes, &format!("{doc}/changelog"))?;
    let entry = format!(
        "afar ({}) unstable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n -- {}  {}\n",
        release.version, release.maintainer, release.date
    );
    package.compressed(entry.as_bytes(), &format!("{doc}/changelog.Debian"))?;
    scripts(&mut package, "afar")?;
    Ok(package)
}

/// The package of names that OpenAFS's programs have.
pub(super) fn openafs_names(release: &Release, stage: &Path) -> Result<Package> {
    let name = "afar-openafs-names";
    let description = "vos, pts, fs and bos by afar
afar has OpenAFS's commands as `afar vos` and so on. This package provides
them under their traditional names, through update-alternatives(1).";
    let mut package = Package::new(release, stage, (name, "all"), description)?;
    package.field("Section", "net");
    package.field("Priority", "optional");
    package.field("Depends", format!("afar (= {})", release.version));
    // Its programs of these names are no alternatives, and would replace the links.
    package.field("Conflicts", "openafs-client");
    for name in NAMES {
        package.link(&format!("usr/lib/afar/names/{name}"), "../../../bin/afar")?;
    }
    package.link(&format!("usr/share/doc/{name}"), "afar")?;
    scripts(&mut package, name)?;
    Ok(package)
}

/// The package of what debuggers need.
pub(super) fn symbols(release: &Release, debug: &Debug, stage: &Path) -> Result<Package> {
    let name = "afar-dbgsym";
    let description = "debug symbols for afar";
    let names = (name, release.architecture.as_str());
    let mut package = Package::new(release, stage, names, description)?;
    package.field("Section", "debug");
    package.field("Priority", "optional");
    package.field("Depends", format!("afar (= {})", release.version));
    package.field("Auto-Built-Package", "debug-symbols");
    package.field("Build-Ids", debug.build_id.as_str());
    let (folder, rest) = debug.build_id.split_at(2);
    let to = format!("usr/lib/debug/.build-id/{folder}/{rest}.debug");
    package.file(&debug.file, &to, 0o644)?;
    package.link(&format!("usr/share/doc/{name}"), "afar")?;
    Ok(package)
}

/// The manual pages, which the program makes.
fn pages(package: &mut Package, program: &Path, stage: &Path) -> Result<()> {
    let made = stage.join("man");
    sh::capture(Command::new(program).args(["man", "--all"]).arg(&made))?;
    for page in listed(&made)? {
        let content = fs::read(made.join(&page))?;
        package.compressed(&content, &format!("{PAGES}1/{page}"))?;
    }
    package.link(
        &format!("{PAGES}8/mount.afar.8.gz"),
        "../man1/afar-mount.1.gz",
    )
}

/// Scripts that dpkg runs: `dist/debian/PACKAGE.postinst` and its kin, where there are such.
fn scripts(package: &mut Package, name: &str) -> Result<()> {
    let folder = sh::root().join("dist/debian");
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        let from = folder.join(format!("{name}.{script}"));
        if from.exists() {
            package.script(&from, script)?;
        }
    }
    Ok(())
}

/// The names of files in a folder, in order.
fn listed(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
