//! A file server as the client knows it: connections, liveness, calls at a time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afar_net::{Endpoint, PeerStats, RxNull};
use afar_rpc::{RpcError, rxafs};
use afar_types::error::{
    RXKADEXPIRED, VBUSY, VMOVED, VNOSERVICE, VNOVOL, VOFFLINE, VRESTARTING, VSALVAGE, VSALVAGING,
};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::Instant;

use crate::window::Window;

/// Calls that can run at a time on one Rx connection.
const CHANNELS: usize = 4;
/// How long a server that did not answer is asked last.
const DOWN_TIME: Duration = Duration::from_secs(60);
/// How long a server gets to take promises back.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(2);

/// A file server at one address.
#[derive(Debug)]
pub struct FileServer {
    address: SocketAddr,
    endpoint: Endpoint,
    lanes: Mutex<Lanes>,
    down_since: Mutex<Option<Instant>>,
    /// Whether an RPC was ever answered. Before, one at a time is sent.
    known: AtomicBool,
    introduction: AsyncMutex<()>,
    /// Whether it refused 64-bit fetches.
    old: AtomicBool,
    calls: AtomicU64,
    pub(crate) window: Arc<Window>,
}

/// Connections and their free channels.
#[derive(Debug, Default)]
struct Lanes {
    connections: Vec<rxafs::Client>,
    /// The one to take next is in front.
    free: VecDeque<usize>,
}

/// A channel of a connection, for one call at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    server: Arc<FileServer>,
    number: usize,
    client: rxafs::Client,
    failed: bool,
}

/// What an RPC's failure means for where to go next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask the same server again later.
    Busy,
    /// The server has no such volume now: another may.
    OtherSite,
    /// The server does not answer.
    Down,
    /// It will be the same everywhere.
    Final,
}

