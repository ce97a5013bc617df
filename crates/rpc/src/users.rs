//! USERS, how the users of a cell without a KDC prove who they are (service 24934, the protection
//! server's port). It is afar's own, not AFS-3's, and offered only where nobody can listen in.
//!
//! What is changed is the user's own, or the caller is an administrator. The messages about
//! passwords are OPAQUE's (RFC 9807), so no password passes here: docs/protocol/login.md.

use afar_types::PtsId;
use afar_xdr::{List, Opaque, XdrString};

/// A message about a password, or what is kept of one.
pub type PasswordMessage = Opaque<1024>;
/// A line with an SSH key, as in `authorized_keys`.
pub type SshKeyLine = XdrString<2048>;
/// The SSH keys of a user.
pub type SshKeyLines = List<SshKeyLine, 32>;

interface! {
    service 24934 "USERS";

    /// Begins to set a password: takes a registration request, gives the response.
    call 1 register_start(id: PtsId, request: PasswordMessage) -> (response: PasswordMessage);
    /// Sets the password whose record this is.
    call 2 register_finish(id: PtsId, record: PasswordMessage) -> ();
    /// Sets the keys, in place of those that were there.
    call 3 set_keys(id: PtsId, keys: SshKeyLines) -> ();
    /// Tells the keys, when there was last a new password (0: there is none) and when the keys
    /// were changed last, in seconds since 1970.
    call 4 list_keys(id: PtsId)
        -> (keys: SshKeyLines, password_changed: u32, keys_changed: u32);
    /// Takes password and keys away.
    call 5 remove(id: PtsId) -> ();
}
