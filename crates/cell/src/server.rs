//! A file server as the client knows it: connections, liveness, calls at a time.
//!
//! An OpenAFS file server asks who the client is (TellMeAboutYourself) for each new connection, before
//! it answers the first call on it; calls on other new connections meanwhile get VBUSY. So
//! connections are introduced one after the other: the next one soon after the server has asked for
//! the one before, which makes nearly one a round trip. A server begins no call while it asks, so those that
//! will be needed are begun early, without a pause until it is known how many suffice, and few are
//! added later.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afar_net::{Endpoint, PeerStats};
use afar_rpc::{RpcError, rxafs};
use afar_types::error::{
    VBUSY, VMOVED, VNOSERVICE, VNOVOL, VOFFLINE, VRESTARTING, VSALVAGE, VSALVAGING,
};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Semaphore};
use tokio::time::Instant;

use crate::callback::CallbackService;
use crate::class::Class;
use crate::credentials::{Access, Secured, connect, is_refusal};
use crate::error::Error;
use crate::preferences::{Distance, Preferences, ServerKind};
use crate::window::Window;

/// Calls that can run at a time on one Rx connection.
const CHANNELS: usize = 4;
/// Lanes there may be whatever the window is.
const BASIC_LANES: usize = 16;
/// When the window allows this many calls more, there are to be more.
const LANES_SHORT: usize = 8;
/// A round trip this short makes a link a short one.
pub(crate) const NEAR: Duration = Duration::from_millis(2);
/// Lanes that are enough there.
const NEAR_LANES: usize = 16;
/// Between our answer to a server's question and the next connection, at least.
const ANSWER_TIME: Duration = Duration::from_millis(2);
/// The part of a round trip that is left to the calls that have waited meanwhile: a server whose threads all
/// wait begins few at a time. Of the parts tried at 230 ms, this one fills the link soonest.
const ANSWER_TRIPS: f64 = 0.25;
/// Times a busy server is asked to take a connection.
const INTRODUCTIONS: usize = 6;
/// The first pause between these.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long a server that did not answer is asked last.
const DOWN_TIME: Duration = Duration::from_secs(60);
/// After so long it is tried again whether a server understands what it did not: it may be another
/// program by now.
const OLD_TIME: Duration = Duration::from_secs(3600);
/// How often a server is asked for the same share again, as what is known of a path may have been forgotten.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a server gets to take promises back.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(2);

/// A file server at one address, as one user of ours sees it.
#[derive(Debug)]
pub struct FileServer {
    address: SocketAddr,
    endpoint: Endpoint,
    callbacks: CallbackService,
    access: Arc<Access>,
    lanes: Mutex<Lanes>,
    /// One permit for each free lane.
    free_lanes: Semaphore,
    /// Whether an RPC of this user was ever answered. Before, one at a time is sent.
    known: AtomicBool,
    introduction: AsyncMutex<()>,
    peer: Arc<Peer>,
    window: Arc<Window>,
    /// For what gives way to all that the other is for.
    idle: Arc<Window>,
}

/// What is the same for all users of a file server.
#[derive(Debug, Default)]
struct Peer {
    /// When it last did not answer, unless it has answered since.
    silent: Lately,
    /// Whether it ever answered any of them.
    met: AtomicBool,
    /// When it last did not understand a request with 64-bit places.
    old: Lately,
    calls: AtomicU64,
    /// More shares of the way than one that it was asked for, and when it last was.
    asked: Mutex<Option<(u8, Instant)>>,
}

/// When something was last so.
#[derive(Debug, Default)]
struct Lately(Mutex<Option<Instant>>);

