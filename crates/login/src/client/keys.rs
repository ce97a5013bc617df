//! The SSH keys with which somebody wants to log in.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rand_core::OsRng;
use rsa::pkcs1v15::SigningKey;
use rsa::sha2::Sha512;
use rsa::signature::{RandomizedSigner, SignatureEncoding};
use rsa::{BigUint, RsaPrivateKey};
use ssh_encoding::Encode;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, HashAlg, Mpint, PrivateKey, PublicKey, Signature, SshSig};
use zeroize::Zeroizing;

use super::LoginError;
use super::agent::Agent;
use crate::proof::NAMESPACE;
use crate::sshkey;
use crate::wire::SIGNATURES_MAX;

/// Octets of a file with a key.
const FILE_MAX: u64 = 64 << 10;

/// Keys to show to a server: those of an agent, or one from a file.
pub struct SshKeys(Source);

enum Source {
    File(Box<PrivateKey>),
    Agent(Agent, Vec<KeyData>),
}

impl fmt::Debug for SshKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.0 {
            Source::File(_) => "a file",
            Source::Agent(..) => "an agent",
        };
        f.debug_tuple("SshKeys").field(&source).finish()
    }
}

impl SshKeys {
    /// The first keys of the session's agent (`SSH_AUTH_SOCK`); `None` if there is no agent, or it
    /// has no key of a type that is taken.
    ///
    /// # Errors
    /// When the agent does not answer.
    pub fn agent() -> Result<Option<Self>, LoginError> {
        let agent = Agent::of_session().map_err(|source| LoginError::Agent {
            path: std::env::var_os("SSH_AUTH_SOCK").unwrap_or_default().into(),
            source,
        })?;
        agent.map_or(Ok(None), Self::of_agent)
    }

    /// The first keys of the agent at this socket.
    #[cfg(test)]
    pub(crate) fn agent_at(path: &Path) -> Result<Option<Self>, LoginError> {
        let agent = Agent::at(path).map_err(|source| LoginError::Agent {
            path: path.to_owned(),
            source,
        })?;
        Self::of_agent(agent)
    }

    fn of_agent(mut agent: Agent) -> Result<Option<Self>, LoginError> {
        let mut keys = agent_keys(&mut agent)?;
        keys.truncate(SIGNATURES_MAX);
        let some = !keys.is_empty();
        Ok(some.then_some(Self(Source::Agent(agent, keys))))
    }

    /// The key in a file: a private one in OpenSSH's form, or a public one (`.pub`) whose private
    /// one the agent has. `passphrase` is asked if the file is encrypted.
    ///
    /// # Errors
    /// When the file is no key that is taken, cannot be decrypted, or the agent lacks it.
    pub fn file(
        path: &Path,
        passphrase: impl FnOnce() -> io::Result<Zeroizing<String>>,
    ) -> Result<Self, LoginError> {
        let unusable = |what: String| LoginError::Key {
            path: path.to_owned(),
            what,
        };
        let text = read(path).map_err(|error| unusable(error.to_string()))?;
        if let Ok(public) = PublicKey::from_openssh(text.trim()) {
            sshkey::check(public.key_data())?;
            return Self::of_public(public.key_data(), &unusable);
        }
        let mut key = PrivateKey::from_openssh(text.as_bytes()).map_err(|_| {
            unusable(
                "it is not in OpenSSH's form; `ssh-keygen -p -f FILE` rewrites it so, or add it \
                 to an SSH agent"
                    .to_owned(),
            )
        })?;
        sshkey::check(key.public_key().key_data())?;
        if key.is_encrypted() {
            let passphrase = passphrase().map_err(|error| unusable(error.to_string()))?;
            key = key
                .decrypt(passphrase.as_bytes())
                .map_err(|_| unusable("the passphrase is wrong".to_owned()))?;
        }
        Ok(Self(Source::File(Box::new(key))))
    }

    /// The agent's key that belongs to a public one.
    fn of_public(
        public: &KeyData,
        unusable: &dyn Fn(String) -> LoginError,
    ) -> Result<Self, LoginError> {
        let agent = Agent::of_session().map_err(|error| unusable(error.to_string()))?;
        let mut agent = agent.ok_or_else(|| {
            unusable("it is a public key, and there is no SSH agent (SSH_AUTH_SOCK)".to_owned())
        })?;
        if !agent_keys(&mut agent)?.contains(public) {
            return Err(unusable(
                "it is a public key, and the SSH agent does not have its private one (ssh-add)"
                    .to_owned(),
            ));
        }
        Ok(Self(Source::Agent(agent, vec![public.clone()])))
    }

    /// A signature of each key over `message`, in SSHSIG's form.
    pub(super) fn sign(&mut self, message: &[u8]) -> Result<Vec<Vec<u8>>, LoginError> {
        let mut signatures = Vec::new();
        match &mut self.0 {
            Source::File(key) => signatures.extend(sign_with(key, message)),
            Source::Agent(agent, keys) => {
                let Ok(data) = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, message) else {
                    return Ok(Vec::new());
                };
                for key in keys {
                    let signed = agent.sign(key, &data).map_err(|source| LoginError::Agent {
                        path: agent.path.clone(),
                        source,
                    })?;
                    let whole = signed.map(|signature| {
                        SshSig::new(key.clone(), NAMESPACE, HashAlg::Sha512, signature)
                    });
                    signatures.extend(whole.into_iter().flatten());
                }
            }
        }
        let octets = signatures.iter().filter_map(|signature| {
            let mut octets = Vec::new();
            signature.encode(&mut octets).ok().map(|()| octets)
        });
        Ok(octets.collect())
    }
}

/// A signature of a key from a file; `None` if the key is damaged.
fn sign_with(key: &PrivateKey, message: &[u8]) -> Option<SshSig> {
    let Some(pair) = key.key_data().rsa() else {
        return key.sign(NAMESPACE, HashAlg::Sha512, message).ok();
    };
    // ssh-key 0.6 takes the first prime for both.
    let number = |of: &Mpint| of.as_positive_bytes().map(BigUint::from_bytes_be);
    let private = RsaPrivateKey::from_components(
        number(&pair.public.n)?,
        number(&pair.public.e)?,
        number(&pair.private.d)?,
        vec![number(&pair.private.p)?, number(&pair.private.q)?],
    );
    let data = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, message).ok()?;
    let signing = SigningKey::<Sha512>::new(private.ok()?);
    let signature = signing.try_sign_with_rng(&mut OsRng, &data).ok()?;
    let algorithm = Algorithm::Rsa {
        hash: Some(HashAlg::Sha512),
    };
    let signature = Signature::new(algorithm, signature.to_vec()).ok()?;
    let public = key.public_key().key_data().clone();
    SshSig::new(public, NAMESPACE, HashAlg::Sha512, signature).ok()
}

/// The agent's keys of types that are taken.
fn agent_keys(agent: &mut Agent) -> Result<Vec<KeyData>, LoginError> {
    let mut keys = agent.keys().map_err(|source| LoginError::Agent {
        path: agent.path.clone(),
        source,
    })?;
    keys.retain(|key| sshkey::check(key).is_ok());
    Ok(keys)
}

fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    if fs::metadata(path)?.len() > FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(Zeroizing::new(fs::read_to_string(path)?))
}
