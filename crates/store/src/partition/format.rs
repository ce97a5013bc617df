//! The mark that makes a directory a partition, and the lock that keeps others out.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::error::{NoPartition, Result, StoreError};

/// What the file `format` says before the version.
const MARK: &str = "afar-store";
/// The format this code writes. See docs/formats/store.md for its history.
pub(crate) const VERSION: u32 = 3;
/// The first one that has checksums of the database's pages.
pub(super) const SUMS: u32 = 3;
/// The oldest one it reads.
const OLDEST: u32 = 1;

/// Makes a new partition's directories.
pub(super) fn create(path: &Path) -> Result<()> {
    let named = |e| StoreError::io(format!("making partition {}", path.display()), e);
    fs::create_dir_all(path).map_err(named)?;
    let mut entries = fs::read_dir(path).map_err(named)?;
    let foreign = entries.find_map(|entry| {
        let name = entry.ok()?.file_name();
        (name != "lost+found").then_some(name)
    });
    if let Some(name) = foreign {
        let name = name.to_string_lossy().into_owned();
        let ours = ["meta", "seg", "lock", "format.new"].contains(&&*name);
        let interrupted = ours && !path.join("format").exists();
        return Err(StoreError::NotPartition {
            path: path.to_owned(),
            why: NoPartition::NotEmpty { name, interrupted },
        });
    }
    for dir in ["meta", "seg"] {
        fs::create_dir(path.join(dir)).map_err(named)?;
    }
    Ok(())
}

/// Marks a directory as a partition.
pub(super) fn mark(path: &Path) -> Result<()> {
    let named = |e| StoreError::io(format!("marking partition {}", path.display()), e);
    let fresh = path.join("format.new");
    let mut file = File::create(&fresh).map_err(named)?;
    writeln!(file, "{MARK} {VERSION}").map_err(named)?;
    file.sync_all().map_err(named)?;
    fs::rename(&fresh, path.join("format")).map_err(named)?;
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(named)
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| StoreError::io(format!("syncing {}", path.display()), e))
}

/// Whether the directory is a partition this code can use, and of which version.
pub(super) fn check(path: &Path) -> Result<u32> {
    let not = |why| StoreError::NotPartition {
        path: path.to_owned(),
        why,
    };
    let text = fs::read_to_string(path.join("format"))
        .map_err(|error| not(NoPartition::Unmarked(Arc::new(error))))?;
    let version = text
        .trim()
        .strip_prefix(MARK)
        .and_then(|rest| rest.trim().parse::<u32>().ok())
        .ok_or_else(|| not(NoPartition::Foreign))?;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(not(NoPartition::Version {
            found: version,
            oldest: OLDEST,
            newest: VERSION,
        }));
    }
    Ok(version)
}

/// Held while the partition is open.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(path: &Path) -> Result<Self> {
        let name = path.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&name)
            .map_err(|e| StoreError::io(name.display().to_string(), e))?;
        // A process being started has the files of the one that starts it for a moment.
        let mut tries = 0..20;
        let locked = loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if tries.next().is_some() => {
                    thread::sleep(Duration::from_millis(10));
                }
                result => break result,
            }
        };
        match locked {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => {
                Err(StoreError::io(format!("locking {}", name.display()), error))
            }
        }
    }
}