impl FileServer {
    pub(crate) fn new(endpoint: Endpoint, address: SocketAddr, calls: Option<usize>) -> Self {
        Self {
            address,
            endpoint,
            lanes: Mutex::default(),
            down_since: Mutex::new(None),
            known: AtomicBool::new(false),
            introduction: AsyncMutex::new(()),
            old: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            window: Arc::new(Window::new(calls)),
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls made to it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The most fetch calls it had at a time.
    #[must_use]
    pub fn parallel_max(&self) -> usize {
        self.window.most_in_use()
    }

    /// Whether it answered a call.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// What is known of the path to it.
    pub async fn path(&self) -> Option<PeerStats> {
        self.endpoint.peer_stats(self.address).await
    }

    /// A channel for a call. Of a new server only one caller gets past this until a call was
    /// answered: it asks back first, and calls that arrive meanwhile find it confused.
    pub(crate) async fn lane(self: &Arc<Self>) -> (Lane, Option<MutexGuard<'_, ()>>) {
        let introduction = if self.is_known() {
            None
        } else {
            let guard = self.introduction.lock().await;
            (!self.is_known()).then_some(guard)
        };
        (self.free_lane(), introduction)
    }

    /// A channel for a call to a server that is known.
    pub(crate) fn free_lane(self: &Arc<Self>) -> Lane {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lanes.free.pop_front().unwrap_or_else(|| {
            let connection = self
                .endpoint
                .connect(self.address, rxafs::SERVICE, Arc::new(RxNull));
            let first = lanes.connections.len() * CHANNELS;
            lanes.connections.push(rxafs::Client::new(connection));
            lanes.free.extend(first + 1..first + CHANNELS);
            first
        });
        let client = lanes.connections[number / CHANNELS].clone();
        drop(lanes);
        self.calls.fetch_add(1, Ordering::Relaxed);
        Lane {
            server: Arc::clone(self),
            number,
            client,
            failed: false,
        }
    }

    /// A call was answered, if only with an abort.
    pub(crate) fn answered(&self) {
        self.known.store(true, Ordering::Release);
        *self.down_lock() = None;
    }

    /// A call was not answered.
    pub(crate) fn silent(&self) {
        *self.down_lock() = Some(Instant::now());
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down_lock()
            .is_some_and(|since| since.elapsed() < DOWN_TIME)
    }

    /// Whether only 32-bit fetches are understood.
    pub(crate) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    pub(crate) fn set_old(&self) {
        self.old.store(true, Ordering::Relaxed);
    }

    /// Gives all promises back, so that the server need not look for us when files change.
    pub(crate) async fn give_up_callbacks(self: &Arc<Self>) {
        if !self.is_known() {
            return;
        }
        let lane = self.free_lane();
        let asked =
            tokio::time::timeout(GIVE_UP_LIMIT, lane.client().give_up_all_call_backs()).await;
        match asked {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("{error}: {}", error.cause),
            Err(_) => tracing::debug!("{} did not take promises back in time", self.address),
        }
    }

    fn down_lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.down_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    pub(crate) fn client(&self) -> rxafs::Client {
        self.client.clone()
    }

    /// The call failed: the channel is to rest a while before it is used again, as the server's side
    /// of it may still be busy with the call.
    pub(crate) fn failed(&mut self) {
        self.failed = true;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self
            .server
            .lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.failed {
            lanes.free.push_back(self.number);
        } else {
            // The one used last has its windows open.
            lanes.free.push_front(self.number);
        }
    }
}

/// What a failure means.
pub(crate) fn verdict(error: &RpcError) -> Verdict {
    let Some(code) = error.aborted() else {
        return match error.cause {
            afar_rpc::RpcCause::Call(_) => Verdict::Down,
            _ => Verdict::Final,
        };
    };
    match code.0 {
        VBUSY | VRESTARTING => Verdict::Busy,
        VNOVOL | VMOVED | VOFFLINE | VSALVAGE | VSALVAGING | VNOSERVICE => Verdict::OtherSite,
        RXKADEXPIRED => Verdict::Final,
        // RX_CALL_TIMEOUT: the server lives.
        -3 => Verdict::OtherSite,
        // What stubs say of arguments is the same at every server.
        -457..=-450 => Verdict::Final,
        i32::MIN..0 => Verdict::Down,
        _ => Verdict::Final,
    }
}

#[cfg(test)]
mod tests {
    use afar_net::{AbortCode, CallError};
    use afar_rpc::RpcCause;

    use super::*;

    fn failure(error: CallError) -> RpcError {
        RpcError {
            operation: rxafs::fetch_status::OPERATION,
            peer: "192.0.2.1:7000".parse().unwrap(),
            cause: RpcCause::Call(error),
        }
    }

    #[test]
    fn failures_lead_where_they_should() {
        let aborted = |code| verdict(&failure(CallError::Aborted(AbortCode(code))));
        assert_eq!(aborted(110), Verdict::Busy);
        assert_eq!(aborted(-100), Verdict::Busy);
        for code in [103, 111, 106, 105, -3] {
            assert_eq!(aborted(code), Verdict::OtherSite, "{code}");
        }
        assert_eq!(aborted(-1), Verdict::Down);
        for code in [13, 49_733_388, 102, -455, -451, 19_270_409] {
            assert_eq!(aborted(code), Verdict::Final, "{code}");
        }
        assert_eq!(verdict(&failure(CallError::Dead)), Verdict::Down);
    }

    #[tokio::test]
    async fn lanes_are_reused_and_failed_ones_rest() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap(), afar_net::Config::default());
        let server = Arc::new(FileServer::new(
            endpoint.unwrap(),
            "127.0.0.1:9".parse().unwrap(),
            None,
        ));
        let numbers = |lanes: &[Lane]| lanes.iter().map(|lane| lane.number).collect::<Vec<_>>();
        let lanes: Vec<Lane> = (0..5).map(|_| server.free_lane()).collect();
        assert_eq!(numbers(&lanes), [0, 1, 2, 3, 4]);
        drop(lanes);
        let mut lane = server.free_lane();
        let first = lane.number;
        lane.failed();
        drop(lane);
        assert_ne!(server.free_lane().number, first);
    }
}
