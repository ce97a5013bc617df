//! Partitions of a file server.

use std::fmt;
use std::str::FromStr;

use afar_xdr::{Decode, Encode};

/// The number of a partition: 0 is `/vicepa`, 25 `/vicepz`, 26 `/vicepaa`, 254 `/vicepiu`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct PartitionId(pub u32);

/// A text that names no partition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a partition: give /vicepa to /vicepiu, or a to iu, or 0 to 254")]
pub struct PartitionError(String);

impl PartitionId {
    /// Partitions a server can have (VOLMAXPARTS).
    // spec: volumes#partitions
    pub const COUNT: u32 = 255;
}

/// `/vicepXX`; a number that no partition can have shows as `partition N`.
impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |number: u32| char::from_digit(number + 10, 36).unwrap_or('?');
        match self.0 {
            number @ 0..26 => write!(f, "/vicep{}", letter(number)),
            number @ 26..Self::COUNT => {
                let (first, second) = ((number - 26) / 26, (number - 26) % 26);
                write!(f, "/vicep{}{}", letter(first), letter(second))
            }
            number => write!(f, "partition {number}"),
        }
    }
}

impl FromStr for PartitionId {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        let error = || PartitionError(text.to_owned());
        let name = text.strip_prefix('/').unwrap_or(text);
        let name = name.strip_prefix("vicep").unwrap_or(name);
        let letter = |byte: &u8| u32::from(byte - b'a');
        let number = match name.as_bytes() {
            [one @ b'a'..=b'z'] => letter(one),
            [one @ b'a'..=b'z', two @ b'a'..=b'z'] => 26 + 26 * letter(one) + letter(two),
            _ if name.len() == text.len() && name.bytes().all(|byte| byte.is_ascii_digit()) => {
                name.parse().map_err(|_| error())?
            }
            _ => return Err(error()),
        };
        if number < Self::COUNT {
            Ok(Self(number))
        } else {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (number, name) in [
            (0, "/vicepa"),
            (25, "/vicepz"),
            (26, "/vicepaa"),
            (254, "/vicepiu"),
        ] {
            assert_eq!(PartitionId(number).to_string(), name);
        }
        for number in 0..PartitionId::COUNT {
            let id = PartitionId(number);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(number.to_string().parse(), Ok(id));
        }
        assert_eq!("vicepb".parse(), Ok(PartitionId(1)));
        for bad in ["", "/vicep", "/vicepiv", "255", "/vicep1", "abc", "A"] {
            assert!(bad.parse::<PartitionId>().is_err(), "{bad}");
        }
        assert_eq!(PartitionId(u32::MAX).to_string(), "partition 4294967295");
    }
}
