//! Rx between processes of one machine, over Unix sockets in a directory.
//!
//! Each server has a socket there, named after the UDP port it would have (`7003.sock`); who may
//! open it is decided by the permissions of the directory. Addresses stay what they are elsewhere:
//! a datagram to any host's port 7003 goes to `7003.sock`. A server sees its clients under made-up
//! addresses in 127.254.0.0/16.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afar_rx::Transmit;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::random;
use crate::socket::{Received, Socket, SocketStats};

/// Largest datagram, which UDP could carry too.
const DATAGRAM_MAX: usize = 65_536;
/// Datagrams taken at a time.
const BATCH: usize = 64;
/// How long to wait while the other side's queue is full: nothing tells when it is not any more.
const QUEUE_PAUSE: Duration = Duration::from_micros(200);
/// Clients a server remembers.
const CLIENTS_MAX: usize = 4096;

/// A Unix socket.
#[derive(Debug)]
pub struct Local {
    socket: UnixDatagram,
    dir: PathBuf,
    local_addr: SocketAddr,
    /// Of a server: the path to remove in the end.
    bound: Option<PathBuf>,
    clients: Clients,
    /// Of a client: under which address it knows the server of a port.
    servers: HashMap<u16, SocketAddr>,
    buffer: Vec<u8>,
    /// Octets of the transmit at hand that were sent before the queue was full.
    resume: usize,
    queue_full: bool,
    refusals: Vec<(SocketAddr, io::ErrorKind)>,
    stats: SocketStats,
}

/// The clients of a server: their sockets' names, and the addresses they go by.
#[derive(Debug, Default)]
struct Clients {
    addresses: HashMap<Vec<u8>, SocketAddr>,
    names: HashMap<SocketAddr, Vec<u8>>,
    order: VecDeque<SocketAddr>,
    given: u16,
}

impl Clients {
    fn address(&mut self, name: &[u8]) -> SocketAddr {
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
        let [high, low] = self.given.to_be_bytes();
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 254, high, low)), 7001);
        self.addresses.insert(name.to_vec(), address);
        self.names.insert(address, name.to_vec());
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
    /// octets.
    pub fn serve(dir: &Path, addr: SocketAddr) -> io::Result<Self> {
        let path = socket_path(dir, addr.port());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Self::new(socket, dir, addr, Some(path))
    }

    /// A client of the servers in `dir`.
    ///
    /// # Errors
    /// The system's.
    pub fn client(dir: &Path) -> io::Result<Self> {
        let name = format!("afar-{}-{:016x}", std::process::id(), random());
        let socket = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
        Self::new(socket, dir, (Ipv4Addr::LOCALHOST, 0).into(), None)
    }

    /// Whether a server for this port has its socket in `dir`, and we may use it.
    #[must_use]
    pub fn is_served(dir: &Path, port: u16) -> bool {
        UnixDatagram::unbound()
            .and_then(|socket| socket.connect(socket_path(dir, port)))
            .is_ok()
    }

    fn new(
        socket: UnixDatagram,
        dir: &Path,
        local_addr: SocketAddr,
        bound: Option<PathBuf>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            dir: dir.to_owned(),
            local_addr,
            bound,
            clients: Clients::default(),
            servers: HashMap::new(),
            buffer: vec![0; DATAGRAM_MAX],
            resume: 0,
            queue_full: false,
            refusals: Vec::new(),
            stats: SocketStats::default(),
        })
    }

    /// The address a datagram's sender goes by; none if we have not asked it anything.
    fn sender(&mut self, from: &UnixAddr) -> Option<SocketAddr> {
        if let Some(name) = from.as_abstract_name() {
            // Only a server is spoken to first, and its permissions said who may.
            return self.bound.is_some().then(|| self.clients.address(name));
        }
        let path = from.as_pathname()?;
        let port = path.file_stem()?.to_str()?.parse().ok()?;
        let known = self.servers.get(&port).copied()?;
        (path == socket_path(&self.dir, port)).then_some(known)
    }

    fn send_one(&self, destination: SocketAddr, datagram: &[u8]) -> io::Result<usize> {
        let to = match self.clients.names.get(&destination) {
            Some(name) => UnixAddr::from_abstract_name(name)?,
            None => UnixAddr::from_pathname(socket_path(&self.dir, destination.port()))?,
        };
        self.socket.send_to_addr(datagram, &to)
    }
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
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stats.send_blocked += 1;
                    self.queue_full = true;
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
    ) -> io::Result<bool> {
        self.stats.wait_calls += 1;
        let timeout = if std::mem::take(&mut self.queue_full) {
            Some(timeout.map_or(QUEUE_PAUSE, |timeout| timeout.min(QUEUE_PAUSE)))
        } else {
            timeout
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(wake, PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds[0].revents().contains(PollFlags::IN))
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
        if let Some(path) = &self.bound {
            // Another server that took the name meanwhile loses it: two in one directory is a
            // mistake that the lock of their data shows.
            let _gone = std::fs::remove_file(path);
        }
    }
}
