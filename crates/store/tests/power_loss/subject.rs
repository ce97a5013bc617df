//! The store under test: the model's operations done to it, and what it holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use afar_dir::Directory;
use afar_store::{
    CheckOptions, DumpOptions, Durability, NewClone, NewVnode, NewVolume, Partition,
    PartitionOptions, Problem, RestoreMode, RestoreOptions, Sequence, StoreError, StoreOptions,
    Vnodes, Volume,
};
use afar_types::{Fid, FileType, PtsId, VolumeId, VolumeType};

use crate::clients::NUMBERS;
use crate::model::{Entry, Found, Operation, Path as Names};

/// The longest file or directory the model makes.
const LONGEST: usize = 4 << 20;
const OWNER: PtsId = PtsId(7);

/// Small segments, so that they fill up and are removed.
fn options() -> PartitionOptions {
    PartitionOptions::default()
        .segment_size(1 << 20)
        .and_then(|options| options.map_size(1 << 28))
        .expect("in range")
}

/// Makes a partition; with `dedup`, one that stores equal records once.
pub(crate) fn init(
    dir: &Path,
    dedup: bool,
    durability: Durability,
) -> Result<Arc<Partition>, StoreError> {
    let partition = Partition::init(dir, &options().durability(durability))?;
    partition.set_dedup(dedup)?;
    Ok(Arc::new(partition))
}

/// Opens a partition. A child that another test has just forked has its lock until it runs its own
/// program.
pub(crate) fn open(dir: &Path) -> Result<Arc<Partition>, StoreError> {
    let start = Instant::now();
    loop {
        match Partition::open(dir, &options()) {
            Err(StoreError::Locked { .. }) if start.elapsed() < Duration::from_secs(10) => {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result.map(Arc::new),
        }
    }
}

/// Does an operation, and returns when the store has acknowledged it.
pub(crate) fn perform(partition: &Arc<Partition>, operation: &Operation) -> Result<(), StoreError> {
    match operation {
        Operation::CreateVolume { volume } => create(partition, *volume),
        Operation::RemoveVolume { volume } => partition.remove_volume(VolumeId(*volume)),
        Operation::Clone { from, to } => clone(partition, *from, *to),
        Operation::Copy { from, to } => {
            let name = format!("volume.{to}");
            let new = NewClone::new(VolumeId(*to), name, VolumeType::ReadWrite);
            partition.volume(VolumeId(*from))?.copy(&new).map(drop)
        }
        Operation::Dump { from } => dump(partition, *from).map(drop),
        Operation::Restore { from, to, mode } => {
            restore(partition, &dump(partition, *from)?, *to, *mode)
        }
        Operation::Check => {
            let problems = check(partition)?;
            assert!(
                problems.is_empty(),
                "a check while others work found {problems:?}"
            );
            Ok(())
        }
        Operation::MakeDir { volume, path } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            volume
                .make_directory(dir, name, &NewVnode::new(OWNER, 0o755))
                .map(drop)
        }
        Operation::Create { volume, path } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            volume
                .create_file(dir, name, &NewVnode::new(OWNER, 0o644))
                .map(drop)
        }
        Operation::Symlink {
            volume,
            path,
            target,
        } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            let new = NewVnode::new(OWNER, 0o755);
            volume.symlink(dir, name, target.as_bytes(), &new).map(drop)
        }
        Operation::Write {
            volume,
            path,
            offset,
            data,
        } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            let file = volume.lookup(dir, name)?;
            volume
                .write(file, *offset, &data.bytes(), &StoreOptions::default())
                .map(drop)
        }
        Operation::Truncate { volume, path, len } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            let file = volume.lookup(dir, name)?;
            volume
                .truncate(file, *len, &StoreOptions::default())
                .map(drop)
        }
        Operation::Link { volume, path, name } => {
            let (volume, dir, old) = place(partition, *volume, path)?;
            let file = volume.lookup(dir, old)?;
            volume.link(dir, name.as_bytes(), file).map(drop)
        }
        Operation::Rename { volume, from, to } => {
            let (_, to_dir, new) = place(partition, *volume, to)?;
            let (volume, from_dir, old) = place(partition, *volume, from)?;
            volume.rename(from_dir, old, to_dir, new).map(drop)
        }
        Operation::Unlink { volume, path } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            volume.remove_file(dir, name).map(drop)
        }
        Operation::RemoveDir { volume, path } => {
            let (volume, dir, name) = place(partition, *volume, path)?;
            volume.remove_directory(dir, name).map(drop)
        }
        Operation::Replace { .. } => unreachable!("it is done together with others"),
        Operation::Together { volume, operations } => {
            let volume = partition.volume(VolumeId(*volume))?;
            let mut together = volume.together()?;
            let mut contents = Vec::new();
            for operation in operations {
                contents.push(match operation {
                    Operation::Replace { data, .. } => Some(together.content(&data.bytes())?),
                    _ => None,
                });
            }
            let (root, operations) = (volume.root(), operations.clone());
            together.run(operations.len(), move |sequence| {
                for (operation, content) in operations.iter().zip(contents) {
                    // What fails leaves nothing.
                    let again = sequence.make_directory(root, b"", &NewVnode::new(OWNER, 0o755));
                    assert!(again.is_err());
                    perform_among_others(sequence, root, operation, content)?;
                }
                Ok(())
            })
        }
    }
}

