//! Installing the system packages the tests need.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::count::Counts;
use super::{Outcome, Verdict};
use crate::output;
use crate::sh;

/// A program the tests use, the Debian package it comes in, and what it is for.
struct Need {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const fn need(program: &'static str, package: &'static str, purpose: &'static str) -> Need {
    Need {
        program,
        package,
        purpose,
    }
}

/// What a real OpenAFS cell and the interop tests need.
const INTEROP: &[Need] = &[
    need("dafileserver", "openafs-fileserver", "the OpenAFS cell"),
    need("vlserver", "openafs-dbserver", "the OpenAFS cell"),
    need("rxdebug", "openafs-client", "stock tools beside the cell"),
    need("afsd.fuse", "openafs-fuse", "OpenAFS's client"),
    need("asetkey", "openafs-krb5", "the cell's key"),
    need("krb5kdc", "krb5-kdc", "the OpenAFS cell's realm"),
    need(
        "kadmin.local",
        "krb5-admin-server",
        "the OpenAFS cell's realm",
    ),
    need("kinit", "krb5-user", "tickets of the realm's users"),
    need("rxgen", "libopenafs-dev", "OpenAFS's rxkad as a program"),
    need(
        "krb5-config",
        "libkrb5-dev",
        "MIT's encryption as a program",
    ),
    need("cc", "gcc", "building what stands between the tests and C"),
    need("ip", "iproute2", "network namespaces"),
    need("unshare", "util-linux", "mount namespaces"),
];

/// What some further tests, benchmarks and the fuzz targets need.
const OTHER: &[Need] = &[
    need("iperf3", "iperf3", "the yardstick of the benchmarks"),
    need(
        "tshark",
        "tshark",
        "checking captures for malformed packets",
    ),
    need("fusermount3", "fuse3", "mounts of those who are not root"),
    need("git-annex", "git-annex", "what users do on a mount"),
    need("sqlite3", "sqlite3", "what users do on a mount"),
    need("c++", "g++", "building the fuzz targets"),
    need(
        "qemu-system-x86_64",
        "qemu-system-x86",
        "tests with Linux's own client",
    ),
    need("depmod", "kmod", "tests with Linux's own client"),
    need(
        "prometheus",
        "prometheus",
        "the queries of the dashboard and the alerts",
    ),
    need("chromium", "chromium", "the page of a server in a browser"),
    need("nft", "nftables", "a NAT between a mount and its servers"),
    need("zstd", "zstd", "tests with Linux's own client"),
];

/// Installs what is missing, where that is possible, and says what stays missing.
pub(super) fn run() -> Result<Outcome> {
    let missing = missing(INTEROP.iter().chain(OTHER));
    if missing.is_empty() {
        output::line("all there");
        return Ok((Verdict::Passed, Counts::default()));
    }
    let names: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let why = if !is_root() {
        "not root"
    } else if !sh::has_program("apt-get") {
        "no apt-get here"
    } else {
        output::line(&format!("installing {}", names.join(" ")));
        install(&names)?;
        return Ok((Verdict::Passed, Counts::default()));
    };
    for need in &missing {
        output::line(&format!(
            "{why}: without {} no {}",
            need.package, need.purpose
        ));
    }
    Ok((
        Verdict::Skipped(format!("{why}; missing {}", names.join(" "))),
        Counts::default(),
    ))
}

/// Why the interop tests cannot run here, if they cannot.
pub(super) fn missing_for_interop() -> Option<String> {
    if !is_root() {
        return Some("needs root, for network namespaces".to_owned());
    }
    let names: Vec<&str> = missing(INTEROP.iter())
        .iter()
        .map(|need| need.package)
        .collect();
    (!names.is_empty()).then(|| format!("missing {}", names.join(" ")))
}

fn missing(needs: impl Iterator<Item = &'static Need>) -> Vec<&'static Need> {
    needs
        .filter(|need| !sh::has_program(need.program))
        .collect()
}

fn is_root() -> bool {
    sh::capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn install(packages: &[&str]) -> Result<()> {
    // A configuration question without an answer would fail the installation.
    preseed("openafs-client openafs-client/thiscell string test.example")?;
    preseed("openafs-client openafs-client/cachesize string 200000")?;
    preseed("openafs-client openafs-client/run-client boolean false")?;
    preseed("openafs-fileserver openafs-fileserver/thiscell string test.example")?;
    preseed("krb5-config krb5-config/default_realm string TEST.EXAMPLE")?;
    preseed("krb5-config krb5-config/add_servers boolean false")?;
    let _no_daemons = NoDaemons::new()?;
    apt(&["update", "-q"])?;
    // Recommended packages would pull in a kernel module and the headers to build it.
    apt(&[
        &["install", "-y", "-q", "--no-install-recommends"],
        packages,
    ]
    .concat())
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    sh::capture(&mut command).map(drop)
}

fn preseed(answer: &str) -> Result<()> {
    let mut child = Command::new("debconf-set-selections")
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot start debconf-set-selections")?;
    if let Some(mut pipe) = child.stdin.take() {
        writeln!(pipe, "{answer}").context("writing to debconf-set-selections")?;
    }
    child.wait().context("waiting for debconf-set-selections")?;
    Ok(())
}

/// While it lives, installed packages do not start their daemons.
struct NoDaemons(bool);

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoDaemons {
    fn new() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self(false));
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("writing {POLICY}"))?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {POLICY} executable"))?;
        Ok(Self(true))
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if self.0
            && let Err(error) = fs::remove_file(POLICY)
        {
            output::note(&format!("cannot remove {POLICY}: {error}"));
        }
    }
}