impl Lately {
    /// It is so now.
    fn note(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// It is no longer so.
    fn forget(&self) {
        *self.lock() = None;
    }

    /// Whether it was so within this time.
    fn within(&self, time: Duration) -> bool {
        self.lock().is_some_and(|since| since.elapsed() < time)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections and their free channels.
#[derive(Debug, Default)]
struct Lanes {
    connections: Vec<Link>,
    /// The one to take next is in front.
    free: VecDeque<usize>,
    /// Lanes there should be.
    wanted: usize,
    /// Whether a task is introducing connections.
    growing: bool,
}

/// A connection, and how it is secured.
#[derive(Debug, Clone)]
struct Link {
    client: rxafs::Client,
    secured: Option<Secured>,
}

/// A channel of a connection, for one call at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    server: Arc<FileServer>,
    number: usize,
    link: Link,
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
    /// The server does not take the token.
    Token,
    /// It will be the same everywhere.
    Final,
}

impl FileServer {
    pub(crate) fn new(
        endpoint: Endpoint,
        callbacks: CallbackService,
        address: SocketAddr,
        access: Arc<Access>,
        calls: Option<usize>,
    ) -> Self {
        Self {
            address,
            endpoint,
            callbacks,
            access,
            lanes: Mutex::default(),
            free_lanes: Semaphore::new(0),
            known: AtomicBool::new(false),
            introduction: AsyncMutex::new(()),
            peer: Arc::default(),
            window: Arc::new(Window::new(calls)),
            idle: Arc::new(Window::giving_way(calls)),
        }
    }

    /// The same server for somebody else of the same cell, with connections of his own.
    pub(crate) fn seen_by(&self, access: Access) -> Self {
        Self {
            address: self.address,
            endpoint: self.endpoint.clone(),
            callbacks: self.callbacks.clone(),
            access: Arc::new(access),
            lanes: Mutex::default(),
            free_lanes: Semaphore::new(0),
            known: AtomicBool::new(false),
            introduction: AsyncMutex::new(()),
            peer: Arc::clone(&self.peer),
            window: Arc::clone(&self.window),
            idle: Arc::clone(&self.idle),
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who we are to it.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// As whom it was asked last.
    pub(crate) fn who(&self) -> Arc<str> {
        self.access.who()
    }

    /// Calls made to it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.peer.calls.load(Ordering::Relaxed)
    }

    /// The most fetch calls it had at a time.
    #[must_use]
    pub fn parallel_max(&self) -> usize {
        self.window.most_running().max(self.idle.most_running())
    }

    /// What counts the fetch calls of a class.
    pub(crate) fn window(&self, class: Class) -> &Arc<Window> {
        match class {
            Class::First | Class::BestEffort => &self.window,
            Class::Idle => &self.idle,
        }
    }

    /// Has an afar server give those who come first the share they should have. To other servers nothing is
    /// told: there it is the number of calls that makes the share.
    pub(crate) fn ask_for_shares(&self) {
        let (shares, now) = (self.window.shares(), Instant::now());
        let mut asked = self
            .peer
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_asked = match *asked {
            None => shares == 1,
            Some((before, at)) => before == shares && now.duration_since(at) < ASK_AGAIN,
        };
        if !is_asked {
            self.endpoint.ask_for_shares(self.address, shares);
            *asked = (shares > 1).then_some((shares, now));
        }
    }

    /// Tells the window how long the way is, while that tells it when it has started.
    pub(crate) async fn watch_start(&self) {
        if self.window.wants_round_trip()
            && let Some(round_trip) = self.path().await.and_then(|path| path.rtt_ping)
        {
            self.window.note_round_trip(round_trip);
        }
    }

    /// Whether it answered a call of any user.
    pub(crate) fn is_met(&self) -> bool {
        self.peer.met.load(Ordering::Acquire)
    }

    /// Whether it answered a call.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Octets that came from it in a second, at best of late; nothing if it was not asked for much.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.window.best_rate()
    }

    /// Octets that the way to it holds at that rate.
    pub(crate) async fn held(&self) -> Option<u64> {
        let rate = self.rate()?;
        let round_trip = self.path().await?.rtt_min?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates"
        )]
        let held = (rate * round_trip.as_secs_f64()) as u64;
        Some(held)
    }

    /// The rank by which it is chosen, the less the better. At `fastest` data comes from the fastest server.
    pub(crate) async fn rank(&self, preferences: &Preferences, fastest: Option<f64>) -> u16 {
        let rtt = match self.is_met() {
            true => self.path().await.and_then(|path| path.rtt_min),
            false => None,
        };
        let rate = self.rate().or(fastest);
        preferences.rank(ServerKind::File, self.address.ip(), Distance { rtt, rate })
    }

    /// What is known of the path to it.
    pub async fn path(&self) -> Option<PeerStats> {
        self.endpoint.peer_stats(self.address).await
    }

    /// A channel for a call. Of a new server only one caller gets past this until a call was
    /// answered; it keeps the guard till then. It fails when there must be a token and is none.
    pub(crate) async fn lane(
        self: &Arc<Self>,
    ) -> Result<(Lane, Option<MutexGuard<'_, ()>>), Error> {
        if !self.is_known() {
            let guard = self.introduction.lock().await;
            if !self.is_known() {
                return Ok((self.first_lane().await?, Some(guard)));
            }
        }
        Ok((self.known_lane().await, None))
    }

