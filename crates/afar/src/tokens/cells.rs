//! The cells that a user has logged in to: `afar login` notes their servers for all other commands.

use std::time::Duration;

use afar_cell::cellservdb::{CellServDb, VL_PORT, own_path, teach};
use afar_login::client::Server;
use afar_server::{local_cell, resolve};
use afar_types::CellName;
use anyhow::{Context, ensure};
use tokio::time::timeout;

use super::login::Login;
use crate::{advice, output};

/// How long CellServDB and DNS may take to tell of a cell.
const LOOK: Duration = Duration::from_secs(5);

/// The only cell that the user has logged in to by naming its server.
pub(crate) fn own_cell() -> Option<CellName> {
    let mut cells = CellServDb::read_own().ok()??.cells;
    match cells.len() {
        1 => cells.pop().map(|cell| cell.name),
        _ => None,
    }
}

/// Notes where a cell's servers are, if the user said it and nothing else does. What goes wrong is told,
/// and keeps nobody from logging in.
pub(super) async fn learn(login: &Login<'_>, server: &Server) {
    if login.place.server.is_none() || login.args.cellservdb.is_some() {
        return;
    }
    if let Err(error) = note_servers(login, server).await {
        output::note(&format_args!(
            "other commands will not know {}: {}",
            login.cell,
            advice::told(&error)
        ));
    }
}

async fn note_servers(login: &Login<'_>, server: &Server) -> anyhow::Result<()> {
    let cell = &login.cell;
    let path = own_path().context(
        "there is no home directory to record its server in; list it in /etc/afar/CellServDB",
    )?;
    let own = CellServDb::read_own();
    let own = own.with_context(|| format!("cannot read {}", path.display()))?;
    if local_cell::find(Some(cell)).is_some() {
        return Ok(());
    }
    let noted = own.is_some_and(|own| own.find(cell).is_some());
    if !noted && !login.by_line && is_listed(login).await {
        return Ok(());
    }
    let host = &server.host;
    let found = resolve::addresses(host, VL_PORT).await;
    let found = found.with_context(|| format!("cannot find the address of {host}"))?;
    ensure!(
        !found.is_empty(),
        "{host} has no IPv4 address, which AFS servers need"
    );
    let addresses: Vec<_> = found.iter().map(|server| server.ip()).collect();
    let taught = teach(&path, cell, &addresses, host);
    if taught.with_context(|| format!("cannot write {}", path.display()))? {
        output::note(&format_args!(
            "your commands know {cell} now: its server {host} is in {}",
            path.display()
        ));
    }
    Ok(())
}

/// Whether a CellServDB or DNS tells of the cell's servers.
async fn is_listed(login: &Login<'_>) -> bool {
    matches!(timeout(LOOK, login.listed_servers()).await, Ok(Ok(_)))
}
