//! OpenAFS's client, which mounts a cell through FUSE, and afar's.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::place::{CELL, Place, Ran, run};

/// How long a mount may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that serves a mount, in a mount namespace of its own.
pub(crate) struct Mount {
    place: Place,
    child: Child,
}

impl Mount {
    /// Mounts the cell that a place knows by afsd.fuse.
    pub(crate) fn new(place: Place) -> Self {
        let at = |name: &str| place.path().join(name).display().to_string();
        // The kernel is to ask again each time, so that what is seen is what afsd.fuse knows.
        let words = [
            "afsd.fuse",
            "-f",
            "-oattr_timeout=0,entry_timeout=0,negative_timeout=0",
            "-dynroot",
            "-waitclose",
            "-confdir",
            "/etc/openafs",
            "-cachedir",
            &at("cache"),
            "-mountdir",
            &at("afs"),
        ];
        Self::start(place, &words)
    }

    /// Mounts the cell that a place knows by afar, which is at this port.
    pub(crate) fn afar(place: Place, port: u16) -> Self {
        let at = |name: &str| place.path().join(name).display().to_string();
        let words = [
            env!("CARGO_BIN_EXE_afar"),
            "mount",
            "--foreground",
            "--noauth",
            "--no-dns",
            "--port",
            &port.to_string(),
            "--cellservdb",
            "/etc/openafs/CellServDB",
            "--cache",
            &at("cache"),
            CELL,
            &at("afs"),
        ];
        Self::start(place, &words)
    }

    fn start(place: Place, words: &[&str]) -> Self {
        let log = File::create(place.path().join("log")).unwrap();
        let child = place
            .command(&["--pid", "--fork", "--kill-child"], words)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut mount = Self { place, child };
        mount.wait_until_ready();
        mount
    }

    /// Where it runs.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    fn wait_until_ready(&mut self) {
        let begun = Instant::now();
        let table = format!("/proc/{}/mountinfo", self.child.id());
        let wanted = format!(" {} ", self.place.path().join("afs").display());
        loop {
            let mounts = fs::read_to_string(&table).unwrap_or_default();
            let there = |line: &str| line.contains(&wanted) && line.contains(" fuse");
            if mounts.lines().any(there) && fs::read_dir(self.root()).is_ok() {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "no mount: {ended:?}: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).unwrap()
    }

    /// The mountpoint, as this process reaches it.
    pub(crate) fn root(&self) -> PathBuf {
        let inside = self.place.path().join("afs");
        let inside = inside.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.child.id())).join(inside)
    }

    /// A volume by its read-write path in the root of the cell.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.root().join(format!(".{CELL}")).join(name)
    }

    /// Runs a script of the shell in a folder of the cell.
    pub(crate) fn shell(&self, folder: &str, script: &str) -> Ran {
        let dir = self.place.path().join(format!("afs/.{CELL}"));
        let script = format!("cd {} && cd ./{folder} || exit 99\n{script}", dir.display());
        let mut command = Command::new("nsenter");
        command
            .arg("--mount")
            .arg("--target")
            .arg(self.child.id().to_string())
            .args(["--", "sh", "-c", &script])
            .env("TZ", "UTC")
            .env("LC_ALL", "C");
        run(&mut command)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the mount's log:\n{}", self.log());
        }
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}
