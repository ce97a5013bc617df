//! Opening the ticket of a client.

use std::time::SystemTime;

use super::derive::session_key;
use super::parts::{EncTicketPart, EncryptedData, FLAG_INVALID};
use super::time;
use crate::kerberos::{self, CipherError, EncryptionType, Secret, USAGE_TICKET};
use crate::keys::KeyRing;
use crate::{Principal, RxkadError, SessionKey, kvno};

/// No ticket has more bytes.
const LEN_MAX: usize = 12_000;

/// Which tickets are taken that could be, but better are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketPolicy {
    /// Take names with a dot in their first component, by which `a.b` and `a/b` become the same
    /// user (OpenAFS's `-allow-dotted-principals`).
    pub allow_dotted_principals: bool,
    /// Take tickets encrypted with single DES, which anybody can make who has a day and a ticket
    /// of the cell, and so impersonate anybody.
    pub danger_allow_des: bool,
}

/// What an opened ticket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Whose it is.
    pub client: Principal,
    /// The key its owner has, too.
    pub key: SessionKey,
    /// From when on it holds, in seconds since 1970.
    pub start: u32,
    /// When it expires, in seconds since 1970.
    pub end: u32,
}

/// Opens a ticket with the cell's keys: a whole Kerberos 5 ticket or the encrypted part of one,
/// which `kvno` tells ([`kvno`]). Any other number means Kerberos 4, for which there are no keys.
///
/// # Errors
/// `UnknownKey` if the ticket names a key or an encryption type that is not here, or DES without
/// the policy that allows it. `BadTicket` if it cannot be read or decrypted, if its name or key can
/// be none of AFS, or its times make no sense. `NoAuth` if it does not hold yet, `Expired` if no
/// more. `TicketLen` if it is longer than tickets are. The order and the codes are OpenAFS's
/// (`tkt_DecodeTicket5`, then `tkt_CheckTimes`).
// spec: rxkad#tickets
pub fn open(
    kvno: u32,
    ticket: &[u8],
    keys: &KeyRing,
    policy: &TicketPolicy,
    now: SystemTime,
) -> Result<Opened, RxkadError> {
    if ticket.len() > LEN_MAX {
        return Err(RxkadError::TicketLen);
    }
    let sealed = match kvno {
        kvno::K5 => EncryptedData::decode_ticket(ticket),
        kvno::K5_ENC_PART => EncryptedData::decode(ticket),
        _ => return Err(RxkadError::UnknownKey),
    };
    let plain = decrypt(&sealed.ok_or(RxkadError::BadTicket)?, keys, policy)?;
    let part = EncTicketPart::decode(&plain).ok_or(RxkadError::BadTicket)?;
    let client = Principal::from_kerberos(
        &part.client.to_vec(),
        part.realm,
        policy.allow_dotted_principals,
    );
    let client = client.ok_or(RxkadError::BadTicket)?;
    let key = session_key(&part.key).ok_or(RxkadError::BadTicket)?;
    let (start, end) = holds(&part, time::seconds(now))?;
    Ok(Opened {
        client,
        key,
        start,
        end,
    })
}

/// Decrypts with whichever of the ring's keys fits.
fn decrypt(
    sealed: &EncryptedData<'_>,
    keys: &KeyRing,
    policy: &TicketPolicy,
) -> Result<Secret, RxkadError> {
    let &EncryptedData { etype, kvno, .. } = sealed;
    let allowed = EncryptionType::from_number(etype)
        .is_some_and(|known| policy.danger_allow_des || !known.is_des());
    if !allowed {
        tracing::debug!(kvno, etype, "refused a ticket for its encryption type");
        return Err(RxkadError::UnknownKey);
    }
    let mut refusal = RxkadError::UnknownKey;
    for key in keys.matching(kvno, etype) {
        match kerberos::decrypt(&key.key, USAGE_TICKET, sealed.cipher) {
            Ok(plain) => return Ok(plain),
            Err(CipherError::Message) => refusal = RxkadError::BadTicket,
            Err(CipherError::Key) => {}
        }
    }
    tracing::debug!(kvno, etype, refusal = %refusal, "cannot open a ticket with the cell's keys");
    Err(refusal)
}

/// From when to when a ticket holds, if that is now.
fn holds(part: &EncTicketPart<'_>, now: u64) -> Result<(u32, u32), RxkadError> {
    if part.flags & FLAG_INVALID != 0 {
        return Err(RxkadError::NoAuth);
    }
    if part.end < i64::try_from(now).unwrap_or(i64::MAX) {
        return Err(RxkadError::Expired);
    }
    // Neither may become what says that a ticket has no start or no end, unless it is just that.
    let start = part.start.unwrap_or(part.authenticated);
    let start = u32::try_from(start).map_err(|_| RxkadError::BadTicket)?;
    let end = u32::try_from(part.end).unwrap_or(u32::MAX - 1);
    time::check(start, end, now)?;
    Ok((start, end))
}
