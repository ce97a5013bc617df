//! Files that were changed behind its back.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use fastrand::Rng;

use super::{fill, has_all, kept, key, open, there};
use crate::storage::Storage;

const FILES: u32 = 40;

fn length(vnode: u32) -> u64 {
    u64::from(vnode) * 5003 % 200_000 + 1
}

#[test]
fn a_damaged_block_is_dropped_and_counted_and_the_rest_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path());
    fill(&disk, 2, 1, 200_000);
    let file = OpenOptions::new()
        .write(true)
        .open(dir.path().join("blocks.64k"))
        .unwrap();
    file.write_all_at(b"!", 70_000).unwrap();
    // It was put there a moment ago, and is in memory until somebody has read it.
    assert!(has_all(&disk, 2, 1, 200_000));
    assert_eq!(disk.shared.damaged.load(Ordering::Relaxed), 0);
    // Where it is whole, a part of it can be read; where it is not, nothing of it.
    assert!(there(&disk, 2, 1, 0..65_536).gaps(0..65_536).is_empty());
    assert!(there(&disk, 2, 1, 65_536..65_600).is_empty());
    assert_eq!(disk.shared.damaged.load(Ordering::Relaxed), 1);
    let gaps = there(&disk, 2, 1, 0..200_000).gaps(0..200_000);
    assert_eq!(gaps, [65_536..131_072]);
    assert_eq!(disk.shared.damaged.load(Ordering::Relaxed), 1, "it is gone");
    fill(&disk, 2, 1, 200_000);
    assert!(has_all(&disk, 2, 1, 200_000));
}

/// All files, with what is in them.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.file_name() != "lock" {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Flips bits, cuts off, puts rubbish behind, swaps parts.
fn damage(rng: &mut Rng, path: &Path) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let length = file.metadata().unwrap().len();
    match rng.u32(0..5) {
        0 => file.set_len(rng.u64(0..=length)).unwrap(),
        1 => {
            let mut rubbish = vec![0; rng.usize(1..5000)];
            rng.fill(&mut rubbish);
            file.write_all_at(&rubbish, length).unwrap();
        }
        2 => swap(rng, &file, length),
        3 => fs::remove_file(path).unwrap(),
        _ => {
            for _ in 0..rng.u32(1..20) {
                let mut octet = [0];
                let at = rng.u64(0..length.max(1));
                if file.read_at(&mut octet, at).unwrap() == 1 {
                    octet[0] ^= 1 << rng.u32(0..8);
                    file.write_all_at(&octet, at).unwrap();
                }
            }
        }
    }
}

/// Swaps two parts, as large as records or slots.
fn swap(rng: &mut Rng, file: &File, length: u64) {
    let size = [64, 4096, 65_536][rng.usize(0..3)];
    let parts = length / size;
    if parts < 2 {
        return;
    }
    let (one, other) = (rng.u64(0..parts) * size, rng.u64(0..parts) * size);
    let part = vec![0; usize::try_from(size).unwrap()];
    let mut data = [part.clone(), part];
    file.read_exact_at(&mut data[0], one).unwrap();
    file.read_exact_at(&mut data[1], other).unwrap();
    file.write_all_at(&data[0], other).unwrap();
    file.write_all_at(&data[1], one).unwrap();
}

#[test]
fn whatever_is_damaged_nothing_wrong_is_read() {
    let seeds = std::env::var("AFAR_TEST_CACHE_SEEDS");
    let seeds = seeds
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(15);
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path());
        for vnode in 0..FILES {
            fill(&disk, vnode, 1, length(vnode));
        }
        for vnode in 0..FILES / 4 {
            fill(&disk, vnode, 2, length(vnode));
        }
        disk.write_dirty(&key(3), 0, &[1; 1000]).unwrap();
        disk.keep(&key(3), &kept(1, &[0..1000], 1000)).unwrap();
        drop(disk);
        let all = files(dir.path());
        for _ in 0..rng.u32(1..4) {
            let path = &all[rng.usize(0..all.len())];
            if path.exists() {
                damage(&mut rng, path);
            }
        }
        if fs::read(dir.path().join("format")).is_ok_and(|text| text.starts_with(b"afar-cache 9")) {
            continue;
        }
        let disk = open(dir.path());
        for vnode in 0..FILES {
            for version in [1, 2] {
                // It checks what it finds.
                there(&disk, vnode, version, 0..length(vnode));
            }
        }
        for left in disk.left() {
            disk.adopt(&left).unwrap();
        }
        // And it works.
        fill(&disk, 100, 1, 100_000);
        assert!(has_all(&disk, 100, 1, 100_000));
    }
}
