//! Files to put into volumes, and reading them again.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use afar_dir::Directory;
use afar_store::segment::Compression;
use afar_store::{
    Durability, NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions, Volume,
};
use afar_types::{Fid, FileType, PtsId, VolumeId};
use anyhow::{Context, anyhow};

use super::progress;

/// Files in a directory of a volume made here.
const IN_DIRECTORY: u32 = 1_000;
/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Threads that fill a volume quickly.
pub(super) const FILLERS: usize = 4;

/// Opens a partition to fill it: what is put in is durable when it is closed.
pub(super) fn open_to_fill(path: &Path) -> anyhow::Result<Arc<Partition>> {
    let options = PartitionOptions::default().durability(Durability::Async);
    Ok(Arc::new(Partition::open(path, &options)?))
}

/// Opens a partition as a server does.
pub(super) fn open(path: &Path) -> anyhow::Result<Arc<Partition>> {
    crate::store::open(path)
}

pub(super) fn new_vnode() -> NewVnode {
    NewVnode::new(PtsId(1), 0o644)
}

/// A volume without a quota.
pub(super) fn new_volume(id: u32, name: &str) -> NewVolume {
    NewVolume::new(VolumeId(id), name).max_quota(0)
}

/// Bytes that do not compress, different for each seed.
pub(super) fn noise(len: usize, seed: u64) -> Vec<u8> {
    // Xorshift64*, enough to leave zstd without a match.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A random number below a bound, and the next state.
pub(super) fn random_below(state: &mut u64, bound: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    // The upper half is the random one.
    ((*state >> 32) * bound) >> 32
}

/// Fills a volume with files, a thousand in a directory, by so many threads. Returns them in
/// order.
pub(super) fn fill_volume(
    volume: &Volume,
    files: u32,
    fillers: usize,
    data: impl Fn(u32) -> anyhow::Result<Vec<u8>> + Sync,
) -> anyhow::Result<Vec<Fid>> {
    let bar = progress("files", files.into());
    let directories = files.div_ceil(IN_DIRECTORY);
    let mut homes = Vec::new();
    for number in 0..directories {
        let name = format!("d{number:05}");
        let made = volume.make_directory(volume.root(), name.as_bytes(), &new_vnode())?;
        homes.push(made.vnode.fid);
    }
    let next = AtomicU32::new(0);
    let fill = || -> anyhow::Result<Vec<(u32, Fid)>> {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= files {
                return Ok(made);
            }
            let home = homes[(number / IN_DIRECTORY) as usize];
            let name = format!("f{number:08}");
            let created = volume.create_file(home, name.as_bytes(), &new_vnode())?;
            let fid = created.vnode.fid;
            volume.write(fid, 0, &data(number)?, &StoreOptions::default())?;
            made.push((number, fid));
            bar.advance(1);
        }
    };
    let mut all = thread::scope(|scope| {
        let running: Vec<_> = (0..fillers).map(|_| scope.spawn(fill)).collect();
        let mut all = Vec::new();
        for filler in running {
            all.extend(filler.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok::<_, anyhow::Error>(all)
    })?;
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, fid)| fid).collect())
}

/// Real files, as many as have about so many bytes, from all over a directory.
pub(super) struct Corpus {
    pub(super) name: String,
    pub(super) files: Vec<PathBuf>,
}

impl Corpus {
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn collect(source: &Path, limit: u64) -> anyhow::Result<Self> {
        let mut found = Vec::new();
        walk(source, &mut found)?;
        let all: u64 = found.iter().map(|(_, len)| len).sum();
        let name = shown(source);
        if all <= limit {
            let files = found.into_iter().map(|(path, _)| path).collect();
            return Ok(Self { name, files });
        }
        // One file of so many, by their lengths: the sample has large and small ones as the whole
        // has.
        found.sort_by(|(one, a), (other, b)| (a, one).cmp(&(b, other)));
        let mut files = Vec::new();
        let mut due = 0;
        for (path, _) in found {
            due += limit;
            if due >= all {
                due -= all;
                files.push(path);
            }
        }
        files.sort();
        Ok(Self { name, files })
    }
}

