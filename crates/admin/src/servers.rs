//! The servers that administration talks to: a cell's database servers, and volume servers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afar_cell::VolumeOob;
use afar_net::{ClientSecurity, Connection, Endpoint, RxNull, ServiceId};
use afar_rpc::{RpcCause, RpcError, afsvol, bozo, eyes, pr, rxafs, users, vl};
use afar_types::error::{Code, UNOQUORUM, UNOTSYNC};
use parking_lot::Mutex;

/// UDP port of protection servers.
pub const PR_PORT: u16 = 7002;
/// UDP port of volume location servers.
pub const VL_PORT: u16 = 7003;
/// UDP port of volume servers.
pub const VOLUME_PORT: u16 = 7005;
/// UDP port of overseers.
pub const BOS_PORT: u16 = 7007;
/// UDP port of file servers.
pub const FILE_PORT: u16 = 7000;

/// The database servers of a cell and, by their addresses, volume servers, file servers and
/// overseers. Cheap to clone; clones share connections.
///
/// How calls are secured, and as whom they are made, is what [`Security`] says for all of them.
#[derive(Clone)]
pub struct Servers(Arc<Inner>);

struct Inner {
    reach: Reach,
    vl: Database<vl::Client>,
    pr: Database<pr::Client>,
    /// Beside them, of afar's only.
    users: Database<users::Client>,
    volume_port: u16,
    volume_servers: Mutex<BTreeMap<Ipv4Addr, afsvol::Client>>,
    out_of_band: VolumeOob,
}

/// How servers are reached.
struct Reach {
    endpoint: Endpoint,
    security: Security,
    /// The servers of this machine that are reached otherwise.
    local: Option<LocalServers>,
}

/// Servers of this machine, which recognise an administrator by the endpoint used.
#[derive(Clone)]
pub struct LocalServers {
    endpoint: Endpoint,
    serves: Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

impl LocalServers {
    /// The servers at the addresses of which `serves` says so.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        serves: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            endpoint,
            serves: Arc::new(serves),
        }
    }
}

impl fmt::Debug for LocalServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalServers").finish_non_exhaustive()
    }
}

impl Reach {
    fn others(&self, server: SocketAddr, service: ServiceId) -> Connection {
        self.connect(server, service, &self.security.others)
    }

    fn protection(&self, server: SocketAddr, service: ServiceId) -> Connection {
        self.connect(server, service, &self.security.protection)
    }

    fn connect(
        &self,
        server: SocketAddr,
        service: ServiceId,
        security: &Arc<dyn ClientSecurity>,
    ) -> Connection {
        match self.local_to(server) {
            Some(local) => local.endpoint.connect(server, service, Arc::new(RxNull)),
            None => connect(&self.endpoint, server, service, security),
        }
    }

    fn local_to(&self, server: SocketAddr) -> Option<&LocalServers> {
        self.local.as_ref().filter(|local| (local.serves)(server))
    }

    fn endpoint_for(&self, server: SocketAddr) -> &Endpoint {
        self.local_to(server)
            .map_or(&self.endpoint, |local| &local.endpoint)
    }
}

/// How calls are secured: with a token, or not at all. Then who calls is known by the endpoint, which
/// is a UDP socket or one of local administration.
#[derive(Clone, Debug)]
pub struct Security {
    protection: Arc<dyn ClientSecurity>,
    others: Arc<dyn ClientSecurity>,
}

impl Security {
    /// Not at all.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Arc::new(RxNull), Arc::new(RxNull))
    }

    /// Calls of protection servers so, and of all others so: what users are called and may do is
    /// encrypted more often.
    #[must_use]
    pub fn new(protection: Arc<dyn ClientSecurity>, others: Arc<dyn ClientSecurity>) -> Self {
        Self { protection, others }
    }
}

/// The servers of one replicated database.
struct Database<C> {
    clients: Vec<C>,
    /// The one that answered last.
    preferred: AtomicUsize,
}

