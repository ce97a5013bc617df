//! What file servers call back for: who are you, are you there, forget that promise (RXAFSCB).
//!
//! It must be served on the client's own socket before the first call to a file server, which asks
//! back before it answers. A command that reads once caches nothing beyond its run, so a broken
//! promise needs no action but to be counted: replies tell the data version anyway. A cache manager
//! has itself told, by a [`BreakHandler`].
//!
//! The service tells its identity to the servers we talk to, and to this machine, where AFS's `cmdebug` may be asked. A
//! stranger who knew it could claim to be us. It is answered like an old server is by a client that has no
//! identity, so that a server that calls from an address nobody knows promises all the same.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, rxafscb};
use afar_types::{
    AFS_MAX_INTERFACES, AfsUuid, CAPABILITY_ERROR_TRANSLATION, Capabilities, Fid, InterfaceAddr,
};
use nix::ifaddrs::getifaddrs;
use parking_lot::RwLock;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::broadcast;

/// The code for "that is not me" (ProbeUuid).
const NOT_ME: AbortCode = AbortCode(1);

/// How long a server waits at most for what its break brings about here. File servers wait three times as
/// long before they go on without an answer. The work may itself wait for that server.
const CARRY_OUT: Duration = Duration::from_millis(100);

/// Is told of broken promises, before the server that breaks them gets its answer: from then on the
/// server believes that nothing old is used any more. So it must neither wait nor take long.
pub trait BreakHandler: fmt::Debug + Send + Sync {
    /// What is known of these files is in doubt. A fid of vnode 0 stands for a whole volume. Servers
    /// do not say which cell they mean, and one with several addresses may call from any of them.
    fn broken(&self, server: SocketAddr, fids: &[Fid]);

    /// The server has forgotten all promises it gave (InitCallBackState and its successors).
    fn all_broken(&self, server: SocketAddr);

