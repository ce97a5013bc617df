//! `afar doctor` in cells with one known fault each: the right sentence there, and none in a healthy cell.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod hog;
mod openafs;
mod relay;
mod site;

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use afar_types::Fid;
use hog::Hog;
use relay::Nat;
use site::{CELL, Cell, Link, Said, doctor, skipped};

/// A link on which nothing is wrong.
const GOOD: &[&str] = &["--rtt", "4ms", "--rate", "400mbit"];

#[test]
#[ignore = "namespaces: needs root"]
fn in_a_healthy_cell_nothing_binds() {
    let Some(link) = Link::up("healthy", GOOD) else {
        return;
    };
    let cell = Cell::start(&link);
    let said = cell.doctor_of_file(&link);
    said.is(&[], "nothing binds: round trip 4.");
    assert!(
        said.json["measured"]["fetch"]["one"]["bytes_per_s"]
            .as_f64()
            .unwrap()
            > 12.5e6
    );
    // Nor where only the server is named.
    let said = cell.doctor(&link, &["--cell", CELL, &link.server]);
    said.is(&[], "1 database server answers");
}

#[test]
#[ignore = "namespaces: needs root"]
fn nothing_is_measured_where_nobody_answers() {
    let Some(link) = Link::up("silent", GOOD) else {
        return;
    };
    let empty = tempfile::tempdir().unwrap();
    let cellservdb = empty.path().join("CellServDB");
    fs::write(&cellservdb, "").unwrap();
    let ask = |host: &str| {
        doctor(
            link.at("cli", env!("CARGO_BIN_EXE_afar")),
            &cellservdb,
            &[host],
        )
    };
    let said = ask(&link.server);
    assert_eq!(said.code, Some(2), "{said:#?}");
    let verdict = said.json["verdict"].as_str().unwrap();
    assert!(verdict.contains("nothing listens at"), "{verdict}");
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_path_of_30_mbit_binds() {
    let Some(link) = Link::up("path", &["--rtt", "230ms", "--rate", "30mbit"]) else {
        return;
    };
    let said = Cell::start(&link).doctor_of_file(&link);
    said.is(&["path"], "The path binds: it carries 3.");
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_loss_of_one_percent_is_told() {
    let options = [GOOD, &["--loss", "1%"]].concat();
    let Some(link) = Link::up("loss", &options) else {
        return;
    };
    let said = Cell::start(&link).doctor_of_file(&link);
    said.is(&["loss"], "The path loses ");
}

#[test]
#[ignore = "namespaces: needs root"]
fn reordering_is_told() {
    let options = [GOOD, &["--reorder", "2%"]].concat();
    let Some(link) = Link::up("reorder", &options) else {
        return;
    };
    let said = Cell::start(&link).doctor_of_file(&link);
    said.is(&["reordering"], "The path reorders packets: ");
}

#[test]
#[ignore = "namespaces: needs root"]
fn an_mtu_hole_is_told() {
    let options = [GOOD, &["--path-mtu", "1400"]].concat();
    let Some(link) = Link::up("hole", &options) else {
        return;
    };
    let said = Cell::start(&link).doctor_of_file(&link);
    said.is(
        &["mtu_hole"],
        "IP packets of 1400 bytes arrive, those of 1404 disappear",
    );
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_dead_database_server_is_told() {
    let Some(link) = Link::up("dead", GOOD) else {
        return;
    };
    let cell = Cell::start(&link);
    // In the link's network, where nobody has it.
    let (network, _) = link.server.rsplit_once('.').unwrap();
    let dead = format!("{network}.77");
    let mut servers = fs::read_to_string(cell.path("CellServDB")).unwrap();
    servers.push_str(&format!("{dead} # dead\n"));
    fs::write(cell.path("CellServDB"), servers).unwrap();
    let said = cell.doctor_of_file(&link);
    said.is(
        &["databases"],
        &format!("1 of 2 database servers does not answer: {dead}:7003"),
    );
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_full_disk_of_the_cache_is_told() {
    let Some(link) = Link::up("full", GOOD) else {
        return;
    };
    let cell = Cell::start(&link);
    let place = cell.path("cache");
    fs::create_dir(&place).unwrap();
    let disk = Mounted::tmpfs(&place, "size=70m");
    fs::write(place.join("ballast"), vec![1; 60 << 20]).unwrap();
    let file = format!("/afs/{CELL}/big");
    let said = cell.doctor(&link, &["--cache", place.to_str().unwrap(), &file]);
    drop(disk);
    said.is(
        &["cache_full"],
        "The disk of the cache is full: 10 MiB of 70 MiB are free",
    );
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_wrong_clock_is_told() {
    let Some(link) = Link::up("clock", GOOD) else {
        return;
    };
    let Some((_dir, shim)) = shim(CLOCK_BEHIND) else {
        return;
    };
    let cell = Cell::start_with(&link, &[("LD_PRELOAD", &shim)], None);
    let said = cell.doctor_of_file(&link);
    said.is(
        &["clock"],
        "The clock of the server is 600 s behind this machine's",
    );
}

#[test]
#[ignore = "namespaces: needs root"]
fn a_slow_disk_of_the_cache_is_told() {
    let Some(link) = Link::up("disk", GOOD) else {
        return;
    };
    let Some((_dir, shim)) = shim(SLOW_DISK) else {
        return;
    };
    let cell = Cell::start(&link);
    let mut command = link.at("cli", env!("CARGO_BIN_EXE_afar"));
    command.env("LD_PRELOAD", shim);
    let said = doctor(
        command,
        &cell.path("CellServDB"),
        &[&format!("/afs/{CELL}/big")],
    );
    said.is(
        &["cache_disk"],
        "The disk of the cache binds: /dev/shm takes ",
    );
}

#[test]
#[ignore = "namespaces: needs root"]
fn busy_places_are_told() {
    let Some(link) = Link::up("busy", GOOD) else {
        return;
    };
    let cell = Cell::start_with(&link, &[], Some(["max_calls = 4096", "max_calls = 10"]));
    let server = SocketAddr::new(link.server.parse().unwrap(), 7000);
    let stat = cell.local(
        &link,
        &["stat", "--localauth", "--json", &format!("/afs/{CELL}/big")],
    );
    let hog = Hog::start(&link.namespace("cli"), server, fid(&stat), 24);
    let said = cell.doctor(&link, &[&link.server]);
    drop(hog);
    said.is(&["busy_threads"], "The server's threads are busy: up to ");
}

#[test]
#[ignore = "namespaces: needs root; takes two minutes"]
fn a_nat_that_forgets_is_told() {
    let Some(link) = Link::up("nat", GOOD) else {
        return;
    };
    let cell = Cell::start(&link);
    let nat = Nat::between(&link, Duration::from_secs(25));
    let said = cell.doctor(&link, &["--nat", "127.0.0.1"]);
    drop(nat);
    said.is(&["nat"], "came through after 20 s, and not after 30 s");
}

/// A file system, unmounted when dropped.
struct Mounted<'a>(&'a std::path::Path);

impl<'a> Mounted<'a> {
    fn tmpfs(place: &'a std::path::Path, options: &str) -> Self {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(place)
            .status();
        assert!(mount.unwrap().success());
        Self(place)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0).status().ok();
    }
}

/// The clock of a program, ten minutes behind.
const CLOCK_BEHIND: &str = "int clock_gettime(clockid_t clock, struct timespec *at)\n{\n\
    int code = syscall(SYS_clock_gettime, clock, at);\n\
    if (code == 0 && clock == CLOCK_REALTIME) at->tv_sec -= 600;\n\
    return code;\n}\n";

/// A disk that takes half a second for a MiB.
const SLOW_DISK: &str = "int fdatasync(int file)\n{\n\
    static long before;\nstruct stat now;\n\
    if (fstat(file, &now) == 0) { usleep((now.st_size - before) / 2); before = now.st_size; }\n\
    return syscall(SYS_fdatasync, file);\n}\n";

/// A library that stands between a program and the system, and the directory it is in; `None` without a compiler.
fn shim(function: &str) -> Option<(tempfile::TempDir, String)> {
    const HEAD: &str = "#define _GNU_SOURCE\n#include <time.h>\n#include <unistd.h>\n#include <sys/stat.h>\n\
        #include <sys/syscall.h>\n";
    let dir = tempfile::tempdir().unwrap();
    let (source, shim) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
    fs::write(&source, [HEAD, function].concat()).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&shim, &source])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skipped("there is no C compiler");
        return None;
    }
    let shim = shim.to_str().unwrap().to_owned();
    Some((dir, shim))
}

/// What a file is called at its server, from what `afar stat --json` says.
fn fid(stat: &str) -> Fid {
    let stat: serde_json::Value = serde_json::from_str(stat).unwrap();
    let parts = stat["fid"].as_str().unwrap().split('.');
    let parts: Vec<u32> = parts.map(|part| part.parse().unwrap()).collect();
    Fid::new(parts[0], parts[1], parts[2])
}

/// For `openafs`: a doctor at the client's end of a link.
fn doctor_at(link: &Link, cellservdb: &std::path::Path, words: &[&str]) -> Said {
    doctor(
        link.at("cli", env!("CARGO_BIN_EXE_afar")),
        cellservdb,
        words,
    )
}
