//! One UDP port's worth of Rx: tables of connections, calls and paths, and what the driver calls.
//!
//! - `parts`: what an event of one call touches
//! - `account`: what peers make it hold, and whose it is
//! - `calls`: which calls of clients may run, how much each may hold, and which go when there is no room
//! - `held`: packets that wait until their connection has proved who it is
//! - `input`: from a datagram to the connection it belongs to
//! - `challenge`: how clients prove who they are
//! - `streams`: packets of calls, and what they do to them
//! - `output`: which datagrams leave next; `batch`: those that leave together
//! - `acks`: the acknowledgements of calls
//! - `timers`: what happens when nothing does
//! - `answers`: VERSION and DEBUG, which need no connection
//! - `moves`: clients that go on from another address
//! - `successors`: new connections in the place of lost ones

mod account;
mod acks;
mod answers;
mod batch;
mod calls;
mod challenge;
#[cfg(test)]
mod check;
mod held;
mod input;
mod moves;
mod output;
mod parts;
mod streams;
mod successors;
mod timers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use self::account::Account;
use self::answers::Answers;
use self::calls::ServiceState;
use self::held::HeldBack;
use self::parts::Parts;
use self::timers::Timer;
use crate::addresses::Addresses;
use crate::arena::Arena;
use crate::call::{Call, Role, Stage};
use crate::connection::{Connection, Security};
use crate::packet::{HEADER_SIZE, Header, PacketType};
use crate::peer::Path;
use crate::random::Random;
use crate::security::{ClientSecurity, Identity, ServerSecurity};
use crate::types::Key;
use crate::{
    AbortCode, CallError, CallId, CallNumber, Cid, Config, ConnectionId, Epoch, Event, PeerStats,
    Read, Service, ServiceId, Stats,
};

/// Answers to strangers waiting to be sent; more than that are dropped.
const CONTROL_MAX: usize = 1024;
/// Highest sequence that may begin a server call: what a peer sends before it hears of our window.
/// A higher one belongs to a call this endpoint has forgotten.
// spec: rx#calls
const FIRST_SEQUENCE_MAX: u32 = 64;
/// Of the memory for what peers cause, the part for packets of connections that have not proved who they are.
const HELD_BACK_PART: u64 = 16;

pub(crate) use self::account::{CALL_FLOOR, Owners, Source};

/// An Rx endpoint. See the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    random: Random,
    epoch: Epoch,
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
    releases: u64,
    addresses: Addresses,
    answers: Answers,
    /// Unauthenticated packets kept for when their connection has proved itself.
    held_back: HeldBack,
    account: Account,
    /// Connections of clients by where they came from.
    by_source: BTreeSet<(Source, Key)>,
    /// All connections by their path.
    by_path: BTreeSet<(Key, Key)>,
    /// Calls of peers that have not shown that they are there, in the order in which they came.
    strangers: BTreeMap<u64, Key>,
    strangers_counted: u64,
    next_call_eviction: Instant,
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
struct Control {
    destination: SocketAddr,
    source: Option<IpAddr>,
    datagram: Vec<u8>,
}

