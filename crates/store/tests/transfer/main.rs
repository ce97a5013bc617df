//! Volumes dumped and restored.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad;
mod build;
mod copy;
mod damage;
mod incremental;
mod meanwhile;
mod round_trip;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use afar_dir::Directory;
use afar_store::{
    DumpOptions, NewVnode, NewVolume, Partition, PartitionOptions, RestoreOptions, StoreOptions,
    VnodeStatus, Volume,
};
use afar_types::{Fid, FileType, PtsId, UnixTime, VolumeId};
use tempfile::TempDir;

/// Longest file these tests make.
const LONGEST: usize = 64 << 20;

fn options() -> PartitionOptions {
    PartitionOptions::default()
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .unwrap()
}

fn init(dir: &Path) -> Arc<Partition> {
    Arc::new(Partition::init(dir, &options()).unwrap())
}

fn partition() -> (TempDir, Arc<Partition>) {
    let dir = TempDir::new().unwrap();
    let partition = init(dir.path());
    (dir, partition)
}

fn new_volume(partition: &Arc<Partition>, id: u32) -> Volume {
    let new = NewVolume::new(VolumeId(id), format!("vol.{id}")).max_quota(0);
    partition.create_volume(&new).unwrap()
}

fn new(owner: i32, mode: u16) -> NewVnode {
    NewVnode::new(PtsId(owner), mode)
}

fn file(volume: &Volume, directory: Fid, name: &str, data: &[u8]) -> Fid {
    let made = volume
        .create_file(directory, name.as_bytes(), &new(7, 0o644))
        .unwrap();
    volume
        .write(made.vnode.fid, 0, data, &StoreOptions::default())
        .unwrap();
    made.vnode.fid
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

fn dump(volume: &Volume) -> Vec<u8> {
    dump_since(volume, None)
}

fn dump_since(volume: &Volume, from: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    let options = DumpOptions {
        from: from.map(UnixTime),
        ..DumpOptions::default()
    };
    let summary = volume.dump(&mut out, &options).unwrap();
    assert_eq!(summary.bytes, out.len() as u64);
    out
}

fn restore(partition: &Arc<Partition>, stream: &[u8], id: u32) -> Volume {
    let options = RestoreOptions::new(VolumeId(id)).name(format!("restored.{id}"));
    let summary = partition.restore(stream, &options).unwrap();
    assert_eq!(summary.bytes, stream.len() as u64);
    partition.volume(VolumeId(id)).unwrap()
}

/// What a vnode is, without what a restore may change: the volume's number.
type Node = (VnodeStatus, Vec<u8>, Vec<u8>);

/// All vnodes of a volume by path: attributes, data, ACL.
fn tree(volume: &Volume) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut left = vec![(Vec::new(), volume.root())];
    while let Some((path, fid)) = left.pop() {
        let mut status = volume.status(fid).unwrap();
        status.fid.volume = VolumeId(0);
        let data = volume.read_all(fid, LONGEST).unwrap();
        let mut acl = Vec::new();
        if status.file_type == FileType::Directory {
            acl = volume.acl(fid).unwrap().to_bytes().to_vec();
            for entry in Directory::new(&data).unwrap().entries() {
                let entry = entry.unwrap();
                if !matches!(entry.name, b"." | b"..") {
                    let mut path = path.clone();
                    path.push(b'/');
                    path.extend_from_slice(entry.name);
                    left.push((path, volume.fid(entry.id.vnode, entry.id.uniquifier)));
                }
            }
        }
        nodes.insert(path, (status, data, acl));
    }
    nodes
}

/// Two volumes hold the same.
fn assert_same(one: &Volume, other: &Volume) {
    let (one, other) = (tree(one), tree(other));
    assert!(
        one.keys().eq(other.keys()),
        "{:?} and {:?}",
        one.keys(),
        other.keys()
    );
    for (path, node) in &one {
        let path = String::from_utf8_lossy(path);
        let found = &other[path.as_bytes()];
        assert_eq!(node.0, found.0, "{path}");
        assert!(node.1 == found.1, "data of {path}");
        assert!(node.2 == found.2, "ACL of {path}");
    }
}

/// A volume with one of everything.
fn sample(partition: &Arc<Partition>, id: u32) -> Volume {
    use afar_types::{AclRecord, AclRecordEntry, Rights};

    let volume = new_volume(partition, id);
    let root = volume.root();
    file(&volume, root, "empty", b"");
    file(&volume, root, "small", b"hello");
    let linked = file(&volume, root, "large", &noise(700_000, id.into()));
    volume.link(root, b"other name", linked).unwrap();
    volume.link(root, &[b'n'; 255], linked).unwrap();
    let sub = volume
        .make_directory(root, b"sub", &new(3, 0o755))
        .unwrap()
        .vnode
        .fid;
    let acl = |id, rights| AclRecordEntry {
        id: PtsId(id),
        rights,
    };
    let positive = vec![
        acl(-204, Rights::ALL),
        acl(3, Rights::READ | Rights::LOOKUP),
    ];
    let record = AclRecord::new(positive, vec![acl(9, Rights::READ)]).unwrap();
    volume.set_acl(sub, &record).unwrap();
    let deep = volume
        .make_directory(sub, b"deep", &new(3, 0o700))
        .unwrap()
        .vnode
        .fid;
    volume
        .symlink(deep, b"link", b"../../small", &new(3, 0o755))
        .unwrap();
    volume
        .symlink(deep, b"mount", b"#root.cell.", &new(3, 0o644))
        .unwrap();
    let sparse = file(&volume, deep, "sparse", b"");
    volume
        .write(sparse, 20 << 20, b"end", &StoreOptions::default())
        .unwrap();
    volume
        .write(sparse, 5 << 20, &noise(1000, 2), &StoreOptions::default())
        .unwrap();
    for number in 0..300 {
        file(
            &volume,
            deep,
            &format!("file number {number}"),
            &noise(number, number as u64),
        );
    }
    for number in (0..300).step_by(3) {
        volume
            .remove_file(deep, format!("file number {number}").as_bytes())
            .unwrap();
    }
    volume
}
