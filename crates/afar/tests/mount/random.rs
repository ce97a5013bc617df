//! Random operations on a file, held against a model of it.

use std::time::Instant;

use crate::model::Checked;
use crate::site::{Site, can_mount, soon};

/// Operations, unless `AFAR_MOUNT_OPERATIONS` says otherwise.
const OPERATIONS: u64 = 100_000;
/// After so many operations the server starts again, while the file is open.
const SERVER_EACH: u64 = 15_000;
/// After so many the mount does, every other time with nothing in its cache.
const MOUNT_EACH: u64 = 40_000;

fn seed() -> u64 {
    let seed = std::env::var("AFAR_MOUNT_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("AFAR_MOUNT_SEED={seed} repeats this");
    seed
}

fn operations() -> u64 {
    let number = std::env::var("AFAR_MOUNT_OPERATIONS").ok();
    number.map_or(OPERATIONS, |number| number.parse().unwrap())
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn one_file_holds_what_a_model_holds() {
    if !can_mount() {
        return;
    }
    let mut site = Site::new("127.84.0.51");
    let mut mount = site.mount("a");
    let mut checked = Checked::new(&mount.path("file"), seed());
    let begun = Instant::now();
    let operations = operations();
    for count in 1..=operations {
        checked.step();
        if count % SERVER_EACH == 0 {
            site.stop();
            site.start();
        }
        if count % MOUNT_EACH == 0 {
            checked.close();
            mount.stop();
            if (count / MOUNT_EACH).is_multiple_of(2) {
                std::fs::remove_dir_all(site.path("cache-a")).unwrap();
            }
            mount = site.mount("a");
            checked.moved(&mount.path("file"));
            eprintln!("{count} operations in {:?}", begun.elapsed());
        }
    }
    checked.whole();
    let content = checked.content().to_vec();
    drop(checked);
    mount.stop();
    std::fs::remove_dir_all(site.path("cache-a")).unwrap();
    let mount = site.mount("a");
    assert!(std::fs::read(mount.path("file")).unwrap() == content);
    mount.stop();
}

/// The file goes from one mount to the other and back; each takes it as the other has closed it.
#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn one_file_in_turns_of_two_mounts_holds_what_a_model_holds() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.52");
    let mounts = [site.mount("a"), site.mount("b")];
    let mut checked = Checked::new(&mounts[0].path("file"), seed());
    for turn in 1..=200 {
        for _ in 0..20 {
            checked.step();
        }
        let next = mounts[turn % 2].path("file");
        // One who has it open until now closes it before the other opens it.
        checked.close();
        soon("the other's content", || {
            std::fs::read(&next).is_ok_and(|read| read == checked.content())
        });
        checked.moved(&next);
    }
    for mount in mounts {
        mount.stop();
    }
}
