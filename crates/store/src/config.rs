//! What can be set for a partition.

use std::fmt;
use std::str::FromStr;

use crate::error::StoreError;
use crate::segment::Compression;

/// What an operation that returned is sure to survive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: all of it is on the disk. The default.
    #[default]
    Full,
    /// Power loss, but for file data of the last seconds: names, attributes and volumes are on the
    /// disk, and data that is not fails its checksum when it is read.
    Metadata,
    /// The end of the process. Power loss may take the last changes away; the store stays
    /// consistent, with file data of the last seconds as with `Metadata`.
    Async,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full => "full",
            Self::Metadata => "metadata",
            Self::Async => "async",
        })
    }
}

impl FromStr for Durability {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "full" => Ok(Self::Full),
            "metadata" => Ok(Self::Metadata),
            "async" => Ok(Self::Async),
            _ => Err(StoreError::OutOfRange {
                option: "durability",
                value: text.to_owned(),
                range: "full, metadata or async",
            }),
        }
    }
}

/// How a partition is opened. `Default` serves everybody; sizes take care of themselves.
#[derive(Debug, Clone)]
pub struct PartitionOptions {
    durability: Durability,
    compression: Compression,
    segment_size: u32,
    map_size: usize,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            compression: Compression::default(),
            segment_size: 1 << 30,
            map_size: 1 << 40,
        }
    }
}

impl PartitionOptions {
    /// What an operation that returned is sure to survive.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How data of volumes made from now on is packed. A volume's own setting can be changed later.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Bytes at which a segment file is full: 1 MiB to 2 GiB, by default 1 GiB.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`].
    pub fn segment_size(mut self, octets: u32) -> Result<Self, StoreError> {
        if !(1 << 20..=1 << 31).contains(&octets) {
            return Err(StoreError::OutOfRange {
                option: "segment size",
                value: octets.to_string(),
                range: "1 MiB to 2 GiB",
            });
        }
        self.segment_size = octets;
        Ok(self)
    }

    /// Bytes the database can grow to: 16 MiB to 16 TiB, by default 1 TiB. It costs address
    /// space only, and is halved where that is short.
    ///
    /// # Errors
    ///
    /// [`StoreError::OutOfRange`].
    pub fn map_size(mut self, octets: usize) -> Result<Self, StoreError> {
        if !(1 << 24..=1 << 44).contains(&octets) {
            return Err(StoreError::OutOfRange {
                option: "database size",
                value: octets.to_string(),
                range: "16 MiB to 16 TiB",
            });
        }
        self.map_size = octets;
        Ok(self)
    }

    pub(crate) fn durable(&self) -> Durability {
        self.durability
    }

    pub(crate) fn new_compression(&self) -> Compression {
        self.compression
    }

    pub(crate) fn segment_octets(&self) -> u32 {
        self.segment_size
    }

    pub(crate) fn map_octets(&self) -> usize {
        self.map_size
    }
}