/// A path as others would write it: the user's own folder is `~`.
fn shown(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf)) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// Regular files that hold something, in the order of their paths. What cannot be read is left
/// out.
fn walk(dir: &Path, found: &mut Vec<(PathBuf, u64)>) -> anyhow::Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut entries: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            // A directory that may not be read is no reason to stop.
            walk(&path, found).ok();
        } else if metadata.is_file() && metadata.len() > 0 && File::open(&path).is_ok() {
            found.push((path, metadata.len()));
        }
    }
    Ok(())
}

/// Reads plain files, and returns how many bytes there were.
pub(super) fn read_plain(files: &[PathBuf]) -> anyhow::Result<u64> {
    let mut buffer = vec![0; PIECE];
    files
        .iter()
        .try_fold(0, |sum, path| Ok(sum + read_file(path, &mut buffer)?))
}

/// Names of the files below a directory, in order.
pub(super) fn walk_names(dir: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        entries.push((entry.path(), entry.file_type()?.is_dir()));
    }
    entries.sort();
    for (path, is_dir) in entries {
        if is_dir {
            walk_names(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads one plain file.
fn read_file(path: &Path, buffer: &mut [u8]) -> anyhow::Result<u64> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut sum = 0;
    loop {
        let read = file
            .read(buffer)
            .with_context(|| path.display().to_string())?;
        sum += read as u64;
        // As with a volume, a short read is the last.
        if read < buffer.len() {
            return Ok(sum);
        }
    }
}

/// Reads files of a volume, and returns how many bytes there were.
pub(super) fn read_volume(volume: &Volume, files: &[Fid]) -> anyhow::Result<u64> {
    let mut buffer = vec![0; PIECE];
    files.iter().try_fold(0, |sum, fid| {
        Ok(sum + read_vnode(volume, *fid, &mut buffer)?)
    })
}

/// The files of a volume made by [`fill_volume`], in order.
pub(super) fn files_of(volume: &Volume) -> anyhow::Result<Vec<Fid>> {
    let mut files = Vec::new();
    for (_, home) in entries(volume, volume.root())? {
        for (_, fid) in entries(volume, home)? {
            if volume.status(fid)?.file_type == FileType::File {
                files.push(fid);
            }
        }
    }
    Ok(files)
}

fn entries(volume: &Volume, directory: Fid) -> anyhow::Result<Vec<(Vec<u8>, Fid)>> {
    let pages = volume.read_all(directory, 64 << 20)?;
    let mut entries = Vec::new();
    for entry in Directory::new(&pages)?.entries() {
        let entry = entry?;
        if entry.name != b"." && entry.name != b".." {
            let fid = entry.id.fid(volume.id());
            entries.push((entry.name.to_vec(), fid));
        }
    }
    entries.sort();
    Ok(entries)
}

/// Reads one file of a volume.
fn read_vnode(volume: &Volume, fid: Fid, buffer: &mut [u8]) -> anyhow::Result<u64> {
    let mut sum = 0;
    loop {
        let read = volume.read(fid, sum, buffer)?;
        sum += read as u64;
        if read < buffer.len() {
            return Ok(sum);
        }
    }
}

/// Makes a volume of real files, copied in one by one as plain ones are.
pub(super) fn volume_of(
    partition: &Arc<Partition>,
    id: u32,
    files: &[PathBuf],
    compression: Compression,
) -> anyhow::Result<()> {
    let new = new_volume(id, &format!("data.{id}")).compression(compression);
    let volume = partition.create_volume(&new)?;
    let count = u32::try_from(files.len()).context("too many files")?;
    let read = |number: u32| {
        let path = &files[number as usize];
        fs::read(path).with_context(|| path.display().to_string())
    };
    fill_volume(&volume, count, 1, read)?;
    Ok(())
}