impl Servers {
    /// The servers of a cell whose database servers have these addresses; ports are those of their
    /// volume location services. Of each host the protection service is at its usual port.
    #[must_use]
    pub fn new(endpoint: Endpoint, database_servers: &[SocketAddr], security: Security) -> Self {
        Self::beside(endpoint, database_servers, security, None)
    }

    /// The same, where some servers of this machine are reached otherwise.
    #[must_use]
    pub fn beside(
        endpoint: Endpoint,
        database_servers: &[SocketAddr],
        security: Security,
        local: Option<LocalServers>,
    ) -> Self {
        let protection = database_servers
            .iter()
            .map(|server| SocketAddr::new(server.ip(), PR_PORT));
        let protection: Vec<_> = protection.collect();
        let reach = Reach {
            endpoint,
            security,
            local,
        };
        Self::reached(reach, database_servers, &protection, VOLUME_PORT)
    }

    /// The same, with every address given, and the UDP port all volume servers have.
    #[must_use]
    pub fn with_addresses(
        endpoint: Endpoint,
        vl: &[SocketAddr],
        pr: &[SocketAddr],
        volume_port: u16,
        security: Security,
    ) -> Self {
        let reach = Reach {
            endpoint,
            security,
            local: None,
        };
        Self::reached(reach, vl, pr, volume_port)
    }

    fn reached(reach: Reach, vl: &[SocketAddr], pr: &[SocketAddr], volume_port: u16) -> Self {
        let others = |&server| reach.others(server, vl::SERVICE);
        let vl = vl.iter().map(others).map(vl::Client::new);
        let protection = |&server| reach.protection(server, pr::SERVICE);
        let users = |&server| reach.protection(server, users::SERVICE);
        let users = Database::new(pr.iter().map(users).map(users::Client::new));
        let pr = pr.iter().map(protection).map(pr::Client::new);
        let (vl, pr) = (Database::new(vl), Database::new(pr));
        Self(Arc::new(Inner {
            reach,
            vl,
            pr,
            users,
            volume_port,
            volume_servers: Mutex::default(),
            out_of_band: VolumeOob::default(),
        }))
    }

    /// Ends the endpoints calls are made from, when the last packets have left.
    pub async fn shutdown(&self) {
        let reach = &self.0.reach;
        match &reach.local {
            Some(local) => _ = tokio::join!(reach.endpoint.shutdown(), local.endpoint.shutdown()),
            None => reach.endpoint.shutdown().await,
        }
    }