/// Does one of several changes that share a commit.
fn perform_among_others(
    sequence: &mut Sequence<'_, '_>,
    root: Fid,
    operation: &Operation,
    content: Option<usize>,
) -> Result<(), StoreError> {
    let place = |sequence: &mut Sequence<'_, '_>, path: &Names| {
        let (name, dirs) = path.split_last().expect("a path has a name");
        let mut dir = root;
        for name in dirs {
            dir = sequence.lookup(dir, name.as_bytes())?;
        }
        Ok::<_, StoreError>((dir, name.clone().into_bytes()))
    };
    match operation {
        Operation::MakeDir { path, .. } => {
            let (dir, name) = place(sequence, path)?;
            let new = NewVnode::new(OWNER, 0o755);
            sequence.make_directory(dir, &name, &new).map(drop)
        }
        Operation::Create { path, .. } => {
            let (dir, name) = place(sequence, path)?;
            let new = NewVnode::new(OWNER, 0o644);
            sequence.create_file(dir, &name, &new).map(drop)
        }
        Operation::Symlink { path, target, .. } => {
            let (dir, name) = place(sequence, path)?;
            let new = NewVnode::new(OWNER, 0o755);
            let made = sequence.symlink(dir, &name, target.as_bytes(), &new);
            made.map(drop)
        }
        Operation::Link { path, name, .. } => {
            let (dir, old) = place(sequence, path)?;
            let file = sequence.lookup(dir, &old)?;
            sequence.link(dir, name.as_bytes(), file).map(drop)
        }
        Operation::Rename { from, to, .. } => {
            let (to_dir, new) = place(sequence, to)?;
            let (from_dir, old) = place(sequence, from)?;
            sequence.rename(from_dir, &old, to_dir, &new).map(drop)
        }
        Operation::Unlink { path, .. } => {
            let (dir, name) = place(sequence, path)?;
            sequence.remove_file(dir, &name).map(drop)
        }
        Operation::RemoveDir { path, .. } => {
            let (dir, name) = place(sequence, path)?;
            sequence.remove_directory(dir, &name).map(drop)
        }
        Operation::Replace { path, .. } => {
            let (dir, name) = place(sequence, path)?;
            let file = sequence.lookup(dir, &name)?;
            let content = content.expect("its data was prepared");
            sequence
                .store(file, content, &StoreOptions::default())
                .map(drop)
        }
        other => unreachable!("{other:?} is done alone"),
    }
}

fn create(partition: &Arc<Partition>, volume: u32) -> Result<(), StoreError> {
    let new = NewVolume::new(VolumeId(volume), format!("volume.{volume}")).max_quota(0);
    partition.create_volume(&new).map(drop)
}

/// Makes a clone, or brings one up to date. A client's first is a read-only volume, its second a
/// backup.
fn clone(partition: &Arc<Partition>, from: u32, to: u32) -> Result<(), StoreError> {
    let volume = partition.volume(VolumeId(from))?;
    if partition.has_volume(VolumeId(to))? {
        return volume.reclone(VolumeId(to));
    }
    let (kind, suffix) = match to % NUMBERS {
        1 => (VolumeType::ReadOnly, "readonly"),
        _ => (VolumeType::Backup, "backup"),
    };
    volume
        .make_clone(&NewClone::new(
            VolumeId(to),
            format!("volume.{from}.{suffix}"),
            kind,
        ))
        .map(drop)
}

