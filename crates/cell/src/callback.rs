//! What file servers call back for: who are you, are you there, forget that promise (RXAFSCB).
//!
//! It must be served on the client's own socket before the first call to a file server, which asks
//! back before it answers. A command that reads once caches nothing beyond its run, so a broken
//! promise needs no action but to be counted: replies tell the data version anyway. A cache manager
//! has itself told, by a [`BreakHandler`].

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, rxafscb};
use afar_types::{AfsUuid, CAPABILITY_ERROR_TRANSLATION, Capabilities, Fid, InterfaceAddr};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::broadcast;

/// The code for "that is not me" (ProbeUuid).
const NOT_ME: AbortCode = AbortCode(1);

/// How long a server waits at most for what its break brings about here. File servers wait three times as
/// long before they go on without an answer. What is waited for may itself wait for that server.
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

/// The cache manager that file servers see.
#[derive(Debug, Clone)]
pub struct CallbackService(Arc<State>);

#[derive(Debug)]
struct State {
    host: InterfaceAddr,
    broken: AtomicU64,
    handler: RwLock<Option<Arc<dyn BreakHandler>>>,
    /// Addresses of servers that asked who we are.
    asked: broadcast::Sender<SocketAddr>,
}

impl CallbackService {
    /// A cache manager with a new identity, served at the endpoint from now on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(endpoint: &Endpoint) -> Self {
        let address = match endpoint.local_addr().ip() {
            std::net::IpAddr::V4(address) if !address.is_unspecified() => address,
            // File servers take the address a call comes from; they want one in the list.
            _ => Ipv4Addr::LOCALHOST,
        };
        let host = InterfaceAddr::new(new_uuid(), &[address]);
        let service = Self(Arc::new(State {
            host,
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
        self.0.host.uuid
    }

    /// The addresses of servers that ask who we are, from now on.
    pub(crate) fn questions(&self) -> broadcast::Receiver<SocketAddr> {
        self.0.asked.subscribe()
    }

    /// Has broken promises told to this handler, and no longer to the one before.
    pub fn set_handler(&self, handler: Arc<dyn BreakHandler>) {
        let slot = self.0.handler.write();
        *slot.unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    fn handler(&self) -> Option<Arc<dyn BreakHandler>> {
        let handler = self.0.handler.read();
        handler.unwrap_or_else(PoisonError::into_inner).clone()
    }

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

/// Waits until what a server has broken is carried out, though not for long.
async fn carry_out(handler: &dyn BreakHandler, caller: &Caller) {
    let carried_out = tokio::time::timeout(CARRY_OUT, handler.carried_out());
    if carried_out.await.is_err() {
        tracing::debug!(server = %caller.peer, "a break takes longer to be carried out");
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
        self.all_broken(caller).await;
        let host = self.0.host.clone();
        Ok(rxafscb::init_call_back_state2::Reply { host })
    }

    async fn who_are_you(
        &self,
        _: &Caller,
        _: rxafscb::who_are_you::Request,
    ) -> Result<rxafscb::who_are_you::Reply, AbortCode> {
        let host = self.0.host.clone();
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
        // Nobody may be waiting to know.
        let _listeners = self.0.asked.send(caller.peer);
        let capabilities = Capabilities::new(vec![CAPABILITY_ERROR_TRANSLATION])
            .map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
        Ok(rxafscb::tell_me_about_yourself::Reply {
            host: self.0.host.clone(),
            capabilities,
        })
    }
}
