//! What file servers call back for: who are you, are you there, forget that promise (RXAFSCB).
//!
//! It must be served on the client's own socket before the first call to a file server, which asks
//! back before it answers. A command that reads once caches nothing beyond its run, so a broken
//! promise needs no action but to be counted: replies tell the data version anyway. A cache manager
//! has itself told, by a [`BreakHandler`].
//!
//! The service tells its identity only to the servers we talk to, and at the loopback address. A stranger who knew it
//! could claim to be us. It is answered like an old server is by a client that has no identity, so that a server that
//! calls from an address nobody knows promises all the same.
//!
//! The same servers, and this machine, where AFS's `cmdebug` may be asked, learn which files, cells and servers are in
//! use. Others learn numbers only: counters and the settings
//! of the cache. A service without [`Answers`] knows none of these operations.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use afar_lease::wire::{Recall, RecallAnswer};
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, Calls, rxafscb};
use afar_types::error::errno::EACCES;
use afar_types::{
    AFS_MAX_INTERFACES, AfsUuid, CAPABILITY_ERROR_TRANSLATION, Capabilities, DbCacheEntry,
    DbCacheEntry64, Fid, InterfaceAddr, UnixTime,
};
use afar_xdr::{List, Opaque, XdrString, to_bytes};
use nix::ifaddrs::getifaddrs;
use parking_lot::RwLock;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::broadcast;

use crate::questions::{Answers, CellServers, Collection, SETTINGS, X_STATS};

/// The code for "that is not me" (ProbeUuid).
const NOT_ME: AbortCode = AbortCode(1);

/// The code for "there are no more".
const END: AbortCode = AbortCode(1);
/// The address that ends the list of servers.
const NO_SERVER: u32 = u32::MAX;
/// Bytes of the cache's settings: OpenAFS counts them so, though it sends words.
const SETTINGS_BYTES: u32 = 36;

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

/// Is told of recalled leases.
// spec: leases#recall
pub trait RecallHandler: fmt::Debug + Send + Sync {
    /// The server at this address recalls leases, and believes from the answer on that they are not used any more. So
    /// this must neither wait nor take long. Forged recalls look like true ones.
    fn recalled(&self, server: SocketAddr, recall: &Recall) -> RecallAnswer;
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
    recall_handler: RwLock<Option<Arc<dyn RecallHandler>>>,
    answers: OnceLock<Arc<dyn Answers>>,
    calls: OnceLock<Calls>,
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
            recall_handler: RwLock::default(),
            answers: OnceLock::new(),
            calls: OnceLock::new(),
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

