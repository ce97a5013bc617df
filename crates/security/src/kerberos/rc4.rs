//! arcfour-hmac (RFC 4757).
//!
//! A message is the HMAC of what is encrypted, then a confounder of 8 bytes and the plaintext,
//! encrypted with a key that depends on that HMAC.

use hmac::Hmac;
use md5::Md5;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use super::{Secret, hmac};

const MAC: usize = 16;
const CONFOUNDER: usize = 8;

pub(super) fn encrypt(key: &[u8], usage: u32, message: &[u8]) -> Vec<u8> {
    let mut plain = Zeroizing::new(Vec::with_capacity(CONFOUNDER + message.len()));
    plain.extend_from_slice(&*crate::random::octets::<CONFOUNDER>());
    plain.extend_from_slice(message);
    let key = usage_key(key, usage);
    let mac = hmac::<Hmac<Md5>>(&key, &[&plain]);
    apply(&hmac::<Hmac<Md5>>(&key, &[&mac]), &mut plain);
    [mac.as_slice(), &plain].concat()
}

pub(super) fn decrypt(key: &[u8], usage: u32, sealed: &[u8]) -> Option<Secret> {
    let (mac, sealed) = sealed.split_at_checked(MAC)?;
    if sealed.len() < CONFOUNDER {
        return None;
    }
    let key = usage_key(key, usage);
    let mut plain = Zeroizing::new(sealed.to_vec());
    apply(&hmac::<Hmac<Md5>>(&key, &[mac]), &mut plain);
    let whole = bool::from(hmac::<Hmac<Md5>>(&key, &[&plain]).ct_eq(mac));
    whole.then(|| Zeroizing::new(plain[CONFOUNDER..].to_vec()))
}

/// The key for a usage. Microsoft numbers two usages otherwise than RFC 4120; of those used here
/// none.
fn usage_key(key: &[u8], usage: u32) -> Secret {
    let usage = match usage {
        3 => 8,
        23 => 13,
        usage => usage,
    };
    hmac::<Hmac<Md5>>(key, &[&usage.to_le_bytes()])
}

/// RC4 with a key that serves for this message only.
fn apply(key: &[u8], data: &mut [u8]) {
    let mut state: [u8; 256] = std::array::from_fn(|i| i.to_le_bytes()[0]);
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, j.into());
    }
    let (mut i, mut j) = (0u8, 0u8);
    for octet in data {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(i.into(), j.into());
        let at = state[usize::from(i)].wrapping_add(state[usize::from(j)]);
        *octet ^= state[usize::from(at)];
    }
    state.zeroize();
}
