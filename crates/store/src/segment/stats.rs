//! What the segments of a partition have done since they were opened.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Codec;

/// Counts since the segments were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentStats {
    /// Records appended raw.
    pub appended_raw: u64,
    /// Records appended as zstd.
    pub appended_zstd: u64,
    /// Records appended as LZ4.
    pub appended_lz4: u64,
    /// Stored bytes appended.
    pub bytes_appended: u64,
    /// Plain bytes of the records appended.
    pub bytes_appended_plain: u64,
    /// Appends that failed.
    pub append_errors: u64,
    /// Records read raw.
    pub read_raw: u64,
    /// Records read as zstd.
    pub read_zstd: u64,
    /// Records read as LZ4.
    pub read_lz4: u64,
    /// Stored bytes read and verified.
    pub bytes_read: u64,
    /// Records whose checksum was wrong and right when read again.
    pub reread: u64,
    /// Reads that failed because of the file or the system.
    pub read_errors_io: u64,
    /// Reads that failed because the checksum did not match.
    pub read_errors_checksum: u64,
    /// Reads that failed because a verified record could not be decompressed.
    pub read_errors_decompress: u64,
    /// Files synced.
    pub syncs: u64,
    /// Syncs that failed; after the first nothing more is written.
    pub sync_errors: u64,
    /// Bytes given back by punching holes.
    pub bytes_punched: u64,
    /// Holes not punched, because the file system cannot.
    pub punches_unsupported: u64,
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> SegmentStats {
                SegmentStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }
        }
    };
}

counters!(
    appended_raw,
    appended_zstd,
    appended_lz4,
    bytes_appended,
    bytes_appended_plain,
    append_errors,
    read_raw,
    read_zstd,
    read_lz4,
    bytes_read,
    reread,
    read_errors_io,
    read_errors_checksum,
    read_errors_decompress,
    syncs,
    sync_errors,
    bytes_punched,
    punches_unsupported,
);

impl Counters {
    pub(super) fn appended(&self, codec: Codec, stored: u32, plain: u32) {
        add(
            match codec {
                Codec::Raw => &self.appended_raw,
                Codec::Zstd => &self.appended_zstd,
                Codec::Lz4 => &self.appended_lz4,
            },
            1,
        );
        add(&self.bytes_appended, u64::from(stored));
        add(&self.bytes_appended_plain, u64::from(plain));
    }

    pub(super) fn read(&self, codec: Codec, stored: u32) {
        add(
            match codec {
                Codec::Raw => &self.read_raw,
                Codec::Zstd => &self.read_zstd,
                Codec::Lz4 => &self.read_lz4,
            },
            1,
        );
        add(&self.bytes_read, u64::from(stored));
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
