//! Cells that run on this machine: where their servers' sockets are, and who they say they are.
//!
//! A server keeps a directory named after its cell in one of [`bases`], with a socket for each of
//! its services and a CellServDB with its own addresses.

use std::io;
use std::path::{Path, PathBuf};

use afar_cell::cellservdb::{CellEntry, CellServDb};
use afar_net::{Config, Endpoint, Local};
use afar_types::CellName;
use anyhow::Context;

/// Names a directory to use instead of the usual ones.
pub(crate) const BASE_VARIABLE: &str = "AFAR_RUN_DIR";
/// The file in a cell's directory that says where its servers listen.
pub(crate) const CELLSERVDB: &str = "CellServDB";

/// A cell with a server on this machine.
#[derive(Debug, Clone)]
pub(crate) struct LocalCell {
    /// Its name and the addresses of its location servers.
    pub(crate) entry: CellEntry,
    /// The directory of its sockets.
    pub(crate) run: PathBuf,
}

/// Where cells keep their directories; a new one goes to the first.
pub(crate) fn bases() -> Vec<PathBuf> {
    if let Some(base) = std::env::var_os(BASE_VARIABLE) {
        return vec![base.into()];
    }
    let system = PathBuf::from("/run/afar");
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("afar"));
    if rustix::process::geteuid().is_root() {
        vec![system]
    } else {
        own.into_iter().chain([system]).collect()
    }
}

/// The directory for a cell's sockets.
pub(crate) fn run_dir(cell: &CellName) -> anyhow::Result<PathBuf> {
    let base = bases().into_iter().next();
    let base = base.context("there is no place for sockets; set AFAR_RUN_DIR to a directory")?;
    Ok(base.join(cell.to_string()))
}

/// The cells with a server on this machine, whether or not we may administer them.
pub(crate) fn all() -> Vec<LocalCell> {
    let mut cells = Vec::new();
    for base in bases() {
        let Ok(entries) = std::fs::read_dir(&base) else {
            continue;
        };
        for run in entries.flatten().map(|entry| entry.path()) {
            if let Ok(database) = CellServDb::read(&run.join(CELLSERVDB)) {
                cells.extend(database.cells.into_iter().map(|entry| LocalCell {
                    entry,
                    run: run.clone(),
                }));
            }
        }
    }
    cells.sort_by_key(|cell| cell.entry.name.to_string());
    cells
}

/// The local cell of this name; without a name, the only one there is.
pub(crate) fn find(cell: Option<&CellName>) -> Option<LocalCell> {
    let mut cells = all();
    match cell {
        Some(name) => cells.into_iter().find(|cell| cell.entry.name == *name),
        None if cells.len() == 1 => cells.pop(),
        None => None,
    }
}

impl LocalCell {
    /// Whether a server for this port is there, and we may administer it.
    pub(crate) fn is_served(&self, port: u16) -> bool {
        Local::is_served(&self.run, port)
    }

    /// An endpoint that reaches the servers of this machine as their administrator.
    pub(crate) fn endpoint(&self, config: Config) -> anyhow::Result<Endpoint> {
        endpoint(&self.run, config).with_context(|| {
            format!(
                "cannot reach the servers of {} through {}",
                self.entry.name,
                self.run.display()
            )
        })
    }
}

/// An endpoint that reaches the servers whose sockets are in `run` as their administrator.
pub(crate) fn endpoint(run: &Path, config: Config) -> io::Result<Endpoint> {
    Endpoint::with_socket(Local::client(run)?, config)
}
