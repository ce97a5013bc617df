//! What a mount has in its cache, for commands that fetch files themselves; and what it gives by name.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;

use crate::site::{CELL, Mounted, Site, can_mount, soon};

const LENGTH: usize = 8_000_001;

/// What a command reports at its end.
fn report(site: &Site, words: &[&str]) -> Value {
    let told = site.say(words);
    serde_json::from_str(told.lines().last().unwrap()).unwrap()
}

/// Copies a file without the mount; returns it, and how many bytes the mount had of it.
fn copied(site: &Site, name: &str) -> (Vec<u8>, u64) {
    let (from, to) = (format!("/afs/{CELL}/{name}"), site.path("copy"));
    let report = report(site, &["cp", "--json", &from, to.to_str().unwrap()]);
    let cached = report["cached"].as_u64().unwrap();
    let all = cached == LENGTH as u64;
    assert_eq!(report["calls"] == 0, all, "{report}");
    (fs::read(to).unwrap(), cached)
}

fn flush(mount: &Mounted, name: &str) {
    let path = mount.path(CELL).join(name);
    setxattr(path, "afs.flush", b"", XattrFlags::empty()).unwrap();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_a_mount_has_is_not_fetched_again() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.10.11");
    let mount = site.mount_dynamic("a");
    let file = mount.path(CELL).join("file");
    let old: Vec<u8> = (0..LENGTH)
        .map(|at| (at / 251 + at).to_le_bytes()[0])
        .collect();
    fs::write(&file, &old).unwrap();
    let all = LENGTH as u64;
    assert!(copied(&site, "file") == (old.clone(), all));

    flush(&mount, "file");
    assert!(copied(&site, "file") == (old.clone(), 0));
    let mut part = vec![0; 3_000_000];
    File::open(&file).unwrap().read_exact(&mut part).unwrap();
    let (copy, cached) = copied(&site, "file");
    assert!(copy == old);
    assert!(cached >= 2_900_000, "{cached}");

    // What is not stored yet is not for others, nor is then what it is written to. It is written by another
    // process, as a start of one here would store it.
    let open = File::options().write(true).open(&file).unwrap();
    let mut writer = {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(open);
        command.spawn().unwrap()
    };
    let mut text = writer.stdin.take().unwrap();
    text.write_all(b"changed").unwrap();
    soon("it is written", || {
        fs::read(&file).unwrap().starts_with(b"changed")
    });
    assert!(copied(&site, "file") == (old.clone(), 0));
    drop(text);
    assert!(writer.wait().unwrap().success());
    let new = [b"changed", &old[7..]].concat();
    assert!(copied(&site, "file") == (new.clone(), all));

    let from = format!("/afs/{CELL}");
    let to = site.path("tree");
    let synced = report(&site, &["sync", "--json", &from, to.to_str().unwrap()]);
    assert!(fs::read(to.join("file")).unwrap() == new);
    assert_eq!(synced["cached"], all, "{synced}");
    let output = site
        .command()
        .args(["cat", &format!("{from}/file")])
        .output()
        .unwrap();
    assert!(output.stdout == new);
    // An anonymous command, or one of the administrator, does not have the identity of the mount's user.
    let (file, to) = (format!("{from}/file"), site.path("copy"));
    let words = ["cp", "--noauth", "--json", &file, to.to_str().unwrap()];
    let anonymous = report(&site, &words);
    assert_eq!(anonymous["cached"], 0, "{anonymous}");

    // A mount that does not answer is done without.
    mount.process.signal(Signal::STOP);
    let begun = Instant::now();
    let (copy, cached) = copied(&site, "file");
    mount.process.signal(Signal::CONT);
    assert!(copy == new && cached == 0);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn volumes_and_files_are_reached_by_name_and_number() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.10.12");
    let mount = site.mount_dynamic("a");
    let dir = mount.path(CELL).join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), b"text").unwrap();
    let fid = |path| {
        let mut value = [0; 100];
        let length = getxattr(path, "afs.fid", &mut value[..]).unwrap();
        let text = std::str::from_utf8(&value[..length]).unwrap();
        text.replace('.', ":")
    };
    let (dir_fid, file_fid) = (fid(&dir), fid(&dir.join("file")));
    let (volume, _) = dir_fid.split_once(':').unwrap();

    let volumes = mount.path(".:mount");
    assert_eq!(fs::read_dir(&volumes).unwrap().count(), 0);
    let listed = fs::read_dir(mount.path("")).unwrap();
    assert!(listed.flatten().all(|entry| entry.file_name() != ".:mount"));
    for name in [
        format!("{CELL}:root.cell/dir/file"),
        format!("{CELL}:{volume}/dir/file"),
        format!("{CELL}:{dir_fid}/file"),
        format!("{CELL}:{file_fid}"),
    ] {
        assert_eq!(fs::read(volumes.join(&name)).unwrap(), b"text", "{name}");
    }
    for (name, expected) in [
        // As of a mount point that leads nowhere.
        (format!("{CELL}:no.such.volume"), Errno::NODEV),
        (format!("{CELL}:{volume}:99998:1"), Errno::NOENT),
        (CELL.to_owned(), Errno::NOENT),
        ("no.such.cell:root.cell".to_owned(), Errno::NOENT),
    ] {
        let error = fs::metadata(volumes.join(&name)).unwrap_err();
        let found = Errno::from_io_error(&error);
        assert_eq!(found, Some(expected), "{name}");
    }
    let error = fs::write(volumes.join("new"), b"").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    // It is the same file by whatever name.
    fs::write(volumes.join(format!("{CELL}:{file_fid}")), b"other").unwrap();
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"other");
    fs::remove_file(dir.join("file")).unwrap();
    let gone = fs::read(volumes.join(format!("{CELL}:{file_fid}"))).unwrap_err();
    assert!(matches!(
        gone.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle
    ));
}
