//! Tokens: what a user shows to the servers of a cell.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use zeroize::Zeroize;

/// Key version numbers that say of what sort a ticket is.
///
/// spec: rxkad#tickets
pub mod kvno {
    /// Only the encrypted part of a Kerberos 5 ticket: what servers print for themselves.
    pub const K5_ENC_PART: u32 = 213;
    /// A whole Kerberos 5 ticket, as a KDC issues it.
    pub const K5: u32 = 256;
}

/// The key of a session: 56 bits for fcrypt, with DES's parity in each lowest bit. Wiped when
/// dropped, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; 8]);

impl SessionKey {
    /// This key, as it stands.
    #[must_use]
    pub const fn new(octets: [u8; 8]) -> Self {
        Self(octets)
    }

    /// Its bytes.
    #[must_use]
    pub const fn octets(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl Drop for SessionKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A ticket for a cell's servers and the key of the session it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The number the response carries: of what sort the ticket is, see [`kvno`].
    pub kvno: u32,
    /// The key both sides have.
    pub key: SessionKey,
    /// What only the servers can open.
    pub ticket: Bytes,
    /// From when on it holds, in seconds since 1970.
    pub start: u32,
    /// When it expires, in seconds since 1970.
    pub end: u32,
}

impl Token {
    /// How long it holds from `now` on; `None` if it has expired.
    #[must_use]
    pub fn left(&self, now: SystemTime) -> Option<Duration> {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(self.end.into());
        end.duration_since(now).ok().filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_holds_until_its_end() {
        let token = Token {
            kvno: kvno::K5,
            key: SessionKey::new([1; 8]),
            ticket: Bytes::from_static(b"ticket"),
            start: 100,
            end: 200,
        };
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(token.left(at(150)), Some(Duration::from_secs(50)));
        assert_eq!(token.left(at(200)), None);
        assert!(format!("{token:?}").contains("SessionKey(..)"));
    }
}
