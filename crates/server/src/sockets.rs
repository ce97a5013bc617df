//! The sockets of a server: UDP for everybody, Unix sockets for the administration on this machine.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afar_net::{Endpoint, Handler, Identity, Local, Service, Udp};
use anyhow::{Context, bail};
use listenfd::ListenFd;
use nix::fcntl::{Flock, FlockArg};
use nix::ifaddrs::getifaddrs;

use crate::config::{Config, Role};
use crate::security::Public;
use crate::{local_cell, private};

/// What a connection of a client takes at most, with what is remembered of the path to it.
const BYTES_PER_CONNECTION: u64 = 4 << 10;
/// Connections that each role keeps in any case.
const CONNECTIONS_LEAST: usize = 4096;

/// Where one role is served.
pub(crate) struct Sockets {
    /// For everybody.
    pub(crate) public: Endpoint,
    /// For who may enter the directory of sockets.
    pub(crate) local: Endpoint,
    /// How long a client may leave a call alone.
    idle_limit: Duration,
}

impl Sockets {
    /// Serves a service at both. `handler` makes what serves an endpoint, where somebody that proves
    /// nothing is this one.
    pub(crate) fn serve<H: Handler>(
        &self,
        mut service: Service,
        public: Public,
        handler: impl Fn(&Endpoint, Identity) -> H,
    ) {
        service.idle_limit = Some(self.idle_limit);
        let everybody = handler(&self.public, public.identity);
        self.public
            .serve_secured(service.clone(), public.classes, everybody);
        let administration = handler(&self.local, Identity::Superuser);
        // As long as an administrator has elsewhere.
        service.idle_limit = Some(10 * self.idle_limit);
        self.local.serve_with(service, administration);
    }

    /// Answers calls from now on: all that is served at both is there, or will not be.
    pub(crate) fn listen(&self) {
        self.public.listen();
        self.local.listen();
    }
}

/// Opens sockets.
pub(crate) struct Opener<'c> {
    config: &'c Config,
    run: &'c Path,
    /// Sockets a service manager has opened for us, by port.
    given: HashMap<u16, UdpSocket>,
}

impl<'c> Opener<'c> {
    /// Takes what the service manager has opened.
    pub(crate) fn new(config: &'c Config, run: &'c Path) -> anyhow::Result<Self> {
        let mut given = HashMap::new();
        let mut handed = ListenFd::from_env();
        for index in 0..handed.len() {
            let socket = handed.take_udp_socket(index).context(
                "a socket from the service manager is not a UDP socket; its unit must have \
                 ListenDatagram= lines only",
            )?;
            if let Some(socket) = socket {
                given.insert(socket.local_addr()?.port(), socket);
            }
        }
        Ok(Self { config, run, given })
    }

    /// The sockets of a role.
    pub(crate) fn open(&mut self, role: Role) -> anyhow::Result<Sockets> {
        let mut net = afar_net::Config::default();
        net.receive_buffer = self.config.net.receive_buffer.0 as usize;
        net.send_buffer = self.config.net.send_buffer.0 as usize;
        net.hold = true;
        net.rx.debug_for_all = true;
        net.rx.monitors.clone_from(&self.config.monitors);
        let memory = self.config.net.memory_of(role);
        net.rx.memory_max = memory / 4 * 3;
        net.rx.server_connections_max =
            usize::try_from(memory / 4 / BYTES_PER_CONNECTION)?.max(CONNECTIONS_LEAST);
        let address = SocketAddr::new(self.config.listen.0, role.port());
        let udp = match self.given.remove(&role.port()) {
            Some(socket) => Udp::with_socket(socket, net.receive_buffer, net.send_buffer),
            None => Udp::bind(address, net.receive_buffer, net.send_buffer),
        };
        let udp = udp.with_context(|| {
            format!(
                "cannot open UDP port {address} for the {}; is another server running, or is the \
                 address not this machine's? (listen = \"…\" names another)",
                role.program()
            )
        })?;
        let local = Local::serve(self.run, address)
            .with_context(|| format!("cannot make a socket in {}", self.run.display()))?;
        Ok(Sockets {
            public: Endpoint::with_socket(udp, net.clone())?,
            local: Endpoint::with_socket(local, net)?,
            idle_limit: Duration::from_secs(self.config.net.idle_seconds.0.into()),
        })
    }
}

