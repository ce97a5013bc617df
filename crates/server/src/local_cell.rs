//! Cells that run on this machine: where their servers' sockets are, and who they say they are.
//!
//! A server keeps a directory named after its cell in one of [`bases`], with a socket for each of
//! its services, a CellServDB with the addresses of its cell's location servers, and a file that
//! says which addresses are its own.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afar_cell::cellservdb::{CellEntry, CellServDb};
use afar_cell::{Credentials, Secured};
use afar_net::{Config, Endpoint, Local, RxNull, remove_left};
use afar_types::CellName;
use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};

/// Names a directory to use instead of the usual ones.
pub const BASE_VARIABLE: &str = "AFAR_RUN_DIR";
/// UDP port of volume location servers.
const VL_PORT: u16 = 7003;
/// The file in a cell's directory that says where its servers listen.
pub const CELLSERVDB: &str = "CellServDB";

/// The file in a cell's directory that its server holds a lock on.
pub const LOCK: &str = "lock";
/// The others that a server makes there, besides sockets.
const FILES: [&str; 3] = [CELLSERVDB, SERVER, "login"];
/// How long after its server ended a directory is still looked at: it may be starting again.
const RESTART: Duration = Duration::from_secs(10);

/// The file in a cell's directory that says who serves there: a line `address ADDRESS` for each
/// address of the server whose sockets they are, and `keys FILE` for each file of the cell's keys.
const SERVER: &str = "server";

/// A cell with a server on this machine.
#[derive(Debug, Clone)]
pub struct LocalCell {
    /// Its name and the addresses of its location servers.
    pub entry: CellEntry,
    /// The directory of its sockets.
    pub run: PathBuf,
    /// What its server on this machine says of itself.
    pub server: LocalServer,
}

/// What a server on this machine says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalServer {
    /// Where it is reached; none if it is of a version that does not say so.
    pub addresses: Vec<IpAddr>,
    /// The files of its cell's keys.
    pub keys: Vec<PathBuf>,
}