    /// The first channel of a server not yet known.
    async fn first_lane(self: &Arc<Self>) -> Result<Lane, Error> {
        if self.lock_lanes().connections.is_empty() {
            let link = self.connect().await?;
            // Only one caller at a time comes here.
            self.lock_lanes().connections.push(link);
        }
        Ok(self.take(&self.lock_lanes(), 0))
    }

    /// A free channel of a server that is known; connections are added if there is none.
    pub(crate) async fn known_lane(self: &Arc<Self>) -> Lane {
        if self.free_lanes.available_permits() == 0 {
            let lanes = self.lock_lanes().connections.len() * CHANNELS;
            let limit = self.window.limit().max(self.idle.limit());
            if self.window.is_starting() && limit > lanes {
                // Until it is known how many suffice, one after the other without a pause.
                self.want(limit + LANES_SHORT);
            } else if are_few(lanes, limit) {
                self.want(lanes + 1);
            }
        }
        // The semaphore is never closed.
        if let Ok(permit) = self.free_lanes.acquire().await {
            permit.forget();
        }
        let mut lanes = self.lock_lanes();
        let number = lanes.free.pop_front().unwrap_or_default();
        self.take(&lanes, number)
    }

    fn take(self: &Arc<Self>, lanes: &Lanes, number: usize) -> Lane {
        self.peer.calls.fetch_add(1, Ordering::Relaxed);
        Lane {
            server: Arc::clone(self),
            number,
            link: lanes.connections[number / CHANNELS].clone(),
            failed: false,
        }
    }

    async fn connect(&self) -> Result<Link, Error> {
        let secured = self.access.secured().await?;
        Ok(self.link(secured))
    }

    fn link(&self, secured: Option<Secured>) -> Link {
        let connection = connect(
            &self.endpoint,
            self.address,
            rxafs::SERVICE,
            secured.as_ref(),
        );
        Link {
            client: rxafs::Client::new(connection),
            secured,
        }
    }

    /// Replaces the connections with a token that is refused by such with a newer one. Says whether
    /// there is one. Calls that run on the old connections end there.
    pub(crate) async fn renew(&self, refused: &Secured) -> Result<bool, Error> {
        let is_refused = |link: &Link| link.secured.as_ref().is_some_and(|used| used.is(refused));
        if !self.lock_lanes().connections.iter().any(is_refused) {
            // Another call was here before.
            return Ok(true);
        }
        let Some(newer) = self.access.newer(refused).await? else {
            return Ok(false);
        };
        let mut lanes = self.lock_lanes();
        for link in lanes.connections.iter_mut().filter(|link| is_refused(link)) {
            *link = self.link(Some(newer.clone()));
        }
        Ok(true)
    }

    /// Has connections introduced until there are so many lanes, in the background.
    pub(crate) fn want(self: &Arc<Self>, number: usize) {
        if !self.is_known() {
            return;
        }
        let mut lanes = self.lock_lanes();
        lanes.wanted = lanes.wanted.max(number);
        let enough = lanes.connections.len() * CHANNELS >= lanes.wanted;
        if !enough && !std::mem::replace(&mut lanes.growing, true) {
            self.window.introducing(true);
            let server = Arc::clone(self);
            tokio::spawn(async move { server.grow().await });
        }
    }

    /// Introduces connections, one after the other, until there are enough.
    async fn grow(self: Arc<Self>) {
        let mut questions = self.callbacks.questions();
        let rtt = self.path().await.and_then(|path| path.rtt_min);
        let most = match rtt {
            Some(rtt) if rtt < NEAR => NEAR_LANES,
            _ => usize::MAX,
        };
        let pause = rtt.unwrap_or_default().mul_f64(ANSWER_TRIPS);
        let pause = pause.max(ANSWER_TIME);
        loop {
            if self.has_grown(most) {
                return;
            }
            let link = match self.connect().await {
                Ok(link) => link,
                Err(error) => {
                    tracing::debug!("no more connections to {}: {error}", self.address);
                    self.lock_lanes().growing = false;
                    self.window.introducing(false);
                    return;
                }
            };
            let connection = link.client.clone();
            let number = {
                let mut lanes = self.lock_lanes();
                lanes.connections.push(link);
                lanes.connections.len() - 1
            };
            let server = Arc::clone(&self);
            let introduced =
                tokio::spawn(async move { server.introduce(&connection, number).await });
            let asked = async {
                loop {
                    match questions.recv().await {
                        Ok(address) if address != self.address => {}
                        _ => break,
                    }
                }
                // The server must have our answer before it sees the next connection.
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                _ = introduced => {}
                () = asked => {}
            }
        }
    }

