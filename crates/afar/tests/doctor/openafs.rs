//! The same with OpenAFS's servers: their window, and what else binds because of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use afar_types::Fid;

use crate::hog::Hog;
use crate::relay::Nat;
use crate::site::{Link, Said, said, skipped};
use crate::{doctor_at, fid};

const CELL: &str = "test.example";

/// OpenAFS's servers at one end of a link.
struct OpenAfs {
    dir: tempfile::TempDir,
    xtask: PathBuf,
}

impl OpenAfs {
    /// `None`, and a line that says why, where they cannot be started.
    fn start(link: &Link, options: &[&str]) -> Option<Self> {
        let Some(xtask) = std::env::var_os("AFAR_TEST_XTASK") else {
            skipped("AFAR_TEST_XTASK names no xtask, which starts OpenAFS's servers");
            return None;
        };
        let cell = Self {
            dir: tempfile::tempdir().unwrap(),
            xtask: xtask.into(),
        };
        let mut up = cell.command("up");
        up.args(["--netns", &link.namespace("srv"), "--bench-mib", "64"]);
        said(&up.args(options).output().unwrap());
        Some(cell)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.xtask);
        command
            .args(["openafs", verb, "--dir"])
            .arg(self.dir.path());
        command
    }

    fn cellservdb(&self) -> PathBuf {
        self.dir.path().join("client/etc/CellServDB")
    }

    fn doctor(&self, link: &Link) -> Said {
        doctor_at(link, &self.cellservdb(), &[&file()])
    }

    /// What its file is called at the server.
    fn fid(&self, link: &Link) -> Fid {
        let mut stat = link.at("cli", env!("CARGO_BIN_EXE_afar"));
        stat.args(["stat", "--json", "--noauth", "--no-dns", "--cellservdb"]);
        fid(&said(
            &stat.arg(self.cellservdb()).arg(file()).output().unwrap(),
        ))
    }
}

/// A large file.
fn file() -> String {
    format!("/afs/{CELL}/test.bench/big.bin")
}

impl Drop for OpenAfs {
    fn drop(&mut self) {
        let down = self.command("down").output();
        assert!(down.is_ok_and(|it| it.status.success()) || std::thread::panicking());
    }
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers"]
fn on_a_short_path_nothing_binds() {
    let Some(link) = Link::up("oshort", &["--rtt", "0.5ms", "--rate", "400mbit"]) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &[]) else {
        return;
    };
    cell.doctor(&link).is(&[], "nothing binds: round trip ");
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers"]
fn the_window_binds_at_12_milliseconds() {
    let Some(link) = Link::up("owin12", &["--rtt", "12.5ms", "--rate", "400mbit"]) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &[]) else {
        return;
    };
    cell.doctor(&link)
        .is(&["window"], "32 packets on their way, which is 3.");
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers"]
fn the_window_binds_at_230_milliseconds() {
    let Some(link) = Link::up("owin230", &["--rtt", "230ms", "--rate", "30mbit"]) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &[]) else {
        return;
    };
    cell.doctor(&link)
        .is(&["window"], "32 packets on their way, which is 19");
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers"]
fn loss_binds_more_than_the_window() {
    let options = ["--rtt", "12.5ms", "--rate", "400mbit", "--loss", "1%"];
    let Some(link) = Link::up("oloss", &options) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &[]) else {
        return;
    };
    cell.doctor(&link)
        .is(&["loss", "window"], "which holds a call of this server at ");
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers"]
fn busy_threads_are_told() {
    let Some(link) = Link::up("obusy", &["--rtt", "0.5ms", "--rate", "400mbit"]) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &["--fs-args", "-p 6"]) else {
        return;
    };
    let server = SocketAddr::new(link.server.parse().unwrap(), 7000);
    let hog = Hog::start(&link.namespace("cli"), server, cell.fid(&link), 24);
    let said = doctor_at(&link, &cell.cellservdb(), &[&link.server]);
    drop(hog);
    said.is(&["busy_threads"], "The server's threads are busy: up to ");
}

#[test]
#[ignore = "namespaces: needs root and OpenAFS's servers; takes two minutes"]
fn a_nat_that_forgets_is_told() {
    let Some(link) = Link::up("onat", &["--rtt", "0.5ms", "--rate", "400mbit"]) else {
        return;
    };
    let Some(cell) = OpenAfs::start(&link, &[]) else {
        return;
    };
    let nat = Nat::between(&link, Duration::from_secs(15));
    let said = doctor_at(&link, &cell.cellservdb(), &["--nat", "127.0.0.1"]);
    drop(nat);
    said.is(&["nat"], "came through after 10 s, and not after 20 s");
}