    /// Addresses of the volume location servers.
    pub fn vl_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let clients = self.0.vl.clients.iter();
        clients.map(|client| client.connection().peer())
    }

    /// Addresses of the protection servers.
    pub fn pr_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let clients = self.0.pr.clients.iter();
        clients.map(|client| client.connection().peer())
    }

    /// Calls a volume location server, and others when it cannot answer: see [`Servers::pr`].
    ///
    /// # Errors
    /// What the last server asked said.
    pub async fn vl<R, F>(&self, call: impl Fn(vl::Client) -> F) -> Result<R, RpcError>
    where
        F: Future<Output = Result<R, RpcError>>,
    {
        self.0.vl.call(call).await
    }

    /// Calls a protection server, and others when it cannot answer, as ubik's clients do: a server
    /// that is not reached, has no quorum or does not take changes is passed over; all others'
    /// answers count. If none could answer, all are asked a second time, as the one that takes
    /// changes may just have been chosen.
    ///
    /// # Errors
    /// What the last server asked said.
    pub async fn pr<R, F>(&self, call: impl Fn(pr::Client) -> F) -> Result<R, RpcError>
    where
        F: Future<Output = Result<R, RpcError>>,
    {
        self.0.pr.call(call).await
    }

    /// Calls the service for passwords and keys of a protection server, and others when it cannot
    /// answer: see [`Servers::pr`].
    ///
    /// # Errors
    /// What the last server asked said.
    pub async fn users<R, F>(&self, call: impl Fn(users::Client) -> F) -> Result<R, RpcError>
    where
        F: Future<Output = Result<R, RpcError>>,
    {
        self.0.users.call(call).await
    }

    /// The volume server at this address.
    #[must_use]
    pub fn volume_server(&self, address: Ipv4Addr) -> afsvol::Client {
        let known = self.0.volume_servers.lock();
        let mut known = known;
        let client = known.entry(address).or_insert_with(|| {
            let server = SocketAddr::new(IpAddr::V4(address), self.0.volume_port);
            afsvol::Client::new(self.connect(server, afsvol::SERVICE))
        });
        Clone::clone(client)
    }

    /// How to have volume data out of band with a volume server, which has answered, if it is one of afar's.
    pub async fn out_of_band(&self, server: &afsvol::Client) -> Option<&VolumeOob> {
        let server = server.connection().peer();
        let path = self.0.reach.endpoint_for(server).peer_stats(server).await;
        path.is_some_and(|path| path.afar)
            .then_some(&self.0.out_of_band)
    }

    /// The UDP port of volume servers, which others are told to forward dumps to.
    #[must_use]
    pub fn volume_port(&self) -> u16 {
        self.0.volume_port
    }

    /// Whether the volume server at this address, which has answered, is one of afar's.
    pub async fn is_afar(&self, address: Ipv4Addr) -> bool {
        let server = SocketAddr::new(IpAddr::V4(address), self.0.volume_port);
        let path = self.0.reach.endpoint_for(server).peer_stats(server).await;
        path.is_some_and(|path| path.afar)
    }

    /// The file server at this address.
    #[must_use]
    pub fn file_server(&self, address: SocketAddr) -> rxafs::Client {
        rxafs::Client::new(self.connect(address, rxafs::SERVICE))
    }

    /// The overseer at this address.
    #[must_use]
    pub fn overseer(&self, address: SocketAddr) -> bozo::Client {
        bozo::Client::new(self.connect(address, bozo::SERVICE))
    }

    /// What tells administrators what loads the server at this address, which names users.
    #[must_use]
    pub fn eyes(&self, address: SocketAddr) -> eyes::Client {
        eyes::Client::new(self.0.reach.protection(address, eyes::SERVICE))
    }

    fn connect(&self, server: SocketAddr, service: ServiceId) -> Connection {
        self.0.reach.others(server, service)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("vl", &self.vl_addresses().collect::<Vec<_>>())
            .field("pr", &self.pr_addresses().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

fn connect(
    endpoint: &Endpoint,
    server: SocketAddr,
    service: ServiceId,
    security: &Arc<dyn ClientSecurity>,
) -> Connection {
    endpoint.connect(server, service, Arc::clone(security))
}

impl<C: Clone> Database<C> {
    fn new(clients: impl Iterator<Item = C>) -> Self {
        let clients: Vec<_> = clients.collect();
        assert!(!clients.is_empty(), "a cell has database servers");
        Self {
            clients,
            preferred: AtomicUsize::new(0),
        }
    }

    async fn call<R, F>(&self, call: impl Fn(C) -> F) -> Result<R, RpcError>
    where
        F: Future<Output = Result<R, RpcError>>,
    {
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.clients.len();
        let mut last = None;
        let passes = if count == 1 { 1 } else { 2 };
        for turn in 0..passes * count {
            let number = (first + turn) % count;
            match call(self.clients[number].clone()).await {
                Err(error) if is_elsewhere(&error) => {
                    tracing::debug!("{error}: {}; asking the next", error.cause);
                    last = Some(error);
                }
                answer => {
                    self.preferred.store(number, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(last.expect("there is a server, and it was asked"))
    }
}

/// Whether another server may answer better.
fn is_elsewhere(error: &RpcError) -> bool {
    // All servers refuse a token that one refuses.
    if Code(error.code().0).is_token_refused() {
        return false;
    }
    match (&error.cause, error.aborted()) {
        // What a server does not know, or could not read, is the same at all others.
        (_, Some(code)) => {
            matches!(code.0, UNOQUORUM | UNOTSYNC)
                || (code.0 < 0 && !Code(code.0).is_interface_mismatch())
        }
        (RpcCause::Call(_), None) => true,
        _ => false,
    }
}
