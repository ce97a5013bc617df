//! Volumes on a partition: vnodes, directories, compressed data, clones, dumps.

pub mod dump;
pub mod segment;

mod config;
mod error;
mod meta;
mod partition;
mod store;
mod vnode;
mod volume;

pub use config::{Durability, PartitionOptions};
pub use error::{Result, StoreError};
pub use partition::{CommitStats, Packed, Partition, Space, Survey};
pub use store::Store;
pub use vnode::{
    Created, FileWriter, Linked, MAX_TARGET, NewVnode, Removed, Renamed, SetAttributes,
    StoreOptions, StoredRecord, VnodeStatus,
};
pub use volume::{MAX_VOLUME_NAME, NewClone, NewVolume, Volume, VolumeChange, VolumeState};
