//! The identity of servers and cache managers (AFS-3 afsUUID).

use std::fmt;
use std::str::FromStr;

use afar_xdr::{Decode, Encode};

/// A UUID as AFS sends it: 11 words, one for each member (44 bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct AfsUuid {
    /// Low 32 bits of the time. In VLDB entries without a UUID it holds an IPv4 address.
    pub time_low: u32,
    /// Middle 16 bits of the time.
    pub time_mid: u16,
    /// High 12 bits of the time, and the version.
    pub time_hi_and_version: u16,
    /// High bits of the clock sequence, and the variant.
    pub clock_seq_hi: u8,
    /// Low bits of the clock sequence.
    pub clock_seq_low: u8,
    /// The node.
    pub node: [u8; 6],
}

/// A text that is not of the form `8-4-4-4-12` hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")]
pub struct UuidError(String);

impl AfsUuid {
    /// From the 16 bytes of RFC 9562.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            clock_seq_hi,
            clock_seq_low,
            node @ ..,
        ] = bytes;
        Self {
            time_low: u32::from_be_bytes([a, b, c, d]),
            time_mid: u16::from_be_bytes([e, f]),
            time_hi_and_version: u16::from_be_bytes([g, h]),
            clock_seq_hi,
            clock_seq_low,
            node,
        }
    }

    /// A version 4 UUID from 16 random bytes.
    #[must_use]
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self::from_bytes(bytes)
    }

    /// The 16 bytes of RFC 9562.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.time_low.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.time_mid.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.time_hi_and_version.to_be_bytes());
        bytes[8] = self.clock_seq_hi;
        bytes[9] = self.clock_seq_low;
        bytes[10..].copy_from_slice(&self.node);
        bytes
    }
}

impl fmt::Display for AfsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, mid, high) = (self.time_low, self.time_mid, self.time_hi_and_version);
        write!(f, "{low:08x}-{mid:04x}-{high:04x}-")?;
        write!(f, "{:02x}{:02x}-", self.clock_seq_hi, self.clock_seq_low)?;
        self.node
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Takes the common form; AFS tools also write `8-4-4-2-2-12`, which is taken too.
impl FromStr for AfsUuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let error = || UuidError(text.to_owned());
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        let digits: String = text.split('-').collect();
        let known = [[8, 4, 4, 4, 12].as_slice(), &[8, 4, 4, 2, 2, 12]];
        if !known.contains(&lengths.as_slice()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| error())?;
        Ok(Self::from_bytes(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_a_word() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        let uuid: AfsUuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!("00112233-4455-6677-88-99-aabbccddeeff".parse(), Ok(uuid));
        let bytes = afar_xdr::to_bytes(&uuid);
        assert_eq!(bytes.len(), 44);
        assert_eq!(bytes[..8], [0, 0x11, 0x22, 0x33, 0, 0, 0x44, 0x55]);
        assert_eq!(bytes[40..], [0, 0, 0, 0xff]);
        assert_eq!(afar_xdr::from_bytes::<AfsUuid>(&bytes), Ok(uuid));
        assert_eq!(AfsUuid::from_bytes(uuid.to_bytes()), uuid);
    }

    #[test]
    // spec: afs-rpc#encoding
    fn sign_extended_members_mean_the_same() {
        let mut words = [0u32; 11];
        words[1] = 0xffff_8001;
        words[10] = 0xffff_ff80;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let uuid = afar_xdr::from_bytes::<AfsUuid>(&bytes).unwrap();
        assert_eq!((uuid.time_mid, uuid.node[5]), (0x8001, 0x80));
    }

    #[test]
    fn random_bytes_make_a_version_4() {
        assert_eq!(
            AfsUuid::from_random([0xff; 16]).to_string(),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "0011223344556677-8899-aabbccddeeff",
            "+0112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert!(bad.parse::<AfsUuid>().is_err(), "{bad}");
        }
    }
}
