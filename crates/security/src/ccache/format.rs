//! Version 4 of a ticket cache's file: a header, whose it is, tickets; words with the most
//! significant byte first.
//!
//! spec: MIT Kerberos, "Credential cache file format"

use bytes::Bytes;
use zeroize::Zeroizing;

use super::{Ccache, Credential, Name};
use crate::kerberos::EncryptionKey;

/// The first two bytes.
const VERSION: u16 = 0x0504;
/// An ordinary name (NT-PRINCIPAL).
const NAME_TYPE: u32 = 1;
/// The realm of services that are none, but notes of programs.
const NOTES: &str = "X-CACHECONF:";
/// Parts of the longest name.
const COMPONENTS_MAX: u32 = 16;
/// Addresses or authorization data of a ticket.
const LIST_MAX: u32 = 256;

/// What is wrong with the bytes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It begins otherwise.
    #[error("it begins with {0:#06x}, not with 0x0504")]
    Version(u16),
    /// It ends within something.
    #[error("it ends within {0}")]
    Truncated(&'static str),
    /// More of something than there is.
    #[error("it has {count} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it says.
        count: u32,
    },
    /// A name that is not UTF-8.
    #[error("a name in it is not UTF-8")]
    Name,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        let split = self.0.split_at_checked(length);
        let (taken, rest) = split.ok_or(FormatError::Truncated(what))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let split = self.0.split_first_chunk();
        let (taken, rest) = split.ok_or(FormatError::Truncated(what))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn half(&mut self, what: &'static str) -> Result<u16, FormatError> {
        self.array(what).map(u16::from_be_bytes)
    }

    fn word(&mut self, what: &'static str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn data(&mut self, what: &'static str) -> Result<&'a [u8], FormatError> {
        let length = self.word(what)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), what)
    }

    fn text(&mut self) -> Result<String, FormatError> {
        let text = std::str::from_utf8(self.data("a name")?);
        text.map(str::to_owned).map_err(|_| FormatError::Name)
    }

    fn name(&mut self) -> Result<Name, FormatError> {
        let _type = self.word("a name")?;
        let count = self.count("parts of a name", COMPONENTS_MAX)?;
        let realm = self.text()?;
        let components = (0..count).map(|_| self.text());
        Ok(Name {
            components: components.collect::<Result<_, _>>()?,
            realm,
        })
    }

    fn count(&mut self, what: &'static str, most: u32) -> Result<u32, FormatError> {
        let count = self.word(what)?;
        if count > most {
            return Err(FormatError::TooMany { what, count });
        }
        Ok(count)
    }

    /// Passes over a list of addresses or the like.
    fn skip_list(&mut self, what: &'static str) -> Result<(), FormatError> {
        for _ in 0..self.count(what, LIST_MAX)? {
            self.half(what)?;
            self.data(what)?;
        }
        Ok(())
    }

    fn credential(&mut self) -> Result<Credential, FormatError> {
        let (client, server) = (self.name()?, self.name()?);
        // Types are signed, and 16 bits of them are here.
        let etype = self.half("a key")?.cast_signed();
        let key = EncryptionKey::new(etype.into(), self.data("a key")?.to_vec());
        let mut times = [0; 4];
        for time in &mut times {
            *time = self.word("a ticket's times")?;
        }
        let [authenticated, start, end, renew_till] = times;
        let [_in_session_key] = self.array("a ticket")?;
        let flags = self.word("a ticket's flags")?;
        self.skip_list("addresses")?;
        self.skip_list("authorization data")?;
        let ticket = Bytes::copy_from_slice(self.data("a ticket")?);
        let _second_ticket = self.data("a second ticket")?;
        Ok(Credential {
            client,
            server,
            key,
            authenticated,
            start,
            end,
            renew_till,
            flags,
            ticket,
        })
    }
}

pub(super) fn read(octets: &[u8]) -> Result<Ccache, FormatError> {
    let mut input = Reader(octets);
    let version = input.half("its version")?;
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    let header = input.half("its header")?;
    input.take(header.into(), "its header")?;
    let principal = input.name()?;
    let mut credentials = Vec::new();
    while !input.0.is_empty() {
        let credential = input.credential()?;
        if credential.server.realm != NOTES {
            credentials.push(credential);
        }
    }
    Ok(Ccache {
        principal,
        credentials,
    })
}

pub(super) fn write(cache: &Ccache) -> Zeroizing<Vec<u8>> {
    // Room for all of it, lest keys stay behind in a smaller buffer.
    let tickets = cache.credentials.iter().map(|one| one.ticket.len() + 4096);
    let mut out = Zeroizing::new(Vec::with_capacity(4096 + tickets.sum::<usize>()));
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&0u16.to_be_bytes());
    put_name(&mut out, &cache.principal);
    for credential in &cache.credentials {
        put_credential(&mut out, credential);
    }
    out
}

fn put_credential(out: &mut Vec<u8>, credential: &Credential) {
    put_name(out, &credential.client);
    put_name(out, &credential.server);
    let etype = i16::try_from(credential.key.etype()).unwrap_or(0);
    out.extend_from_slice(&etype.to_be_bytes());
    put_data(out, credential.key.octets());
    let times = [
        credential.authenticated,
        credential.start,
        credential.end,
        credential.renew_till,
    ];
    for time in times {
        put_word(out, time);
    }
    // Not encrypted in another ticket's key.
    out.push(0);
    put_word(out, credential.flags);
    // No addresses, no authorization data.
    put_word(out, 0);
    put_word(out, 0);
    put_data(out, &credential.ticket);
    put_data(out, &[]);
}

fn put_name(out: &mut Vec<u8>, name: &Name) {
    put_word(out, NAME_TYPE);
    put_word(out, length(name.components.len()));
    put_data(out, name.realm.as_bytes());
    for component in &name.components {
        put_data(out, component.as_bytes());
    }
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    put_word(out, length(data.len()));
    out.extend_from_slice(data);
}

fn put_word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn length(length: usize) -> u32 {
    u32::try_from(length).expect("nothing in a cache is 4 GiB long")
}
