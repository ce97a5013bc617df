//! A cell of OpenAFS's servers, started by xtask.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::net::Net;
use crate::place::{CELL, Ran, run};

/// OpenAFS's servers, all in one namespace, for the length of a test.
pub(crate) struct OpenAfs {
    dir: PathBuf,
}

impl OpenAfs {
    /// Starts the servers of a cell without volumes in a member's namespace, with two partitions
    /// and the overseer, taking everybody for an administrator if `noauth`.
    pub(crate) fn start(net: &Net, member: &str, noauth: bool) -> Self {
        Self::start_with(net, member, if noauth { &["--noauth"] } else { &[] })
    }

    /// The same, with further options of `xtask openafs up`.
    pub(crate) fn start_with(net: &Net, member: &str, options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("afar-openafs-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let namespace = net.namespace(member);
        let mut command = xtask("up", &dir);
        command
            .args([
                "--cell",
                CELL,
                "--netns",
                &namespace,
                "--cli-netns",
                &namespace,
            ])
            .args(["--addr", net.address(member)])
            .args(["--bare", "--overseer", "--partitions", "2"])
            .args(options);
        let cell = Self { dir };
        let ran = run(&mut command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        cell
    }

    /// The folder of the cell's Kerberos realm, if it was started with one.
    pub(crate) fn kerberos(&self) -> PathBuf {
        self.dir.join("kerberos")
    }

    /// Runs a command beside the servers, with their keys.
    pub(crate) fn beside(&self, words: &[&str]) -> Ran {
        let mut command = xtask("exec", &self.dir);
        command.args(["--role", "server", "--"]).args(words);
        run(&mut command)
    }

    /// The folder of the servers' keys.
    pub(crate) fn keys(&self) -> PathBuf {
        self.dir.join("server/etc/server")
    }
}

impl Drop for OpenAfs {
    fn drop(&mut self) {
        let ran = run(&mut xtask("down", &self.dir));
        assert!(
            ran.code == Some(0) || std::thread::panicking(),
            "OpenAFS's cell did not stop: {ran:?}"
        );
    }
}

fn xtask(verb: &str, dir: &PathBuf) -> Command {
    let path = std::env::var_os("AFAR_TEST_XTASK").expect("AFAR_TEST_XTASK names xtask");
    let mut command = Command::new(path);
    command.args(["openafs", verb, "--dir"]).arg(dir);
    command
}
