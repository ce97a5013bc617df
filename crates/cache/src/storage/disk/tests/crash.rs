//! A process that is killed while it writes.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use afar_types::DataVersion;
use fastrand::Rng;

use super::{Limits, content, joined, kept, key, set, there};
use crate::storage::Storage;
use crate::storage::disk::Disk;

/// Tells the child where.
const DIR: &str = "AFAR_TEST_CACHE_DIR";
const FILES: u32 = 30;
const LIMITS: Limits = Limits {
    bytes: 4 << 20,
    files: 20,
};
/// What a cache may take to be open again.
const SOON: Duration = Duration::from_secs(2);

fn length(vnode: u32) -> u64 {
    u64::from(vnode) * 40_009 % 300_000 + 1
}

/// Kept bytes of a file are told by the number of the round they were written in.
fn of_round(vnode: u32, round: u64) -> Vec<u8> {
    content(vnode, round << 32, 0..length(vnode))
}

/// What the child does until it is killed; it says what is kept.
#[test]
#[ignore = "run by another test, as a process of its own"]
fn child() {
    let Ok(dir) = env::var(DIR) else {
        return;
    };
    let disk = Disk::open(Path::new(&dir), LIMITS).unwrap();
    let mut rng = Rng::new();
    for left in disk.left() {
        assert!(disk.adopt(&left).unwrap());
    }
    println!("open");
    let mut round = u64::from(std::process::id()) << 16;
    loop {
        let vnode = rng.u32(0..FILES);
        let version = rng.u64(1..4);
        match rng.u32(0..5) {
            0..3 => {
                let data = content(vnode, version, 0..length(vnode));
                disk.write_clean(&key(vnode), DataVersion(version), 0, &data, length(vnode));
            }
            3 => {
                there(&disk, vnode, version, 0..length(vnode));
            }
            _ => {
                // Dirty ones have vnodes of their own.
                let dirty = FILES + vnode;
                round += 1;
                println!("writes {dirty} {round}");
                disk.write_dirty(&key(dirty), 0, &of_round(dirty, round))
                    .unwrap();
                let length = length(dirty);
                disk.keep(&key(dirty), &kept(round, &[0..length], length))
                    .unwrap();
                println!("kept {dirty} {round}");
                if rng.bool() {
                    println!("stores {dirty} {round}");
                    let from = Some((DataVersion(0), 0));
                    let to = DataVersion(round);
                    disk.stored(&key(dirty), &set(&[0..length]), from, to)
                        .unwrap();
                }
            }
        }
        std::io::stdout().flush().unwrap();
    }
}

/// What the child said of a dirty file last.
#[derive(Debug, Default, Clone, Copy)]
struct Said {
    written: u64,
    kept: u64,
    stored: u64,
}

#[test]
fn killed_at_any_time_what_was_kept_is_there_and_nothing_is_wrong() {
    let kills = env::var("AFAR_TEST_CACHE_KILLS");
    let kills = kills
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(10);
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::with_seed(1);
    let mut said = [Said::default(); 2 * FILES as usize];
    for kill in 0..kills {
        run_and_kill(
            dir.path(),
            Duration::from_millis(rng.u64(20..150)),
            &mut said,
        );
        let begun = Instant::now();
        let disk = Disk::open(dir.path(), LIMITS).unwrap();
        assert!(begun.elapsed() < SOON, "kill {kill}: {:?}", begun.elapsed());
        for vnode in 0..FILES {
            for version in 1..4 {
                // It checks what it finds.
                there(&disk, vnode, version, 0..length(vnode));
            }
        }
        check_kept(&disk, &said, kill);
    }
}

fn run_and_kill(dir: &Path, after: Duration, said: &mut [Said]) {
    let this: PathBuf = env::current_exe().unwrap();
    let mut child = Command::new(this)
        .args([
            "--exact",
            "storage::disk::tests::crash::child",
            "--ignored",
            "--nocapture",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = out.lines();
    let open = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.ends_with("open"));
    assert!(open, "the child did not begin");
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in reader.join().unwrap() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, vnode, round] = words.as_slice() else {
            continue;
        };
        let (Ok(vnode), Ok(round)) = (vnode.parse::<usize>(), round.parse()) else {
            continue;
        };
        match what {
            "writes" => said[vnode].written = round,
            "kept" => said[vnode].kept = round,
            _ => said[vnode].stored = round,
        }
    }
}

fn check_kept(disk: &Disk, said: &[Said], kill: u32) {
    let left = disk.left();
    for (vnode, said) in (0_u32..).zip(said) {
        if said.kept == 0 || said.stored >= said.kept {
            continue;
        }
        let left = left.iter().find(|left| left.key == key(vnode));
        let left = left.unwrap_or_else(|| panic!("kill {kill}: {vnode} is lost: {said:?}"));
        assert!(
            left.kept.base.0 >= said.kept,
            "kill {kill}: {vnode}: {said:?}"
        );
        assert!(disk.adopt(left).unwrap());
        let read = joined(&disk.read_dirty(&key(vnode), 0..u64::MAX).unwrap(), 0);
        // One that was being written over may be partly the new one.
        let (old, new) = (of_round(vnode, said.kept), of_round(vnode, said.written));
        let right = |at: usize| read[at] == old[at] || read[at] == new[at];
        assert!(
            read.len() == old.len() && (0..read.len()).all(right),
            "kill {kill}: {vnode}"
        );
    }
}
