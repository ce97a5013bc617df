//! A file server as the client knows it: connections, liveness, calls at a time.
//!
//! - `introduction`: how a server gets to know our connections; `lanes`: which of their channels are free
//! - `hosts`: that it knows more of us than one; `silence`: what is done when it does not answer; `oob`: what it has out
//!   of band, told and tried again

mod hosts;
mod introduction;
mod lanes;
mod oob;
mod silence;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_net::PeerStats;
use afar_oob::offer::FETCH;
use afar_rpc::{RpcError, rxafs};
use afar_types::error::{
    Code, RX_CALL_TIMEOUT, RX_MSGSIZE, VBUSY, VMOVED, VNOSERVICE, VNOVOL, VOFFLINE, VRESTARTING,
    VSALVAGE, VSALVAGING,
};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::Instant;

use crate::class::Class;
use crate::credentials::{Access, Secured, connect};
use crate::error::Error;
use crate::lately::Lately;
use crate::oob::{Blocked, Connection, Oob, Tally, ask};
use crate::preferences::{Distance, Preferences, ServerKind};
use crate::refusal::is_refusal;
use crate::waits::{Waiting, Waits};
use crate::window::Window;
use lanes::{CHANNELS, Lanes, Link};

pub(crate) use hosts::{Host, Hosts};

/// A round trip this short makes a link a short one.
pub(crate) const NEAR: Duration = Duration::from_millis(2);
/// How long a server that did not answer is asked last.
const DOWN_TIME: Duration = Duration::from_secs(60);
/// After so long it is tried again whether a server understands what it did not: it may be another
/// program by now.
const OLD_TIME: Duration = Duration::from_secs(3600);
/// When nothing was read for so long, promises to those who read are given back.
const READ_TIME: Duration = Duration::from_secs(20);
/// An OpenAFS server forgets a connection that was not used for 700 s.
// spec: rx#connections
const CONNECTION_TIME: Duration = Duration::from_secs(600);
/// How often a server is asked for the same share again, as what is known of a path may have been forgotten.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a server gets to take promises back.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(2);

/// Kinds of answers that tell of many things at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answers {
    /// Of a directory, and what is below it.
    Tree,
    /// Of what others read next.
    Following,
    /// Of files that are named one by one.
    Listed,
}

/// A file server at one address, as one user of ours sees it.
#[derive(Debug)]
pub struct FileServer {
    address: SocketAddr,
    hosts: Arc<Hosts>,
    access: Arc<Access>,
    /// Of the first host.
    lanes: Lanes,
    /// Of the hosts that only read data.
    reading: Lanes,
    /// When one of these was last taken, unless their promises were given back since.
    read: Lately,
    /// Whether an RPC of this user was ever answered. Before, one at a time is sent.
    known: AtomicBool,
    introduction: AsyncMutex<()>,
    /// Calls at a time that were to be made ready for.
    prepared: AtomicUsize,
    peer: Arc<Peer>,
    /// What this user has out of band.
    oob: Arc<Oob>,
    window: Arc<Window>,
    /// For what gives way to all that the other is for.
    idle: Arc<Window>,
}

/// What is the same for all users of a file server.
#[derive(Debug, Default)]
struct Peer {
    /// When it last did not answer, unless it has answered since.
    silent: Lately,
    /// Since when somebody waits for it to answer again.
    awaited: Lately,
    /// Held by the request that asks the server whether it is there.
    asking: AsyncMutex<()>,
    /// Whether it ever answered any of them.
    met: AtomicBool,
    /// When it last did not understand a request with 64-bit places.
    old: Lately,
    /// Whether it was seen to be an afar server when a piece was last asked of it.
    afar: AtomicBool,
    calls: AtomicU64,
    /// Those of them of the first host.
    first_calls: AtomicU64,
    /// When it last did not understand a request for a tree.
    treeless: Lately,
    /// When it last did not understand a request for what follows.
    forgetful: Lately,
    /// When it last did not understand a request for files that are named one by one.
    singly: Lately,
    /// When it was last found that data is best read from it by the first host: it is near, or an afar server, or
    /// there is no other host.
    direct: Lately,
    /// When it last did not get to know the others.
    refusing: Lately,
    /// That TCP does not reach it.
    blocked: Arc<Blocked>,
    /// What is counted of data out of band.
    tally: Tally,
    /// More shares of the way than one that it was asked for, and when it last was.
    asked: Mutex<Option<(u8, Instant)>>,
}

