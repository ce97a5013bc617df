//! The ticket that a user gets.

use std::time::SystemTime;

use afar_security::keys::KeyError;
use afar_security::ticket::{self, Mint};
use afar_security::{RxkadError, TicketPolicy, kvno};
use afar_xdr::{FixedOpaque, LengthError, List, Opaque};

use super::{LIFETIME_MAX, LoginConfig};
use crate::wire::{Part, Secret, Ticket};

/// Why there is no ticket for an authenticated user.
#[derive(Debug, thiserror::Error)]
pub(super) enum GrantError {
    /// It could not be made.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The servers would take it for somebody else's, or not at all.
    #[error(
        "servers would take a ticket for that name as another user's; give the user another \
             name"
    )]
    Name,
    /// Servers would refuse it.
    #[error("servers would refuse the ticket")]
    Refused(#[from] RxkadError),
    /// A part of it is longer than it can be.
    #[error("a name in the ticket is too long")]
    Length(#[from] LengthError),
}

/// A ticket for the user of this name, for so many seconds, or fewer; 0 for as many as there are.
pub(super) fn ticket(
    config: &LoginConfig,
    user: &str,
    seconds: u32,
    now: SystemTime,
) -> Result<Ticket, GrantError> {
    let allowed = config.lifetime.min(LIFETIME_MAX).as_secs();
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX).max(1);
    let life = if seconds == 0 {
        allowed
    } else {
        seconds.min(allowed)
    };
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let start = since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(0));
    // Servers of AFS write a principal's two parts with a dot between them.
    let client = user.replacen('.', "/", 1);
    let minted = ticket::mint(
        &config.keys,
        &Mint {
            client: &client,
            realm: &config.realm,
            cell: config.cell.as_str(),
            start,
            end: start.saturating_add(life),
        },
    )?;
    let policy = TicketPolicy::default();
    let opened = ticket::open(kvno::K5, &minted.ticket, &config.keys, &policy, now)?;
    // Some names become others on the way, such as those of services with a host.
    if opened.client.local_name() != user {
        return Err(GrantError::Name);
    }
    let parts = |names: &[String]| -> Result<List<Part, 2>, LengthError> {
        let parts = names.iter().map(|name| Part::new(name.as_bytes()));
        List::new(parts.collect::<Result<Vec<_>, _>>()?)
    };
    Ok(Ticket {
        client: parts(&minted.client)?,
        service: List::new(
            minted
                .service
                .iter()
                .map(|name| afar_xdr::XdrString::new(name.as_bytes()))
                .collect::<Result<Vec<_>, _>>()?,
        )?,
        realm: config.realm.as_str().try_into()?,
        start: minted.token.start,
        end: minted.token.end,
        flags: minted.flags,
        etype: minted.session.etype(),
        session: Secret(Opaque::new(minted.session.octets())?),
        key: Secret(FixedOpaque(*minted.token.key.octets())),
        kvno: minted.token.kvno,
        ticket: Opaque::new(&minted.ticket[..])?,
    })
}
