//! An afar file server in an OpenAFS cell, and volumes that move between it and OpenAFS's while
//! clients use them.
//!
//! `AFAR_TEST_MOVE_MIB` is how much the moved volume holds; 64 by default.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use afar_types::Rights;

use crate::client::{assert_same, bytes, make_volumes, tree};
use crate::content::Content;
use crate::mount::Mount;
use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, Place};
use crate::server::Server;

/// How much is in the volume by default.
const MIB: usize = 64;
/// The length of the pieces it comes in.
const PIECE: usize = 1 << 20;
/// How many files are being written all the time.
const WRITTEN: u64 = 20;

/// An OpenAFS cell, an afar file server in it, and two clients.
struct Joined {
    net: Net,
    _openafs: OpenAfs,
    afar: Server,
    place: Place,
}

impl Joined {
    fn new() -> Self {
        let net = Net::new(&[
            ("srv", "10.97.0.1"),
            ("cli", "10.97.0.2"),
            ("cli2", "10.97.0.3"),
            ("afar", "10.97.0.4"),
        ]);
        let openafs = OpenAfs::start(&net, "srv", true);
        let database = net.address("srv");
        let afar = Server::start(
            &net,
            "afar",
            &format!(
                "roles = [\"file\", \"vol\", \"bos\"]\ninsecure_noauth = true\n\
                 location.servers = [{database:?}]\nprotection.servers = [{database:?}]"
            ),
        );
        let place = Place::new(&net, "cli", database);
        let begun = Instant::now();
        while !place.ok("vos listaddrs -noauth").contains("afar.") {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "does not register"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            net,
            _openafs: openafs,
            afar,
            place,
        }
    }

    fn mount(&self, member: &str) -> Mount {
        Mount::new(Place::new(&self.net, member, self.net.address("srv")))
    }

    /// Where the database says the read-write volume is.
    fn site(&self, volume: &str) -> String {
        let text = self
            .place
            .ok(&format!("vos listvldb -name {volume} -noauth"));
        let line = text.lines().find(|line| line.contains("RW Site")).unwrap();
        let host = line.split_whitespace().nth(1).unwrap();
        host.strip_suffix(&format!(".{CELL}")).unwrap().to_owned()
    }
}

fn content(mib: usize) -> Content {
    let content = Content::new(Rights::ALL).directory("written", Rights::ALL, "first");
    for number in 0..100 {
        let name = format!("small-{number}");
        let data = bytes(number, 37 * usize::try_from(number).unwrap());
        content.file_in(content.volume.root(), &name, 0o644, &data);
    }
    for number in 0..mib {
        let seed = 1000 + number as u64;
        let name = format!("piece-{number}");
        content.file_in(content.volume.root(), &name, 0o644, &bytes(seed, PIECE));
    }
    content
}