    /// Whether there are as many lanes as there should be. If so, nobody is adding any more.
    fn has_grown(&self, most: usize) -> bool {
        let mut lanes = self.lock_lanes();
        lanes.growing = lanes.connections.len() * CHANNELS < lanes.wanted.min(most);
        self.window.introducing(lanes.growing);
        !lanes.growing
    }

    /// Makes the first call on a connection, and its channels free for others then.
    async fn introduce(&self, connection: &rxafs::Client, number: usize) {
        let mut pause = BUSY_PAUSE;
        for _ in 0..INTRODUCTIONS {
            match connection.get_capabilities().await {
                Err(error) if verdict(&error) == Verdict::Busy => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                // Other errors come again at the first call that matters, and are told then.
                _ => break,
            }
        }
        self.free(number * CHANNELS..(number + 1) * CHANNELS);
    }

    fn free(&self, numbers: std::ops::Range<usize>) {
        let count = numbers.len();
        self.lock_lanes().free.extend(numbers);
        self.free_lanes.add_permits(count);
    }

    fn lock_lanes(&self) -> std::sync::MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether it is there, by what it must know its callers for (RXAFS GetCapabilities): one
    /// that was started anew since it was asked last tells that it has forgotten its promises before
    /// it answers.
    pub async fn probe(self: &Arc<Self>) -> bool {
        let Ok((mut lane, _introduction)) = self.lane().await else {
            return false;
        };
        match lane.client().get_capabilities().await {
            Err(error) if verdict(&error) == Verdict::Down => {
                lane.failed();
                self.silent();
                false
            }
            _ => {
                self.answered();
                true
            }
        }
    }

    /// A call was answered, if only with an abort.
    pub(crate) fn answered(&self) {
        self.peer.silent.forget();
        self.peer.met.store(true, Ordering::Release);
        if !self.known.swap(true, Ordering::AcqRel) {
            // The first channel is in use by the call that was answered.
            self.free(1..CHANNELS);
        }
    }

    /// A call was not answered.
    pub(crate) fn silent(&self) {
        self.peer.silent.note();
    }

    /// Whether it did not answer when it was asked last, within the last minute.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.peer.silent.within(DOWN_TIME)
    }

    /// Whether only requests with 32-bit places are understood.
    pub(crate) fn is_old(&self) -> bool {
        self.peer.old.within(OLD_TIME)
    }

    pub(crate) fn set_old(&self) {
        self.peer.old.note();
    }

    /// Gives all promises back, so that the server need not look for us when files change.
    pub(crate) async fn give_up_callbacks(self: &Arc<Self>) {
        if !self.is_known() {
            return;
        }
        let lane = self.known_lane().await;
        let asked =
            tokio::time::timeout(GIVE_UP_LIMIT, lane.client().give_up_all_call_backs()).await;
        match asked {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("{error}: {}", error.cause),
            Err(_) => tracing::debug!("{} did not take promises back in time", self.address),
        }
    }
}

impl Lane {
    pub(crate) fn client(&self) -> rxafs::Client {
        self.link.client.clone()
    }

    /// How its connection is secured.
    pub(crate) fn secured(&self) -> Option<&Secured> {
        self.link.secured.as_ref()
    }

    /// The call failed: the channel is to rest a while before it is used again, as the server's side
    /// of it may still be busy with the call.
    pub(crate) fn failed(&mut self) {
        self.failed = true;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Until a server is known its first channel is whoever's turn it is to try.
        if !self.server.is_known() {
            return;
        }
        let mut lanes = self.server.lock_lanes();
        if self.failed {
            lanes.free.push_back(self.number);
        } else {
            // The one used last has its windows open.
            lanes.free.push_front(self.number);
        }
        drop(lanes);
        self.server.free_lanes.add_permits(1);
    }
}

/// Whether there should be another connection when all lanes are taken. While a server is introduced
/// to one, it begins no call on any other, and those that waited burst together: that costs more
/// than a few calls bring.
fn are_few(lanes: usize, limit: usize) -> bool {
    lanes < BASIC_LANES || limit >= lanes + LANES_SHORT
}

