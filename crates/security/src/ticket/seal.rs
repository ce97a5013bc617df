//! Encrypting what is in a ticket that is made here.

use super::parts::{EncryptedData, NewPart};
use crate::kerberos::{self, Secret, USAGE_TICKET};
use crate::keys::{KeyError, KeyRing};

/// Encrypts a part with the best of the ring's keys, and hands it on to be encoded.
///
/// # Errors
/// [`KeyError::NoKey`]
pub(super) fn seal(
    keys: &KeyRing,
    part: &NewPart<'_>,
    encode: impl FnOnce(&EncryptedData<'_>) -> Secret,
) -> Result<Vec<u8>, KeyError> {
    seal_octets(keys, &part.encode(), encode)
}

fn seal_octets(
    keys: &KeyRing,
    part: &[u8],
    encode: impl FnOnce(&EncryptedData<'_>) -> Secret,
) -> Result<Vec<u8>, KeyError> {
    let no_key = || KeyError::NoKey {
        sources: keys.sources(),
    };
    let key = keys.newest().ok_or_else(no_key)?;
    let cipher = kerberos::encrypt(&key.key, USAGE_TICKET, part).map_err(|_| no_key())?;
    let data = EncryptedData {
        etype: key.key.etype(),
        kvno: key.kvno,
        cipher: &cipher,
    };
    Ok(encode(&data).to_vec())
}

/// The encrypted part of a ticket ([`kvno::K5_ENC_PART`](crate::kvno::K5_ENC_PART)) that holds
/// these bytes, whatever they are: with it a fuzzer gets past the encryption.
///
/// # Errors
/// [`KeyError::NoKey`]
#[cfg(fuzzing)]
pub fn seal_anything(keys: &KeyRing, part: &[u8]) -> Result<Vec<u8>, KeyError> {
    seal_octets(keys, part, |data| data.encode())
}
