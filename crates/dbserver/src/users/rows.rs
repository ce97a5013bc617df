//! What is kept of passwords and SSH keys: a row for each user that has any, and one for the
//! service's secret. docs/formats/databases.md lists them.

use afar_rpc::users::{PasswordMessage, SshKeyLines};
use afar_types::PtsId;
use afar_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::kv::{Change, View};
use crate::pr::PrError;

/// Version of the values.
const VERSION: u8 = 1;
/// A user's means of authentication, by id.
const USER: &[u8; 2] = b"Pu";
/// The secret of the login service.
const SETUP: &[u8] = b"PU";

const DAMAGED: PrError = PrError::Damaged("the record of a password or of keys is damaged");

/// A user's means of authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Credentials {
    /// When the password was set, in seconds since 1970; 0 if there is none.
    pub(super) password_changed: u32,
    /// When the keys were changed.
    pub(super) keys_changed: u32,
    /// OPAQUE's record of the password; empty if there is none.
    pub(super) password: PasswordMessage,
    /// SSH keys.
    pub(super) keys: SshKeyLines,
}

fn key(id: PtsId) -> Vec<u8> {
    [&USER[..], &crate::pr::id_key(id)].concat()
}

/// What is known of a user; nothing, if there is no row.
pub(super) fn credentials(rows: View<'_>, id: PtsId) -> Result<Credentials, PrError> {
    match rows.get(&key(id))? {
        None => Ok(Credentials::default()),
        Some([VERSION, value @ ..]) => from_bytes(value).map_err(|_| DAMAGED),
        Some(_) => Err(PrError::Damaged("a row is of a version not known here")),
    }
}

/// Keeps it; a user without anything has no row.
pub(super) fn put(
    rows: &mut Change<'_>,
    id: PtsId,
    credentials: &Credentials,
) -> Result<(), PrError> {
    if credentials.password.is_empty() && credentials.keys.is_empty() {
        return forget(rows, id);
    }
    let value = [&[VERSION][..], &to_bytes(credentials)].concat();
    Ok(rows.put(&key(id), &value)?)
}

/// Removes a user's means of authentication.
pub(crate) fn forget(rows: &mut Change<'_>, id: PtsId) -> Result<(), PrError> {
    Ok(rows.delete(&key(id))?)
}

/// Removes what is of no use to a user whose id changes: the password, which is bound to the id.
/// The keys go with the user.
pub(crate) fn change_id(rows: &mut Change<'_>, from: PtsId, to: PtsId) -> Result<(), PrError> {
    let moved = credentials(rows.view(), from)?;
    forget(rows, from)?;
    let moved = Credentials {
        password: PasswordMessage::default(),
        password_changed: 0,
        ..moved
    };
    put(rows, to, &moved)
}

/// The service's secret.
pub(super) fn setup<'a>(rows: View<'a>) -> Result<Option<&'a [u8]>, PrError> {
    match rows.get(SETUP)? {
        None => Ok(None),
        Some([VERSION, value @ ..]) => Ok(Some(value)),
        Some(_) => Err(PrError::Damaged("a row is of a version not known here")),
    }
}

/// Keeps the service's secret, unless there is one.
pub(super) fn begin(rows: &mut Change<'_>, new: &[u8]) -> Result<(), PrError> {
    if rows.get(SETUP)?.is_some() {
        return Ok(());
    }
    Ok(rows.put(SETUP, &[&[VERSION][..], new].concat())?)
}
