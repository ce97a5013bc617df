//! The cache on the disk: over an end of the mount, and over kills.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::site::{CELL, Site, can_mount, told};

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_cache_belongs_to_one_mount() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.7.11");
    let mount = site.mount("a");
    let mut second = site.mount_command("a");
    let place = site.place("b");
    let output = second
        .arg("--foreground")
        .arg(CELL)
        .arg(&place)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = told(&output);
    let dir = site.path("cache-a");
    assert!(
        said.contains("in use") && said.contains(dir.to_str().unwrap()),
        "{said}"
    );
    mount.stop();
    site.mount("a").stop();
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_warm_cache_serves_without_fetching() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.7.12");
    let files = [("large", pattern(5_000_000)), ("small", pattern(700))];
    let mount = site.mount("a");
    for (name, data) in &files {
        fs::write(mount.path(name), data).unwrap();
    }
    mount.stop();
    for killed in [false, true] {
        let mut mount = site.mount("a");
        // The servers are asked whether the files are what they were.
        for (name, data) in &files {
            let length = fs::metadata(mount.path(name)).unwrap().len();
            assert_eq!(length, data.len() as u64);
        }
        let server = site.server.as_ref().unwrap();
        server.signal(Signal::STOP);
        let read = files.each_ref().map(|(name, _)| fs::read(mount.path(name)));
        server.signal(Signal::CONT);
        for ((name, data), read) in files.iter().zip(read) {
            assert!(read.unwrap() == *data, "{name}");
        }
        if killed {
            mount.kill();
        } else {
            mount.stop();
        }
    }
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_could_not_be_stored_survives_a_kill() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.7.13");
    let root = format!("/afs/{CELL}");
    let quota = |kib: &str| site.say(&["fs", "setquota", &root, kib, "--localauth"]);
    let mut mount = site.mount("a");
    let data = pattern(300_000);
    let file = File::create(mount.path("file")).unwrap();
    quota("1");
    file.write_all_at(&data, 0).unwrap();
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
    mount.kill();
    drop(file);
    quota("0");
    let begun = Instant::now();
    let mount = site.mount("a");
    println!("mounted again in {:?}", begun.elapsed());
    let other = site.mount("b");
    assert!(fs::read(mount.path("file")).unwrap() == data);
    assert!(fs::read(other.path("file")).unwrap() == data);
    other.stop();
    mount.stop();
}
