//! What stands beside the guest: a mount of afar, and commands of afar without one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::net::Net;
use crate::place::{CELL, inside, run};

/// afar as a client, in a namespace of a network.
pub(super) struct Beside<'a> {
    net: &'a Net,
    dir: TempDir,
}

impl<'a> Beside<'a> {
    pub(super) fn new(net: &'a Net) -> Self {
        let dir = TempDir::new().unwrap();
        let servers = format!(">{CELL}\n{} #srv\n", net.address("srv"));
        fs::write(dir.path().join("CellServDB"), servers).unwrap();
        Self { net, dir }
    }

    fn afar(&self) -> Command {
        let mut command = inside(&self.net.namespace("cli2"));
        command
            .arg(env!("CARGO_BIN_EXE_afar"))
            .env("AFAR_CELLSERVDB", self.dir.path().join("CellServDB"))
            .env("AFAR_TOKENS", self.dir.path().join("tokens"))
            .env("KRB5CCNAME", "FILE:/proc/nonexistent")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command of afar, which must do well.
    pub(super) fn ok(&self, words: &[&str]) {
        let ran = run(self.afar().args(words));
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }

    /// Stores a file by a command.
    pub(super) fn put(&self, text: &str, path: &str) {
        let local = self.dir.path().join("text");
        fs::write(&local, text).unwrap();
        self.ok(&["cp", local.to_str().unwrap(), path]);
    }

    /// Mounts the cell.
    pub(super) fn mount(&self) -> Mount {
        let place = self.dir.path().join("mnt");
        fs::create_dir_all(&place).unwrap();
        let mut command = self.afar();
        command.args(["mount", "--foreground", "--cache"]);
        command.arg(self.dir.path().join("cache"));
        command.arg(CELL).arg(&place);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let line = lines.next().expect("it says that it is mounted").unwrap();
            if line.contains("is mounted on") {
                break;
            }
        }
        // Whatever it says later must not block it.
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("{line}"));
        });
        Mount { place, child }
    }
}

/// A mount, unmounted when it is dropped.
pub(super) struct Mount {
    place: PathBuf,
    child: Child,
}

impl Mount {
    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let umount = Command::new("umount").arg("-l").arg(&self.place).status();
        if !umount.is_ok_and(|status| status.success()) {
            // It has ended already, or never ends by itself.
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}
