//! How data is packed, checked and unpacked: as the volume store has it on the disk, so that a server need not unpack
//! what a client can.
// spec: oob#records

use std::io;

use afar_xdr::{Decode, Encode};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;
use zstd::bulk::Decompressor;

/// Bytes that one record has at most, packed or not.
pub const RECORD_MAX: u32 = 1 << 20;

/// How a record is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As it is.
    Raw,
    /// One zstd frame.
    Zstd,
    /// One LZ4 block, without a length before it.
    Lz4,
}

impl Codec {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
            Self::Lz4 => 2,
        }
    }

    /// The codec of this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// Some codecs: the bit 1 << N is for the one with the number N. Unknown bits mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Codecs(pub u32);

impl Codecs {
    /// All that this version knows.
    pub const ALL: Self = Self(0b111);
    /// None but the raw one, which everybody knows.
    pub const RAW: Self = Self(0b001);

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, codec: Codec) -> bool {
        matches!(codec, Codec::Raw) || self.0 & 1 << codec.number() != 0
    }
}

/// A record is not what it is said to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is packed in an unknown way.
    #[error("a record has the unknown codec {0}")]
    Codec(u32),
    /// It is too long, or packed longer than it is.
    #[error("a record has {stored} bytes for {plain} of data; the maximum is {RECORD_MAX}")]
    Length {
        /// Bytes as it is packed.
        stored: u64,
        /// Bytes that it stands for.
        plain: u32,
    },
    /// Its checksum is another one.
    #[error("a record has the checksum {found:032x} instead of {expected:032x}")]
    Checksum {
        /// What was said.
        expected: u128,
        /// What it has.
        found: u128,
    },
    /// It cannot be unpacked.
    #[error("a record cannot be decompressed")]
    Corrupt(#[source] io::Error),
}

/// XXH3-128 of a record as it is packed.
#[must_use]
pub fn checksum(stored: &[u8]) -> u128 {
    xxh3_128(stored)
}

/// Checks lengths before anything is allocated because of them.
///
/// # Errors
/// [`RecordError::Length`].
pub(crate) fn check_lengths(codec: Codec, stored: u64, plain: u32) -> Result<(), RecordError> {
    let fits = match codec {
        Codec::Raw => stored == u64::from(plain),
        Codec::Zstd | Codec::Lz4 => stored < u64::from(plain),
    };
    if plain == 0 || plain > RECORD_MAX || stored == 0 || !fits {
        return Err(RecordError::Length { stored, plain });
    }
    Ok(())
}

/// Checks records and unpacks them. One is used for many: what zstd needs is allocated once.
#[derive(Default)]
pub struct Unpacker {
    zstd: Option<Decompressor<'static>>,
}

impl Unpacker {
    /// The data of a record.
    ///
    /// # Errors
    /// [`RecordError`]. No more than `plain` bytes are allocated.
    pub fn unpack(
        &mut self,
        codec: Codec,
        stored: Bytes,
        plain: u32,
        expected: u128,
    ) -> Result<Bytes, RecordError> {
        check_lengths(codec, stored.len() as u64, plain)?;
        let found = checksum(&stored);
        if found != expected {
            return Err(RecordError::Checksum { expected, found });
        }
        if codec == Codec::Raw {
            return Ok(stored);
        }
        let mut out = vec![0; plain as usize];
        let length = match codec {
            Codec::Zstd => self.zstd(&stored, &mut out),
            Codec::Raw | Codec::Lz4 => {
                lz4_flex::block::decompress_into(&stored, &mut out).map_err(io::Error::other)
            }
        };
        match length.map_err(RecordError::Corrupt)? {
            length if length == out.len() => Ok(out.into()),
            length => {
                let what = format!("{length} bytes came out instead of {plain}");
                Err(RecordError::Corrupt(io::Error::other(what)))
            }
        }
    }

    fn zstd(&mut self, stored: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let decompressor = match &mut self.zstd {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(stored, out)
    }
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unpacker")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        b"the same again and ".repeat(5000)
    }

    fn packed(codec: Codec) -> Bytes {
        match codec {
            Codec::Raw => text(),
            Codec::Zstd => zstd::bulk::compress(&text(), 3).unwrap(),
            Codec::Lz4 => lz4_flex::block::compress(&text()),
        }
        .into()
    }

    #[test]
    fn records_are_unpacked_and_wrong_ones_refused() {
        let mut unpacker = Unpacker::default();
        let plain = u32::try_from(text().len()).unwrap();
        for codec in [Codec::Raw, Codec::Zstd, Codec::Lz4, Codec::Zstd] {
            let stored = packed(codec);
            let sum = checksum(&stored);
            let out = unpacker.unpack(codec, stored.clone(), plain, sum).unwrap();
            assert!(out == text());
            let wrong = unpacker.unpack(codec, stored.clone(), plain, sum + 1);
            assert!(matches!(wrong, Err(RecordError::Checksum { .. })));
            for length in [0, plain - 1, plain + 1, RECORD_MAX + 1, u32::MAX] {
                let wrong = unpacker.unpack(codec, stored.clone(), length, sum);
                assert!(wrong.is_err(), "{codec:?} {length}");
            }
            assert_eq!(Codec::from_number(codec.number()), Some(codec));
        }
        let noise = Bytes::from_static(b"no frame of zstd");
        let sum = checksum(&noise);
        for codec in [Codec::Zstd, Codec::Lz4] {
            let wrong = unpacker.unpack(codec, noise.clone(), 1000, sum);
            assert!(matches!(wrong, Err(RecordError::Corrupt(_))), "{codec:?}");
        }
    }

    #[test]
    fn everybody_knows_raw_records() {
        assert!(Codecs(0).has(Codec::Raw) && !Codecs(0).has(Codec::Zstd));
        assert!(Codecs::ALL.has(Codec::Lz4) && !Codecs::RAW.has(Codec::Lz4));
        assert_eq!(Codec::from_number(3), None);
    }
}
