//! One UDP port's worth of Rx: tables of connections, calls and paths, and what the driver calls.
//!
//! - `input`: from a datagram to the call it belongs to
//! - `output`: which datagrams leave next
//! - `timers`: what happens when nothing does
//! - `answers`: VERSION and DEBUG, which need no connection

mod answers;
mod input;
mod output;
mod timers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use self::answers::Answers;
use self::timers::Timer;
use crate::arena::Arena;
use crate::call::receive::WindowLimits;
use crate::call::{Call, Role, Stage};
use crate::connection::{Connection, Security};
use crate::packet::{Header, PacketType};
use crate::peer::Path;
use crate::security::{ClientSecurity, Identity, ServerSecurity};
use crate::types::Key;
use crate::{
    AbortCode, CallError, CallId, CallNumber, Cid, Config, ConnectionId, Epoch, Event, PeerStats,
    Read, Service, ServiceId, Stats,
};

/// Answers to strangers waiting to be sent; more than that are dropped.
const CONTROL_MAX: usize = 1024;
/// Calls that may wait for a place in a service; further ones get VBUSY. OpenAFS's file server
/// begins to refuse at 600.
const WAITING_MAX: usize = 1024;
/// Calls of one address that may run, or wait, while there is room, however many it has already.
const SHARE_MIN: usize = 64;
/// Octets that all calls of one address together may have queued and unsent, as far as a few
/// packets for each allow.
const SHARE_SEND_MAX: usize = 64 << 20;
const SEND_FLOOR: usize = 32 << 10;
/// What a call may always hold, however short memory is, so that none starves.
const RECEIVE_FLOOR: u64 = 64 << 10;

/// An Rx endpoint. See the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    random: fastrand::Rng,
    epoch: Epoch,
    next_cid: u32,
    next_eviction: Instant,
    connections: Arena<Connection>,
    calls: Arena<Call>,
    paths: Arena<Path>,
    by_id: BTreeMap<ConnectionIndex, Key>,
    by_address: BTreeMap<SocketAddr, Key>,
    services: BTreeMap<ServiceId, ServiceState>,
    events: VecDeque<Event>,
    control: VecDeque<Control>,
    /// Calls whose acknowledgement goes out now.
    acks: VecDeque<Key>,
    /// Paths that may have DATA to send now.
    sendable: VecDeque<Key>,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    stats: Stats,
    server_connections: usize,
    releases: u64,
    strangers: TokenBucket,
    answers: Answers,
    /// Unauthenticated packets kept for when their connection has proved itself.
    held_back: BTreeMap<Key, Vec<(Header, Bytes)>>,
}

/// How packets find their connection. The address counts only for epochs that may not roam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionIndex {
    epoch: Epoch,
    cid: Cid,
    ours: bool,
    address: Option<SocketAddr>,
}

#[derive(Debug)]
struct ServiceState {
    service: Service,
    security: Vec<Arc<dyn ServerSecurity>>,
    running: usize,
    waiting: VecDeque<Key>,
    /// By whose they are; nobody is listed without a call.
    shares: BTreeMap<SocketAddr, Share>,
}

/// The calls of one address to a service.
#[derive(Debug, Default)]
struct Share {
    running: usize,
    waiting: usize,
}

impl ServiceState {
    /// Whether a call of this address may run. An address may have an eighth as many as are free
    /// beside them, or a few in any case: whoever asks for everything leaves most of it to others.
    fn has_place(&self, address: SocketAddr) -> bool {
        let own = self.shares.get(&address).map_or(0, |share| share.running);
        has_room(self.service.max_calls, self.running, own)
    }

    /// Whether a call of this address may wait, by the same rule.
    fn has_place_in_line(&self, address: SocketAddr) -> bool {
        let own = self.shares.get(&address).map_or(0, |share| share.waiting);
        has_room(WAITING_MAX, self.waiting.len(), own)
    }

    /// Puts a call in line for a place.
    fn join_line(&mut self, key: Key, address: SocketAddr) {
        self.waiting.push_back(key);
        self.change_share(address, |share| share.waiting += 1);
    }

