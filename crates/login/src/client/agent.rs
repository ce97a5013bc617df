//! An SSH agent, as far as a login needs one: its keys, and signatures of them
//! (draft-ietf-sshm-ssh-agent).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ssh_encoding::{Decode, Encode};
use ssh_key::Signature;
use ssh_key::public::KeyData;

/// Asks for the keys.
const REQUEST_IDENTITIES: u8 = 11;
/// Answers with them.
const IDENTITIES_ANSWER: u8 = 12;
/// Asks for a signature.
const SIGN_REQUEST: u8 = 13;
/// Answers with it.
const SIGN_RESPONSE: u8 = 14;
/// RSA is to sign with SHA-512, not SHA-1.
const RSA_SHA2_512: u32 = 4;

/// Bytes of an answer (as OpenSSH bounds it).
const ANSWER_MAX: u32 = 256 << 10;
/// Keys that are looked at.
const KEYS_MAX: u32 = 256;
/// How long to wait: somebody may have to touch a key or type a passphrase.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an agent.
pub(super) struct Agent {
    stream: UnixStream,
    pub(super) path: PathBuf,
}

impl Agent {
    /// The agent of this session, if there is one.
    pub(super) fn of_session() -> io::Result<Option<Self>> {
        match std::env::var_os("SSH_AUTH_SOCK") {
            Some(path) if !path.is_empty() => Self::at(Path::new(&path)).map(Some),
            _ => Ok(None),
        }
    }

    /// The agent at this socket.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            path: path.to_owned(),
        })
    }

    /// Its keys, those of types not known here left out.
    pub(super) fn keys(&mut self) -> io::Result<Vec<KeyData>> {
        let answer = self.ask(&[REQUEST_IDENTITIES], IDENTITIES_ANSWER)?;
        let mut rest = &answer[..];
        let count = u32::decode(&mut rest).map_err(strange)?;
        let mut keys = Vec::new();
        for _ in 0..count.min(KEYS_MAX) {
            let mut blob = string(&mut rest)?;
            string(&mut rest)?;
            keys.extend(KeyData::decode(&mut blob));
        }
        Ok(keys)
    }

    /// A signature of this key; `None` if the agent does not give one.
    pub(super) fn sign(&mut self, key: &KeyData, data: &[u8]) -> io::Result<Option<Signature>> {
        let mut blob = Vec::new();
        key.encode(&mut blob).map_err(strange)?;
        let mut request = vec![SIGN_REQUEST];
        blob.encode(&mut request).map_err(strange)?;
        data.encode(&mut request).map_err(strange)?;
        let flags = if key.is_rsa() { RSA_SHA2_512 } else { 0 };
        flags.encode(&mut request).map_err(strange)?;
        let answer = match self.ask(&request, SIGN_RESPONSE) {
            Ok(answer) => answer,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut signature = string(&mut &answer[..])?;
        Signature::decode(&mut signature).map(Some).map_err(strange)
    }

    /// Sends a request, and gives the answer's bytes if it is of this type. Any other is a refusal.
    fn ask(&mut self, request: &[u8], wanted: u8) -> io::Result<Vec<u8>> {
        let mut sent = Vec::new();
        request.encode(&mut sent).map_err(strange)?;
        self.stream.write_all(&sent)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length == 0 || length > ANSWER_MAX {
            return Err(strange("the length of its answer"));
        }
        let mut answer = Vec::new();
        let mut limited = (&self.stream).take(length.into());
        limited.read_to_end(&mut answer)?;
        if answer.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if answer.remove(0) != wanted {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(answer)
    }
}

/// The next string of an answer.
fn string<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = u32::decode(rest).map_err(strange)? as usize;
    let (string, after) = rest
        .split_at_checked(length)
        .ok_or_else(|| strange("a string beyond the end of its answer"))?;
    *rest = after;
    Ok(string)
}

fn strange(what: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
