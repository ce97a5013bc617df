//! Dumps to and from a real OpenAFS server.
//!
//! `AFAR_TEST_OPENAFS` names the description of the cell, as `cargo xtask openafs up` prints it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cell;
mod fixture;
mod index;

use std::sync::Arc;

use afar_store::dump::VnodeKind;
use afar_store::{
    DumpOptions, NewVnode, Partition, PartitionOptions, RestoreMode, RestoreOptions, StoreOptions,
    Volume,
};
use afar_types::{PtsId, Uniquifier, UnixTime, VnodeId, VolumeId};
use tempfile::TempDir;

use cell::Cell;
use fixture::{LATER, OLDEST, SPARSE, SPARSE_LENGTH, changed};
use index::{Hashed, Index, Indexer};

fn partition() -> (TempDir, Arc<Partition>) {
    let dir = TempDir::new().unwrap();
    let partition = Partition::init(dir.path(), &PartitionOptions::default()).unwrap();
    (dir, Arc::new(partition))
}

/// What the store dumps.
fn dump(volume: &Volume, from: u32) -> Index {
    let mut indexer = Indexer::new();
    let options = DumpOptions {
        from: Some(UnixTime(from)),
        ..DumpOptions::default()
    };
    volume.dump(&mut indexer, &options).unwrap();
    indexer.finish()
}

/// Takes a dump from OpenAFS here, and tells what was in it.
fn take(
    cell: &Cell,
    partition: &Arc<Partition>,
    words: &[&str],
    options: &RestoreOptions,
) -> Index {
    let mut dump = cell.dump(words);
    let mut indexer = Indexer::new();
    let summary = partition
        .restore(indexer.tee(dump.stream()), options)
        .unwrap();
    dump.finish();
    assert_eq!(
        (summary.orphans, summary.link_counts),
        (0, 0),
        "{summary:?}"
    );
    indexer.finish()
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn dumps_go_both_ways() {
    let cell = Cell::load();
    let id = cell.fill("afar.dump");
    let name = ["-id", "afar.dump"];
    let (_dir, partition) = partition();

    // From there to here: a full dump.
    let options = RestoreOptions::new(VolumeId(id));
    let there = take(&cell, &partition, &name, &options);
    let volume = partition.volume(VolumeId(id)).unwrap();
    assert!(there.vnodes.len() > 10_000, "{}", there.vnodes.len());
    let sparse = &there.vnodes[&SPARSE].fields.as_ref().unwrap();
    assert_eq!(sparse.length, Some(SPARSE_LENGTH));
    assert_eq!(
        volume.state().unwrap().file_count as usize,
        there.vnodes.len()
    );
    let stored = partition.space().unwrap().live;
    assert!(stored < 64 << 20, "{stored} bytes are stored");

    // And back: the same bytes, which OpenAFS takes and gives again.
    cell.remove("afar.redump");
    let mut restore = cell.restore("afar.redump", &[]);
    let mut stream = Hashed::new(restore.stream());
    volume.dump(&mut stream, &DumpOptions::default()).unwrap();
    let sum = stream.sum();
    drop(stream);
    restore.finish();
    if sum != there.sum {
        dump(&volume, 0).assert_same(&there);
    }
    assert_eq!(
        sum, there.sum,
        "the streams differ, although what they say is the same"
    );
    cell.assert_sparse();
    // All but the sparse file, which is older.
    let since = OLDEST + 1;
    let again = cell.index(&["-id", "afar.redump", "-time", &cell::time(since)]);
    again.assert_same_vnodes(&dump(&volume, since));
    assert!(again.vnodes[&SPARSE].fields.is_none());

    incremental_from_there(&cell, &partition, &volume);
    incremental_from_here(&cell, &volume);
    cell.remove("afar.dump");
    cell.remove("afar.redump");
}

/// What OpenAFS says changed brings a volume here to what it is there.
fn incremental_from_there(cell: &Cell, partition: &Arc<Partition>, volume: &Volume) {
    let before = dump(volume, OLDEST + 1);
    for vnode in changed() {
        let uniquifier = before.vnodes[&vnode].uniquifier;
        let fid = volume.fid(VnodeId(vnode), Uniquifier(uniquifier));
        volume
            .write(fid, 10, b"not so there", &StoreOptions::default())
            .unwrap();
    }
    let new = NewVnode::new(PtsId(1), 0o644);
    let added = volume
        .create_file(volume.root(), b"not there", &new)
        .unwrap();
    let words = ["-id", "afar.dump", "-time", &cell::time(LATER)];
    let options = RestoreOptions::new(volume.id()).mode(RestoreMode::Incremental);
    let there = take(cell, partition, &words, &options);
    let given = there
        .vnodes
        .values()
        .filter(|vnode| vnode.is_file())
        .count();
    assert_eq!(given, changed().count());
    assert!(volume.status(added.vnode.fid).is_err());
    dump(volume, OLDEST + 1).assert_same_vnodes(&before);
    dump(volume, LATER).assert_same_vnodes(&there);
}

/// And what changed here brings OpenAFS's volume to what it is here.
fn incremental_from_here(cell: &Cell, volume: &Volume) {
    let since = UnixTime::from(std::time::SystemTime::now()).0;
    let state = dump(volume, LATER);
    for vnode in changed().step_by(2) {
        let fid = volume.fid(VnodeId(vnode), Uniquifier(state.vnodes[&vnode].uniquifier));
        volume
            .write(fid, 5_000, &[7; 3_000], &StoreOptions::default())
            .unwrap();
    }
    let new = NewVnode::new(PtsId(1), 0o755);
    let made = volume
        .make_directory(volume.root(), b"from here", &new)
        .unwrap()
        .vnode
        .fid;
    volume.symlink(made, b"link", b"../many", &new).unwrap();
    volume.remove_file(volume.root(), b"link").unwrap();
    let mut restore = cell.restore("afar.redump", &["-overwrite", "incremental"]);
    let options = DumpOptions {
        from: Some(UnixTime(since)),
        ..DumpOptions::default()
    };
    let summary = volume.dump(restore.stream(), &options).unwrap();
    restore.finish();
    assert!(summary.data * 100 <= 3 * SPARSE_LENGTH, "{summary:?}");
    let there = cell.index(&["-id", "afar.redump", "-time", &cell::time(OLDEST + 1)]);
    let here = dump(volume, OLDEST + 1);
    there.assert_same_vnodes(&here);
    let links = here
        .vnodes
        .values()
        .filter(|vnode| vnode.is(VnodeKind::Symlink))
        .count();
    assert!(links > 100, "{links}");
}