    /// Takes a call out of the line.
    fn leave_line(&mut self, key: Key, address: SocketAddr) {
        self.waiting.retain(|waiting| *waiting != key);
        self.change_share(address, |share| share.waiting -= 1);
    }

    /// Gives a call a place.
    fn enter(&mut self, address: SocketAddr) {
        self.running += 1;
        self.change_share(address, |share| share.running += 1);
    }

    /// Takes a call's place back.
    fn leave(&mut self, address: SocketAddr) {
        self.running = self.running.saturating_sub(1);
        self.change_share(address, |share| share.running -= 1);
    }

    fn change_share(&mut self, address: SocketAddr, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(address).or_default();
        change(share);
        if share.running == 0 && share.waiting == 0 {
            self.shares.remove(&address);
        }
    }
}

fn has_room(most: usize, taken: usize, own: usize) -> bool {
    let free = most.saturating_sub(taken);
    free > 0 && own < (free / 8).max(SHARE_MIN)
}

#[derive(Debug)]
struct Control {
    destination: SocketAddr,
    datagram: Vec<u8>,
}

/// Limits how many strangers' packets are answered: 1,000 a second, 200 at once.
#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    const RATE: f64 = 1000.0;
    const DEPTH: f64 = 200.0;

    const fn full(now: Instant) -> Self {
        Self {
            tokens: Self::DEPTH,
            filled: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * Self::RATE;
        self.tokens = (self.tokens + gained).min(Self::DEPTH);
        self.filled = now;
        let allowed = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(allowed));
        allowed
    }
}