/// The directory of the Unix sockets, ours alone while this is kept.
pub(crate) struct RunDir {
    pub(crate) path: PathBuf,
    /// Whether it says where a server is; else it goes when this does.
    pub(crate) is_told: bool,
    _lock: Flock<File>,
}

/// How often the lock of a directory is tried, and how long between: a command that removes what a
/// server has left has it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

impl RunDir {
    /// Makes the directory, and sees that no other server uses it.
    pub(crate) fn take(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot use {} for sockets", path.display());
        let mut tries = 0;
        let lock = loop {
            if let Some(lock) = lock(path).with_context(context)? {
                break lock;
            }
            tries += 1;
            if tries == LOCK_TRIES {
                bail!(
                    "{}: a server of this cell is running already; stop it, or set run or \
                     AFAR_RUN_DIR to another directory",
                    path.display()
                );
            }
            std::thread::sleep(LOCK_PAUSE);
        };
        Local::sweep(path).with_context(context)?;
        Ok(Self {
            path: path.to_owned(),
            is_told: false,
            _lock: lock,
        })
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // A server that did not start leaves nothing for others to find.
        if !self.is_told
            && let Err(error) = local_cell::clear(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "cannot remove a run directory");
        }
    }
}

/// Makes the directory, and takes its lock; `None` if another has it.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    // Others may enter, to read where the servers listen; the sockets themselves are ours.
    private::public_dir(path)?;
    let name = path.join(local_cell::LOCK);
    let file = File::create(&name)?;
    let inode = file.metadata()?.ino();
    let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return Ok(None);
    };
    // A process that removed the directory meanwhile has left a lock that nobody else sees.
    let is_there = std::fs::metadata(&name).is_ok_and(|found| found.ino() == inode);
    Ok(is_there.then_some(lock))
}

/// The addresses at which this server, and no other one, is reached.
pub(crate) fn own_addresses(config: &Config, told: &[Ipv4Addr]) -> Vec<IpAddr> {
    let mut own: Vec<IpAddr> = told.iter().copied().map(IpAddr::V4).collect();
    let mut add = |address: IpAddr| {
        if !own.contains(&address) {
            own.push(address);
        }
    };
    match config.listen.0 {
        address if !address.is_unspecified() => add(address),
        _ => {
            add(Ipv4Addr::LOCALHOST.into());
            for interface in getifaddrs().into_iter().flatten() {
                let address = interface.address;
                if let Some(address) = address.and_then(|a| a.as_sockaddr_in().map(|a| a.ip())) {
                    add(address.into());
                }
            }
        }
    }
    own
}

/// The addresses that clients are told.
pub(crate) fn addresses(config: &Config) -> anyhow::Result<Vec<Ipv4Addr>> {
    if !config.addresses.is_empty() {
        return Ok(config.addresses.clone());
    }
    match config.listen.0 {
        IpAddr::V4(address) if !address.is_unspecified() => return Ok(vec![address]),
        _ => {}
    }
    let mut found = Vec::new();
    for interface in getifaddrs().context("cannot list this machine's addresses")? {
        let address = interface
            .address
            .and_then(|a| a.as_sockaddr_in().map(|a| a.ip()));
        if let Some(address) = address
            && !address.is_loopback()
            && !address.is_link_local()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    if found.is_empty() {
        // A machine without a network still is a cell of its own.
        found.push(Ipv4Addr::LOCALHOST);
    }
    Ok(found)
}
