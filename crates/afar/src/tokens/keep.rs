//! Keeping a token that was just got: in afar's store, and where the kernel has an AFS client, there.

use afar_security::tokens::openafs::{Client, ClientError};
use afar_security::tokens::{Held, Store, kafs};

use super::short_date;
use crate::output;

/// Keeps a token and says so.
///
/// # Errors
/// When it cannot be kept.
pub(super) fn keep(store: &Store, held: &Held) -> anyhow::Result<()> {
    let place = store.put(held)?;
    let mut places = vec![place.to_string()];
    for (client, given) in [
        (
            "OpenAFS's client",
            Client::open().and_then(|client| client.put(held)),
        ),
        ("kafs", kafs::put(held)),
    ] {
        match given {
            Ok(()) => places.push(client.to_owned()),
            Err(ClientError::Missing(_)) => {}
            Err(error) => output::note(&format!("cannot give {client} the token: {error}")),
        }
    }
    output::help(&format!(
        "{} has a token for {} until {} ({})\n",
        held.who(),
        held.cell,
        short_date(held.token.end),
        places.join(", ")
    ));
    Ok(())
}