impl Endpoint {
    /// An endpoint without services or connections.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        // Bit 31 lets the connection roam; OpenAFS keeps bit 30 clear.
        let epoch = Epoch(random.u32(..) & 0x3fff_ffff | 0x8000_0000);
        let next_cid = random.u32(..) & 0x3fff_fffc;
        let mut endpoint = Self {
            config,
            random,
            epoch,
            next_cid,
            next_eviction: now,
            connections: Arena::default(),
            calls: Arena::default(),
            paths: Arena::default(),
            by_id: BTreeMap::new(),
            by_address: BTreeMap::new(),
            services: BTreeMap::new(),
            events: VecDeque::new(),
            control: VecDeque::new(),
            acks: VecDeque::new(),
            sendable: VecDeque::new(),
            timers: BinaryHeap::new(),
            stats: Stats::default(),
            server_connections: 0,
            releases: 0,
            strangers: TokenBucket::full(now),
            answers: Answers::new(now),
            held_back: BTreeMap::new(),
        };
        endpoint.schedule_housekeeping(now);
        endpoint
    }

    /// Answers for a service from now on, with any of these security classes.
    pub fn add_service(&mut self, service: Service, security: Vec<Arc<dyn ServerSecurity>>) {
        let state = ServiceState {
            service,
            security,
            running: 0,
            waiting: VecDeque::new(),
            shares: BTreeMap::new(),
        };
        self.services.insert(state.service.id, state);
    }

    /// Opens a connection; nothing is sent until a call is made.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        service: ServiceId,
        security: &dyn ClientSecurity,
    ) -> ConnectionId {
        let path = self.path_to(peer, now);
        let cid = Cid(self.next_cid);
        self.next_cid = self.next_cid.wrapping_add(4);
        let connection = Connection::new(
            (self.epoch, cid),
            path,
            service,
            security.index(),
            Security::Client(security.connect(self.epoch, cid)),
            now,
        );
        ConnectionId(self.insert_connection(connection, peer))
    }

    /// Who the client of a connection has proved to be.
    #[must_use]
    pub fn identity(&self, connection: ConnectionId) -> Identity {
        self.connections
            .get(connection.0)
            .map_or(Identity::Anonymous, |known| known.security.identity())
    }

    /// Closes a connection: calls still running on it fail with [`CallError::Closed`].
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        let Some(known) = self.connections.get(connection.0) else {
            return;
        };
        for key in known
            .channels
            .iter()
            .filter_map(|channel| channel.call)
            .collect::<Vec<_>>()
        {
            let Some(call) = self.calls.get(key) else {
                continue;
            };
            if call.stage == Stage::Lingering {
                if call.receiver.owes_ack() {
                    self.queue_ack_as_control(now, key);
                }
                self.remove_call(key);
            } else {
                self.send_abort(now, key, AbortCode::RX_USER_ABORT);
                self.fail(key, CallError::Closed);
            }
        }
        self.remove_connection(connection.0);
    }

    /// Begins a call. `None` if all four channels are busy: [`Event::ChannelFree`] will follow.
    pub fn start_call(&mut self, now: Instant, connection: ConnectionId) -> Option<CallId> {
        let Self {
            connections, calls, ..
        } = self;
        let known = connections.get_mut(connection.0)?;
        let is_free = |key: Option<Key>| {
            key.and_then(|key| calls.get(key))
                .is_none_or(|call| call.stage == Stage::Lingering)
        };
        let Some(index) = known.free_channel(|channel| is_free(channel.call)) else {
            known.wants_channel = true;
            return None;
        };
        known.last_used = now;
        let channel = &mut known.channels[index];
        channel.number = channel.number.wrapping_add(1).max(1);
        let (number, lingering) = (CallNumber(channel.number), channel.call.take());
        let (window, path, error) = (channel.window, known.path, known.error);
        if let Some(key) = lingering {
            self.remove_call(key);
        }
        let window = self.paths.get(path).map_or(window, |path| {
            if path.afar {
                window.max(path.window_hint)
            } else {
                window
            }
        });
        let call = Call::new(
            connection.0,
            index,
            number,
            Role::Client,
            now,
            window,
            &self.config,
        );
        let key = self.insert_call(call);
        self.stats.calls_started += 1;
        if let Some(code) = error {
            self.fail(key, CallError::ConnectionAborted(code));
        }
        Some(CallId(key))
    }

    /// Queues octets to send. `Ok(false)`: they were taken, but wait for [`Event::Writable`] before
    /// writing more.
    ///
    /// # Errors
    /// [`CallError::Closed`] if the call is over.
    pub fn write(&mut self, now: Instant, call: CallId, data: Bytes) -> Result<bool, CallError> {
        let limit = self.send_limit(call.0);
        let known = self.running_mut(call).ok_or(CallError::Closed)?;
        known.progressed = now;
        let room = known.sender.write(data, limit);
        self.make_ready(call.0);
        Ok(room)
    }

    /// Octets a call may have queued and unsent: fewer, if its client has many calls.
    fn send_limit(&self, key: Key) -> usize {
        let most = self.config.send_buffer;
        let share = self.calls.get(key).and_then(|call| {
            let service = self.connections.get(call.connection)?.service;
            let shares = &self.services.get(&service)?.shares;
            shares.get(&call.counted?)
        });
        share.map_or(most, |share| {
            let each = SHARE_SEND_MAX / share.running.max(1);
            each.max(SEND_FLOOR).min(most)
        })
    }

    /// Ends our stream: what is queued is followed by the last packet.
    pub fn finish(&mut self, now: Instant, call: CallId) {
        let Some(known) = self.running_mut(call) else {
            return;
        };
        known.progressed = now;
        known.sender.finish();
        self.make_ready(call.0);
    }

    /// Takes the next chunk. It counts against the receive window until it is [consumed](Self::consume).
    ///
    /// Reading [`Read::End`] completes a client call.
    pub fn read(&mut self, call: CallId) -> Read {
        let Some(known) = self.running_mut(call) else {
            // Of a call that failed the event is still to be taken. It must not look complete.
            let is_read = (self.calls.get(call.0)).is_some_and(|c| c.stage == Stage::Lingering);
            return if is_read { Read::End } else { Read::Pending };
        };
        let read = known.receiver.read();
        if read == Read::End && known.role == Role::Client {
            self.complete_client_call(call.0);
        }
        read
    }

    /// The application is done with so many octets that reading gave it.
    pub fn consume(&mut self, now: Instant, call: CallId, bytes: usize) {
        let Some(known) = self.calls.get_mut(call.0) else {
            return;
        };
        let Some(connection) = self.connections.get(known.connection) else {
            return;
        };
        let Some(path) = self.paths.get(connection.path) else {
            return;
        };
        let limits = window_limits(&self.config, &self.stats, path, known);
        let before = known.receiver.held();
        known.progressed = now;
        known
            .receiver
            .consume(now, bytes as u64, path.rtt.smoothed(), limits);
        let freed = before - known.receiver.held();
        self.stats.receive_memory = self.stats.receive_memory.saturating_sub(freed);
        self.queue_ack(call.0);
    }

    /// Ends the call with that code; no event follows and its name is no longer valid.
    pub fn abort(&mut self, now: Instant, call: CallId, code: AbortCode) {
        if self.running_mut(call).is_none() {
            return;
        }
        self.send_abort(now, call.0, code);
        self.stats.calls_failed += 1;
        self.remove_call(call.0);
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The network says that a peer cannot be reached. Client calls to one that was never heard of
    /// fail: one that has answered may only be behind a router in trouble, or be started anew. Calls
    /// of a client fail when its host says for a while that nobody is there: it will not come back
    /// to them, and others may wait for what they hold.
    pub fn handle_unreachable(&mut self, now: Instant, peer: SocketAddr, kind: std::io::ErrorKind) {
        let Some(path_key) = self.by_address.get(&peer).copied() else {
            return;
        };
        let refused = kind == std::io::ErrorKind::ConnectionRefused;
        let is_its = |call: &Call| {
            let connection = self.connections.get(call.connection);
            call.stage == Stage::Running && connection.is_some_and(|c| c.path == path_key)
        };
        let running = self.calls.iter().filter(|(_, call)| is_its(call));
        let running: Vec<Key> = running.map(|(key, _)| key).collect();
        for key in running {
            let Some(call) = self.calls.get_mut(key) else {
                continue;
            };
            let fails = match call.role {
                Role::Client => call.heard == call.started,
                Role::Server => refused && call.expects_peer() && call.on_refused(now),
            };
            if fails {
                self.fail(key, CallError::Unreachable(kind));
            } else {
                self.schedule_call(key);
            }
        }
    }

    /// The network refused a packet to that peer as too large.
    pub fn handle_too_large(&mut self, now: Instant, peer: SocketAddr) {
        let Some(key) = self.by_address.get(&peer) else {
            return;
        };
        if let Some(path) = self.paths.get_mut(*key) {
            path.mtu.on_refused(now);
        }
    }

    /// Counters since the endpoint was made.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// What is known of the path to a peer.
    #[must_use]
    pub fn peer_stats(&self, peer: SocketAddr) -> Option<PeerStats> {
        self.paths
            .get(*self.by_address.get(&peer)?)
            .map(Path::stats)
    }

    /// Asks a peer for so many shares of the path, for all that it sends to us from now on: as much as so many
    /// others get. It gives no more than four, and nothing but one if it is not afar's. It is told with
    /// the acknowledgements, and forgotten with the path.
    pub fn ask_for_shares(&mut self, peer: SocketAddr, shares: u8) {
        let path = self.by_address.get(&peer).copied();
        if let Some(path) = path.and_then(|key| self.paths.get_mut(key)) {
            path.shares_wanted = shares;
        }
    }

    /// What is known of every path.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStats> {
        self.paths.iter().map(|(_, path)| path.stats()).collect()
    }

    /// Calls that are not over.
    #[must_use]
    pub fn active_calls(&self) -> usize {
        self.calls
            .iter()
            .filter(|(_, call)| call.stage != Stage::Lingering)
            .count()
    }

    /// The path to an address, made if there is none.
    fn path_to(&mut self, address: SocketAddr, now: Instant) -> Key {
        if let Some(key) = self.by_address.get(&address) {
            return *key;
        }
        let path = Path::new(address, &self.config, now, self.random.u64(..));
        let key = self.paths.insert_with(|_| path);
        self.by_address.insert(address, key);
        key
    }

    fn insert_connection(&mut self, connection: Connection, address: SocketAddr) -> Key {
        let index = connection_index(&connection, address);
        if let Some(path) = self.paths.get_mut(connection.path) {
            path.connections += 1;
        }
        self.server_connections += usize::from(connection.role() == Role::Server);
        let key = self.connections.insert_with(|_| connection);
        self.by_id.insert(index, key);
        key
    }

    fn remove_connection(&mut self, key: Key) {
        let Some(connection) = self.connections.remove(key) else {
            return;
        };
        self.held_back.remove(&key);
        self.server_connections -= usize::from(connection.role() == Role::Server);
        let Some(path) = self.paths.get_mut(connection.path) else {
            return;
        };
        path.connections -= 1;
        let index = connection_index(&connection, path.address);
        self.by_id.remove(&index);
    }

    fn insert_call(&mut self, mut call: Call) -> Key {
        let (connection, channel) = (call.connection, call.channel);
        let path = self
            .connections
            .get(connection)
            .and_then(|known| self.paths.get(known.path));
        if let Some(told) = path.map(|path| path.window_told) {
            call.receiver.allow(told);
        }
        let key = self.calls.insert_with(|_| call);
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.channels[channel].call = Some(key);
        }
        self.schedule_call(key);
        key
    }

    /// The call, if it is the application's.
    fn running_mut(&mut self, call: CallId) -> Option<&mut Call> {
        self.calls
            .get_mut(call.0)
            .filter(|call| call.stage == Stage::Running)
    }

    /// A client call has all it asked for; it stays on its channel to acknowledge late packets.
    fn complete_client_call(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        call.stage = Stage::Lingering;
        let held = call.receiver.let_go();
        self.stats.receive_memory = self.stats.receive_memory.saturating_sub(held);
        let (connection, channel) = (call.connection, call.channel);
        self.stats.calls_completed += 1;
        self.events.push_back(Event::Completed(CallId(key)));
        self.release_channel(connection, channel);
        self.schedule_call(key);
    }

    fn release_channel(&mut self, connection: Key, channel: usize) {
        self.releases += 1;
        let Some(known) = self.connections.get_mut(connection) else {
            return;
        };
        known.channels[channel].released = self.releases;
        if std::mem::take(&mut known.wants_channel) {
            self.events
                .push_back(Event::ChannelFree(ConnectionId(connection)));
        }
    }

    /// The call is over without success.
    fn fail(&mut self, key: Key, error: CallError) {
        let Some(call) = self.calls.get(key) else {
            return;
        };
        if call.stage == Stage::Running {
            self.events.push_back(Event::Failed(CallId(key), error));
            self.stats.calls_failed += 1;
        }
        self.remove_call(key);
    }

    /// Forgets a call, and lets the next one have its channel and its place in the service.
    fn remove_call(&mut self, key: Key) {
        let Some(mut call) = self.calls.remove(key) else {
            return;
        };
        self.stats.receive_memory = self
            .stats
            .receive_memory
            .saturating_sub(call.receiver.held());
        let Some(connection) = self.connections.get_mut(call.connection) else {
            return;
        };
        let channel = &mut connection.channels[call.channel];
        channel.window = call.sender.window();
        if channel.call == Some(key) {
            channel.call = None;
        }
        let (service, path) = (connection.service, connection.path);
        if let Some(path_state) = self.paths.get_mut(path) {
            call.sender.discard(path_state);
            if !path_state.ready.is_empty() {
                self.list_path(path);
            }
        }
        self.release_channel(call.connection, call.channel);
        let Some(address) = call.counted else {
            return;
        };
        if let Some(state) = self.services.get_mut(&service) {
            if call.in_line {
                state.leave_line(key, address);
            } else {
                state.leave(address);
            }
        }
        self.admit_next(service);
    }

    /// A place among the service's calls may be free: for the first in line whose share allows it.
    fn admit_next(&mut self, service: ServiceId) {
        let Some(state) = self.services.get(&service) else {
            return;
        };
        // Where the client is now counts, as it does in `admit`.
        let path = |key: &Key| {
            let connection = self.calls.get(*key)?.connection;
            self.paths.get(self.connections.get(connection)?.path)
        };
        let may_run = |key: &Key| {
            path(key).is_some_and(|path| {
                let is_reached = !state.service.check_reach || path.reached_at.is_some();
                is_reached && state.has_place(path.address)
            })
        };
        if let Some(key) = state.waiting.iter().copied().find(may_run) {
            self.admit(key);
        }
    }

    /// Offers a waiting call to the application if nothing stands in its way.
    fn admit(&mut self, key: Key) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(connection) = self.connections.get(call.connection) else {
            return;
        };
        let Some(path) = self.paths.get(connection.path) else {
            return;
        };
        let Some(state) = self.services.get_mut(&connection.service) else {
            return;
        };
        if call.stage != Stage::Waiting || !connection.security.is_authenticated() {
            return;
        }
        if state.service.check_reach && path.reached_at.is_none() {
            call.receiver.request_ack(crate::packet::ack::Reason::Ping);
            self.queue_ack(key);
            return;
        }
        let address = path.address;
        if !state.has_place(address) {
            if call.in_line {
                return;
            }
            if !state.has_place_in_line(address) {
                let now = connection.last_used;
                self.stats.refused += 1;
                self.send_abort(now, key, AbortCode::VBUSY);
                return self.remove_call(key);
            }
            call.in_line = true;
            call.counted = Some(address);
            state.join_line(key, address);
            self.stats.calls_waited += 1;
            return;
        }
        // It may have been in line, and come to the front by itself.
        if std::mem::take(&mut call.in_line)
            && let Some(counted) = call.counted
        {
            state.leave_line(key, counted);
        }
        call.counted = Some(address);
        state.enter(address);
        call.stage = Stage::Running;
        call.idle_limit = state.service.idle_limit;
        self.stats.calls_received += 1;
        self.events.push_back(Event::Incoming {
            call: CallId(key),
            connection: ConnectionId(call.connection),
            peer: path.address,
            service: connection.service,
        });
    }

    /// Sends an ABORT for a call, and remembers it for packets of the call that come later.
    fn send_abort(&mut self, now: Instant, key: Key, code: AbortCode) {
        let Some(call) = self.calls.get(key) else {
            return;
        };
        // A client call of which nothing was sent needs no abort: the peer has not heard of it.
        if call.role == Role::Client && !call.sender.has_begun() {
            return;
        }
        let (number, index) = (call.number, call.channel);
        let Some(connection) = self.connections.get_mut(call.connection) else {
            return;
        };
        connection.channels[index].aborted = Some(code);
        connection.last_used = now;
        let header = connection.header(PacketType::Abort, index, number);
        let path = connection.path;
        self.push_control(path, &header, &code.0.to_be_bytes());
    }

    fn push_control(&mut self, path: Key, header: &Header, body: &[u8]) {
        let Some(path) = self.paths.get(path) else {
            return;
        };
        let destination = path.address;
        self.push_datagram(destination, header, body);
    }

    fn push_datagram(&mut self, destination: SocketAddr, header: &Header, body: &[u8]) {
        if self.control.len() >= CONTROL_MAX {
            self.stats.refused += 1;
            return;
        }
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(body);
        self.stats.packets_sent[header.packet_type.index()] += 1;
        self.control.push_back(Control {
            destination,
            datagram,
        });
    }
}

fn connection_index(connection: &Connection, address: SocketAddr) -> ConnectionIndex {
    ConnectionIndex {
        epoch: connection.epoch,
        cid: connection.cid,
        ours: connection.role() == Role::Client,
        address: index_address(connection.epoch, connection.role() == Role::Client, address),
    }
}

/// Our own epoch is random, so replies are found by it whatever address they come from.
fn index_address(epoch: Epoch, ours: bool, address: SocketAddr) -> Option<SocketAddr> {
    (!ours && !epoch.may_roam()).then_some(address)
}

/// What a call may hold: its own limit, or half of what is left for all.
fn window_limits(config: &Config, stats: &Stats, path: &Path, call: &Call) -> WindowLimits {
    let left = config
        .receive_memory_max
        .saturating_sub(stats.receive_memory);
    WindowLimits {
        call: config
            .receive_window_max
            .min(call.receiver.held() + left / 2)
            .max(RECEIVE_FLOOR),
        memory: (call.receiver.held() + left).max(RECEIVE_FLOOR),
        classic: u32::from(config.classic_window.max(1)),
        afar: path.afar,
    }
}
