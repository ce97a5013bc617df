//! Volumes on a partition: vnodes, directories, compressed data, clones, dumps.

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

pub use check::{
    BadRecord, CheckOptions, CheckReport, Problem, ProblemKind, Progress, RecordOwner,
    ScrubOptions, ScrubReport, Stage,
};
pub use config::{Durability, PartitionOptions};
pub use error::{Result, StoreError};
pub use partition::{CommitStats, Packed, Partition, Space, Survey};
pub use store::Store;
pub use transfer::{
    DumpOptions, DumpSummary, RestoreMode, RestoreOptions, RestoreSummary, TransferProgress,
};
pub use vnode::{
    Created, FileWriter, Linked, MAX_TARGET, NewVnode, Removed, Renamed, SetAttributes,
    StoreOptions, StoredRecord, VnodeStatus,
};
pub use volume::{MAX_VOLUME_NAME, NewClone, NewVolume, Volume, VolumeChange, VolumeState};
