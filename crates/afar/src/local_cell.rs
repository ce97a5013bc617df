//! Cells that run on this machine: where their servers' sockets are, and who they say they are.
//!
//! A server keeps a directory named after its cell in one of [`bases`], with a socket for each of
//! its services, a CellServDB with the addresses of its cell's location servers, and a file that
//! says which addresses are its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use afar_cell::cellservdb::{CellEntry, CellServDb};
use afar_net::{Config, Endpoint, Local};
use afar_types::CellName;
use anyhow::Context;

/// Names a directory to use instead of the usual ones.
pub(crate) const BASE_VARIABLE: &str = "AFAR_RUN_DIR";
/// UDP port of volume location servers.
const VL_PORT: u16 = 7003;
/// The file in a cell's directory that says where its servers listen.
pub(crate) const CELLSERVDB: &str = "CellServDB";

/// The file in a cell's directory that says who serves there: a line `address ADDRESS` for each
/// address of the server whose sockets they are, and `keys FILE` for each file of the cell's keys.
const SERVER: &str = "server";

/// A cell with a server on this machine.
#[derive(Debug, Clone)]
pub(crate) struct LocalCell {
    /// Its name and the addresses of its location servers.
    pub(crate) entry: CellEntry,
    /// The directory of its sockets.
    pub(crate) run: PathBuf,
    /// What its server on this machine says of itself.
    pub(crate) server: LocalServer,
}

/// What a server on this machine says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LocalServer {
    /// Where it is reached; none if it is of a version that does not say so.
    pub(crate) addresses: Vec<IpAddr>,
    /// The files of its cell's keys.
    pub(crate) keys: Vec<PathBuf>,
}

impl LocalServer {
    /// What the server in this directory says.
    pub(crate) fn read(run: &Path) -> Self {
        let text = std::fs::read_to_string(run.join(SERVER)).unwrap_or_default();
        let mut server = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("address", address)) => server.addresses.extend(address.parse::<IpAddr>()),
                Some(("keys", path)) => server.keys.push(path.into()),
                _ => {}
            }
        }
        server
    }

    /// Says it in this directory.
    pub(crate) fn write(&self, run: &Path) -> io::Result<()> {
        let addresses = self
            .addresses
            .iter()
            .map(|address| format!("address {address}\n"));
        let keys = self
            .keys
            .iter()
            .map(|path| format!("keys {}\n", path.display()));
        crate::private::write_public(
            &run.join(SERVER),
            &addresses.chain(keys).collect::<String>(),
        )
    }
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
                    server: LocalServer::read(&run),
                }));
            }
        }
    }
    // Of several servers of a cell, each with a directory, the one that knows where volumes are.
    let order = |cell: &LocalCell| (cell.entry.name.to_string(), !cell.is_served(VL_PORT));
    cells.sort_by_cached_key(order);
    cells.dedup_by(|later, first| later.entry.name == first.entry.name);
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

    /// Whether a socket of this server is what this address stands for, and we may use it.
    pub(crate) fn serves(&self, address: SocketAddr) -> bool {
        let server = &self.server.addresses;
        (server.is_empty() || server.contains(&address.ip())) && self.is_served(address.port())
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
    let addresses = LocalServer::read(run).addresses;
    let socket = Local::client(run)?;
    let socket = match addresses.is_empty() {
        true => socket,
        false => socket.only(&addresses),
    };
    Endpoint::with_socket(socket, config)
}
