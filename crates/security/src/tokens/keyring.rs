//! Tokens in the kernel's keyring: keys of type `user` named `afar:CELL`, in the session's keyring,
//! or the user's where a session has none of its own.
//!
//! The kernel keeps them in memory that is never swapped, shows them to processes of the session
//! only, and drops them a while after they expire.

use std::ffi::{CStr, CString};
use std::io;
use std::time::{Duration, SystemTime};

use afar_types::CellName;
use zeroize::Zeroizing;

use super::Held;
use super::entry::ENTRY_MAX;
use super::sys::{self, KeyId};

const KIND: &CStr = c"user";
const PREFIX: &str = "afar:";
/// How long an expired token is kept, so that a user is told when it expired.
const GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) fn put(held: &Held, entry: &[u8]) -> io::Result<()> {
    let ring = sys::keyring(KeyId::SESSION).or_else(|_| sys::keyring(KeyId::USER))?;
    let key = sys::add_key(KIND, &name(&held.cell)?, entry, ring)?;
    let left = held.token.left(SystemTime::now()).unwrap_or_default() + GRACE;
    let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
    // A key that stays longer does no harm.
    if let Err(error) = sys::set_timeout(key, seconds) {
        tracing::debug!("a token's key gets no time limit: {error}");
    }
    Ok(())
}

pub(super) fn find(cell: &CellName) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let name = name(cell)?;
    for ring in rings()? {
        if let Some(key) = present(sys::search(ring, KIND, &name))? {
            return present(sys::read(key, ENTRY_MAX));
        }
    }
    Ok(None)
}

pub(super) fn all() -> io::Result<Vec<Zeroizing<Vec<u8>>>> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for ring in rings()? {
        for key in sys::list(ring)? {
            if seen.contains(&key) || !is_ours(key) {
                continue;
            }
            seen.push(key);
            found.extend(present(sys::read(key, ENTRY_MAX))?);
        }
    }
    Ok(found)
}

pub(super) fn remove(cell: &CellName) -> io::Result<bool> {
    let name = name(cell)?;
    let mut removed = false;
    for ring in rings()? {
        // What is found may be in a ring linked from this one: that ring has its turn too.
        while let Some(key) = present(sys::search(ring, KIND, &name))? {
            if present(sys::unlink(key, ring))?.is_none() {
                break;
            }
            removed = true;
        }
    }
    Ok(removed)
}

/// The keyrings looked at: the session's, then the user's.
fn rings() -> io::Result<Vec<KeyId>> {
    let session = sys::keyring(KeyId::SESSION);
    let user = sys::keyring(KeyId::USER);
    match (session, user) {
        (Err(error), Err(_)) => Err(error),
        (session, user) => Ok(session.into_iter().chain(user).collect()),
    }
}

/// Whether a key is a token of ours. One that cannot be described is not.
fn is_ours(key: KeyId) -> bool {
    let Ok(text) = sys::describe(key) else {
        return false;
    };
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.splitn(5, ';');
    fields.next() == Some("user") && fields.nth(3).is_some_and(|name| name.starts_with(PREFIX))
}

fn name(cell: &CellName) -> io::Result<CString> {
    CString::new(format!("{PREFIX}{cell}")).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// What was found, if it is there and has not expired.
fn present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOKEY | libc::EKEYEXPIRED | libc::EKEYREVOKED | libc::ENOENT) => Ok(None),
            _ => Err(error),
        },
    }
}
