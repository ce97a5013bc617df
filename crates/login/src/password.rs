//! Passwords, with OPAQUE (RFC 9807): the server gets to know neither the password nor anything
//! that stands for it elsewhere, and the client proves that it knows it.
//!
//! OPRF and key exchange (3DH) are of ristretto255 with SHA-512. What a password becomes by the
//! OPRF is stretched with Argon2id (64 MiB, 3 passes, 4 lanes: the second choice of RFC 9106), by
//! the client: a thief of the server's rows needs that much for each guess.
//!
//! spec: login#passwords

use argon2::{Algorithm, Argon2, Params, Version};
use opaque_ke::{
    CipherSuite, ClientLogin, ClientLoginFinishParameters, ClientRegistration,
    ClientRegistrationFinishParameters, CredentialFinalization, CredentialRequest,
    CredentialResponse, Identifiers, RegistrationRequest, RegistrationResponse, RegistrationUpload,
    ServerLogin, ServerLoginParameters, ServerRegistration, ServerSetup,
};
use rand_core::OsRng;
use zeroize::Zeroizing;

/// KiB of memory that Argon2id takes.
// spec: login#passwords
const MEMORY_KIB: u32 = 64 << 10;
/// Its passes over the memory.
const PASSES: u32 = 3;
/// Its lanes.
const LANES: u32 = 4;

/// The longest password, in bytes: a bound, as the cost of hashing it grows with it.
pub const PASSWORD_MAX: usize = 1024;

struct Suite;

impl CipherSuite for Suite {
    type OprfCs = opaque_ke::Ristretto255;
    type KeyExchange = opaque_ke::TripleDh<opaque_ke::Ristretto255, sha2::Sha512>;
    type Ksf = Argon2<'static>;
}

/// Why a password or a message about one cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// There is none.
    #[error("the password is empty")]
    Empty,
    /// It is too long.
    #[error("the password has more than {PASSWORD_MAX} bytes")]
    TooLong,
    /// The password is not the one that was set, or somebody meddles.
    #[error("the password is wrong")]
    Wrong,
    /// A message, or what is stored, makes no sense.
    #[error("a password message or record is damaged")]
    Damaged,
}

/// What OPAQUE fails with tells no more than that somebody is wrong.
fn damaged<E>(_: E) -> PasswordError {
    PasswordError::Damaged
}

fn check(password: &[u8]) -> Result<(), PasswordError> {
    match password.len() {
        0 => Err(PasswordError::Empty),
        1..=PASSWORD_MAX => Ok(()),
        _ => Err(PasswordError::TooLong),
    }
}

fn stretching() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None);
    let params = params.expect("the numbers are within Argon2's bounds");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// The secret of a cell's login service, by which it computes its part of every password. Without
/// it no row is of use, so it is kept with them and never changed.
pub struct Setup(ServerSetup<Suite>);

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Setup(..)")
    }
}

impl Setup {
    /// A new one.
    #[must_use]
    pub fn generate() -> Self {
        Self(ServerSetup::new(&mut OsRng))
    }

    /// Its bytes.
    #[must_use]
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.serialize().to_vec())
    }

    /// The one with these bytes.
    ///
    /// # Errors
    /// [`PasswordError::Damaged`] if they are none.
    pub fn of_octets(octets: &[u8]) -> Result<Self, PasswordError> {
        let setup = ServerSetup::deserialize(octets).map_err(damaged)?;
        // What is left over would go unnoticed.
        let whole = setup.serialize().len() == octets.len();
        whole.then_some(Self(setup)).ok_or(PasswordError::Damaged)
    }

    /// The server's part in setting the password of the user with this id: answers
    /// [`NewPassword::begin`].
    ///
    /// # Errors
    /// [`PasswordError::Damaged`] if the request makes no sense.
    pub fn register(&self, id: i32, request: &[u8]) -> Result<Vec<u8>, PasswordError> {
        let request = RegistrationRequest::<Suite>::deserialize(request).map_err(damaged)?;
        let known = Credential::Known(id).octets();
        let started = ServerRegistration::start(&self.0, request, &known).map_err(damaged)?;
        Ok(started.message.serialize().to_vec())
    }

    /// Answers the beginning of a login. Without a record it answers as if there were one.
    pub(crate) fn challenge(
        &self,
        credential: &Credential<'_>,
        record: Option<&Record>,
        ke1: &[u8],
        binding: &[u8],
    ) -> Result<(Challenged, Vec<u8>), PasswordError> {
        let request = CredentialRequest::<Suite>::deserialize(ke1).map_err(damaged)?;
        let record = record
            .map(|record| ServerRegistration::deserialize(&record.0))
            .transpose()
            .map_err(damaged)?;
        let (context, credential) = (parameters(binding), credential.octets());
        let started =
            ServerLogin::start(&mut OsRng, &self.0, record, request, &credential, context)
                .map_err(damaged)?;
        Ok((
            Challenged(started.state),
            started.message.serialize().to_vec(),
        ))
    }
}

