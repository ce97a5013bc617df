//! `afar logout`: forgetting tokens, as OpenAFS's `unlog` does. Tickets stay: `kdestroy` is for them.

use std::process::ExitCode;

use afar_security::tokens::openafs::{Client, ClientError};
use afar_security::tokens::{Store, kafs};
use afar_types::CellName;
use clap::Args;

use crate::{advice, output};

/// Options of `afar logout`.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// Forget the tokens for this cell; may be repeated
    #[arg(long, value_name = "CELL", conflicts_with = "all")]
    cell: Vec<CellName>,
    /// Forget the tokens for all cells; this is the default
    #[arg(long)]
    all: bool,
}

/// Forgets tokens: of afar's own store, and of the clients of the kernel.
pub(crate) fn logout(args: &LogoutArgs) -> anyhow::Result<ExitCode> {
    let store = Store::new();
    let mut exit = ExitCode::SUCCESS;
    let mut failed = |what: &str, error: &(dyn std::error::Error + 'static)| {
        output::note(&format!("{what}: {}", advice::told_of(error)));
        exit = ExitCode::FAILURE;
    };
    let (mut cells, mut known) = (args.cell.clone(), Vec::new());
    if args.cell.is_empty() {
        for kept in store.all() {
            match kept {
                Ok((held, _)) => known.push(held.cell),
                Err(error) => failed("a token stays", &error),
            }
        }
        known.extend(kafs::all().into_iter().flatten().map(|held| held.cell));
        known.sort();
        known.dedup();
        cells.append(&mut known);
        match Client::open().and_then(|client| client.remove_all()) {
            Ok(()) | Err(ClientError::Missing(_)) => {}
            Err(error) => failed("OpenAFS's client", &error),
        }
    }
    for cell in &cells {
        let kept = store.remove(cell).unwrap_or_else(|error| {
            failed(cell.as_str(), &error);
            true
        });
        let mut held = kept;
        let openafs = match args.cell.is_empty() {
            true => Ok(false),
            false => Client::open().and_then(|client| client.remove(cell)),
        };
        for (client, removed) in [("OpenAFS's client", openafs), ("kafs", kafs::remove(cell))] {
            match removed {
                Ok(removed) => held |= removed,
                Err(ClientError::Missing(_)) => {}
                Err(error) => failed(client, &error),
            }
        }
        if !held {
            output::note(&format!("Warning - no tokens held for cell {cell}"));
        }
    }
    Ok(exit)
}
