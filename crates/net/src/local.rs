//! Rx between processes of one machine, over Unix sockets in a directory.
//!
//! Each server has a socket there, named after the UDP port it would have (`7003.sock`), and each
//! client one of its own; who may do so is decided by the permissions of files and directory.
//! Addresses stay what they are elsewhere: a datagram to the server's port 7003 goes to `7003.sock`. A
//! server sees its clients under made-up addresses in 127.254.0.0/16.
//!
//! Names in the abstract space would need no tidying up, but are not seen from another network
//! namespace.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afar_rx::Transmit;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::random;
use crate::queue::Queue;
use crate::socket::{Ready, Received, Socket, SocketStats};

/// Largest datagram, which UDP could carry too.
const DATAGRAM_MAX: usize = 65_536;
/// Datagrams taken at a time.
const BATCH: usize = 64;
/// How long a datagram is tried whose receiver does not read.
const PATIENCE: Duration = Duration::from_millis(200);
/// Clients a server remembers.
const CLIENTS_MAX: usize = 4096;

/// A Unix socket.
#[derive(Debug)]
pub struct Local {
    socket: UnixDatagram,
    dir: PathBuf,
    local_addr: SocketAddr,
    /// Our own name there, removed in the end.
    bound: PathBuf,
    is_server: bool,
    clients: Clients,
    /// Of a client: the addresses of the server whose sockets these are, if they are known.
    only: Option<Vec<IpAddr>>,
    /// Of a client: under which address it knows the server of a port.
    servers: HashMap<u16, SocketAddr>,
    buffer: Vec<u8>,
    /// Bytes of the transmit at hand that were sent before the queue was full.
    resume: usize,
    queue: Queue,
    refusals: Vec<(SocketAddr, io::ErrorKind)>,
    stats: SocketStats,
}

/// The port of the addresses that clients are given: that of cache managers.
const GIVEN_PORT: u16 = 7001;

/// The address that a server gives a client.
fn given(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, 254, high, low).into(), GIVEN_PORT)
}

/// The clients of a server: their sockets' names, and the addresses they go by.
#[derive(Debug, Default)]
struct Clients {
    addresses: HashMap<PathBuf, SocketAddr>,
    names: HashMap<SocketAddr, PathBuf>,
    order: VecDeque<SocketAddr>,
    given: u16,
}

impl Clients {
    fn address(&mut self, name: &Path) -> SocketAddr {
        if let Some(&address) = self.addresses.get(name) {
            return address;
        }
        if self.order.len() == CLIENTS_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(name) = self.names.remove(&oldest)
        {
            self.addresses.remove(&name);
        }
        self.given = self.given.wrapping_add(1);
        let address = given(self.given);
        self.addresses.insert(name.to_owned(), address);
        self.names.insert(address, name.to_owned());
        self.order.push_back(address);
        address
    }
}

impl Local {
    /// A server's socket in `dir`, for clients that mean this UDP address. One left behind by an
    /// earlier server is replaced. Only the owner of the process, and root, may use it.
    ///
    /// # Errors
    /// The system's: the directory is missing or not ours, or its path is longer than about 100
    /// bytes.
    pub fn serve(dir: &Path, addr: SocketAddr) -> io::Result<Self> {
        let path = socket_path(dir, addr.port());
        remove_left(&path)?;
        Self::new(dir, path, addr, true)
    }

    /// Whether this is an address of the kind that a server's local socket gives its clients. It stands for a
    /// client only as long as that server runs: the next one gives it to whichever client comes first.
    #[must_use]
    pub fn is_given(address: SocketAddr) -> bool {
        let IpAddr::V4(ip) = address.ip() else {
            return false;
        };
        address.port() == GIVEN_PORT && matches!(ip.octets(), [127, 254, ..])
    }

    /// A client of the servers in `dir`.
    ///
    /// # Errors
    /// The system's: above all that we may not write to the directory.
    pub fn client(dir: &Path) -> io::Result<Self> {
        Self::sweep(dir)?;
        let name = format!("client-{}-{:08x}.sock", std::process::id(), random() >> 32);
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self::new(dir, dir.join(name), address, false)
    }

    /// Reaches these addresses only: those of the server whose sockets are in the directory. A datagram
    /// to another one is refused, as there is no telling whose it would be.
    #[must_use]
    pub fn only(mut self, addresses: &[IpAddr]) -> Self {
        self.only = Some(addresses.to_vec());
        self
    }

