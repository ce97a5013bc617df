//! Damage at random: what is restored is whole, or nothing is.

use std::sync::Arc;

use afar_store::{Partition, RestoreMode, RestoreOptions};
use afar_types::VolumeId;

use super::build::{directory, file, stream};
use super::{dump, noise, partition, tree};

fn small() -> Vec<u8> {
    stream(&[
        directory(1, 0, &[("a", 2, 2), ("sub", 3, 3), ("b", 4, 4)]),
        directory(3, 1, &[("c", 6, 6), ("c again", 6, 6), ("below", 5, 5)]),
        directory(5, 3, &[]),
        file(2, 1, b"a"),
        file(4, 1, &noise(5_000, 1)),
        file(6, 3, b"c"),
    ])
}

fn damage(stream: &mut Vec<u8>, random: &mut fastrand::Rng) {
    // Headers and directories rather than data.
    let place = |random: &mut fastrand::Rng, len: usize| random.usize(..len);
    match random.u8(..6) {
        0 | 1 => {
            let at = place(random, stream.len());
            stream[at] ^= 1 << random.u8(..8);
        }
        2 => {
            let at = place(random, stream.len());
            stream[at] = random.u8(..);
        }
        3 => stream.truncate(random.usize(..stream.len())),
        4 => {
            let (from, to) = (place(random, stream.len()), place(random, stream.len()));
            stream.swap(from, to);
        }
        _ => {
            let (from, to) = (place(random, stream.len()), place(random, stream.len()));
            let len = random.usize(..3000).min(stream.len() - from.max(to));
            stream.copy_within(from..from + len, to);
        }
    }
}

fn stays_whole(
    partition: &Arc<Partition>,
    stream: &[u8],
    before: &[u8],
    mode: RestoreMode,
) -> bool {
    let id = if matches!(mode, RestoreMode::Full { overwrite: false }) {
        20
    } else {
        10
    };
    let options = RestoreOptions {
        in_service: Some(true),
        ..RestoreOptions::new(VolumeId(id)).mode(mode).name("damaged")
    };
    let restored = partition.restore(stream, &options);
    if restored.is_err() {
        assert!(partition.volume(VolumeId(20)).is_err());
        assert!(dump(&partition.volume(VolumeId(10)).unwrap()) == before);
        return false;
    }
    let volume = partition.volume(VolumeId(id)).unwrap();
    if volume.state().unwrap().online {
        // What is shown is a tree that can be read to its last byte.
        let nodes = tree(&volume);
        assert!(nodes.len() as u64 >= u64::from(volume.state().unwrap().file_count));
    }
    if id == 20 {
        partition.remove_volume(VolumeId(20)).unwrap();
    } else {
        partition.remove_volume(VolumeId(10)).unwrap();
        let options = RestoreOptions::new(VolumeId(10)).name("sound");
        partition.restore(before, &options).unwrap();
    }
    true
}

#[test]
fn damaged_streams_leave_no_half_volumes() {
    let (_dir, partition) = partition();
    let options = RestoreOptions::new(VolumeId(10)).name("sound");
    partition.restore(&small()[..], &options).unwrap();
    let before = dump(&partition.volume(VolumeId(10)).unwrap());
    let mut random = fastrand::Rng::with_seed(11);
    let (mut restored, rounds) = (0, 400);
    for round in 0..rounds {
        let mut stream = if random.bool() {
            small()
        } else {
            before.clone()
        };
        for _ in 0..random.u8(1..4) {
            if !stream.is_empty() {
                damage(&mut stream, &mut random);
            }
        }
        let mode = match round % 3 {
            0 => RestoreMode::Full { overwrite: false },
            1 => RestoreMode::Full { overwrite: true },
            _ => RestoreMode::Incremental,
        };
        restored += usize::from(stays_whole(&partition, &stream, &before, mode));
    }
    assert!(
        restored > rounds / 20 && restored < rounds * 2 / 3,
        "{restored} of {rounds} were restored"
    );
    partition.wait_reaped().unwrap();
    assert_eq!(partition.volume_count().unwrap(), 1);
}
