//! What a proof is bound to: the cell, the user and the TLS session in which it is shown.

use tokio_rustls::rustls;
use zeroize::Zeroizing;

/// The label under which TLS derives the bytes of a session (RFC 8446, 7.5).
// spec: login#binding
const LABEL: &[u8] = b"EXPORTER-afar-login";
/// Before what passwords prove.
const PASSWORD: &[u8] = b"afar-login password";
/// The namespace of signatures.
pub(crate) const NAMESPACE: &str = "afar-login";

/// Bytes that both ends of a TLS session have, and nobody else has.
#[derive(Clone)]
pub(crate) struct Binding(Zeroizing<[u8; 32]>);

impl Binding {
    /// Those of a client's session, after its handshake.
    pub(crate) fn of_client(session: &rustls::ClientConnection) -> Result<Self, rustls::Error> {
        let octets = session.export_keying_material([0; 32], LABEL, None)?;
        Ok(Self(Zeroizing::new(octets)))
    }

    /// Those of a server's session, after its handshake.
    pub(crate) fn of_server(session: &rustls::ServerConnection) -> Result<Self, rustls::Error> {
        let octets = session.export_keying_material([0; 32], LABEL, None)?;
        Ok(Self(Zeroizing::new(octets)))
    }

    /// Some bytes, for tests.
    #[cfg(test)]
    pub(crate) fn fixed(octets: [u8; 32]) -> Self {
        Self(Zeroizing::new(octets))
    }

    /// What OPAQUE is to agree on besides the password.
    pub(crate) fn of_password(&self, cell: &[u8], user: &[u8]) -> Zeroizing<Vec<u8>> {
        self.joined(&[PASSWORD, cell, user])
    }

    /// What SSH keys sign.
    pub(crate) fn of_signature(&self, cell: &[u8], user: &[u8]) -> Zeroizing<Vec<u8>> {
        self.joined(&[cell, user])
    }

    /// Each part with its length before it, so that none can be taken for a piece of another; the
    /// session's bytes last.
    fn joined(&self, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let mut out = Vec::new();
        for part in parts.iter().chain(&[&self.0[..]]) {
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(part);
        }
        Zeroizing::new(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_be_shifted() {
        let binding = Binding::fixed([1; 32]);
        let all = [
            binding.of_signature(b"ab", b"c"),
            binding.of_signature(b"a", b"bc"),
            binding.of_password(b"ab", b"c"),
            Binding::fixed([2; 32]).of_signature(b"ab", b"c"),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[place + 1..].contains(one));
        }
        assert_eq!(&all[0][..11], b"\0\0\0\x02ab\0\0\0\x01c");
    }
}
