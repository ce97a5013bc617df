//! Volumes on a partition: vnodes, directories, compressed data, clones, dumps.
//!
//! A [`Partition`] is a directory with a database and segment files; a [`Store`] is all partitions
//! of a server. A [`Volume`] has the operations a file server needs, one method each, and every one
//! of them is durable when it returns. How all this lies on the disk is in `docs/formats/store.md`.
//!
//! - `meta`: the database: rows, keys, versions of rows; the log and the base that make it durable
//! - [`segment`]: records of file data in segment files
//! - `partition`: the committer, the reaper, checkpoints, what is read again
//! - `volume`: making, cloning, copying, removing, describing
//! - `vnode`: files, directories, symlinks: reading and changing
//! - [`dump`], `transfer`: the dump stream; volumes into it and out of it
//! - `check`: proving that all of it is as it should be
//! - `writing`: having the disk begin early with what is to be synced
//!
//! ```
//! use std::sync::Arc;
//!
//! use afar_store::{NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions};
//! use afar_types::{PtsId, VolumeId};
//!
//! let dir = tempfile::tempdir()?;
//! let partition = Arc::new(Partition::init(dir.path(), &PartitionOptions::default())?);
//! let volume = partition.create_volume(&NewVolume::new(VolumeId(536870912), "user.ann"))?;
//! let made = volume.create_file(volume.root(), b"hello.txt", &NewVnode::new(PtsId(7), 0o644))?;
//! volume.write(made.vnode.fid, 0, b"Hello.", &StoreOptions::default())?;
//!
//! let found = volume.lookup(volume.root(), b"hello.txt")?;
//! assert_eq!(volume.read_all(found, 100)?, b"Hello.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod dump;
#[doc(hidden)]
pub mod fuzzing;
pub mod segment;

mod check;
mod config;
mod error;
mod meta;
mod partition;
mod store;
mod transfer;
mod vnode;
mod volume;
mod writing;

pub use check::{
    BadRecord, CheckOptions, CheckReport, Problem, ProblemKind, Progress, RecordOwner,
    ScrubOptions, ScrubReport, Stage,
};
pub use config::{Durability, PartitionOptions};
pub use error::{NoPartition, Result, StoreError};
pub use partition::{CommitStats, Packed, Partition, Space, Survey};
pub use store::Store;
pub use transfer::{
    DumpOptions, DumpSummary, RestoreMode, RestoreOptions, RestoreSummary, TransferProgress,
};
pub use vnode::{
    Created, FileWriter, Linked, MAX_TARGET, NewVnode, Removed, Renamed, Sequence, SetAttributes,
    StoreOptions, StoredRecord, Together, VnodeStatus, Vnodes,
};
pub use volume::{
    MAX_VOLUME_NAME, NewClone, NewVolume, RemovedVolume, Volume, VolumeChange, VolumeState,
    VolumeSummary,
};
