//! How a volume wants its data stored.

use std::fmt;
use std::str::FromStr;

/// How the records of a volume are compressed. A change counts for records
/// written from then on; each record names its own codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Records are stored as they are.
    None,
    /// LZ4 blocks: the fastest to read, about four fifths of zstd's ratio.
    Lz4,
    /// Zstandard at this level: 1 to 19, or -1 to -7, which are faster and
    /// compress less.
    Zstd(i32),
}

impl Compression {
    /// The lowest level of zstd that is accepted.
    pub const ZSTD_MIN: i32 = -7;
    /// The highest level of zstd that is accepted. Those above need hundreds
    /// of megabytes for each writer and gain nothing on records this short.
    pub const ZSTD_MAX: i32 = 19;

    const NONE: u16 = 0;
    const LZ4: u16 = 1;
    const ZSTD: u16 = 2;

    /// Zstandard at `level`.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Level`] when the level is out of range.
    pub fn zstd(level: i32) -> Result<Self, CompressionError> {
        if level != 0 && (Self::ZSTD_MIN..=Self::ZSTD_MAX).contains(&level) {
            Ok(Self::Zstd(level))
        } else {
            Err(CompressionError::Level(level.to_string()))
        }
    }

    /// The form in a volume's row: the method in the low byte, the level as a
    /// signed number in the high byte. A level out of range is kept to it.
    pub fn to_u16(self) -> u16 {
        match self {
            Self::None => Self::NONE,
            Self::Lz4 => Self::LZ4,
            Self::Zstd(level) => {
                let level = level.clamp(Self::ZSTD_MIN, Self::ZSTD_MAX);
                let level = i8::try_from(level).expect("the range of levels fits in a byte");
                Self::ZSTD | u16::from(level.cast_unsigned()) << 8
            }
        }
    }

    /// Reads the form in a volume's row.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Code`] for an unknown method, or
    /// [`CompressionError::Level`] for a level out of range.
    pub fn from_u16(code: u16) -> Result<Self, CompressionError> {
        let [level, method] = code.to_be_bytes();
        match (u16::from(method), level) {
            (Self::NONE, 0) => Ok(Self::None),
            (Self::LZ4, 0) => Ok(Self::Lz4),
            (Self::ZSTD, level) => Self::zstd(i32::from(level.cast_signed())),
            _ => Err(CompressionError::Code(code)),
        }
    }
}

impl Default for Compression {
    /// Zstandard level 6, the lowest that comes to the ratio of gzip -6 on libraries, texts and
    /// sources alike, at three to four times its speed. Level 3 is between one per cent better
    /// and six worse than gzip, and twice as fast to write.
    fn default() -> Self {
        Self::Zstd(6)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::default()),
            _ => match text.strip_prefix("zstd:") {
                Some(level) => level
                    .parse()
                    .map_err(|_| CompressionError::Level(level.to_owned()))
                    .and_then(Self::zstd),
                None => Err(CompressionError::Method(text.to_owned())),
            },
        }
    }
}

/// Why a setting is not a [`Compression`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// The text names no method.
    #[error("{0:?} is not a compression: use none, lz4, zstd or zstd:LEVEL")]
    Method(String),
    /// The level is no number in the range.
    #[error("{0:?} is not a zstd level: use 1 to 19, or -1 to -7 for speed")]
    Level(String),
    /// The number in a row stands for no method.
    #[error("{0:#06x} is a compression unknown to this version")]
    Code(u16),
}
