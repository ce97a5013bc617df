//! Tokens in the kernel's keyring: keys of type `user` named `afar:CELL`, in the session's keyring,
//! or the user's where a session has none of its own.
//!
//! The kernel keeps them in memory that is never swapped, shows them to the user's processes only, and
//! drops them a while after they expire. Processes of other sessions do not find them by name; who
//! serves a mount to several users finds them in the list of all keys, as the user whose they are.

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
/// All to those who have the key in a keyring of theirs, and to see and read it to the user's other
/// processes.
const RIGHTS: u32 = 0x3f03_0000;
/// The keys that a process may see.
const ALL_KEYS: &str = "/proc/keys";
/// Keys of one user that are looked at.
const KEYS_MOST: usize = 64;

pub(super) fn put(held: &Held, entry: &[u8]) -> io::Result<()> {
    let ring = sys::keyring(KeyId::SESSION).or_else(|_| sys::keyring(KeyId::USER))?;
    let key = sys::add_key(KIND, &name(&held.cell)?, entry, ring)?;
    let left = held.token.left(SystemTime::now()).unwrap_or_default() + GRACE;
    let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
    if let Err(error) = sys::set_rights(key, RIGHTS) {
        tracing::debug!("a token's key is for this session only: {error}");
    }
    // A key that stays longer does no harm.
    if let Err(error) = sys::set_timeout(key, seconds) {
        tracing::debug!("cannot set a time limit on a token's key: {error}");
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

/// All tokens in keyrings of a user, whichever session they are of. For root.
pub(super) fn of_user(uid: u32) -> io::Result<Vec<Zeroizing<Vec<u8>>>> {
    let looked = std::thread::Builder::new()
        .name("afar-keys".to_owned())
        .spawn(move || {
            sys::become_for_files(uid)?;
            let listed = std::fs::read_to_string(ALL_KEYS)?;
            let keys = listed.lines().filter_map(|line| token_of(line, uid));
            let mut found = Vec::new();
            for key in keys.take(KEYS_MOST) {
                // One that only its session may read is not for us.
                if let Ok(entry) = sys::read(key, ENTRY_MAX) {
                    found.push(entry);
                }
            }
            Ok(found)
        })?;
    looked
        .join()
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// The key that a line of the list of keys is about, if it is a token of ours and this user's:
/// `2b8b5a2c I--Q---     1 perm 3f030000  1000 65534 user      afar:example.org: 312`.
fn token_of(line: &str, uid: u32) -> Option<KeyId> {
    let mut fields = line.split_ascii_whitespace();
    let key = KeyId::listed(fields.next()?)?;
    let owner: u32 = fields.nth(4)?.parse().ok()?;
    let kind = fields.nth(1)?;
    let ours = fields.next()?.starts_with(PREFIX);
    (owner == uid && kind == "user" && ours).then_some(key)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_known_in_the_list_of_keys() {
        let line = "2b8b5a2c I--Q---     1   6d 3f030000  1000 65534 user      afar:a.org: 312";
        assert_eq!(token_of(line, 1000), KeyId::listed("2b8b5a2c"));
        assert_eq!(token_of(line, 1001), None);
        for other in [
            "2b8b5a2c I--Q---     1 perm 3f030000  1000 65534 user      krb:a.org: 312",
            "2b8b5a2c I--Q---     1 perm 3f030000  1000 65534 logon     afar:a.org: 312",
            "2b8b5a2c I--Q---     1 perm 1f3f0000  1000 65534 keyring   _uid.1000: empty",
            "",
        ] {
            assert_eq!(token_of(other, 1000), None, "{other}");
        }
    }
}
