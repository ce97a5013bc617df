//! The ticket of the cell itself.

use super::parts::{Components, EncryptedData, FLAG_TRANSITED_CHECKED, NewPart};
use super::seal::seal;
use crate::kerberos::{EncryptionKey, EncryptionType};
use crate::keys::{KeyError, KeyRing};
use crate::{Token, kvno};

/// The name that is the cell itself, in no realm. Nobody gets a ticket for it from a KDC.
pub(crate) const SUPERUSER: &str = "afs";

/// When printed tickets end: the last second that fits in 31 bits, as old servers compare signed
/// numbers.
// spec: security#superusers
const END: u32 = 0x7fff_ffff;

/// Makes the token with which a server, or an administrator on its machine, proves to other servers
/// of the cell to have the cell's key: it is their superuser (`-localauth`).
///
/// # Errors
/// [`KeyError::NoKey`] if the ring has no key but those of DES.
// spec: rxkad#tickets
pub fn print(keys: &KeyRing) -> Result<Token, KeyError> {
    // OpenAFS prints tickets with a DES key in them, and so does this, though any type would do.
    let key = EncryptionKey::random(EncryptionType::DesCrc);
    let part = NewPart {
        flags: FLAG_TRANSITED_CHECKED,
        key: &key,
        realm: "",
        client: Components::new(SUPERUSER, None),
        start: 0,
        end: END,
    };
    let ticket = seal(keys, &part, |data: &EncryptedData<'_>| data.encode())?;
    Ok(Token {
        kvno: kvno::K5_ENC_PART,
        key: super::session_key(&key).expect("a DES key is a session key"),
        ticket: ticket.into(),
        start: 0,
        end: END,
    })
}
