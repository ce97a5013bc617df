//! A Kerberos realm of a test's own, with MIT's programs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const KDC: &str = "/usr/sbin/krb5kdc";
const UTIL: &str = "/usr/sbin/kdb5_util";
const ADMIN: &str = "/usr/sbin/kadmin.local";

/// The KDC of the realm EXAMPLE.ORG on this machine, until it is dropped.
pub(crate) struct Kdc {
    folder: PathBuf,
    process: Child,
}

impl Kdc {
    /// Starts one with its files in a folder, after `kadmin.local` was given these queries. Says so
    /// and gives none where there are no such programs.
    pub(crate) fn start(folder: &Path, queries: &[&str]) -> Option<Self> {
        if ![KDC, UTIL, ADMIN]
            .iter()
            .all(|program| Path::new(program).exists())
        {
            eprintln!("skipped: there is no KDC (Debian: krb5-kdc, krb5-admin-server)");
            return None;
        }
        configure(folder);
        succeed(
            Kerberos(folder)
                .command(UTIL)
                .args(["create", "-s", "-P", "master"]),
        );
        for query in queries {
            succeed(Kerberos(folder).command(ADMIN).args(["-q", query]));
        }
        let mut command = Kerberos(folder).command(KDC);
        let command = command
            .arg("-n")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Some(Self {
            folder: folder.to_owned(),
            process: command.spawn().unwrap(),
        })
    }

    /// A program that is to use this realm.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Kerberos(&self.folder).command(program)
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        let killed = self.process.kill();
        killed.and_then(|()| self.process.wait()).unwrap();
    }
}

struct Kerberos<'a>(&'a Path);

impl Kerberos<'_> {
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("KRB5_CONFIG", self.0.join("krb5.conf"))
            .env("KRB5_KDC_PROFILE", self.0.join("kdc.conf"))
            .env("KRB5CCNAME", format!("FILE:{}/usual", self.0.display()));
        command
    }
}

/// What a program printed, which must succeed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let answer: io::Result<Output> = command.output();
    let output = answer.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn configure(folder: &Path) {
    // An address of its own, and a port that no system gives away by itself: nobody can take it before
    // the KDC does.
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 192 | fastrand::u8(..60), a, b.max(1));
    let place = SocketAddrV4::new(address, 10_088);
    let at = folder.display();
    let conf = format!(
        "[libdefaults]\n default_realm = EXAMPLE.ORG\n dns_lookup_kdc = false\n\
         dns_canonicalize_hostname = false\n rdns = false\n\
         [realms]\n EXAMPLE.ORG = {{\n kdc = {place}\n }}\n\
         [domain_realm]\n .example.net = EXAMPLE.ORG\n"
    );
    let kdc_conf = format!(
        "[kdcdefaults]\n kdc_listen = {place}\n kdc_tcp_listen = {place}\n\
         [realms]\n EXAMPLE.ORG = {{\n database_name = {at}/principal\n\
         key_stash_file = {at}/stash\n max_renewable_life = 7d\n\
         supported_enctypes = aes256-cts:normal\n }}\n"
    );
    fs::write(folder.join("krb5.conf"), conf).unwrap();
    fs::write(folder.join("kdc.conf"), kdc_conf).unwrap();
}
