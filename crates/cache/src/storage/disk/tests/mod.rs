//! The cache on a disk, by itself.

#![expect(clippy::single_range_in_vec_init, reason = "they are lists of ranges")]

mod crash;
mod damage;
mod model;
mod pressure;
mod recover;

use std::ops::Range;
use std::path::Path;

use afar_types::{DataVersion, Fid, UnixTime};

use super::{Disk, Limits};
use crate::model::key::FileKey;
use crate::model::ranges::RangeSet;
use crate::storage::{Kept, Pieces, Storage, Wait};

const ROOMY: Limits = Limits {
    bytes: 64 << 20,
    files: 10_000,
};

fn open(dir: &Path) -> Disk {
    Disk::open(dir, ROOMY).unwrap()
}

fn key(vnode: u32) -> FileKey {
    FileKey {
        fid: Fid::new(7, vnode, 1),
        cell: "a.example".parse().unwrap(),
    }
}

/// Bytes that are those of no other file, version or place.
fn content(vnode: u32, version: u64, range: Range<u64>) -> Vec<u8> {
    let octet = |at: u64| {
        let mixed = (at ^ version << 40 ^ u64::from(vnode) << 20)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes();
        mixed[0] ^ mixed[3]
    };
    range.map(octet).collect()
}

/// Writes all of a file as it is in a version.
fn fill(disk: &Disk, vnode: u32, version: u64, length: u64) {
    let data = content(vnode, version, 0..length);
    disk.write_clean(&key(vnode), DataVersion(version), 0, &data, length);
}

/// What is there of a version of a file; every byte of it must be right.
fn there(disk: &Disk, vnode: u32, version: u64, range: Range<u64>) -> RangeSet {
    let pieces = disk.read(&key(vnode), DataVersion(version), range.clone(), Wait::Yes);
    let pieces = pieces.unwrap();
    let mut there = RangeSet::default();
    for (at, data) in &pieces {
        let piece = *at..at + data.len() as u64;
        assert!(range.start <= piece.start && piece.end <= range.end);
        assert!(
            *data == content(vnode, version, piece.clone()),
            "{vnode}: {piece:?}"
        );
        there.insert(piece);
    }
    there
}

fn has_all(disk: &Disk, vnode: u32, version: u64, length: u64) -> bool {
    there(disk, vnode, version, 0..length)
        .gaps(0..length)
        .is_empty()
}

/// Pieces as one, from this place on.
fn joined(pieces: &Pieces, from: u64) -> Vec<u8> {
    let mut data = Vec::new();
    for (at, piece) in pieces {
        assert_eq!(*at, from + data.len() as u64);
        data.extend_from_slice(piece);
    }
    data
}

fn set(ranges: &[Range<u64>]) -> RangeSet {
    let mut set = RangeSet::default();
    ranges.iter().for_each(|range| set.insert(range.clone()));
    set
}

fn kept(base: u64, ranges: &[Range<u64>], length: u64) -> Kept {
    Kept {
        base: DataVersion(base),
        ranges: set(ranges),
        length,
        limit: length,
        resized: false,
        mtime: UnixTime(1_000_000),
        tried: UnixTime(0),
        writer: 0,
    }
}

/// Waits until nothing is left for the worker.
fn settle(disk: &Disk) {
    for _ in 0..2000 {
        let idle = {
            let state = disk.shared.lock();
            let keys = state.written.keys();
            let mut entries = keys.iter().filter_map(|key| state.written.find_entry(key));
            state.jobs.is_empty() && entries.all(|entry| entry.settled().is_empty())
        };
        if idle {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the worker does not come to an end");
}
