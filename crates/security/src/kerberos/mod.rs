//! Kerberos's encryption of messages: RFC 3961 and the encryption types after it.
//!
//! One file for each family: [`aes_sha1`] (RFC 3962), [`aes_sha2`] (RFC 8009), [`rc4`] (RFC 4757),
//! [`des`] (RFC 3961, decryption only). Camellia and triple DES are not here.

mod aes_cts;
mod aes_sha1;
mod aes_sha2;
pub(crate) mod des;
mod etype;
mod fold;
mod rc4;
#[cfg(test)]
mod tests;

use std::fmt;

use hmac::Mac;
use hmac::digest::KeyInit;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use etype::{EncryptionType, UnknownEncryptionType};

/// What a ticket's encrypted part is encrypted for (RFC 4120, 7.5.1).
pub(crate) const USAGE_TICKET: u32 = 2;

/// Bytes of a secret, wiped when dropped.
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// A Kerberos key: the number of its encryption type, and its bytes. Wiped when dropped, never
/// printed, compared in constant time.
#[derive(Clone)]
pub struct EncryptionKey {
    etype: i32,
    octets: Secret,
}

impl EncryptionKey {
    /// A key of the encryption type with this number (RFC 3961's registry), known here or not.
    #[must_use]
    pub fn new(etype: i32, octets: Vec<u8>) -> Self {
        Self {
            etype,
            octets: Zeroizing::new(octets),
        }
    }

    /// A new random key. Of DES types it has the parity and is not weak.
    #[must_use]
    pub fn random(etype: EncryptionType) -> Self {
        let octets = if etype.is_des() {
            des::random_key().to_vec()
        } else {
            crate::random::octets::<32>()[..etype.key_len()].to_vec()
        };
        Self::new(etype.number(), octets)
    }

    /// The number of its encryption type.
    #[must_use]
    pub const fn etype(&self) -> i32 {
        self.etype
    }

    /// Its bytes.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Its encryption type, if that is known here and the key has the type's length.
    pub(crate) fn known_type(&self) -> Option<EncryptionType> {
        EncryptionType::from_number(self.etype).filter(|known| known.key_len() == self.octets.len())
    }
}

impl PartialEq for EncryptionKey {
    fn eq(&self, other: &Self) -> bool {
        self.etype == other.etype && bool::from(self.octets.ct_eq(&other.octets))
    }
}

impl Eq for EncryptionKey {}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({}, ..)", self.etype)
    }
}

/// Why a message cannot be made or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CipherError {
    /// The key's type is not known, or the key has another length than its type.
    Key,
    /// The message is too short, or was not made with this key for this usage.
    Message,
}

/// Encrypts a message for a usage with a random confounder.
///
/// # Errors
/// [`CipherError::Key`], also for DES, with which nothing is encrypted any more.
pub(crate) fn encrypt(
    key: &EncryptionKey,
    usage: u32,
    message: &[u8],
) -> Result<Vec<u8>, CipherError> {
    match key.known_type().ok_or(CipherError::Key)? {
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
            aes_sha1::encrypt(key.octets(), usage, message)
        }
        EncryptionType::Aes128Sha2 | EncryptionType::Aes256Sha2 => {
            aes_sha2::encrypt(key.octets(), usage, message)
        }
        EncryptionType::Rc4 => Ok(rc4::encrypt(key.octets(), usage, message)),
        EncryptionType::DesCrc | EncryptionType::DesMd4 | EncryptionType::DesMd5 => {
            Err(CipherError::Key)
        }
    }
}

/// Decrypts a message of a usage. A message of DES keeps its padding.
///
/// # Errors
/// [`CipherError`]
pub(crate) fn decrypt(
    key: &EncryptionKey,
    usage: u32,
    sealed: &[u8],
) -> Result<Secret, CipherError> {
    let opened = match key.known_type().ok_or(CipherError::Key)? {
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
            aes_sha1::decrypt(key.octets(), usage, sealed)
        }
        EncryptionType::Aes128Sha2 | EncryptionType::Aes256Sha2 => {
            aes_sha2::decrypt(key.octets(), usage, sealed)
        }
        EncryptionType::Rc4 => rc4::decrypt(key.octets(), usage, sealed),
        EncryptionType::DesCrc => des::decrypt(des::Checksum::Crc32, key.octets(), sealed),
        EncryptionType::DesMd4 => des::decrypt(des::Checksum::Md4, key.octets(), sealed),
        EncryptionType::DesMd5 => des::decrypt(des::Checksum::Md5, key.octets(), sealed),
    };
    opened.ok_or(CipherError::Message)
}

/// The HMAC of these bytes in a row.
fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Secret {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

/// The constant from which the key for a usage and a purpose is derived.
fn constant(usage: u32, purpose: u8) -> [u8; 5] {
    let [a, b, c, d] = usage.to_be_bytes();
    [a, b, c, d, purpose]
}

/// Purpose of a key that encrypts.
const PURPOSE_ENCRYPTION: u8 = 0xaa;
/// Purpose of a key that protects the integrity of what is encrypted.
const PURPOSE_INTEGRITY: u8 = 0x55;
