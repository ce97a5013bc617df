//! How people tell servers apart.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use webpki::EndEntityCert;

/// What it begins with, as with OpenSSH.
const PREFIX: &str = "SHA256:";

/// The SHA-256 of a server's public key (its SubjectPublicKeyInfo, as HPKP had it): the same for
/// all certificates of the key. Written as OpenSSH writes its fingerprints.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fingerprint; expected SHA256: followed by 43 letters and digits")]
pub struct NoFingerprint(String);

impl Fingerprint {
    /// The fingerprint of a certificate's key.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, webpki::Error> {
        let key = EndEntityCert::try_from(certificate)?.subject_public_key_info();
        Ok(Self(Sha256::digest(&*key).into()))
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl From<Fingerprint> for [u8; 32] {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        text.strip_prefix(PREFIX)
            .and_then(|digits| STANDARD_NO_PAD.decode(digits).ok())
            .and_then(|octets| octets.try_into().ok())
            .map(Self)
            .ok_or_else(|| NoFingerprint(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let fingerprint = Fingerprint([7; 32]);
        let text = fingerprint.to_string();
        assert_eq!(text, "SHA256:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc");
        assert_eq!(text.parse(), Ok(fingerprint));
        for wrong in [
            "",
            "SHA256:",
            "MD5:07",
            &text[1..],
            &text[..49],
            &format!("{text}A"),
        ] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
