//! Records: compressed before they are appended, decompressed when read.

use std::borrow::Cow;
use std::io;

use xxhash_rust::xxh3::xxh3_128;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, ResetDirective};

use super::error::{ReadErrorKind, UnpackError};
use super::extent::check_lengths;
use super::noise::is_noise;
use super::pool::Pool;
use super::{Codec, Compression, Extent, MAX_RECORD};

static COMPRESSORS: Pool<Compressor<'static>> = Pool::new();
static DECOMPRESSORS: Pool<Decompressor<'static>> = Pool::new();

/// A record as it is stored, ready to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    codec: Codec,
    plain_len: u32,
    bytes: Cow<'a, [u8]>,
    checksum: u128,
}

impl<'a> Stored<'a> {
    /// A record that came as it is to be stored, with its checksum: from
    /// another server, or from another place in a segment.
    ///
    /// # Errors
    ///
    /// [`ReadErrorKind::Checksum`] when it does not match, and
    /// [`ReadErrorKind::Extent`] when the lengths cannot be right.
    pub fn verified(
        codec: Codec,
        plain_len: u32,
        bytes: impl Into<Cow<'a, [u8]>>,
        checksum: u128,
    ) -> Result<Self, ReadErrorKind> {
        let bytes = bytes.into();
        let stored_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        check_lengths(codec, stored_len, plain_len)?;
        verify(&bytes, checksum)?;
        Ok(Self {
            codec,
            plain_len,
            bytes,
            checksum,
        })
    }

    /// Bytes that were verified against their extent.
    pub(super) fn trusted(extent: &Extent, bytes: Vec<u8>) -> Stored<'static> {
        Stored {
            codec: extent.codec,
            plain_len: extent.plain,
            bytes: Cow::Owned(bytes),
            checksum: extent.checksum,
        }
    }

    /// How the bytes are stored.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The length when decompressed, in bytes.
    pub fn plain_len(&self) -> u32 {
        self.plain_len
    }

    /// The bytes as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes as stored.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }

    /// XXH3-128 of the bytes as stored.
    pub fn checksum(&self) -> u128 {
        self.checksum
    }

    /// The same without a borrow.
    pub fn into_owned(self) -> Stored<'static> {
        Stored {
            codec: self.codec,
            plain_len: self.plain_len,
            bytes: Cow::Owned(self.bytes.into_owned()),
            checksum: self.checksum,
        }
    }

    /// Whether [`into_owned`](Self::into_owned) copies nothing.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self.bytes, Cow::Owned(_))
    }
}

/// Compresses a record, or leaves it raw when less than a sixteenth would be
/// saved.
///
/// # Panics
///
/// When `plain` has more than [`MAX_RECORD`] bytes: the caller cuts records.
pub fn pack<'a>(plain: impl Into<Cow<'a, [u8]>>, compression: Compression) -> Stored<'a> {
    let plain = plain.into();
    let plain_len = u32::try_from(plain.len()).unwrap_or(u32::MAX);
    assert!(plain_len <= MAX_RECORD, "a record of {plain_len} bytes");
    let limit = plain.len() - plain.len().div_ceil(16);
    let packed = match compression {
        Compression::None => None,
        _ if is_noise(&plain) => None,
        Compression::Lz4 => pack_lz4(&plain, limit).map(|bytes| (Codec::Lz4, bytes)),
        Compression::Zstd(level) => {
            pack_zstd(&plain, limit, level).map(|bytes| (Codec::Zstd, bytes))
        }
    };
    let (codec, bytes) = match packed {
        Some((codec, bytes)) => (codec, Cow::Owned(bytes)),
        None => (Codec::Raw, plain),
    };
    Stored {
        codec,
        plain_len,
        checksum: xxh3_128(&bytes),
        bytes,
    }
}

fn pack_lz4(plain: &[u8], limit: usize) -> Option<Vec<u8>> {
    let packed = lz4_flex::block::compress(plain);
    (packed.len() <= limit).then_some(packed)
}

/// Any failure of the library means the record stays raw: most often that
/// the buffer, which is just as long as is worth while, was too short.
fn pack_zstd(plain: &[u8], limit: usize, level: i32) -> Option<Vec<u8>> {
    if limit == 0 {
        return None;
    }
    let mut compressor = match COMPRESSORS.take() {
        Some(compressor) => compressor,
        None => Compressor::new(level).ok()?,
    };
    let level = CParameter::CompressionLevel(level);
    compressor.set_parameter(level).ok()?;
    let mut packed = Vec::with_capacity(limit);
    let done = compressor.compress_to_buffer(plain, &mut packed);
    // After a failure the context is still within that record.
    let context = compressor.context_mut();
    if done.is_ok() || context.reset(ResetDirective::SessionOnly).is_ok() {
        COMPRESSORS.put(compressor);
    }
    done.ok().filter(|&len| len <= limit)?;
    Some(packed)
}

/// Decompresses a record. `out` is replaced; used again and again, it is
/// neither allocated nor cleared each time.
///
/// # Errors
///
/// [`UnpackError`] when the bytes do not make up exactly `plain_len` bytes.
/// Never more than [`MAX_RECORD`] bytes are allocated.
pub fn unpack(
    codec: Codec,
    stored: &[u8],
    plain_len: u32,
    out: &mut Vec<u8>,
) -> Result<(), UnpackError> {
    if plain_len > MAX_RECORD {
        return Err(UnpackError::TooLong(plain_len));
    }
    out.resize(plain_len as usize, 0);
    unpack_into(codec, stored, out)
}

/// Decompresses a record that must fill `out` exactly.
pub(super) fn unpack_into(codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), UnpackError> {
    let len = match codec {
        Codec::Raw => {
            if stored.len() == out.len() {
                out.copy_from_slice(stored);
            }
            stored.len()
        }
        Codec::Lz4 => lz4_flex::block::decompress_into(stored, out)
            .map_err(|error| UnpackError::Corrupt(io::Error::other(error)))?,
        Codec::Zstd => {
            let mut decompressor = match DECOMPRESSORS.take() {
                Some(decompressor) => decompressor,
                None => Decompressor::new().map_err(UnpackError::Corrupt)?,
            };
            let done = decompressor.decompress_to_buffer(stored, out);
            DECOMPRESSORS.put(decompressor);
            done.map_err(UnpackError::Corrupt)?
        }
    };
    if len == out.len() {
        Ok(())
    } else {
        Err(UnpackError::Length {
            expected: out.len(),
            found: len,
        })
    }
}

pub(super) fn verify(bytes: &[u8], expected: u128) -> Result<(), ReadErrorKind> {
    let found = xxh3_128(bytes);
    if found == expected {
        Ok(())
    } else {
        Err(ReadErrorKind::Checksum { expected, found })
    }
}