/// The directory a path ends in, and its last name.
fn place<'p>(
    partition: &Arc<Partition>,
    volume: u32,
    path: &'p [String],
) -> Result<(Volume, Fid, &'p [u8]), StoreError> {
    let volume = partition.volume(VolumeId(volume))?;
    let (name, dirs) = path.split_last().expect("a path has a name");
    let mut dir = volume.root();
    for name in dirs {
        dir = volume.lookup(dir, name.as_bytes())?;
    }
    Ok((volume, dir, name.as_bytes()))
}

/// Everything in every volume.
///
/// # Errors
///
/// What cannot be read, and why.
pub(crate) fn contents(partition: &Arc<Partition>) -> Result<Found, String> {
    let ids = partition
        .volume_ids(VolumeId(0), usize::MAX)
        .map_err(|error| error.to_string())?;
    let mut contents = Found::new();
    for id in ids {
        let volume = partition.volume(id).map_err(|error| error.to_string())?;
        let entries = entries(&volume).map_err(|error| format!("volume {id}: {error}"))?;
        contents.insert(id.0, entries);
    }
    Ok(contents)
}

fn entries(volume: &Volume) -> Result<BTreeMap<Names, Entry>, String> {
    let mut entries = BTreeMap::new();
    let mut left = vec![(Names::new(), volume.root())];
    while let Some((path, dir)) = left.pop() {
        let pages = read(volume, dir, &path)?.ok_or_else(|| format!("{path:?} is damaged"))?;
        let listed = Directory::new(&pages).map_err(|error| format!("{path:?}: {error}"))?;
        for listed in listed.entries() {
            let listed = listed.map_err(|error| format!("{path:?}: {error}"))?;
            if [&b"."[..], b".."].contains(&listed.name) {
                continue;
            }
            let path = [
                path.as_slice(),
                &[String::from_utf8_lossy(listed.name).into_owned()],
            ]
            .concat();
            let fid = volume.fid(listed.id.vnode, listed.id.uniquifier);
            let status = volume
                .status(fid)
                .map_err(|error| format!("{path:?}: {error}"))?;
            let entry = match status.file_type {
                FileType::Directory => {
                    left.push((path.clone(), fid));
                    Entry::Directory
                }
                FileType::File => {
                    let names = status.link_count as usize;
                    match read(volume, fid, &path)? {
                        Some(bytes) => Entry::File {
                            bytes: Arc::new(bytes),
                            names,
                        },
                        None => Entry::Damaged {
                            len: status.length,
                            names,
                        },
                    }
                }
                _ => {
                    let target = read(volume, fid, &path)?;
                    let target = target.ok_or_else(|| format!("{path:?} is damaged"))?;
                    Entry::Symlink(String::from_utf8_lossy(&target).into_owned())
                }
            };
            entries.insert(path, entry);
        }
    }
    Ok(entries)
}

/// What a vnode holds, if all of it can be read.
fn read(volume: &Volume, fid: Fid, path: &[String]) -> Result<Option<Vec<u8>>, String> {
    match volume.read_all(fid, LONGEST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::Read(_)) => Ok(None),
        Err(error) => Err(format!("{path:?}: {error}")),
    }
}

fn dump(partition: &Arc<Partition>, volume: u32) -> Result<Vec<u8>, StoreError> {
    let mut stream = Vec::new();
    partition
        .volume(VolumeId(volume))?
        .dump(&mut stream, &DumpOptions::default())?;
    Ok(stream)
}

fn restore(
    partition: &Arc<Partition>,
    stream: &[u8],
    to: u32,
    mode: RestoreMode,
) -> Result<(), StoreError> {
    let options = RestoreOptions::new(VolumeId(to))
        .name(format!("volume.{to}"))
        .mode(mode);
    partition.restore(stream, &options).map(drop)
}

/// What is wrong with a partition. All its data is read, and lost space is given back.
///
/// # Errors
///
/// What keeps the check from going on.
pub(crate) fn check(partition: &Arc<Partition>) -> Result<Vec<String>, StoreError> {
    let problems = problems(partition)?;
    Ok(problems.iter().map(ToString::to_string).collect())
}

/// The same, as the store tells it.
pub(crate) fn problems(partition: &Arc<Partition>) -> Result<Vec<Problem>, StoreError> {
    let options = CheckOptions {
        data: true,
        reclaim: true,
        ..CheckOptions::default()
    };
    let report = partition.check(&options, &mut |_| {})?;
    assert_eq!(report.is_clean(), report.problems.is_empty());
    Ok(report.problems)
}