    /// Ends when all that was told so far has come to those who must know, such as a kernel. The
    /// server's answer waits for that, though not for long.
    fn carried_out(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// The servers that may know who we are.
#[derive(Debug, Default)]
struct Servers(RwLock<HashSet<SocketAddr>>);

impl Servers {
    fn has(&self, address: SocketAddr) -> bool {
        self.0.read().contains(&plain(address))
    }
}

/// An address without its mapping to IPv6.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The cache manager that file servers see.
#[derive(Debug, Clone)]
pub struct CallbackService(Arc<State>);

#[derive(Debug)]
struct State {
    uuid: AfsUuid,
    /// The address of the endpoint, if it has just one.
    address: Option<Ipv4Addr>,
    servers: Arc<Servers>,
    broken: AtomicU64,
    handler: RwLock<Option<Arc<dyn BreakHandler>>>,
    /// Addresses of servers that asked who we are.
    asked: broadcast::Sender<SocketAddr>,
}

impl CallbackService {
    /// A cache manager with a new identity, served at the endpoint from now on. Servers that are
    /// not on this machine learn who it is only if they are [expected](Self::expect).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(endpoint: &Endpoint) -> Self {
        Self::with(endpoint, Arc::default())
    }

    /// Another one, at another endpoint, for the same servers.
    pub(crate) fn beside(&self, endpoint: &Endpoint) -> Self {
        Self::with(endpoint, Arc::clone(&self.0.servers))
    }

    fn with(endpoint: &Endpoint, servers: Arc<Servers>) -> Self {
        let address = match endpoint.local_addr().ip() {
            IpAddr::V4(address) if !address.is_unspecified() => Some(address),
            _ => None,
        };
        let service = Self(Arc::new(State {
            uuid: new_uuid(),
            address,
            servers,
            broken: AtomicU64::new(0),
            handler: RwLock::default(),
            asked: broadcast::Sender::new(64),
        }));
        let server = rxafscb::Server::new(service.clone());
        endpoint.serve(rxafscb::SERVICE, rxafscb::NAME, server);
        service
    }

    /// This cache manager's identity.
    #[must_use]
    pub fn uuid(&self) -> AfsUuid {
        self.0.uuid
    }

    /// From now on the server at this address is told who we are when it asks.
    pub fn expect(&self, server: SocketAddr) {
        self.0.servers.0.write().insert(plain(server));
    }

    /// Identity and addresses, for a caller that may know them.
    // spec: afs-rpc#identity-of-a-client
    fn interfaces(&self, caller: &Caller) -> Result<InterfaceAddr, AbortCode> {
        let may_know = caller.peer.ip().to_canonical().is_loopback();
        if !may_know && !self.0.servers.has(caller.peer) {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        // Asked for each time, as machines are taken from network to network.
        let addresses = self
            .0
            .address
            .map_or_else(own_addresses, |address| vec![address]);
        Ok(InterfaceAddr::new(self.uuid(), &addresses))
    }

    /// The addresses of servers that ask who we are, from now on.
    pub(crate) fn questions(&self) -> broadcast::Receiver<SocketAddr> {
        self.0.asked.subscribe()
    }

    /// Has broken promises told to this handler, and no longer to the one before.
    pub fn set_handler(&self, handler: Arc<dyn BreakHandler>) {
        *self.0.handler.write() = Some(handler);
    }

    fn handler(&self) -> Option<Arc<dyn BreakHandler>> {
        self.0.handler.read().clone()
    }

    // spec: afs-rpc#breaks
    async fn all_broken(&self, caller: &Caller) {
        if let Some(handler) = self.handler() {
            handler.all_broken(caller.peer);
            carry_out(&*handler, caller).await;
        }
    }

    /// Promises broken by file servers so far.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.0.broken.load(Ordering::Relaxed)
    }
}

/// This machine's addresses. A server believes by them that a call from another of them is ours, too.
fn own_addresses() -> Vec<Ipv4Addr> {
    let interfaces = getifaddrs().into_iter().flatten();
    let mut addresses: Vec<Ipv4Addr> = interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
        .filter(|address| !address.is_loopback() && !address.is_link_local())
        .collect();
    addresses.dedup();
    addresses.truncate(AFS_MAX_INTERFACES);
    if addresses.is_empty() {
        // File servers take the address a call comes from; they want one in the list.
        addresses.push(Ipv4Addr::LOCALHOST);
    }
    addresses
}

/// Waits until what a server has broken is carried out, though not for long.
async fn carry_out(handler: &dyn BreakHandler, caller: &Caller) {
    let carried_out = tokio::time::timeout(CARRY_OUT, handler.carried_out());
    if carried_out.await.is_err() {
        tracing::debug!(server = %caller.peer, "carrying out a callback break takes longer");
    }
}

/// A random identity, for a cache manager or a file server.
///
/// # Panics
/// If the kernel has no random generator.
#[must_use]
pub fn new_uuid() -> AfsUuid {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).expect("Linux has getrandom");
    assert_eq!(filled, bytes.len(), "small requests are answered whole");
    AfsUuid::from_random(bytes)
}

impl rxafscb::Service for CallbackService {
    async fn call_back(
        &self,
        caller: &Caller,
        request: rxafscb::call_back::Request,
    ) -> Result<rxafscb::call_back::Reply, AbortCode> {
        // spec: afs-rpc#breaks
        // From any address: a server with several calls from one that nobody knows. A false break costs a question.
        let broken = request.fids.len() as u64;
        self.0.broken.fetch_add(broken, Ordering::Relaxed);
        if let Some(handler) = self.handler() {
            handler.broken(caller.peer, &request.fids);
            carry_out(&*handler, caller).await;
        }
        Ok(rxafscb::call_back::Reply {})
    }

    async fn init_call_back_state(
        &self,
        caller: &Caller,
        _: rxafscb::init_call_back_state::Request,
    ) -> Result<rxafscb::init_call_back_state::Reply, AbortCode> {
        self.all_broken(caller).await;
        Ok(rxafscb::init_call_back_state::Reply {})
    }

    async fn probe(
        &self,
        _: &Caller,
        _: rxafscb::probe::Request,
    ) -> Result<rxafscb::probe::Reply, AbortCode> {
        Ok(rxafscb::probe::Reply {})
    }

