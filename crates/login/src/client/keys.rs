//! The SSH keys with which somebody wants to log in.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use ssh_encoding::Encode;
use ssh_key::public::KeyData;
use ssh_key::{HashAlg, PrivateKey, PublicKey, SshSig};
use zeroize::Zeroizing;

use super::agent::Agent;
use super::{KeyProblem, LoginError};
use crate::proof::NAMESPACE;
use crate::sshkey;
use crate::wire::SIGNATURES_MAX;

/// Bytes of a file with a key.
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

    /// The key in a file: a private one in OpenSSH's form, or a public one (`.pub`) or one of RSA,
    /// with which the agent signs. `passphrase` is asked if the file is encrypted.
    ///
    /// # Errors
    /// When the file is no key that is taken, cannot be decrypted, or the agent lacks it.
    pub fn file(
        path: &Path,
        passphrase: impl FnOnce() -> io::Result<Zeroizing<String>>,
    ) -> Result<Self, LoginError> {
        let unusable = |what: KeyProblem| LoginError::Key {
            path: path.to_owned(),
            what,
        };
        let text = read(path).map_err(|error| unusable(error.into()))?;
        if let Ok(public) = PublicKey::from_openssh(text.trim()) {
            sshkey::check(public.key_data())?;
            return Self::of_public(public.key_data(), &unusable);
        }
        let mut key =
            PrivateKey::from_openssh(text.as_bytes()).map_err(|_| unusable(KeyProblem::Format))?;
        sshkey::check(key.public_key().key_data())?;
        if key.public_key().key_data().is_rsa() {
            // No code here handles private RSA keys: the free libraries that do leak them by the
            // time they take (RUSTSEC-2023-0071).
            return Self::of_public(key.public_key().key_data(), &unusable);
        }
        if key.is_encrypted() {
            let passphrase = passphrase().map_err(|error| unusable(error.into()))?;
            key = key
                .decrypt(passphrase.as_bytes())
                .map_err(|_| unusable(KeyProblem::Passphrase))?;
        }
        Ok(Self(Source::File(Box::new(key))))
    }

    /// The agent's key that belongs to a public one.
    fn of_public(
        public: &KeyData,
        unusable: &dyn Fn(KeyProblem) -> LoginError,
    ) -> Result<Self, LoginError> {
        let agent = Agent::of_session().map_err(|error| unusable(error.into()))?;
        let mut agent = agent.ok_or_else(|| unusable(KeyProblem::NoAgent))?;
        if !agent_keys(&mut agent)?.contains(public) {
            return Err(unusable(KeyProblem::NotInAgent));
        }
        Ok(Self(Source::Agent(agent, vec![public.clone()])))
    }

    /// A signature of each key over `message`, in SSHSIG's form.
    pub(super) fn sign(&mut self, message: &[u8]) -> Result<Vec<Vec<u8>>, LoginError> {
        let mut signatures = Vec::new();
        match &mut self.0 {
            Source::File(key) => {
                // One that is damaged signs nothing.
                signatures.extend(key.sign(NAMESPACE, HashAlg::Sha512, message).ok());
            }
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