impl Endpoint {
    /// An endpoint without services or connections.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = Random::new(config.seed);
        // spec: rx#epochs-and-connection-ids
        // Bit 31 lets the connection roam; OpenAFS keeps bit 30 clear.
        let epoch = Epoch(random.u32() & 0x3fff_ffff | 0x8000_0000);
        let held_back = usize::try_from(config.memory_max / HELD_BACK_PART).unwrap_or(usize::MAX);
        let account = Account::new(config.memory_max, config.server_connections_max);
        let mut endpoint = Self {
            config,
            random,
            epoch,
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
            releases: 0,
            addresses: Addresses::new(now),
            answers: Answers::new(now),
            held_back: HeldBack::new(held_back),
            account,
            by_source: BTreeSet::new(),
            by_path: BTreeSet::new(),
            strangers: BTreeMap::new(),
            strangers_counted: 0,
            next_call_eviction: now,
        };
        endpoint.schedule_housekeeping(now);
        endpoint
    }

    /// Answers for a service from now on, with any of these security classes.
    pub fn add_service(&mut self, service: Service, security: Vec<Arc<dyn ServerSecurity>>) {
        let state = ServiceState::new(service, security);
        self.services.insert(state.service.id, state);
    }

    /// Opens a connection; nothing is sent until a call is made.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        service: ServiceId,
        security: &Arc<dyn ClientSecurity>,
    ) -> ConnectionId {
        let path = self.path_to(peer, now);
        let cid = self.free_cid();
        let source = Source::from(peer);
        let connection = Connection::new(
            (self.epoch, cid),
            (path, source),
            service,
            security.index(),
            Security::Client(security.connect(self.epoch, cid), Arc::clone(security)),
            0,
            now,
        );
        ConnectionId(self.insert_connection(connection, peer))
    }

    /// A connection id that no other connection of ours has, and that cannot be guessed: who knows it can answer
    /// in the peer's name.
    fn free_cid(&mut self) -> Cid {
        loop {
            let cid = Cid(self.random.u32()).connection();
            let index = ConnectionIndex {
                epoch: self.epoch,
                cid,
                ours: true,
                address: None,
            };
            // spec: rx#epochs-and-connection-ids
            // OpenAFS's tools take this one for the end of a list, and 0 for none.
            let is_usable = cid.0 != 0 && cid.0 != Cid(u32::MAX).connection().0;
            if is_usable && !self.by_id.contains_key(&index) {
                return cid;
            }
        }
    }

    /// The authenticated identity of a connection's client.
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
        self.succeed(now, connection.0);
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
        let (window, path) = (channel.window, known.path);
        let missing = known.missing();
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
        let mut call = Call::new(
            connection.0,
            index,
            number,
            Role::Client,
            now,
            window,
            &self.config,
        );
        call.missing = missing;
        let key = self.insert_call(call);
        self.stats.calls_started += 1;
        Some(CallId(key))
    }

    /// Queues bytes to send. `Ok(false)`: they were taken, but wait for [`Event::Writable`] before
    /// writing more.
    ///
    /// # Errors
    /// [`CallError::Closed`] if the call is over.
    pub fn write(&mut self, now: Instant, call: CallId, data: Bytes) -> Result<bool, CallError> {
        let known = self.running_mut(call).ok_or(CallError::Closed)?;
        known.progressed = now;
        if !known.sender.has_any() {
            known.patience.begin_again();
        }
        let mut room = known.sender.write(data);
        if !room {
            room = self.grant_more(now, call.0);
        }
        self.make_ready(now, call.0);
        self.settle(now, call.0);
        self.ask_about_window(call.0);
        Ok(room)
    }

    /// Bytes of its answer that an application should have ready for a call: as much as may be queued.
    /// It grows when the client takes what it is sent. Of our own calls, as much as there may be at all.
    #[must_use]
    pub fn granted(&self, call: CallId) -> usize {
        let own = |call: &Call| call.owners.as_ref().map(|_| call.granted);
        let granted = self.calls.get(call.0).and_then(own);
        granted.unwrap_or(self.config.send_buffer)
    }

    /// Ends our stream: what is queued is followed by the last packet.
    pub fn finish(&mut self, now: Instant, call: CallId) {
        let Some(known) = self.running_mut(call) else {
            return;
        };
        known.progressed = now;
        if !known.sender.has_any() {
            known.patience.begin_again();
        }
        known.sender.finish();
        self.make_ready(now, call.0);
        self.ask_about_window(call.0);
    }

    /// Has a peer asked about its window if that is all a call waits for.
    fn ask_about_window(&mut self, key: Key) {
        if (self.calls.get(key)).is_some_and(|call| call.sender.is_window_blocked()) {
            self.schedule_call(key);
        }
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
        match read {
            Read::End if known.role == Role::Client => self.complete_client_call(call.0),
            // Now it is for the peer to go on, which it may not know.
            Read::Pending => self.schedule_call(call.0),
            _ => {}
        }
        read
    }

    /// The application is done with so many bytes that reading gave it.
    pub fn consume(&mut self, now: Instant, call: CallId, bytes: usize) {
        let Some(parts) = self.parts(now, call.0) else {
            return;
        };
        let limits = parts.window_limits();
        let round_trip = parts.path.rtt.smoothed();
        let receiver = &mut parts.call.receiver;
        let before = receiver.held();
        receiver.consume(now, bytes as u64, round_trip, limits);
        let freed = before - receiver.held();
        parts.call.progressed = now;
        parts.stats.receive_memory = parts.stats.receive_memory.saturating_sub(freed);
        self.settle(now, call.0);
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
    /// fail: one that has answered may only be behind a router in trouble, or be started again. Calls
    /// of a client fail when its host says for a while that nobody is there: it will not come back
    /// to them, and others may wait for what they hold.
    pub fn handle_unreachable(&mut self, now: Instant, peer: SocketAddr, kind: std::io::ErrorKind) {
        let Some(path_key) = self.by_address.get(&peer).copied() else {
            return;
        };
        let refused = kind == std::io::ErrorKind::ConnectionRefused;
        for key in self.calls_of_path(path_key) {
            let Some(call) = self.running_mut(CallId(key)) else {
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
    pub fn stats(&self) -> Stats {
        Stats {
            memory: self.account.memory(),
            held_back: self.held_back.bytes() as u64,
            ..self.stats
        }
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

    /// What a test is not about: the address has proved that it receives.
    #[cfg(test)]
    pub(crate) fn believe(&mut self, now: Instant, ip: IpAddr) {
        self.addresses.on_reached(ip, now);
    }

    /// The path to an address, made if there is none.
    fn path_to(&mut self, address: SocketAddr, now: Instant) -> Key {
        if let Some(key) = self.by_address.get(&address) {
            return *key;
        }
        let mut path = Path::new(address, &self.config, now, self.random.u64());
        path.reached_at = self.addresses.reached_at(address.ip(), now);
        let key = self.paths.insert_with(|_| path);
        self.by_address.insert(address, key);
        key
    }

    fn insert_connection(&mut self, connection: Connection, address: SocketAddr) -> Key {
        let index = connection_index(&connection, address);
        let (source, path) = (connection.source, connection.path);
        if let Some(path) = self.paths.get_mut(path) {
            path.connections += 1;
        }
        let is_clients = connection.role() == Role::Server;
        let key = self.connections.insert_with(|_| connection);
        self.by_path.insert((path, key));
        if is_clients {
            self.account.connected(source);
            self.by_source.insert((source, key));
        }
        self.by_id.insert(index, key);
        key
    }

    fn remove_connection(&mut self, key: Key) {
        let Some(connection) = self.connections.remove(key) else {
            return;
        };
        self.held_back.take(key);
        self.by_path.remove(&(connection.path, key));
        if connection.role() == Role::Server {
            self.account.disconnected(connection.source);
            self.by_source.remove(&(connection.source, key));
        }
        let Some(path) = self.paths.get_mut(connection.path) else {
            return;
        };
        path.connections -= 1;
        let (address, unused) = (path.address, path.connections == 0 && path.is_unknown());
        let index = connection_index(&connection, address);
        self.by_id.remove(&index);
        // Of a peer that never answered there is nothing to remember; a flood makes many of these.
        if unused {
            self.paths.remove(connection.path);
            self.by_address.remove(&address);
        }
    }

    /// A call with its connection and its path; `None` if there is no such call.
    fn parts(&mut self, now: Instant, key: Key) -> Option<Parts<'_>> {
        let call = self.calls.get_mut(key)?;
        let connection = self.connections.get_mut(call.connection)?;
        let path = self.paths.get_mut(connection.path)?;
        Some(Parts {
            now,
            key,
            call,
            connection,
            path,
            config: &self.config,
            account: &self.account,
            stats: &mut self.stats,
            events: &mut self.events,
        })
    }

    /// The path of a connection.
    fn path_of(&self, connection: Key) -> Option<&Path> {
        self.paths.get(self.connections.get(connection)?.path)
    }

    /// The calls of all connections that use a path.
    fn calls_of_path(&self, path: Key) -> Vec<Key> {
        let all = (path, Key::LEAST)..=(path, Key::MOST);
        let connections = self.by_path.range(all);
        let connections = connections.filter_map(|(_, key)| self.connections.get(*key));
        let channels = connections.flat_map(|connection| connection.channels);
        channels.filter_map(|channel| channel.call).collect()
    }

    fn insert_call(&mut self, mut call: Call) -> Key {
        let (connection, channel) = (call.connection, call.channel);
        let path = self.path_of(connection);
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
        self.account
            .recount(None, std::mem::take(&mut call.charged), 0);
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
            self.judge(key, error);
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
        self.account.recount(call.owners.as_ref(), call.charged, 0);
        if let (Some(order), Some(owners)) = (call.stranger, &call.owners) {
            self.strangers.remove(&order);
            self.account.stranger_left(owners.source);
        }
        let Some(connection) = self.connections.get_mut(call.connection) else {
            return;
        };
        let channel = &mut connection.channels[call.channel];
        channel.window = call.sender.window();
        if channel.call == Some(key) {
            channel.call = None;
            if call.stranger.is_some() {
                // It never ran, and may come again.
                channel.number = call.number.0.wrapping_sub(1);
            }
        }
        let (service, path) = (connection.service, connection.path);
        if let Some(path_state) = self.paths.get_mut(path) {
            call.sender.discard(path_state);
            if !path_state.ready.is_empty() {
                self.list_path(path);
            }
        }
        self.release_channel(call.connection, call.channel);
        self.give_place_back(service, key, &call);
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
        self.push_control(now, path, &header, &code.0.to_be_bytes());
    }

    /// Sends a packet of a connection that belongs to no stream. One to a client must not be more than what may
    /// be sent to its address.
    fn push_control(&mut self, now: Instant, path: Key, header: &Header, body: &[u8]) {
        let Some(path) = self.paths.get_mut(path) else {
            return;
        };
        let is_ours = header.from_client() && header.epoch == self.epoch;
        let is_free = is_ours || self.config.private || path.is_reached(now);
        if !is_free && !path.spend(HEADER_SIZE + body.len()) {
            self.stats.unproved += 1;
            return;
        }
        let (destination, source) = (path.address, path.local);
        self.push_datagram(destination, source, header, body);
    }

    fn push_datagram(
        &mut self,
        destination: SocketAddr,
        source: Option<IpAddr>,
        header: &Header,
        body: &[u8],
    ) {
        if self.control.len() >= CONTROL_MAX {
            self.stats.refused += 1;
            return;
        }
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(body);
        self.stats.packets_sent[header.packet_type.index()] += 1;
        self.control.push_back(Control {
            destination,
            source,
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

/// Whether two addresses are one; what else IPv6 has in them may differ.
fn is_same(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip() == b.ip() && a.port() == b.port()
}

/// Our own epoch is random, so replies are found by it; whether they come from where we called is looked at
/// then.
fn index_address(epoch: Epoch, ours: bool, address: SocketAddr) -> Option<SocketAddr> {
    (!ours && !epoch.may_roam()).then_some(address)
}