    async fn init_call_back_state2(
        &self,
        caller: &Caller,
        _: rxafscb::init_call_back_state2::Request,
    ) -> Result<rxafscb::init_call_back_state2::Reply, AbortCode> {
        let host = self.interfaces(caller)?;
        self.all_broken(caller).await;
        Ok(rxafscb::init_call_back_state2::Reply { host })
    }

    async fn who_are_you(
        &self,
        caller: &Caller,
        _: rxafscb::who_are_you::Request,
    ) -> Result<rxafscb::who_are_you::Reply, AbortCode> {
        let host = self.interfaces(caller)?;
        Ok(rxafscb::who_are_you::Reply { host })
    }

    async fn init_call_back_state3(
        &self,
        caller: &Caller,
        _: rxafscb::init_call_back_state3::Request,
    ) -> Result<rxafscb::init_call_back_state3::Reply, AbortCode> {
        self.all_broken(caller).await;
        Ok(rxafscb::init_call_back_state3::Reply {})
    }

    async fn probe_uuid(
        &self,
        _: &Caller,
        request: rxafscb::probe_uuid::Request,
    ) -> Result<rxafscb::probe_uuid::Reply, AbortCode> {
        // spec: afs-rpc#identity-of-a-client
        if request.client == self.uuid() {
            Ok(rxafscb::probe_uuid::Reply {})
        } else {
            Err(NOT_ME)
        }
    }

    async fn tell_me_about_yourself(
        &self,
        caller: &Caller,
        _: rxafscb::tell_me_about_yourself::Request,
    ) -> Result<rxafscb::tell_me_about_yourself::Reply, AbortCode> {
        let host = self.interfaces(caller)?;
        // Nobody may be waiting to know.
        let _listeners = self.0.asked.send(caller.peer);
        // spec: afs-rpc#capabilities
        let capabilities = Capabilities::new(vec![CAPABILITY_ERROR_TRANSLATION])
            .map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
        Ok(rxafscb::tell_me_about_yourself::Reply { host, capabilities })
    }
}

#[cfg(test)]
mod tests {
    use afar_net::Config;
    use afar_rpc::Identity;
    use afar_rpc::rxafscb::Service as _;

    use super::*;

    #[tokio::test]
    async fn strangers_do_not_learn_who_we_are() {
        let endpoint = Endpoint::bind("0.0.0.0:0".parse().unwrap(), Config::default()).unwrap();
        let service = CallbackService::start(&endpoint);
        let other = service.beside(&endpoint);
        let caller = |address: &str| Caller {
            peer: address.parse().unwrap(),
            service: rxafscb::SERVICE,
            identity: Identity::Anonymous,
        };
        let ask = async |service: &CallbackService, address: &str| {
            let caller = caller(address);
            let (tell, who) = tokio::join!(
                service
                    .tell_me_about_yourself(&caller, rxafscb::tell_me_about_yourself::Request {}),
                service.who_are_you(&caller, rxafscb::who_are_you::Request {}),
            );
            let second = service
                .init_call_back_state2(&caller, rxafscb::init_call_back_state2::Request {})
                .await;
            let tell = tell.map(|reply| reply.host.uuid);
            assert_eq!(tell, who.map(|reply| reply.host.uuid));
            assert_eq!(tell, second.map(|reply| reply.host.uuid));
            tell
        };
        let unknown = Err(AbortCode::RXGEN_OPCODE);
        assert_eq!(ask(&service, "192.0.2.1:7000").await, unknown);
        service.expect("192.0.2.1:7000".parse().unwrap());
        assert_eq!(ask(&service, "192.0.2.1:7000").await, Ok(service.uuid()));
        assert_eq!(
            ask(&service, "[::ffff:192.0.2.1]:7000").await,
            Ok(service.uuid())
        );
        assert_eq!(ask(&service, "192.0.2.1:7001").await, unknown);
        assert_eq!(ask(&service, "192.0.2.2:7000").await, unknown);
        // The hosts that only read have the same servers.
        assert_eq!(ask(&other, "192.0.2.1:7000").await, Ok(other.uuid()));
        // Any program on this machine, such as `cmdebug localhost`.
        assert_eq!(ask(&service, "127.0.0.1:40000").await, Ok(service.uuid()));
    }
}
