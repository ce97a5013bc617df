//! aes128-cts-hmac-sha256-128 and aes256-cts-hmac-sha384-192 (RFC 8009).
//!
//! A message is a confounder of one block and the plaintext, encrypted; behind it half of the HMAC
//! of the initial vector, which is zero, and of the ciphertext.

use hmac::Hmac;
use sha2::{Sha256, Sha384};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::aes_cts::{Aes, BLOCK};
use super::{CipherError, PURPOSE_ENCRYPTION, PURPOSE_INTEGRITY, Secret, constant, hmac};

/// The bytes of the long and the short type's integrity keys and MACs.
const LONG: usize = 24;
const SHORT: usize = 16;

/// The hash of a type, which goes by the length of its keys.
#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    fn of(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Some(Self::Sha256),
            32 => Some(Self::Sha384),
            _ => None,
        }
    }

    const fn mac_len(self) -> usize {
        match self {
            Self::Sha256 => SHORT,
            Self::Sha384 => LONG,
        }
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Secret {
        match self {
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => hmac::<Hmac<Sha384>>(key, parts),
        }
    }

    /// RFC 8009's KDF-HMAC-SHA2: `len` bytes of a key for a label.
    fn derive(self, key: &[u8], label: &[u8], len: usize) -> Secret {
        let bits = u32::try_from(len * 8).unwrap_or(u32::MAX).to_be_bytes();
        let mut derived = self.hmac(key, &[&1u32.to_be_bytes(), label, &[0], &bits]);
        derived.truncate(len);
        derived
    }
}

struct Keys {
    cipher: Aes,
    integrity: Secret,
    hash: Hash,
}

impl Keys {
    fn new(key: &[u8], usage: u32) -> Option<Self> {
        let hash = Hash::of(key)?;
        let encryption = hash.derive(key, &constant(usage, PURPOSE_ENCRYPTION), key.len());
        Some(Self {
            cipher: Aes::new(&encryption)?,
            integrity: hash.derive(key, &constant(usage, PURPOSE_INTEGRITY), hash.mac_len()),
            hash,
        })
    }

    fn mac(&self, sealed: &[u8]) -> Secret {
        let mut mac = self.hash.hmac(&self.integrity, &[&[0; BLOCK], sealed]);
        mac.truncate(self.hash.mac_len());
        mac
    }
}

pub(super) fn encrypt(key: &[u8], usage: u32, message: &[u8]) -> Result<Vec<u8>, CipherError> {
    let keys = Keys::new(key, usage).ok_or(CipherError::Key)?;
    let mut sealed = Vec::with_capacity(BLOCK + message.len() + LONG);
    sealed.extend_from_slice(&*crate::random::octets::<BLOCK>());
    sealed.extend_from_slice(message);
    keys.cipher.encrypt(&mut sealed);
    let mac = keys.mac(&sealed);
    sealed.extend_from_slice(&mac);
    Ok(sealed)
}

pub(super) fn decrypt(key: &[u8], usage: u32, sealed: &[u8]) -> Option<Secret> {
    let keys = Keys::new(key, usage)?;
    let at = sealed.len().checked_sub(keys.hash.mac_len())?;
    let (sealed, mac) = sealed.split_at_checked(at)?;
    if sealed.len() < BLOCK || !bool::from(keys.mac(sealed).ct_eq(mac)) {
        return None;
    }
    let mut plain = Zeroizing::new(sealed.to_vec());
    keys.cipher.decrypt(&mut plain);
    Some(Zeroizing::new(plain[BLOCK..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    /// RFC 8009, A: the keys of usage 2.
    #[test]
    fn derived_keys() {
        let short = "3705d96080c17728a0e800eab6e0d23c";
        let long = "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52";
        for (key, purpose, expected) in [
            (short, 0x99, "b31a018a48f54776f403e9a396325dc3"),
            (short, 0xaa, "9b197dd1e8c5609d6e67c3e37c62c72e"),
            (short, 0x55, "9fda0e56ab2d85e1569a688696c26a6c"),
            (
                long,
                0x99,
                "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
            ),
            (
                long,
                0xaa,
                "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
            ),
            (
                long,
                0x55,
                "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
            ),
        ] {
            let (key, expected) = (hex(key), hex(expected));
            let derived =
                Hash::of(&key)
                    .unwrap()
                    .derive(&key, &constant(2, purpose), expected.len());
            assert_eq!(*derived, expected);
        }
    }
}
