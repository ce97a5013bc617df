//! An operation that fails leaves no row other than it was.

use std::sync::Arc;

use afar_types::{Fid, PtsId, VolumeId, VolumeType};
use fastrand::Rng;
use tempfile::TempDir;

use super::{item, options, value};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Rows, Table};
use crate::partition::{Partition, doom_member};
use crate::vnode::{NewVnode, StoreOptions};
use crate::volume::{NewClone, NewVolume, freeze};

type Everything = Vec<(Table, Vec<u8>, Vec<u8>)>;

fn everything(partition: &Arc<Partition>) -> Everything {
    let reader = partition.reader().unwrap();
    let mut rows = Vec::new();
    for table in Table::all() {
        for row in reader.scan(table, &[]).unwrap() {
            let (key, value) = row.unwrap();
            rows.push((table, key.to_vec(), value.to_vec()));
        }
    }
    rows
}

/// Anything an operation may do.
fn scribble(change: &mut Change<'_>, random: &mut Rng, at: At) -> Result<()> {
    let item = item(random);
    match random.u8(..10) {
        0..4 => change.put_row(at, item, value(random, item.kind)),
        4..6 => change.delete_row(at, item),
        6 => {
            let id = random.u32(1..4);
            match change.volume(id)? {
                Some(mut row) if random.bool() => {
                    row.disk_used += 1;
                    change.update_volume(id, &row);
                    Ok(())
                }
                Some(mut row) => freeze(change, id, &mut row).map(drop),
                None => Ok(()),
            }
        }
        7 => {
            let id = random.u32(1..4);
            match change.volume(id)? {
                Some(row) => {
                    doom_member(change, row.at(), id).and_then(|()| change.delete_volume(id))
                }
                None => Ok(()),
            }
        }
        8 => change.drop_row(at, item),
        _ => {
            let all: Vec<Table> = Table::all().collect();
            let table = all[random.usize(..all.len())];
            let key = [random.u8(..4); 8];
            if random.bool() {
                change.put(table, &key, vec![1]);
                Ok(())
            } else {
                change.delete(table, &key)
            }
        }
    }
}

#[test]
fn a_failed_operation_leaves_every_row_as_it_was() {
    let dir = TempDir::new().unwrap();
    let partition = Arc::new(Partition::init(&dir.path().join("p"), &options()).unwrap());
    let mut random = Rng::with_seed(5);
    let new = NewVolume::new(VolumeId(1), "v").max_quota(0);
    let volume = partition.create_volume(&new).unwrap();
    let root = Fid::root(VolumeId(1));
    for name in ["a", "b", "c"] {
        let new = NewVnode::new(PtsId(1), 0o644);
        let file = volume
            .create_file(root, name.as_bytes(), &new)
            .unwrap()
            .vnode
            .fid;
        let data: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
        volume
            .write(file, 0, &data, &StoreOptions::default())
            .unwrap();
    }
    for (id, kind) in [(2, VolumeType::ReadOnly), (3, VolumeType::Backup)] {
        volume
            .make_clone(&NewClone::new(VolumeId(id), "c", kind))
            .unwrap();
        volume
            .remove_file(root, if id == 2 { b"a" } else { b"b" })
            .unwrap();
    }
    partition.wait_reaped().unwrap();
    let before = everything(&partition);
    assert!(before.len() > 20);
    for seed in 0..300 {
        let at = partition.reader().unwrap().volume(1).unwrap().unwrap().at();
        let failed: Result<()> = partition.commit(move |change| {
            let mut random = Rng::with_seed(seed);
            for _ in 0..random.usize(1..30) {
                scribble(change, &mut random, at)?;
            }
            Err(StoreError::NoVolume(VolumeId(99)))
        });
        failed.unwrap_err();
        assert!(everything(&partition) == before, "seed {seed}");
    }
}
