//! Logging in to a cell that has no Kerberos: a password or an SSH key for a token.
//!
//! The protection server's machine listens on TCP port [`PORT`] with TLS 1.3. A user who authenticates
//! there gets what a KDC would give: a ticket for the cell's servers, which clients of any
//! make can use. docs/protocol/login.md has the bytes.
//!
//! - [`client`]: believing a server, and logging in to it
//! - [`server`]: answering, slowly to those who guess
//! - [`password`]: passwords that are never told to the server (OPAQUE, RFC 9807)
//! - [`sshkey`]: which SSH keys may stand for a user
//! - [`wire`]: the messages, for both sides
//! - [`uri`]: the line that tells another machine of a cell
//!
//! **Invariant:** the server keeps nothing by which somebody could log in elsewhere, and a server
//! that is not the right one learns nothing to try passwords against. Each proof is bound to the TLS
//! session in which it is shown, so it is worth nothing in another one.

pub mod client;
mod frame;
pub mod password;
mod proof;
pub mod server;
pub mod sshkey;
pub mod uri;
pub mod wire;

#[cfg(test)]
mod tests;

pub use afar_tls::{Fingerprint, NoFingerprint};

/// The TCP port of the login service: the number the protection server has in UDP.
pub const PORT: u16 = 7002;

/// The protocol within TLS (ALPN).
// spec: login#transport
pub(crate) const PROTOCOL: &[u8] = b"afar-login";
