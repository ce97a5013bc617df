//! Tokens of the kernel's own AFS client: keys of type `rxrpc` named `afs@CELL` in the session's
//! keyring.

use std::ffi::{CStr, CString};
use std::io;

use afar_types::CellName;

use super::Held;
use super::entry::ENTRY_MAX;
use super::openafs::ClientError;
use super::sys::{self, KeyId};

// spec: security#tokens-of-kernel-clients
const KIND: &CStr = c"rxrpc";
const PREFIX: &str = "afs@";

/// Gives kafs a token, in place of the one it has for the cell, for this session.
///
/// # Errors
/// [`ClientError::Missing`] where the kernel has no rxrpc; what it refuses.
pub fn put(held: &Held) -> Result<(), ClientError> {
    let octets = held.to_octets()?;
    let ring = ring()?;
    let added = sys::add_key(KIND, &name(&held.cell)?, &octets, ring);
    added.map(drop).map_err(failed)
}

/// The token it has for a cell.
///
/// # Errors
/// As [`put`].
pub fn find(cell: &CellName) -> Result<Option<Held>, ClientError> {
    match sys::search(ring()?, KIND, &name(cell)?) {
        Ok(key) => read(key).map(Some),
        Err(error) if is_none(&error) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// All tokens it has for this session. Those of other classes are left out.
///
/// # Errors
/// When there are no keyrings.
pub fn all() -> Result<Vec<Held>, ClientError> {
    let keys = sys::list(ring()?).map_err(ClientError::Missing)?;
    let ours = keys.into_iter().filter(|key| is_ours(*key));
    Ok(ours.filter_map(|key| read(key).ok()).collect())
}

/// Removes the token for a cell. Says whether there was one.
///
/// # Errors
/// As [`put`].
pub fn remove(cell: &CellName) -> Result<bool, ClientError> {
    let ring = ring()?;
    match sys::search(ring, KIND, &name(cell)?) {
        Ok(key) => {
            sys::unlink(key, ring).map_err(failed)?;
            Ok(true)
        }
        Err(error) if is_none(&error) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

fn read(key: KeyId) -> Result<Held, ClientError> {
    let octets = sys::read(key, ENTRY_MAX).map_err(failed)?;
    Ok(Held::from_octets(&octets)?)
}

fn ring() -> Result<KeyId, ClientError> {
    sys::keyring(KeyId::SESSION).map_err(ClientError::Missing)
}

fn is_ours(key: KeyId) -> bool {
    let begins = |text: Vec<u8>| {
        let mut fields = text.splitn(5, |octet| *octet == b';');
        let kind = fields.next() == Some(KIND.to_bytes());
        kind && fields
            .nth(3)
            .is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
    };
    sys::describe(key).is_ok_and(begins)
}

fn name(cell: &CellName) -> Result<CString, ClientError> {
    CString::new(format!("{PREFIX}{cell}"))
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput).into())
}

fn is_none(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::ENOKEY | libc::EKEYEXPIRED | libc::EKEYREVOKED)
    )
}

/// A kernel without rxrpc knows no keys of that type.
fn failed(error: io::Error) -> ClientError {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOSYS) => ClientError::Missing(error),
        _ => ClientError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::alice;
    use super::*;

    #[test]
    fn kafs_takes_tokens_where_it_is() {
        let cell = format!("kafs-{}.test", std::process::id());
        let held = alice(&cell, b"ticket", 4_000_000_001);
        match put(&held) {
            Err(ClientError::Missing(error)) => {
                eprintln!("skipped: this kernel has no rxrpc: {error}");
                assert!(find(&held.cell).is_ok_and(|found| found.is_none()) || ring().is_err());
                return;
            }
            put => put.unwrap(),
        }
        let known = Held { user: None, ..held };
        assert_eq!(find(&known.cell).unwrap(), Some(known.clone()));
        assert!(all().unwrap().contains(&known));
        assert!(remove(&known.cell).unwrap());
        assert!(!remove(&known.cell).unwrap());
    }
}