/// A channel of a connection, for one call at a time.
#[derive(Debug)]
pub(crate) struct Lane {
    server: Arc<FileServer>,
    by: By,
    number: usize,
    link: Link,
    failed: bool,
    /// That whoever asked for it waits for the server.
    _waiting: Waiting,
}

/// By which hosts a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    First,
    Readers,
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
        hosts: Arc<Hosts>,
        address: SocketAddr,
        access: Arc<Access>,
        calls: Option<usize>,
    ) -> Self {
        let windows = [Window::new(calls), Window::giving_way(calls)].map(Arc::new);
        Self::with(hosts, address, access, Arc::default(), windows)
    }

    /// The same server for another user of the same cell, with separate connections.
    pub(crate) fn seen_by(&self, access: Access) -> Self {
        // The server has one set of threads for all of its users.
        let windows = [&self.window, &self.idle].map(Arc::clone);
        let (hosts, peer) = (Arc::clone(&self.hosts), Arc::clone(&self.peer));
        Self::with(hosts, self.address, Arc::new(access), peer, windows)
    }

    /// One with no connection yet.
    fn with(
        hosts: Arc<Hosts>,
        address: SocketAddr,
        access: Arc<Access>,
        peer: Arc<Peer>,
        [window, idle]: [Arc<Window>; 2],
    ) -> Self {
        // It asks back who we are before it answers.
        hosts.first.callbacks.expect(address);
        Self {
            address,
            hosts,
            access,
            lanes: Lanes::new(),
            reading: Lanes::new(),
            read: Lately::default(),
            known: AtomicBool::new(false),
            introduction: AsyncMutex::new(()),
            prepared: AtomicUsize::new(0),
            peer,
            oob: Arc::default(),
            window,
            idle,
        }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Our identity to it.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// As whom it was asked last.
    pub(crate) fn who(&self) -> Arc<str> {
        self.access.who()
    }

    /// Whether it was seen to be an afar server when a piece was last asked of it.
    pub(crate) fn is_afar(&self) -> bool {
        self.peer.afar.load(Ordering::Relaxed)
    }

    pub(crate) fn set_afar(&self, afar: bool) {
        self.peer.afar.store(afar, Ordering::Relaxed);
    }

    /// Calls made to it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.peer.calls.load(Ordering::Relaxed)
    }

    /// Those of them by which it tells that it has forgotten its promises, if it has.
    #[must_use]
    pub fn telling_calls(&self) -> u64 {
        self.peer.first_calls.load(Ordering::Relaxed)
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
        let mut asked = self.peer.asked.lock();
        let is_asked = match *asked {
            None => shares == 1,
            Some((before, at)) => before == shares && now.duration_since(at) < ASK_AGAIN,
        };
        if !is_asked {
            let endpoint = &self.hosts.first.endpoint;
            endpoint.ask_for_shares(self.address, shares);
            *asked = (shares > 1).then_some((shares, now));
        }
    }

    /// Tells the window how long the way is, while that tells it when it has started. A host measures it while
    /// it has calls, so it is asked by that of this one.
    pub(crate) async fn watch_start(&self, lane: &Lane) {
        if self.window.wants_round_trip() {
            let path = lane.link.host.endpoint.peer_stats(self.address).await;
            if let Some(round_trip) = path.and_then(|path| path.rtt_ping) {
                self.window.note_round_trip(round_trip);
            }
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

    /// Bytes that came from it in a second, at best of late; nothing if it was not asked for much.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.window.best_rate()
    }

    /// Bytes that the way to it holds at that rate.
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
        self.hosts.first.endpoint.peer_stats(self.address).await
    }

    /// A channel for a call. Of a new server only one caller gets past this until a call was
    /// answered; it keeps the guard till then. It fails when there must be a token and is none.
    pub(crate) async fn lane(
        self: &Arc<Self>,
    ) -> Result<(Lane, Option<MutexGuard<'_, ()>>), Error> {
        if !self.is_known() {
            let _waiting = Waits::on(self.address);
            let guard = self.introduction.lock().await;
            if !self.is_known() {
                return Ok((self.first_lane().await?, Some(guard)));
            }
        }
        Ok((self.known_lane().await, None))
    }

    /// The first channel of a server not yet known.
    async fn first_lane(self: &Arc<Self>) -> Result<Lane, Error> {
        let link = match self.lanes.first() {
            Some(link) => link,
            None => {
                let link = self.connect(&self.hosts.first).await?;
                // Only one caller at a time comes here.
                self.lanes.add(link.clone());
                link
            }
        };
        Ok(self.lane_of(By::First, 0, link))
    }

    /// A free channel of a server that is known; connections are added if there is none.
    async fn known_lane(self: &Arc<Self>) -> Lane {
        if self.lanes.is_taken() {
            self.want_more();
        }
        let waiting = Waits::on(self.address);
        let (number, link) = self.lanes.take().await;
        drop(waiting);
        self.lane_of(By::First, number, link)
    }

    /// A free channel for a call that only reads data, and whose reply's promise is not used.
    pub(crate) async fn data_lane(self: &Arc<Self>) -> Lane {
        let are_open = self.reading.are_open();
        if !self.is_read_by_readers() || !are_open && !self.lanes.is_taken() {
            return self.known_lane().await;
        }
        self.want_readers();
        let waiting = Waits::on(self.address);
        let (by, (number, link)) = tokio::select! {
            biased;
            reading = self.reading.take() => (By::Readers, reading),
            // Until the readers are introduced.
            first = self.lanes.take(), if !are_open => (By::First, first),
        };
        drop(waiting);
        if by == By::Readers && !self.read.note() {
            let server = Arc::downgrade(self);
            tokio::spawn(async move { give_back_later(&server).await });
        }
        self.lane_of(by, number, link)
    }

    fn lane_of(self: &Arc<Self>, by: By, number: usize, link: Link) -> Lane {
        self.peer.calls.fetch_add(1, Ordering::Relaxed);
        if by == By::First {
            self.peer.first_calls.fetch_add(1, Ordering::Relaxed);
        }
        Lane {
            server: Arc::clone(self),
            by,
            number,
            link,
            failed: false,
            _waiting: Waits::call(self.address),
        }
    }

    fn lanes(&self, by: By) -> &Lanes {
        match by {
            By::First => &self.lanes,
            By::Readers => &self.reading,
        }
    }

    async fn connect(&self, host: &Arc<Host>) -> Result<Link, Error> {
        let secured = self.access.secured().await?;
        Ok(self.link(host, secured))
    }

    fn link(&self, host: &Arc<Host>, secured: Option<Secured>) -> Link {
        let connection = connect(
            &host.endpoint,
            self.address,
            rxafs::SERVICE,
            secured.as_ref(),
        );
        Link {
            client: rxafs::Client::new(connection),
            secured,
            host: Arc::clone(host),
        }
    }

    /// A connection for data out of band, if there is one. The first one is made behind what comes by Rx meanwhile.
    pub(crate) fn out_of_band(self: &Arc<Self>) -> Option<Arc<Connection>> {
        if !self.is_afar() {
            return None;
        }
        let server = Arc::clone(self);
        self.oob
            .ready(self.address, &self.peer.blocked, || async move {
                let lane = server.known_lane().await;
                let client = lane.client();
                let call = |question| async move {
                    let reply = client.oob_offer(question).await?;
                    Ok(reply.offer)
                };
                let answer = ask(FETCH, call).await;
                server.peer.tally.asked(&answer);
                answer
            })
    }

    /// Replaces the connections with a token that is refused by such with a newer one. Says whether
    /// there is one. Calls that run on the old connections end there.
    pub(crate) async fn renew(&self, refused: &Secured) -> Result<bool, Error> {
        let all = [&self.lanes, &self.reading];
        if !all.iter().any(|lanes| lanes.has(refused)) {
            // Another call was here before.
            return Ok(true);
        }
        let Some(newer) = self.access.newer(refused).await? else {
            return Ok(false);
        };
        self.oob.forget();
        for lanes in all {
            lanes.replace(|link| {
                let old = link.is(refused);
                old.then(|| self.link(&link.host, Some(newer.clone())))
            });
        }
        Ok(true)
    }

    /// Replaces all connections: packets to it leave from another address now. Calls that run on the old ones end
    /// there.
    pub(crate) fn reconnect(&self) {
        self.oob.forget();
        for lanes in [&self.lanes, &self.reading] {
            lanes.replace(|link| Some(self.link(&link.host, link.secured.clone())));
        }
    }

    /// Asks whether it is there, by what it must know its callers for (RXAFS GetCapabilities): one
    /// that was started again since it was asked last tells that it has forgotten its promises before
    /// it answers.
    pub async fn probe(self: &Arc<Self>) -> bool {
        let Ok((mut lane, _introduction)) = self.lane().await else {
            return false;
        };
        // spec: afs-rpc#capabilities
        match lane.client().get_capabilities().await {
            Err(error) if verdict(&error) == Verdict::Down => {
                lane.failed();
                self.silent();
                // It may answer where we were when the connections were made.
                self.reconnect();
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
        self.is_back();
        self.peer.met.store(true, Ordering::Release);
        if !self.known.swap(true, Ordering::AcqRel) {
            // The first channel is in use by the call that was answered.
            self.lanes.free(1..CHANNELS);
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

    /// Whether it is one that may have such answers, of many things at once.
    pub(crate) fn may_have(&self, answers: Answers) -> bool {
        self.is_afar() && !self.lacks(answers).within(OLD_TIME)
    }

    /// Requests for such answers are not understood.
    pub(crate) fn set_without(&self, answers: Answers) {
        self.lacks(answers).note();
    }

    fn lacks(&self, answers: Answers) -> &Lately {
        match answers {
            Answers::Tree => &self.peer.treeless,
            Answers::Following => &self.peer.forgetful,
            Answers::Listed => &self.peer.singly,
        }
    }

    /// Gives all promises back, so that the server need not look for us when files change.
    pub(crate) async fn give_up_callbacks(self: &Arc<Self>) {
        // One that never answered has promised nothing.
        if self.is_known() {
            self.give_back(&self.known_lane().await.link).await;
        }
    }

    /// Gives back what those who read from it were promised.
    pub(crate) async fn give_back_what_was_read(&self) {
        if self.read.forget() {
            for link in self.reading.of_each_host() {
                self.give_back(&link).await;
            }
        }
    }

    async fn give_back(&self, link: &Link) {
        let asked = link.client.give_up_all_call_backs();
        match tokio::time::timeout(GIVE_UP_LIMIT, asked).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("{error}: {}", error.cause),
            Err(_) => tracing::debug!("{} did not take promises back in time", self.address),
        }
    }
}

/// Gives back what those who read from a server were promised, once nothing was read for a while, and forgets their
/// connections when it has forgotten them.
async fn give_back_later(server: &Weak<FileServer>) {
    loop {
        tokio::time::sleep(READ_TIME).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        if !server.read.within(READ_TIME) {
            server.give_back_what_was_read().await;
            break;
        }
    }
    tokio::time::sleep(CONNECTION_TIME).await;
    if let Some(server) = server.upgrade()
        && !server.read.within(CONNECTION_TIME)
    {
        server.reading.clear();
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

    /// The call failed.
    pub(crate) fn failed(&mut self) {
        self.failed = true;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Until a server is known its first channel is whoever's turn it is to try.
        if self.server.is_known() {
            self.server
                .lanes(self.by)
                .put_back(self.number, self.failed);
        }
    }
}

/// What a failure means.
// spec: afs-rpc#busy-and-gone
pub(crate) fn verdict(error: &RpcError) -> Verdict {
    // Whether it came for the call, for the connection, or from our own side of it.
    if is_refusal(error.code().0) {
        return Verdict::Token;
    }
    let Some(code) = error.aborted() else {
        return match error.cause {
            // It is made again at once, with packets that get through.
            afar_rpc::RpcCause::Call(afar_net::CallError::TooLarge) => Verdict::Busy,
            afar_rpc::RpcCause::Call(_) => Verdict::Down,
            _ => Verdict::Final,
        };
    };
    match code.0 {
        VBUSY | VRESTARTING => Verdict::Busy,
        // The server's packets were too large for the path; it has found smaller ones.
        RX_MSGSIZE => Verdict::Busy,
        VNOVOL | VMOVED | VOFFLINE | VSALVAGE | VSALVAGING | VNOSERVICE => Verdict::OtherSite,
        // The server lives.
        RX_CALL_TIMEOUT => Verdict::OtherSite,
        // What stubs say of arguments is the same at every server.
        code if Code(code).is_interface_mismatch() => Verdict::Final,
        i32::MIN..0 => Verdict::Down,
        _ => Verdict::Final,
    }
}

/// Whether the server may have done what it was asked for, although the call failed. Codes of its
/// own say that it has not; those of Rx may come when it has begun.
// spec: afs-rpc#busy-and-gone
pub(crate) fn may_be_done(error: &RpcError) -> bool {
    match error.aborted() {
        Some(code) => code.0 < 0 && code.0 != VRESTARTING,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use afar_net::{AbortCode, CallError, Endpoint};
    use afar_rpc::RpcCause;

    use super::*;

    fn access() -> Access {
        Access::new("example.org".parse().unwrap(), None)
    }

    /// A server nobody has asked yet.
    fn server() -> FileServer {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(loopback, afar_net::Config::default()).unwrap();
        let hosts = Arc::new(Hosts::new(Host::start(endpoint)));
        let address = "127.0.0.1:9".parse().unwrap();
        FileServer::new(hosts, address, Arc::new(access()), None)
    }

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
        assert_eq!(aborted(-8), Verdict::Busy);
        assert_eq!(verdict(&failure(CallError::TooLarge)), Verdict::Busy);
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

    #[tokio::test]
    async fn users_share_what_is_known_of_a_server_but_no_connection() {
        let server = server();
        let (server, other) = (Arc::new(server.seen_by(access())), Arc::new(server));
        drop(server.lane().await.unwrap());
        server.answered();
        assert!(server.is_known() && other.is_met() && !other.is_known());
        assert_eq!(other.lanes.count(), 0);
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
        let server = Arc::new(server());
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

    #[tokio::test]
    async fn lanes_are_taken_away_when_none_is_in_use() {
        let server = server();
        let (hosts, lanes) = (&server.hosts, &server.reading);
        for number in [0, 1, 1] {
            let host = hosts.reader(number).unwrap().unwrap();
            assert_ne!(
                host.endpoint.local_addr(),
                hosts.first.endpoint.local_addr()
            );
            lanes.open(lanes.add(server.link(&host, None)));
        }
        assert_eq!((lanes.count(), lanes.of_each_host().len()), (12, 2));
        let (number, _) = lanes.take().await;
        lanes.clear();
        assert_eq!(lanes.count(), 12);
        lanes.put_back(number, false);
        lanes.clear();
        assert!(lanes.count() == 0 && lanes.is_taken() && !lanes.are_open());
    }
}