/// What a failure means.
pub(crate) fn verdict(error: &RpcError) -> Verdict {
    // Whether it came for the call, for the connection, or from our own side of it.
    if is_refusal(error.code().0) {
        return Verdict::Token;
    }
    let Some(code) = error.aborted() else {
        return match error.cause {
            afar_rpc::RpcCause::Call(_) => Verdict::Down,
            _ => Verdict::Final,
        };
    };
    match code.0 {
        VBUSY | VRESTARTING => Verdict::Busy,
        VNOVOL | VMOVED | VOFFLINE | VSALVAGE | VSALVAGING | VNOSERVICE => Verdict::OtherSite,
        // RX_CALL_TIMEOUT: the server lives.
        -3 => Verdict::OtherSite,
        // What stubs say of arguments is the same at every server.
        -457..=-450 => Verdict::Final,
        i32::MIN..0 => Verdict::Down,
        _ => Verdict::Final,
    }
}

/// Whether the server may have done what it was asked for, although the call failed. Codes of its
/// own say that it has not; those of Rx may come when it has begun.
pub(crate) fn may_be_done(error: &RpcError) -> bool {
    match error.aborted() {
        Some(code) => code.0 < 0 && code.0 != VRESTARTING,
        None => true,
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
        for code in [13, 49_733_388, 102, -455, -451] {
            assert_eq!(aborted(code), Verdict::Final, "{code}");
        }
        for code in [19_270_400, 19_270_409, 19_270_412] {
            assert_eq!(aborted(code), Verdict::Token, "{code}");
            let error = CallError::ConnectionAborted(AbortCode(code));
            assert_eq!(verdict(&failure(error)), Verdict::Token, "{code}");
        }
        assert_eq!(verdict(&failure(CallError::Dead)), Verdict::Down);
    }

    #[test]
    fn only_refusals_are_known_to_have_done_nothing() {
        let aborted = |code| may_be_done(&failure(CallError::Aborted(AbortCode(code))));
        for code in [110, -100, 103, 13] {
            assert!(!aborted(code), "{code}");
        }
        assert!(aborted(-1) && aborted(-3));
        assert!(may_be_done(&failure(CallError::Dead)));
    }

    #[test]
    fn connections_are_added_for_many_calls_only() {
        assert!(are_few(12, 4));
        assert!(are_few(72, 80));
        assert!(!are_few(72, 79) && !are_few(16, 16));
    }

    #[tokio::test]
    async fn users_share_what_is_known_of_a_server_but_no_connection() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(loopback, afar_net::Config::default()).unwrap();
        let callbacks = CallbackService::start(&endpoint);
        let address = "127.0.0.1:9".parse().unwrap();
        let access = || Access::new("example.org".parse().unwrap(), None);
        let server = FileServer::new(endpoint, callbacks, address, Arc::new(access()), None);
        let (server, other) = (Arc::new(server.seen_by(access())), Arc::new(server));
        drop(server.lane().await.unwrap());
        server.answered();
        assert!(server.is_known() && other.is_met() && !other.is_known());
        assert!(other.lock_lanes().connections.is_empty());
        other.silent();
        assert!(server.is_down());
        server.answered();
        assert!(!other.is_down());
        other.set_old();
        assert!(server.is_old());
        tokio::time::pause();
        tokio::time::advance(OLD_TIME).await;
        assert!(!server.is_old());
    }

    #[tokio::test]
    async fn lanes_are_reused_and_failed_ones_rest() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(loopback, afar_net::Config::default()).unwrap();
        let callbacks = CallbackService::start(&endpoint);
        let address = "127.0.0.1:9".parse().unwrap();
        let access = Arc::new(Access::new("example.org".parse().unwrap(), None));
        let server = FileServer::new(endpoint, callbacks, address, access, None);
        let server = Arc::new(server);
        // Of a server not known there is one channel.
        let (lane, guard) = server.lane().await.unwrap();
        assert_eq!(lane.number, 0);
        assert!(server.introduction.try_lock().is_err());
        server.answered();
        drop((lane, guard));
        let mut lanes = Vec::new();
        for _ in 0..CHANNELS {
            lanes.push(server.known_lane().await);
        }
        let mut numbers: Vec<_> = lanes.iter().map(|lane| lane.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
        drop(lanes);
        let mut lane = server.known_lane().await;
        let first = lane.number;
        lane.failed();
        drop(lane);
        assert_ne!(server.known_lane().await.number, first);
    }
}
