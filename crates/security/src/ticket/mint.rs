//! A ticket as a KDC would issue it.

use bytes::Bytes;

use super::parts::{Components, EncryptedData, FLAG_TRANSITED_CHECKED, NewPart};
use super::seal::seal;
use super::{session_key, time};
use crate::kerberos::{EncryptionKey, EncryptionType};
use crate::keys::{KeyError, KeyRing};
use crate::{Principal, Token, kvno};

/// The ticket that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Mint<'a> {
    /// Whose it is to be: `name` or `name/instance`, as Kerberos writes it.
    pub client: &'a str,
    /// The client's Kerberos realm.
    pub realm: &'a str,
    /// The cell whose servers take it.
    pub cell: &'a str,
    /// From when on it holds, in seconds since 1970.
    pub start: u32,
    /// When it expires, in seconds since 1970; no more than 30 days after the start.
    pub end: u32,
}

/// A ticket that was made, with all that an entry of a credentials cache has.
#[derive(Clone, Debug)]
pub struct Minted {
    /// What connections are opened with.
    pub token: Token,
    /// The whole ticket in DER.
    pub ticket: Bytes,
    /// The Kerberos key from which the token's key is derived.
    pub session: EncryptionKey,
    /// The components of the client's name; the realm is that of the request.
    pub client: Vec<String>,
    /// The components of the service's name: `afs` and the cell. Its realm is that of the request.
    pub service: [String; 2],
    /// The ticket's flags, the first one in the highest bit (RFC 4120, 5.3).
    pub flags: u32,
}

/// Makes a ticket for a user with the cell's newest key: who has that key needs no KDC to be
/// anybody.
///
/// # Errors
/// [`KeyError::NoKey`] if the ring has no key but those of DES; [`KeyError::NoSuchTicket`] if
/// servers would not take the ticket.
pub fn mint(keys: &KeyRing, request: &Mint<'_>) -> Result<Minted, KeyError> {
    let client = check(request)?;
    let session = EncryptionKey::random(EncryptionType::Aes256Sha1);
    let part = NewPart {
        flags: FLAG_TRANSITED_CHECKED,
        key: &session,
        realm: request.realm,
        client,
        start: request.start,
        end: request.end,
    };
    let service = ["afs", request.cell];
    let ticket: Bytes = seal(keys, &part, |data: &EncryptedData<'_>| {
        data.encode_ticket(request.realm, &service)
    })?
    .into();
    Ok(Minted {
        token: Token {
            kvno: kvno::K5,
            key: session_key(&session).expect("a key of AES has enough bytes"),
            ticket: ticket.clone(),
            start: request.start,
            end: request.end,
        },
        ticket,
        session,
        client: client.to_vec().into_iter().map(str::to_owned).collect(),
        service: service.map(str::to_owned),
        flags: FLAG_TRANSITED_CHECKED,
    })
}

/// The client's components, if servers would accept a ticket for this client with these times.
fn check<'a>(request: &Mint<'a>) -> Result<Components<'a>, KeyError> {
    let refused = |what| Err(KeyError::NoSuchTicket { what });
    let client = match request.client.split_once('/') {
        Some((first, second)) => Components::new(first, Some(second)),
        None => Components::new(request.client, None),
    };
    let components = client.to_vec();
    let writable = |part: &str| !part.is_empty() && !part.contains(['/', '@', '\\', '\0']);
    if !components.iter().all(|part| writable(part))
        || Principal::from_kerberos(&components, request.realm, true).is_none()
    {
        return refused("a name that is not name or name/instance, each of at most 63 bytes");
    }
    if request.realm.is_empty() || request.cell.is_empty() {
        return refused("nobody's realm or no cell");
    }
    let (start, end) = (u64::from(request.start), u64::from(request.end));
    if start == 0 || end <= start || end - start > time::LIFE_MAX {
        return refused("a time that ends before it begins, or spans more than 30 days");
    }
    Ok(client)
}
