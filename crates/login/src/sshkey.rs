//! SSH keys that may stand for a user.

use std::fmt;

use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents,
};
use ssh_key::public::{KeyData, RsaPublicKey};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, SshSig};

use crate::proof::NAMESPACE;

/// The least bytes of an RSA modulus: 2048 bits.
const RSA_MIN: usize = 256;
/// Bytes of a key's line without its comment, at most: RSA keys of 4096 bits have some 730.
const LINE_MAX: usize = 1024;
/// Characters of a comment that are kept.
const COMMENT_MAX: usize = 100;

/// A key with which a user may log in: Ed25519, ECDSA with NIST's P-256, or RSA of 2048 to 4096
/// bits. Written as in OpenSSH's `authorized_keys`, without options.
#[derive(Clone, PartialEq, Eq)]
pub struct SshKey(PublicKey);

/// Why a key is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SshKeyError {
    /// It is not a public key.
    #[error(
        "this is not an SSH public key; expected a line such as `ssh-ed25519 AAAA… comment`, in a \
         file whose name ends in .pub"
    )]
    NotAKey,
    /// It is of a type that is not taken here.
    #[error("keys of type {0} are not supported; use ssh-ed25519, ecdsa-sha2-nistp256 or ssh-rsa")]
    Type(String),
    /// It is weak, or longer than can be checked.
    #[error("RSA keys of {0} bits are not supported; use 2048 to 4096 bits")]
    Size(usize),
}

impl SshKey {
    /// The key in a line.
    ///
    /// # Errors
    /// [`SshKeyError`], if there is none that is taken.
    pub fn parse(line: &str) -> Result<Self, SshKeyError> {
        let line = line.trim();
        let comment = line.splitn(3, ' ').nth(2).unwrap_or("");
        if line.contains(['\n', '\0']) || line.len() - comment.len() > LINE_MAX {
            return Err(SshKeyError::NotAKey);
        }
        let mut key = PublicKey::from_openssh(line).map_err(|_| SshKeyError::NotAKey)?;
        check(key.key_data())?;
        // A comment is shown on terminals.
        let plain = comment.chars().filter(|c| !c.is_control());
        key.set_comment(plain.take(COMMENT_MAX).collect::<String>());
        Ok(Self(key))
    }

    /// `SHA256:…`, as `ssh-keygen -l` has it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// What its owner has written beside it.
    #[must_use]
    pub fn comment(&self) -> &str {
        self.0.comment()
    }

    pub(crate) fn key_data(&self) -> &KeyData {
        self.0.key_data()
    }
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_openssh().map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshKey({})", self.fingerprint())
    }
}

/// Whether a key is of a type and size that are taken.
pub(crate) fn check(key: &KeyData) -> Result<(), SshKeyError> {
    match key.algorithm() {
        Algorithm::Ed25519
        | Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        } => Ok(()),
        Algorithm::Rsa { .. } => {
            let modulus = key.rsa().and_then(|rsa| rsa.n.as_positive_bytes());
            let octets = modulus.map_or(0, <[u8]>::len);
            if (RSA_MIN..=2 * RSA_MIN).contains(&octets) {
                Ok(())
            } else {
                Err(SshKeyError::Size(octets * 8))
            }
        }
        other => Err(SshKeyError::Type(other.as_str().to_owned())),
    }
}

/// The key that has made this signature over `message`, if it is one that is taken.
// spec: login#ssh-keys
pub(crate) fn signer(signature: &[u8], message: &[u8]) -> Option<KeyData> {
    use ssh_encoding::{Decode, Encode};
    let decoded = SshSig::decode(&mut &signature[..]).ok()?;
    // Lengths within it may be wrong, and its version, without ssh-key's minding.
    let mut again = Vec::new();
    decoded.encode(&mut again).ok()?;
    if again != signature || decoded.version() != SshSig::VERSION {
        return None;
    }
    check(decoded.public_key()).ok()?;
    let valid = match decoded.public_key().rsa() {
        Some(key) => is_signed_by_rsa(key, &decoded, message)?,
        None => {
            let key = PublicKey::from(decoded.public_key().clone());
            key.verify(NAMESPACE, message, &decoded).is_ok()
        }
    };
    valid.then(|| decoded.public_key().clone())
}

/// Whether an RSA key has made this signature over `message`. SHA-1, which the oldest clients sign with,
/// is not taken.
fn is_signed_by_rsa(key: &RsaPublicKey, signature: &SshSig, message: &[u8]) -> Option<bool> {
    let parameters = match signature.signature().algorithm() {
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        } => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        } => &RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    };
    if signature.namespace() != NAMESPACE {
        return None;
    }
    let data = SshSig::signed_data(NAMESPACE, signature.hash_alg(), message).ok()?;
    let components = RsaPublicKeyComponents {
        n: key.n.as_positive_bytes()?,
        e: key.e.as_positive_bytes()?,
    };
    let verified = components.verify(parameters, &data, signature.signature_bytes());
    Some(verified.is_ok())
}

/// Whether these bytes are a signature over `message`: for the fuzz target, which has none.
#[cfg(fuzzing)]
#[must_use]
pub fn is_signed(signature: &[u8], message: &[u8]) -> bool {
    signer(signature, message).is_some()
}

#[cfg(test)]
mod tests {
    use ssh_encoding::Encode;
    use ssh_key::PrivateKey;

    use super::*;

    fn private(algorithm: Algorithm) -> PrivateKey {
        PrivateKey::random(&mut rand_core::OsRng, algorithm).unwrap()
    }

    fn sign(key: &PrivateKey, namespace: &str, message: &[u8]) -> Vec<u8> {
        let signature = key.sign(namespace, HashAlg::Sha512, message).unwrap();
        let mut octets = Vec::new();
        signature.encode(&mut octets).unwrap();
        octets
    }

    #[test]
    fn a_signature_names_its_key_for_its_message_only() {
        let key = private(Algorithm::Ed25519);
        let made = sign(&key, NAMESPACE, b"message");
        assert_eq!(
            signer(&made, b"message").as_ref(),
            Some(key.public_key().key_data())
        );
        assert_eq!(signer(&made, b"another"), None);
        assert_eq!(signer(&sign(&key, "file", b"message"), b"message"), None);
        assert_eq!(signer(&[&made[..], b"x"].concat(), b"message"), None);
        for place in 0..made.len() {
            let mut damaged = made.clone();
            damaged[place] ^= 1;
            assert_eq!(signer(&damaged, b"message"), None, "byte {place}");
            assert_eq!(signer(&made[..place], b"message"), None);
        }
    }

    #[test]
    fn lines_are_read_and_other_text_is_not() {
        let mut key = private(Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        });
        key.set_comment("alice at home");
        let line = key.public_key().to_openssh().unwrap();
        let parsed = SshKey::parse(&format!(" {line}\n")).unwrap();
        assert_eq!(parsed.to_string(), line);
        assert_eq!(parsed.comment(), "alice at home");
        assert!(parsed.fingerprint().starts_with("SHA256:"));
        let hostile = SshKey::parse(&line.replace(" at", "\x1b[2J")).unwrap();
        assert_eq!(hostile.comment(), "alice[2J home");
        for wrong in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "-----BEGIN KEY-----"] {
            assert_eq!(SshKey::parse(wrong), Err(SshKeyError::NotAKey), "{wrong}");
        }
        let two = format!("{line}\n{line}");
        assert_eq!(SshKey::parse(&two), Err(SshKeyError::NotAKey));
    }
}
