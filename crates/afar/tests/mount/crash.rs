//! A mount whose process is killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::site::{Site, can_mount, is_mounted, soon};

/// How long is written before each kill.
const WRITING: Duration = Duration::from_millis(150);

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_killed_mount_answers_at_once_and_the_next_takes_its_place() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.41");
    let mut mount = site.mount("a");
    fs::write(mount.path("stored"), b"stored").unwrap();
    let mut synced = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(mount.path("synced"))
        .unwrap();
    synced.write_all(b"synced").unwrap();
    synced.sync_all().unwrap();
    synced.write_all(b", and not").unwrap();
    mount.kill();
    // No hang, a clear error.
    let error = fs::metadata(mount.path("stored")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    let error = synced.write_all(b"more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    drop(synced);
    let again = site.mount("a");
    assert_eq!(fs::read(again.path("stored")).unwrap(), b"stored");
    let read = fs::read(again.path("synced")).unwrap();
    assert!(read.starts_with(b"synced"), "{read:?}");
    again.stop();
    assert!(!is_mounted(&site.path("a")));
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn the_unit_mounts_again_after_a_kill() {
    if !can_mount() {
        return;
    }
    let unit = include_str!("../../../../dist/systemd/afar-mount.service");
    let site = Site::new("127.84.0.44");
    let mut mount = site.mount("a");
    mount.kill();
    let place = site.path("a");
    let before: Vec<_> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStartPre="))
        .collect();
    assert!(!before.is_empty());
    for line in before {
        // As systemd reads it: after a dash a failure is none.
        let (may_fail, command) = match line.strip_prefix('-') {
            Some(command) => (true, command),
            None => (false, line),
        };
        let command = command.replace("/afs", place.to_str().unwrap());
        let done = Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(done.success() || may_fail, "{line}");
    }
    site.mount("a").stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_hangup_ends_a_mount_in_good_order() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.45");
    let mut mount = site.mount("a");
    let mut file = File::create(mount.path("written")).unwrap();
    file.write_all(b"written").unwrap();
    mount.process.signal(Signal::HUP);
    soon("unmounted", || !is_mounted(&site.path("a")));
    drop(file);
    assert!(mount.process.end(), "{:#?}", mount.process.told());
    let again = site.mount("b");
    assert_eq!(fs::read(again.path("written")).unwrap(), b"written");
    again.stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn umount_takes_away_what_a_killed_mount_left() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.42");
    let mut mount = site.mount("a");
    mount.kill();
    let place = mount.path("");
    let place = place.to_str().unwrap().trim_end_matches('/');
    site.say(&["umount", place]);
    assert!(!is_mounted(place.as_ref()));
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_helper_unmounts_behind_one_that_asked_for_it() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.43");
    let mut mount = site.mount_with("a", &["-o", "auto_unmount,allow_other"]);
    fs::write(mount.path("file"), b"x").unwrap();
    mount.kill();
    soon("it is unmounted", || !is_mounted(&mount.path("")));
    let again = site.mount("a");
    assert_eq!(fs::read(again.path("file")).unwrap(), b"x");
    again.stop();
}

/// Killed over and over while writing: what a close has acknowledged is there, whole.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_a_close_acknowledged_survives_kills() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.44");
    let mut closed = 0_u32;
    let rounds = std::env::var("AFAR_TEST_MOUNT_KILLS");
    let rounds = rounds
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(4);
    for round in 0..rounds {
        let mut mount = site.mount("a");
        for number in 0..closed {
            let read = fs::read(mount.path(format!("file-{number}"))).unwrap();
            assert!(read == content(number), "round {round}: file {number}");
        }
        let process = mount.process.pid();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(WRITING);
                kill_process(process, Signal::KILL).unwrap();
            });
            let place = site.path("a");
            for number in closed.. {
                let write = || -> std::io::Result<()> {
                    let file = File::create(place.join(format!("file-{number}")))?;
                    file.write_all_at(&content(number), 0)?;
                    // A close by `drop` tells no error.
                    file.sync_all()
                };
                if write().is_err() {
                    break;
                }
                closed = number + 1;
            }
        });
        mount.process.end();
    }
    assert!(closed > rounds, "the test wrote next to nothing: {closed}");
    // With another cache: it is at the server.
    fs::remove_dir_all(site.path("cache-a")).unwrap();
    let mount = site.mount("a");
    for number in 0..closed {
        let read = fs::read(mount.path(format!("file-{number}"))).unwrap();
        assert!(read == content(number), "file {number}");
    }
    mount.stop();
}

fn content(number: u32) -> Vec<u8> {
    let length = 1 + (number as usize * 7919) % 200_000;
    (0..length).map(|at| (at as u32 ^ number) as u8).collect()
}