fn parameters(binding: &[u8]) -> ServerLoginParameters<'_, 'static> {
    ServerLoginParameters {
        context: Some(binding),
        identifiers: Identifiers::default(),
    }
}

/// For whom the server computes its part of a password.
pub(crate) enum Credential<'a> {
    /// A user, by id: the name may change.
    Known(i32),
    /// Nobody: always the same for this name, as it is for a user.
    Nobody(&'a str),
}

impl Credential<'_> {
    fn octets(&self) -> Vec<u8> {
        match self {
            Self::Known(id) => [&b"id:"[..], &id.to_be_bytes()].concat(),
            Self::Nobody(name) => [b"name:", name.as_bytes()].concat(),
        }
    }
}

/// What a server keeps of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Record(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Record(..)")
    }
}

impl Record {
    /// The one with these bytes.
    ///
    /// # Errors
    /// [`PasswordError::Damaged`] if they are none.
    pub fn of_octets(octets: &[u8]) -> Result<Self, PasswordError> {
        let record = ServerRegistration::<Suite>::deserialize(octets).map_err(damaged)?;
        let whole = record.serialize().len() == octets.len();
        let record = whole.then(|| Self(Zeroizing::new(octets.to_vec())));
        record.ok_or(PasswordError::Damaged)
    }

    /// Its bytes.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

/// A login whose proof has not come yet.
pub(crate) struct Challenged(ServerLogin<Suite>);

impl Challenged {
    /// Whether the proof shows that the client has the password.
    pub(crate) fn check(self, ke3: &[u8], binding: &[u8]) -> Result<(), PasswordError> {
        let proof = CredentialFinalization::<Suite>::deserialize(ke3).map_err(damaged)?;
        let finished = self.0.finish(proof, parameters(binding));
        finished.map(drop).map_err(|_| PasswordError::Wrong)
    }
}

/// A password that is being set, on the side that knows it.
pub struct NewPassword {
    state: ClientRegistration<Suite>,
    password: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewPassword(..)")
    }
}

impl NewPassword {
    /// Begins; the request is for [`Setup::register`].
    ///
    /// # Errors
    /// When the password is empty or too long.
    pub fn begin(password: &[u8]) -> Result<(Self, Vec<u8>), PasswordError> {
        check(password)?;
        let started = ClientRegistration::<Suite>::start(&mut OsRng, password).map_err(damaged)?;
        let new = Self {
            state: started.state,
            password: Zeroizing::new(password.to_vec()),
        };
        Ok((new, started.message.serialize().to_vec()))
    }

    /// Ends with the server's answer: gives the record it is to keep. Takes a good part of a
    /// second.
    ///
    /// # Errors
    /// [`PasswordError::Damaged`] if the answer makes no sense.
    pub fn finish(self, answer: &[u8]) -> Result<Record, PasswordError> {
        let answer = RegistrationResponse::<Suite>::deserialize(answer).map_err(damaged)?;
        let stretching = stretching();
        let parameters =
            ClientRegistrationFinishParameters::new(Identifiers::default(), Some(&stretching));
        let finished = self
            .state
            .finish(&mut OsRng, &self.password, answer, parameters)
            .map_err(damaged)?;
        let record: RegistrationUpload<Suite> = finished.message;
        Record::of_octets(&record.serialize())
    }
}

/// A login with a password, on the side that knows it.
pub(crate) struct PasswordLogin {
    state: ClientLogin<Suite>,
    password: Zeroizing<Vec<u8>>,
}

impl PasswordLogin {
    /// Begins, with KE1.
    pub(crate) fn begin(password: &[u8]) -> Result<(Self, Vec<u8>), PasswordError> {
        check(password)?;
        let started = ClientLogin::<Suite>::start(&mut OsRng, password).map_err(damaged)?;
        let login = Self {
            state: started.state,
            password: Zeroizing::new(password.to_vec()),
        };
        Ok((login, started.message.serialize().to_vec()))
    }

    /// The proof (KE3) for the server's challenge. Takes a good part of a second. Fails with
    /// [`PasswordError::Wrong`] if the server has another password of this user, or none.
    pub(crate) fn prove(self, ke2: &[u8], binding: &[u8]) -> Result<Vec<u8>, PasswordError> {
        let answer = CredentialResponse::<Suite>::deserialize(ke2).map_err(damaged)?;
        let stretching = stretching();
        let parameters = ClientLoginFinishParameters::new(
            Some(binding),
            Identifiers::default(),
            Some(&stretching),
        );
        let finished = self
            .state
            .finish(&mut OsRng, &self.password, answer, parameters)
            .map_err(|_| PasswordError::Wrong)?;
        Ok(finished.message.serialize().to_vec())
    }
}

#[cfg(test)]
mod tests;
