//! The secret of one offer, and what proves that somebody has it.
//!
//! Not every Rx connection is secret, and an offer need not be: both sides send a public key and agree on the secret.
//! Somebody who could change what passes on the Rx connection could speak in the client's name there as well.
// spec: oob#the-proof

use aws_lc_rs::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{constant_time, hkdf, hmac};
use zeroize::Zeroizing;

/// What the secret is derived under.
const SECRET: &[u8] = b"afar-oob/1 secret";

/// No secret can be agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The system gives no random numbers, or no key can be made of them.
    #[error("cannot make a key")]
    Key,
    /// The other side's public key is none.
    #[error("the public key of the other side is invalid")]
    Share,
}

/// One side of an agreement that is not yet made.
#[derive(Debug)]
pub struct Agreement {
    private: EphemeralPrivateKey,
    share: [u8; 32],
}

/// Which side of an agreement somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that asked.
    Client,
    /// The one that answers.
    Server,
}

/// What both sides of an offer know, and nobody else.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Agreement {
    /// With a new key.
    ///
    /// # Errors
    /// [`SecretError::Key`].
    pub fn new() -> Result<Self, SecretError> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())
            .map_err(|_| SecretError::Key)?;
        let public = private.compute_public_key().map_err(|_| SecretError::Key)?;
        let share = public.as_ref().try_into().map_err(|_| SecretError::Key)?;
        Ok(Self { private, share })
    }

    /// The public key, to be sent.
    #[must_use]
    pub fn share(&self) -> [u8; 32] {
        self.share
    }

    /// Agrees with the side whose public key this is.
    ///
    /// # Errors
    /// [`SecretError::Share`].
    pub fn agree(self, side: Side, other: &[u8; 32]) -> Result<Secret, SecretError> {
        let shares = match side {
            Side::Client => [self.share, *other],
            Side::Server => [*other, self.share],
        };
        let peer = UnparsedPublicKey::new(&X25519, other);
        agree_ephemeral(self.private, peer, SecretError::Share, |shared| {
            let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, SECRET);
            let key = salt.extract(shared);
            let mut secret = Zeroizing::new([0; 32]);
            let info = [&shares[0][..], &shares[1][..]];
            let derived = key.expand(&info, hkdf::HKDF_SHA256);
            let filled = derived.and_then(|derived| derived.fill(&mut *secret));
            filled.map_err(|_| SecretError::Key)?;
            Ok(Secret(secret))
        })
    }
}

impl Secret {
    /// Of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, for a grant.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What proves in one TLS session, from which these bytes were exported, that somebody has the secret.
    #[must_use]
    pub fn proof(&self, exported: &[u8; 32]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.0);
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&key, exported).as_ref());
        proof
    }

    /// Whether this is that proof. It takes as long whatever the answer is.
    #[must_use]
    pub fn is_proved(&self, exported: &[u8; 32], proof: &[u8; 32]) -> bool {
        constant_time::verify_slices_are_equal(&self.proof(exported), proof).is_ok()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_and_nobody_else_does() {
        let [client, server, other] = [(); 3].map(|()| Agreement::new().unwrap());
        let (client_share, server_share) = (client.share(), server.share());
        let of_other = other.agree(Side::Client, &server_share).unwrap();
        let of_client = client.agree(Side::Client, &server_share).unwrap();
        let of_server = server.agree(Side::Server, &client_share).unwrap();
        assert_eq!(of_client.bytes(), of_server.bytes());
        let exported = [7; 32];
        let proof = of_client.proof(&exported);
        assert!(of_server.is_proved(&exported, &proof));
        assert!(!of_server.is_proved(&[8; 32], &proof), "another session");
        assert!(!of_server.is_proved(&exported, &of_other.proof(&exported)));
    }

    #[test]
    fn a_key_that_makes_every_secret_the_same_is_refused() {
        let server = Agreement::new().unwrap();
        let agreed = server.agree(Side::Server, &[0; 32]);
        assert_eq!(agreed.map(drop), Err(SecretError::Share));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from_bytes([1; 32])), "Secret(..)");
    }
}
