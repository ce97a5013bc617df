//! Single DES: keys, and decryption of messages with it (RFC 3961, 6.2).
//!
//! DES is broken. Tickets of it are opened only where a policy says so; none are made.

use des::Des;
use des::cipher::{Block, BlockDecrypt, KeyInit};
use md4::{Digest, Md4};
use md5::Md5;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Secret;

/// Bytes of a key and of a block.
pub(crate) const LEN: usize = 8;

/// The checksum inside a message, which tells the encryption types apart.
#[derive(Clone, Copy)]
pub(crate) enum Checksum {
    Crc32,
    Md4,
    Md5,
}

impl Checksum {
    fn of(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Crc32 => crc32(data).to_le_bytes().to_vec(),
            Self::Md4 => Md4::digest(data).to_vec(),
            Self::Md5 => Md5::digest(data).to_vec(),
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Crc32 => 4,
            Self::Md4 | Self::Md5 => 16,
        }
    }
}

/// Decrypts a message: a confounder of one block, a checksum, the plaintext, zeros up to a block.
pub(super) fn decrypt(checksum: Checksum, key: &[u8], sealed: &[u8]) -> Option<Secret> {
    let head = LEN + checksum.len();
    if !sealed.len().is_multiple_of(LEN) || sealed.len() < head {
        return None;
    }
    let mut previous = match checksum {
        Checksum::Crc32 => key.try_into().ok()?,
        Checksum::Md4 | Checksum::Md5 => [0; LEN],
    };
    let des = Des::new_from_slice(key).ok()?;
    let mut plain = Zeroizing::new(sealed.to_vec());
    for block in plain.as_chunks_mut::<LEN>().0 {
        let sealed = *block;
        des.decrypt_block(Block::<Des>::from_mut_slice(block));
        for (octet, mask) in block.iter_mut().zip(previous) {
            *octet ^= mask;
        }
        previous = sealed;
    }
    // The checksum was made with zeros in its place.
    let given: Vec<u8> = plain[LEN..head].to_vec();
    plain[LEN..head].fill(0);
    let whole = bool::from(checksum.of(&plain).ct_eq(&given));
    whole.then(|| Zeroizing::new(plain[head..].to_vec()))
}

/// Encrypts as peers of long ago did.
#[cfg(test)]
pub(crate) fn encrypt_for_tests(checksum: Checksum, key: [u8; LEN], plain: &[u8]) -> Vec<u8> {
    use des::cipher::BlockEncrypt;
    let head = LEN + checksum.len();
    let mut data = vec![0x5a; LEN];
    data.resize(head, 0);
    data.extend_from_slice(plain);
    data.resize(data.len().next_multiple_of(LEN), 0);
    let sum = checksum.of(&data);
    data[LEN..head].copy_from_slice(&sum);
    let mut previous = match checksum {
        Checksum::Crc32 => key,
        Checksum::Md4 | Checksum::Md5 => [0; LEN],
    };
    let des = Des::new(&key.into());
    for block in data.as_chunks_mut::<LEN>().0 {
        for (octet, mask) in block.iter_mut().zip(previous) {
            *octet ^= mask;
        }
        des.encrypt_block(Block::<Des>::from_mut_slice(block));
        previous = *block;
    }
    data
}

/// RFC 3961's modified CRC-32: it begins with zero and is not inverted at the end.
fn crc32(data: &[u8]) -> u32 {
    data.iter().fold(0, |crc, &octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

/// A random key with its parity, not weak.
pub(crate) fn random_key() -> Zeroizing<[u8; LEN]> {
    loop {
        let mut key = crate::random::octets::<LEN>();
        set_odd_parity(&mut key);
        if !is_weak(&key) {
            return key;
        }
    }
}

/// Sets the lowest bit of each byte so that an odd number of its bits is set.
pub(crate) fn set_odd_parity(key: &mut [u8; LEN]) {
    for octet in key {
        *octet ^= u8::from(octet.count_ones() % 2 == 0);
    }
}

/// Whether it is one of the 4 weak and 12 semi-weak keys, which peers skip. (Published lists may
/// have the 48 possibly weak ones too; with them a derived key would not always be the peer's.)
pub(crate) fn is_weak(key: &[u8; LEN]) -> bool {
    /// What the left and the right half repeat.
    const HALVES: [(u8, u8); 4] = [(0x01, 0x01), (0x1f, 0x0e), (0xe0, 0xf1), (0xfe, 0xfe)];
    HALVES.iter().any(|a| {
        HALVES
            .iter()
            .any(|b| *key == [a.0, b.0, a.0, b.0, a.1, b.1, a.1, b.1])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_is_odd() {
        let mut key = [0x00, 0x01, 0x02, 0x03, 0xfe, 0xff, 0x80, 0x7f];
        set_odd_parity(&mut key);
        assert_eq!(key, [0x01, 0x01, 0x02, 0x02, 0xfe, 0xfe, 0x80, 0x7f]);
    }

    #[test]
    fn sixteen_keys_are_weak() {
        assert!(is_weak(&[0x01; 8]));
        assert!(is_weak(&[0xe0, 0xfe, 0xe0, 0xfe, 0xf1, 0xfe, 0xf1, 0xfe]));
        assert!(is_weak(&[0x1f, 0x1f, 0x1f, 0x1f, 0x0e, 0x0e, 0x0e, 0x0e]));
        // Possibly weak only.
        assert!(!is_weak(&[0x1f, 0x1f, 0x01, 0x01, 0x0e, 0x0e, 0x01, 0x01]));
        let key = random_key();
        assert!(!is_weak(&key) && key.iter().all(|octet| octet.count_ones() % 2 == 1));
    }

    /// RFC 3961, A.5.
    #[test]
    fn checksums_of_the_rfc() {
        for (text, expected) in [
            (&b"foo"[..], 0x7332_bc33),
            (b"test0123456789", 0xb83e_88d6),
            (b"MASSACHVSETTS INSTITVTE OF TECHNOLOGY", 0xe341_80f7),
            (&[0x80, 0x00], 0x3b83_984b),
            (&[0x00, 0x08], 0x0edb_8832),
            (&[0x00, 0x80], 0xedb8_8320),
            (&[0x80], 0xedb8_8320),
            (&[0x80, 0x00, 0x00, 0x00], 0xed59_b63b),
            (&[0x00, 0x00, 0x00, 0x01], 0x7707_3096),
        ] {
            assert_eq!(crc32(text), expected, "{text:?}");
        }
    }
}
