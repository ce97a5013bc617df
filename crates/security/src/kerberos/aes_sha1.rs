//! aes128- and aes256-cts-hmac-sha1-96 (RFC 3962).
//!
//! A message is a confounder of one block and the plaintext, encrypted; behind it 12 bytes of the
//! HMAC of what was encrypted.

use hmac::Hmac;
use sha1::Sha1;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::aes_cts::{Aes, BLOCK};
use super::fold::derive;
use super::{CipherError, PURPOSE_ENCRYPTION, PURPOSE_INTEGRITY, Secret, constant, hmac};

const MAC: usize = 12;

struct Keys {
    cipher: Aes,
    integrity: Secret,
}

impl Keys {
    fn new(key: &[u8], usage: u32) -> Option<Self> {
        Some(Self {
            cipher: Aes::new(&derive(key, &constant(usage, PURPOSE_ENCRYPTION))?)?,
            integrity: derive(key, &constant(usage, PURPOSE_INTEGRITY))?,
        })
    }

    fn mac(&self, plain: &[u8]) -> Secret {
        hmac::<Hmac<Sha1>>(&self.integrity, &[plain])
    }
}

pub(super) fn encrypt(key: &[u8], usage: u32, message: &[u8]) -> Result<Vec<u8>, CipherError> {
    let keys = Keys::new(key, usage).ok_or(CipherError::Key)?;
    let mut sealed = Vec::with_capacity(BLOCK + message.len() + MAC);
    sealed.extend_from_slice(&*crate::random::octets::<BLOCK>());
    sealed.extend_from_slice(message);
    let mac = keys.mac(&sealed);
    keys.cipher.encrypt(&mut sealed);
    sealed.extend_from_slice(&mac[..MAC]);
    Ok(sealed)
}

pub(super) fn decrypt(key: &[u8], usage: u32, sealed: &[u8]) -> Option<Secret> {
    let keys = Keys::new(key, usage)?;
    let (sealed, mac) = sealed.split_at_checked(sealed.len().checked_sub(MAC)?)?;
    if sealed.len() < BLOCK {
        return None;
    }
    let mut plain = Zeroizing::new(sealed.to_vec());
    keys.cipher.decrypt(&mut plain);
    let whole = bool::from(keys.mac(&plain)[..MAC].ct_eq(mac));
    whole.then(|| Zeroizing::new(plain[BLOCK..].to_vec()))
}