impl LocalServer {
    /// What the server in this directory says.
    pub fn read(run: &Path) -> Self {
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

    /// The address by which others know this server, if this one means only the machine that uses it.
    pub fn known_as(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let own = address == Ipv4Addr::LOCALHOST || self.addresses.contains(&address.into());
        let told = self.addresses.iter().find_map(|known| match known {
            IpAddr::V4(known) => Some(*known),
            IpAddr::V6(_) => None,
        });
        told.filter(|told| address.is_loopback() && own && !told.is_loopback())
    }

    /// Says it in this directory.
    pub fn write(&self, run: &Path) -> io::Result<()> {
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
pub fn bases() -> Vec<PathBuf> {
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
pub fn run_dir(cell: &CellName) -> anyhow::Result<PathBuf> {
    let base = bases().into_iter().next();
    let base = base.context("there is no directory for sockets; set AFAR_RUN_DIR")?;
    Ok(base.join(cell.to_string()))
}

/// The cells with a server on this machine, whether or not we may administer them. The directories of servers that
/// were killed are removed.
pub fn all() -> Vec<LocalCell> {
    found(true)
}

/// The same with those whose server was killed, of which nothing is removed.
pub fn with_killed() -> Vec<LocalCell> {
    found(false)
}

fn found(sweep: bool) -> Vec<LocalCell> {
    let mut cells = Vec::new();
    for base in bases() {
        let Ok(entries) = std::fs::read_dir(&base) else {
            continue;
        };
        for run in entries.flatten().map(|entry| entry.path()) {
            if sweep && is_left(&run) {
                // Its owner's next command does, if we may not.
                let _kept = remove(&run);
                continue;
            }
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

/// Whether the server of this directory has ended, and not just to start again.
fn is_left(run: &Path) -> bool {
    // A socket that comes or goes is noted in the directory.
    let changed = std::fs::metadata(run).and_then(|found| found.modified());
    let age = changed.ok().and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age >= RESTART) && Local::is_abandoned(run)
}

/// Removes a directory whose server has ended, unless another has taken it meanwhile.
///
/// # Errors
/// The system's: above all that we may not, or that something else is in it.
fn remove(run: &Path) -> io::Result<()> {
    let lock = File::options().write(true).open(run.join(LOCK))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
    if !Local::is_abandoned(run) {
        return Ok(());
    }
    clear(run)
}

/// Removes a server's files, and its directory unless clients wait there for the next server. The caller holds the
/// lock.
///
/// # Errors
/// The system's.
pub fn clear(run: &Path) -> io::Result<()> {
    let mut waits = false;
    for entry in std::fs::read_dir(run)? {
        let path = entry?.path();
        if Local::is_client(&path) {
            waits = true;
            continue;
        }
        let is_socket = path.extension().is_some_and(|end| end == "sock");
        let name = path.file_name().and_then(|name| name.to_str());
        if is_socket || name.is_some_and(|name| FILES.contains(&name)) {
            // A socket goes with its server too, which may be ending just now.
            remove_left(&path)?;
        }
    }
    if waits {
        return Ok(());
    }
    // The lock goes last: without it somebody else might take the directory.
    std::fs::remove_file(run.join(LOCK))?;
    std::fs::remove_dir(run)
}

/// The local cell of this name; without a name, the only one there is.
pub fn find(cell: Option<&CellName>) -> Option<LocalCell> {
    let mut cells = all();
    match cell {
        Some(name) => cells.into_iter().find(|cell| cell.entry.name == *name),
        None if cells.len() == 1 => cells.pop(),
        None => None,
    }
}

impl LocalCell {
    /// Whether a server for this port is there, and we may administer it.
    pub fn is_served(&self, port: u16) -> bool {
        Local::is_served(&self.run, port)
    }

    /// Whether a socket of this server is what this address stands for, and we may use it.
    pub fn serves(&self, address: SocketAddr) -> bool {
        let server = &self.server.addresses;
        (server.is_empty() || server.contains(&address.ip())) && self.is_served(address.port())
    }

    /// An endpoint that reaches the servers of this machine as their administrator.
    pub fn endpoint(&self, config: Config) -> anyhow::Result<Endpoint> {
        endpoint(&self.run, config).with_context(|| {
            format!(
                "cannot reach the servers of {} through {}",
                self.entry.name,
                self.run.display()
            )
        })
    }
}

/// The same for the server itself whose directory this is, at whatever addresses it has: what the directory says of
/// them may be what they were before the last start.
pub(crate) fn own_endpoint(run: &Path) -> io::Result<Endpoint> {
    Endpoint::with_socket(Local::client(run)?, Config::default())
}

/// A caller that is the administrator by the socket it uses.
#[derive(Debug)]
pub struct AsAdministrator(Secured);

impl AsAdministrator {
    /// Without a token: the directory of the sockets is the administrator's.
    #[must_use]
    pub fn new() -> Self {
        Self(Secured {
            security: Arc::new(RxNull),
            who: "the administrator".into(),
            until: None,
        })
    }
}

impl Default for AsAdministrator {
    fn default() -> Self {
        Self::new()
    }
}

impl Credentials for AsAdministrator {
    fn security(&self, _: &CellName, _: Option<&Secured>) -> Result<Option<Secured>, String> {
        Ok(Some(self.0.clone()))
    }
}

/// An endpoint that reaches the servers whose sockets are in `run` as their administrator.
pub fn endpoint(run: &Path, config: Config) -> io::Result<Endpoint> {
    let addresses = LocalServer::read(run).addresses;
    let socket = Local::client(run)?;
    let socket = match addresses.is_empty() {
        true => socket,
        false => socket.only(&addresses),
    };
    Endpoint::with_socket(socket, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_wait_for_the_next_server_keep_their_sockets() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("a.example");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join(LOCK), "").unwrap();
        let socket = run.join("7000.sock");
        // A killed server leaves its socket.
        drop(std::os::unix::net::UnixDatagram::bind(&socket).unwrap());
        let client = Local::client(&run).unwrap();
        remove(&run).unwrap();
        let left = || std::fs::read_dir(&run).unwrap().count();
        assert!(!socket.exists());
        assert_eq!(left(), 2, "the client's socket and the lock");
        drop(client);
        remove(&run).unwrap();
        assert!(!run.exists());
    }

    #[test]
    fn a_server_is_known_by_the_address_that_others_reach() {
        let server = |addresses: &[[u8; 4]]| LocalServer {
            addresses: addresses.iter().map(|a| IpAddr::from(*a)).collect(),
            keys: Vec::new(),
        };
        let (home, own) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1));
        for listens in [&[[10, 0, 0, 1], [127, 0, 0, 1]][..], &[[10, 0, 0, 1]]] {
            assert_eq!(server(listens).known_as(home), Some(own));
            assert_eq!(server(listens).known_as(own), None);
            assert_eq!(server(listens).known_as(Ipv4Addr::new(127, 9, 9, 9)), None);
        }
        // A cell of this machine alone.
        assert_eq!(server(&[[127, 0, 0, 1]]).known_as(home), None);
        assert_eq!(server(&[[127, 83, 0, 1]]).known_as(home), None);
        assert_eq!(server(&[]).known_as(home), None);
    }
}