    /// Identity and addresses, for servers that we use, and for servers of this machine, which may call from a socket
    /// that nobody named.
    // spec: afs-rpc#identity-of-a-client
    fn interfaces(&self, caller: &Caller) -> Result<InterfaceAddr, AbortCode> {
        let is_local = caller.peer.ip().to_canonical().is_loopback();
        if !is_local && !self.0.servers.has(caller.peer) {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        Ok(InterfaceAddr::new(self.uuid(), &self.addresses()))
    }

    /// Our addresses, asked for each time, as machines are taken from network to network.
    fn addresses(&self) -> Vec<Ipv4Addr> {
        let only = self.0.address;
        only.map_or_else(own_addresses, |address| vec![address])
    }

    /// Whether a caller may know what we use: it is on this machine, or a server that we use.
    fn may_know(&self, caller: &Caller) -> bool {
        let from = caller.peer.ip().to_canonical();
        from.is_loopback()
            || self.0.servers.has(caller.peer)
            || matches!(from, IpAddr::V4(from) if self.addresses().contains(&from))
    }

    /// Has questions about this cache manager answered from now on. The first that is given counts.
    pub fn set_answers(&self, answers: Arc<dyn Answers>) {
        self.0.answers.get_or_init(|| answers);
    }

    /// Has what is asked here counted from now on. The first that is given counts.
    pub fn set_calls(&self, calls: Calls) {
        self.0.calls.get_or_init(|| calls);
    }

    fn answers(&self) -> Result<&dyn Answers, AbortCode> {
        let answers = self.0.answers.get().map(|answers| &**answers);
        answers.ok_or(AbortCode::RXGEN_OPCODE)
    }

    /// The same for what not everybody may know.
    fn answers_for(&self, caller: &Caller) -> Result<&dyn Answers, AbortCode> {
        let answers = self.answers()?;
        match self.may_know(caller) {
            true => Ok(answers),
            false => Err(AbortCode(EACCES)),
        }
    }

    fn entry(&self, caller: &Caller, index: i32) -> Result<DbCacheEntry64, AbortCode> {
        let index = usize::try_from(index).map_err(|_| END)?;
        self.answers_for(caller)?.entry(index).ok_or(END)
    }

    /// The addresses of servers that ask who we are, from now on.
    pub(crate) fn questions(&self) -> broadcast::Receiver<SocketAddr> {
        self.0.asked.subscribe()
    }

    /// Has broken promises told to this handler, and no longer to the one before.
    pub fn set_handler(&self, handler: Arc<dyn BreakHandler>) {
        *self.0.handler.write() = Some(handler);
    }

    /// Has recalled leases told to this handler, and no longer to the one before. Without one the service does not know
    /// the operation.
    pub fn set_recall_handler(&self, handler: Arc<dyn RecallHandler>) {
        *self.0.recall_handler.write() = Some(handler);
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

/// A cell as it is told: an empty name if there is none.
fn cell(found: Option<CellServers>) -> Result<(XdrString<256>, List<u32, 8>), AbortCode> {
    let marshal = |_| AbortCode::RXGEN_SS_MARSHAL;
    let (name, servers) = found.map_or((String::new(), Vec::new()), |found| {
        (found.name.to_string(), found.servers)
    });
    let servers: Vec<u32> = servers.into_iter().take(8).map(u32::from).collect();
    let servers = List::new(servers).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    Ok((XdrString::new(name).map_err(marshal)?, servers))
}

/// A number in a word; one that does not fit is the greatest that does.
fn word(number: u64) -> u32 {
    // Tools take words for signed.
    u32::try_from(number.min(i32::MAX.unsigned_abs().into())).unwrap_or_default()
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
    fn calls(&self) -> Option<&Calls> {
        self.0.calls.get()
    }

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

    // spec: leases#recall
    async fn recall_leases(
        &self,
        caller: &Caller,
        request: rxafscb::recall_leases::Request,
    ) -> Result<rxafscb::recall_leases::Reply, AbortCode> {
        let handler = self.0.recall_handler.read().clone();
        let handler = handler.ok_or(AbortCode::RXGEN_OPCODE)?;
        let recall = afar_lease::wire::decode(&request.recall);
        let recall = recall.map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)?;
        let answer = handler.recalled(caller.peer, &recall);
        Ok(rxafscb::recall_leases::Reply {
            answer: Opaque::new(&to_bytes(&answer)[..]).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?,
        })
    }

    async fn get_lock(
        &self,
        _: &Caller,
        _: rxafscb::get_lock::Request,
    ) -> Result<rxafscb::get_lock::Reply, AbortCode> {
        self.answers()?;
        // OpenAFS's locks of its whole tables have no counterpart.
        Err(END)
    }

    async fn get_ce(
        &self,
        caller: &Caller,
        request: rxafscb::get_ce::Request,
    ) -> Result<rxafscb::get_ce::Reply, AbortCode> {
        let entry = DbCacheEntry::from(&self.entry(caller, request.index)?);
        Ok(rxafscb::get_ce::Reply { entry })
    }

    async fn get_ce64(
        &self,
        caller: &Caller,
        request: rxafscb::get_ce64::Request,
    ) -> Result<rxafscb::get_ce64::Reply, AbortCode> {
        let entry = self.entry(caller, request.index)?;
        Ok(rxafscb::get_ce64::Reply { entry })
    }

    async fn x_stats_version(
        &self,
        _: &Caller,
        _: rxafscb::x_stats_version::Request,
    ) -> Result<rxafscb::x_stats_version::Reply, AbortCode> {
        self.answers()?;
        Ok(rxafscb::x_stats_version::Reply { version: X_STATS })
    }

    // spec: afs-rpc#counters
    async fn get_x_stats(
        &self,
        _: &Caller,
        request: rxafscb::get_x_stats::Request,
    ) -> Result<rxafscb::get_x_stats::Reply, AbortCode> {
        let answers = self.answers()?;
        let collection = Collection::of(request.collection).ok_or(END)?;
        let words = answers.counters(collection).into_iter();
        let words: Vec<i32> = words.map(u32::cast_signed).collect();
        Ok(rxafscb::get_x_stats::Reply {
            server_version: X_STATS,
            time: UnixTime::from(SystemTime::now()).0.cast_signed(),
            data: List::new(words).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?,
        })
    }

    async fn get_server_prefs(
        &self,
        caller: &Caller,
        request: rxafscb::get_server_prefs::Request,
    ) -> Result<rxafscb::get_server_prefs::Reply, AbortCode> {
        let answers = self.answers_for(caller)?;
        let found = match usize::try_from(request.index) {
            Ok(index) => answers.server(index).await,
            Err(_) => None,
        };
        let (address, rank) = match found {
            Some((address, rank)) => (u32::from(address), i32::from(rank)),
            None => (NO_SERVER, -1),
        };
        Ok(rxafscb::get_server_prefs::Reply { address, rank })
    }

    async fn get_cell_serv_db(
        &self,
        caller: &Caller,
        request: rxafscb::get_cell_serv_db::Request,
    ) -> Result<rxafscb::get_cell_serv_db::Reply, AbortCode> {
        let answers = self.answers_for(caller)?;
        let index = usize::try_from(request.index).ok();
        let (cell, hosts) = cell(index.and_then(|index| answers.cell(index)))?;
        Ok(rxafscb::get_cell_serv_db::Reply { cell, hosts })
    }

    async fn get_cell_by_num(
        &self,
        caller: &Caller,
        request: rxafscb::get_cell_by_num::Request,
    ) -> Result<rxafscb::get_cell_by_num::Reply, AbortCode> {
        let found = self.answers_for(caller)?.cell_of_entries(request.number);
        let (cell, hosts) = cell(found)?;
        Ok(rxafscb::get_cell_by_num::Reply { cell, hosts })
    }

    async fn get_local_cell(
        &self,
        caller: &Caller,
        _: rxafscb::get_local_cell::Request,
    ) -> Result<rxafscb::get_local_cell::Reply, AbortCode> {
        let own = self.answers_for(caller)?.own_cell();
        let servers = Vec::new();
        let (cell, _) = cell(own.map(|name| CellServers { name, servers }))?;
        Ok(rxafscb::get_local_cell::Reply { cell })
    }

    async fn get_cache_config(
        &self,
        _: &Caller,
        _: rxafscb::get_cache_config::Request,
    ) -> Result<rxafscb::get_cache_config::Reply, AbortCode> {
        let settings = self.answers()?.settings();
        // Files on the disk, statuses, data and volumes that are kept; bytes of a file's first chunk and of others;
        // KiB of the cache; whether it sets the clock, and is in memory.
        let (files, size) = (word(settings.files), word(settings.bytes / 1024));
        let words = [0, files, 0, 0, 0, 0, size, 0, 0];
        Ok(rxafscb::get_cache_config::Reply {
            server_version: SETTINGS,
            count: SETTINGS_BYTES,
            config: List::new(words.to_vec()).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use afar_lease::wire::{Item, Standing};
    use afar_net::Config;
    use afar_rpc::Identity;
    use afar_rpc::rxafscb::Service as _;

    use super::*;

    #[derive(Debug)]
    struct Gives;

    impl RecallHandler for Gives {
        fn recalled(&self, _: SocketAddr, recall: &Recall) -> RecallAnswer {
            let released = recall.items.iter().map(|_| Standing::Released);
            RecallAnswer {
                standings: List::new(released.collect::<Vec<_>>()).unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn recalls_come_to_their_handler() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let service = CallbackService::start(&endpoint);
        let caller = Caller {
            peer: "198.51.100.1:7000".parse().unwrap(),
            service: rxafscb::SERVICE,
            identity: Identity::Anonymous,
        };
        let ask = async |bytes: &[u8]| {
            let recall = Opaque::new(bytes).unwrap();
            let request = rxafscb::recall_leases::Request { recall };
            let reply = service.recall_leases(&caller, request).await;
            reply.map(|reply| afar_lease::wire::decode::<RecallAnswer>(&reply.answer).unwrap())
        };
        let item = Item {
            fid: Fid::new(1, 2, 3),
            number: 4,
            sequence: 5,
        };
        let recall = to_bytes(&Recall {
            version: afar_lease::wire::VERSION,
            session: 6,
            items: List::new(vec![item; 2]).unwrap(),
        });
        assert_eq!(ask(&recall).await, Err(AbortCode::RXGEN_OPCODE));
        service.set_recall_handler(Arc::new(Gives));
        let answer = ask(&recall).await.unwrap();
        assert_eq!(answer.standings[..], [Standing::Released; 2]);
        let cut = ask(&recall[..20]).await;
        assert_eq!(cut, Err(AbortCode::RXGEN_SS_UNMARSHAL));
    }

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
        assert_eq!(ask(&service, "198.51.100.1:7000").await, unknown);
        service.expect("198.51.100.1:7000".parse().unwrap());
        assert_eq!(ask(&service, "198.51.100.1:7000").await, Ok(service.uuid()));
        assert_eq!(
            ask(&service, "[::ffff:198.51.100.1]:7000").await,
            Ok(service.uuid())
        );
        assert_eq!(ask(&service, "198.51.100.1:7001").await, unknown);
        assert_eq!(ask(&service, "198.51.100.2:7000").await, unknown);
        // The hosts that only read have the same servers.
        assert_eq!(ask(&other, "198.51.100.1:7000").await, Ok(other.uuid()));
        // A server on this machine.
        assert_eq!(ask(&service, "127.0.0.1:40000").await, Ok(service.uuid()));
    }
}