    /// Removes the sockets of clients that ended without doing so.
    ///
    /// # Errors
    /// The system's.
    pub fn sweep(dir: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if is_clients(&path) && is_dead(&path) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Whether a client that lives has its socket there. It waits for the next server if its server has ended, and gets
    /// no answer without its socket.
    #[must_use]
    pub fn is_client(path: &Path) -> bool {
        is_clients(path) && !is_dead(path)
    }

    /// Whether a server for this port has its socket in `dir`, and we may use it.
    #[must_use]
    pub fn is_served(dir: &Path, port: u16) -> bool {
        is_bound(&socket_path(dir, port))
    }

    /// Whether no server has its socket in `dir`. Where we may not use what is there, one may have.
    #[must_use]
    pub fn is_abandoned(dir: &Path) -> bool {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return false;
        };
        let is_server = |path: &Path| {
            let port = path.file_stem().and_then(|stem| stem.to_str());
            let is_socket = path.extension().is_some_and(|end| end == "sock");
            is_socket && port.is_some_and(|port| port.parse::<u16>().is_ok())
        };
        let mut servers = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_server(path));
        servers.all(|path| is_dead(&path))
    }

    fn new(
        dir: &Path,
        bound: PathBuf,
        local_addr: SocketAddr,
        is_server: bool,
    ) -> io::Result<Self> {
        let socket = UnixDatagram::bind(&bound)?;
        std::fs::set_permissions(&bound, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            dir: dir.to_owned(),
            local_addr,
            bound,
            is_server,
            clients: Clients::default(),
            only: None,
            servers: HashMap::new(),
            buffer: vec![0; DATAGRAM_MAX],
            resume: 0,
            queue: Queue::new(PATIENCE),
            refusals: Vec::new(),
            stats: SocketStats::default(),
        })
    }

    /// The address a datagram's sender goes by; none if it has no business here.
    fn sender(&mut self, from: &UnixAddr) -> Option<SocketAddr> {
        // Only who may write to the directory has a name in it.
        let path = from.as_pathname()?;
        if path.parent() != Some(&self.dir) {
            return None;
        }
        match path.file_stem()?.to_str()?.parse() {
            Ok(port) => self.servers.get(&port).copied(),
            Err(_) => self.is_server.then(|| self.clients.address(path)),
        }
    }

    fn send_one(&self, destination: SocketAddr, datagram: &[u8]) -> io::Result<usize> {
        match self.clients.names.get(&destination) {
            Some(client) => self.socket.send_to(datagram, client),
            None if self
                .only
                .as_ref()
                .is_some_and(|only| !only.contains(&destination.ip())) =>
            {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
            None => {
                let server = socket_path(&self.dir, destination.port());
                self.socket.send_to(datagram, server)
            }
        }
    }
}

/// Whether a socket of this name is a client's.
fn is_clients(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("client-") && name.ends_with(".sock"))
}

/// Whether a socket of this name is open, and we may use it.
fn is_bound(path: &Path) -> bool {
    UnixDatagram::unbound()
        .and_then(|socket| socket.connect(path))
        .is_ok()
}

/// Removes a socket or file that an earlier process may have left.
///
/// # Errors
/// The system's, but not that there is none.
pub fn remove_left(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether what had a socket of this name has ended.
fn is_dead(path: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    connected.is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        )
    })
}

fn socket_path(dir: &Path, port: u16) -> PathBuf {
    dir.join(format!("{port}.sock"))
}

impl Socket for Local {
    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        for _ in 0..BATCH {
            let (size, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            self.stats.receive_calls += 1;
            let Some(from) = self.sender(&from).filter(|_| size > 0) else {
                continue;
            };
            self.stats.datagrams_received += 1;
            sink(Received {
                from,
                to: None,
                ecn: None,
                data: Bytes::copy_from_slice(&self.buffer[..size]),
            });
        }
        Ok(true)
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        let destination = transmit.destination;
        if !self.clients.names.contains_key(&destination) {
            self.servers.insert(destination.port(), destination);
        }
        let segment = transmit.segment_size.unwrap_or(data.len()).max(1);
        while self.resume < data.len() {
            let end = data.len().min(self.resume + segment);
            self.stats.send_calls += 1;
            match self.send_one(destination, &data[self.resume..end]) {
                Ok(_) => {
                    self.stats.datagrams_sent += 1;
                    self.resume = end;
                    self.queue.passed();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.queue.found_full() {
                        self.stats.send_failed += 1;
                        self.resume = end;
                        continue;
                    }
                    self.stats.send_blocked += 1;
                    return Err(error);
                }
                Err(error) => {
                    self.stats.send_failed += 1;
                    self.resume = 0;
                    self.refusals.push((destination, error.kind()));
                    return Err(error);
                }
            }
        }
        self.resume = 0;
        Ok(())
    }

    fn refusals(&mut self, mut sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        for (destination, kind) in self.refusals.drain(..) {
            sink(destination, kind);
        }
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        _writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.stats.wait_calls += 1;
        let timeout = match self.queue.take_full() {
            true => Some(Queue::pause(timeout)),
            false => timeout,
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        Ok(Ready {
            datagrams: fds[0].revents().contains(PollFlags::IN),
            wake: fds[1].revents().contains(PollFlags::IN),
        })
    }

    fn is_private(&self) -> bool {
        true
    }

    fn stats(&self) -> SocketStats {
        self.stats
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Another server that took the name meanwhile loses it: two in one directory is a mistake
        // that the lock of their data shows.
        let _gone = std::fs::remove_file(&self.bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_given_are_known() {
        assert!([0, 1, u16::MAX].map(given).into_iter().all(Local::is_given));
        for other in ["127.254.0.1:7000", "127.0.0.1:7001", "[::1]:7001"] {
            assert!(!Local::is_given(other.parse().unwrap()), "{other}");
        }
    }
}