/// Reads all that does not change, over and over; how often each was right.
fn read_all(dir: &Path, mib: usize, stop: &AtomicBool, read: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        for number in 0..mib {
            let data = fs::read(dir.join(format!("piece-{number}"))).unwrap();
            assert!(
                data == bytes(1000 + number as u64, PIECE),
                "piece {number} is not right"
            );
            read.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

fn written(dir: &Path, number: u64) -> PathBuf {
    dir.join("written").join(format!("file-{number}"))
}

/// Writes files over and over, and reads each back; the last round that was whole.
fn write_all(dir: &Path, stop: &AtomicBool, wrote: &AtomicU64) -> u64 {
    for round in 1.. {
        for number in 0..WRITTEN {
            let data = bytes(round * WRITTEN + number, 5_000);
            fs::write(written(dir, number), &data).unwrap();
            assert!(
                fs::read(written(dir, number)).unwrap() == data,
                "file {number}"
            );
            wrote.fetch_add(1, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) {
            return round;
        }
    }
    unreachable!("rounds do not end by themselves");
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn a_volume_moves_there_and_back_while_it_is_used() {
    let mib = std::env::var("AFAR_TEST_MOVE_MIB").map_or(MIB, |mib| mib.parse().unwrap());
    let joined = Joined::new();
    make_volumes(&joined.place, &content(mib));
    assert_eq!(joined.site("work"), "srv");
    let (reader, writer) = (joined.mount("cli"), joined.mount("cli2"));
    let (reading, writing) = (reader.volume("work"), writer.volume("work"));
    let before = tree(&reading);
    let (stop, read, wrote) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let round = std::thread::scope(|scope| {
        let readers = scope.spawn(|| read_all(&reading, mib, &stop, &read));
        let writers = scope.spawn(|| write_all(&writing, &stop, &wrote));
        // Both have work behind them before, between and after.
        let wait = || {
            let (read_before, wrote_before) =
                (read.load(Ordering::Relaxed), wrote.load(Ordering::Relaxed));
            while read.load(Ordering::Relaxed) < read_before + 5
                || wrote.load(Ordering::Relaxed) < wrote_before + 2 * WRITTEN
            {
                assert!(
                    !readers.is_finished() && !writers.is_finished(),
                    "a client failed"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        for (from, to) in [("srv", "afar"), ("afar", "srv")] {
            wait();
            joined
                .place
                .ok(&format!("vos move work {from} a {to} a -noauth"));
            assert_eq!(joined.site("work"), to);
        }
        wait();
        stop.store(true, Ordering::Relaxed);
        readers.join().unwrap();
        writers.join().unwrap()
    });
    let after = tree(&reading);
    let unwritten = |tree: &std::collections::BTreeMap<PathBuf, String>| {
        let kept = tree.iter().filter(|(path, _)| !path.starts_with("written"));
        kept.map(|(path, what)| (path.clone(), what.clone()))
            .collect()
    };
    assert_same(&unwritten(&before), &unwritten(&after));
    for number in 0..WRITTEN {
        let expected = bytes(round * WRITTEN + number, 5_000);
        assert!(
            fs::read(written(&reading, number)).unwrap() == expected,
            "file {number}"
        );
    }
    drop((reader, writer));
    // Nothing is left behind on either server.
    assert!(!joined.place.ok("vos listvol afar -noauth").contains("work"));
    joined.afar.stop();
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn volumes_are_released_dumped_and_shown_alike_on_both_kinds_of_servers() {
    let joined = Joined::new();
    make_volumes(&joined.place, &content(2));
    let place = &joined.place;
    place.ok("vos addsite afar b work -noauth");
    place.ok("vos addsite srv a work -noauth");
    place.ok("vos release work -noauth");
    place.ok("vos addsite srv a root.cell -noauth");
    place.ok("vos release root.cell -noauth");
    // OpenAFS's client reads read-only copies below the one of root.cell.
    let mount = joined.mount("cli2");
    let read_only = mount.root().join(CELL).join("work");
    let read_write = tree(&mount.volume("work"));
    assert_same(&read_write, &tree(&read_only));
    fs::write(mount.volume("work").join("new"), b"since the release").unwrap();
    assert!(!read_only.join("new").exists());
    place.ok("vos release work -noauth");
    place.ok("vos remsite srv a work -noauth");
    place.ok("vos remove srv a work.readonly -noauth");
    assert_eq!(
        fs::read(read_only.join("new")).unwrap(),
        b"since the release"
    );
    drop(mount);

    // What the tools show of a volume, and what they dump, is the same wherever it is.
    let shown = || {
        let examined = place.ok("vos examine work -noauth");
        place.ok("vos dump work -file whole -noauth");
        place.ok("vos dump work -time 01/01/2000 -file since -noauth");
        let sums = ["whole", "since"].map(|name| fs::metadata(place.file(name)).unwrap().len());
        // But for where it is, when it came there, how often it was used, and its last clone there.
        let moved = ["/vicep", "RWrite  ", "Copy", "Last", "accesses"];
        let stays = |line: &&str| !moved.iter().any(|part| line.contains(part));
        let lines = examined.lines().filter(stays).map(str::to_owned);
        let lines: Vec<String> = lines.collect();
        (lines, sums)
    };
    let there = shown();
    place.ok("vos move work srv a afar b -noauth");
    let here = shown();
    assert_eq!(there, here);
    // A backup and an incremental dump there, restored here and back.
    place.ok("vos backup work -noauth");
    place.ok("vos dump work.backup -file backup -noauth");
    place.ok("vos restore srv b restored -file backup -noauth");
    place.ok("vos copy work afar b copied srv b -noauth");
    place.ok("vos copy restored srv b returned afar a -noauth");
    let text = place.ok("vos listvol afar -noauth");
    assert!(text.contains("Total volumes onLine 3"), "{text}");
    joined.afar.stop();
}
