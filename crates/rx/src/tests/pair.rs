//! A pair of endpoints, a network between them, and a clock that jumps to the next thing to happen.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::raw::rxnull;
use crate::packet::ack::Ack;
use crate::packet::{HEADER_SIZE, Header, PacketType};
use crate::{
    AbortCode, CallError, CallId, Config, ConnectionId, Ecn, Endpoint, Event, Read, RxNull,
    Service, ServiceId,
};

pub(super) const SERVICE: ServiceId = ServiceId(147);

/// What the network does to datagrams, each way.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) delay: Duration,
    /// Bytes a second; 0 is unlimited.
    pub(super) rate: u64,
    /// Bytes that may wait; what comes then is dropped.
    pub(super) queue: u64,
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) reorder_delay: Duration,
    pub(super) corrupt: f64,
    /// Larger datagrams (UDP payload) vanish.
    pub(super) mtu: usize,
}

/// How a side's driver runs on a machine that has other things to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scheduling {
    /// The driver looks at timers and packets no more often than this.
    pub(super) grain: Duration,
    /// How often, on average, it does not run for 1 to 5 ms; zero is never.
    pub(super) stall_every: Duration,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(5),
            rate: 0,
            queue: u64::MAX,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(2),
            corrupt: 0.0,
            mtu: 1472,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    at: Instant,
    order: u64,
    from: SocketAddr,
    ce: bool,
    octets: Vec<u8>,
}

/// What one side has seen of its calls.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) incoming: Vec<CallId>,
    pub(super) data: BTreeMap<CallId, BytesMut>,
    pub(super) ended: BTreeSet<CallId>,
    pub(super) completed: Vec<CallId>,
    pub(super) failed: BTreeMap<CallId, CallError>,
    pub(super) channel_free: Vec<ConnectionId>,
    pub(super) blocked: BTreeSet<CallId>,
    /// Largest datagrams of paths that proved narrow.
    pub(super) narrow: Vec<usize>,
}

/// One side: an endpoint, its address, and a small application.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) endpoint: Endpoint,
    pub(super) address: SocketAddr,
    pub(super) seen: Seen,
    /// Bytes each read takes; 0 leaves data unread.
    pub(super) reads: bool,
    /// What is still to be written to calls.
    pub(super) to_write: BTreeMap<CallId, (Bytes, bool)>,
}

/// Looks at a datagram: (direction, bytes).
pub(super) type Tap = Box<dyn FnMut(usize, &[u8])>;
/// May change a datagram, or take it off the wire by saying false.
pub(super) type Filter = Box<dyn FnMut(usize, &mut Vec<u8>) -> bool>;
/// Gives an endpoint its services.
pub(super) type Setup = Box<dyn Fn(&mut Endpoint)>;

/// Two sides, [`CLIENT`] and [`SERVER`].
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) sides: [Side; 2],
    pub(super) links: [Link; 2],
    pub(super) scheduling: Scheduling,
    /// When each side's driver runs again.
    busy_until: [Instant; 2],
    stall_at: [Option<Instant>; 2],
    /// When each direction's wire is free again.
    free_at: [Instant; 2],
    /// What is on its way to each side.
    wires: [BinaryHeap<Reverse<InFlight>>; 2],
    order: u64,
    pub(super) random: fastrand::Rng,
    pub(super) sent: [u64; 2],
    /// A handler for calls the server gets; gives the reply once the request is complete.
    pub(super) serve: fn(&[u8]) -> Result<Bytes, AbortCode>,
    /// Looks at every datagram before the network does: (direction, bytes).
    pub(super) tap: Option<Tap>,
    /// Stands between an endpoint and the network.
    pub(super) filter: Option<Filter>,
    /// The address under which the other side sees each one: what a NAT makes of it.
    pub(super) seen_as: [SocketAddr; 2],
    /// Gives the server its services, also after a restart.
    setup: Setup,
    configs: [Config; 2],
    /// Times that time has jumped.
    pub(super) steps: u64,
}

/// Steps after each of which the endpoints are checked, and how often they are later.
const ALL_CHECKED: u64 = 4000;
const CHECKED_EVERY: u64 = 61;

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

impl Pair {
    pub(super) fn new(seed: u64, link: Link) -> Self {
        Self::with_configs(seed, link, [Config::default(), Config::default()])
    }

    pub(super) fn with_configs(seed: u64, link: Link, configs: [Config; 2]) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "virtual time needs some beginning"
        )]
        let start = Instant::now();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut index = 0;
        let setup: Setup = Box::new(|endpoint| {
            endpoint.add_service(Service::new(SERVICE, "test"), vec![Arc::new(RxNull)]);
        });
        let configs = configs.map(|config| Config {
            seed: random.u64(..),
            ..config
        });
        let sides = configs.clone().map(|config| {
            index += 1;
            Side {
                endpoint: Endpoint::new(config, start),
                address: SocketAddr::from((Ipv4Addr::new(10, 0, 0, index), 7000)),
                seen: Seen::default(),
                reads: true,
                to_write: BTreeMap::new(),
            }
        });
        let mut pair = Self {
            now: start,
            start,
            seen_as: sides.each_ref().map(|side: &Side| side.address),
            sides,
            configs,
            setup,
            filter: None,
            steps: 0,
            links: [link.clone(), link],
            scheduling: Scheduling::default(),
            busy_until: [start; 2],
            stall_at: [None; 2],
            free_at: [start; 2],
            wires: [BinaryHeap::new(), BinaryHeap::new()],
            order: 0,
            random,
            sent: [0; 2],
            serve: |request| Ok(Bytes::copy_from_slice(request)),
            tap: None,
        };
        (pair.setup)(&mut pair.sides[SERVER].endpoint);
        pair
    }

    /// Other services than the usual one.
    pub(super) fn set_up(&mut self, setup: Setup) {
        setup(&mut self.sides[SERVER].endpoint);
        self.setup = setup;
    }

    /// One side's process ends and begins again, with another epoch and no memory.
    ///
    /// It is away for longer than a packet lives. Were it not, a request that a server has answered
    /// in part might be run once more by its successor, and Rx cannot tell the two replies apart.
    pub(super) fn restart(&mut self, side: usize) {
        self.wires.iter_mut().for_each(BinaryHeap::clear);
        let config = Config {
            seed: self.random.u64(..),
            ..self.configs[side].clone()
        };
        let state = &mut self.sides[side];
        state.endpoint = Endpoint::new(config, self.now);
        state.seen = Seen::default();
        state.to_write.clear();
        if side == SERVER {
            (self.setup)(&mut state.endpoint);
        }
    }

    /// The client's NAT gives it another address; what is sent to the old one vanishes.
    pub(super) fn rebind(&mut self) {
        let port = self.seen_as[CLIENT].port().wrapping_add(1).max(1024);
        self.seen_as[CLIENT] = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port));
    }

    /// Hands a datagram to one side as if it had come from there.
    pub(super) fn inject(&mut self, to: usize, from: SocketAddr, octets: Vec<u8>) {
        self.sides[to]
            .endpoint
            .handle(self.now, from, None, None, octets.into());
        self.work(to);
    }

    /// Lets the application read again after `reads` was false.
    pub(super) fn unblock(&mut self, side: usize) {
        self.sides[side].reads = true;
        for call in std::mem::take(&mut self.sides[side].seen.blocked) {
            self.read(side, call);
        }
        self.work(side);
    }

    /// Runs until a client call has ended; gives what came back.
    pub(super) fn finish(&mut self, call: CallId, limit: Duration) -> Result<Bytes, CallError> {
        let limit = self.elapsed() + limit;
        let ended = self.run(limit, |pair| pair.has_ended(call));
        let seen = &mut self.sides[CLIENT].seen;
        if let Some(error) = seen.failed.remove(&call) {
            return Err(error);
        }
        let [client, server] = self.sides.each_ref().map(|side| side.endpoint.stats());
        assert!(
            ended,
            "{call:?} did not end; client {client:?}, server {server:?}"
        );
        Ok(self.sides[CLIENT]
            .seen
            .data
            .remove(&call)
            .unwrap_or_default()
            .freeze())
    }

    pub(super) fn has_ended(&self, call: CallId) -> bool {
        let seen = &self.sides[CLIENT].seen;
        seen.completed.contains(&call) || seen.failed.contains_key(&call)
    }

    /// Lets time pass.
    pub(super) fn idle(&mut self, time: Duration) {
        let limit = self.elapsed() + time;
        self.run(limit, |_| false);
        self.now = self.now.max(self.start + limit);
    }

    /// Sends some bytes there and back.
    pub(super) fn echo(&mut self, connection: ConnectionId, len: usize) -> Result<(), CallError> {
        let data = pattern(len, len as u64);
        let call = self.call(connection, data.clone());
        let reply = self.finish(call, Duration::from_secs(300))?;
        assert!(reply == data, "{} bytes came back of {len}", reply.len());
        Ok(())
    }

    /// Makes a small call of which so many bytes come back.
    pub(super) fn echo_of(&mut self, connection: ConnectionId, len: usize) {
        let call = self.call(connection, pattern(10, 1));
        let reply = self.finish(call, Duration::from_secs(300)).unwrap();
        assert_eq!(reply.len(), len);
    }

    /// Keeps a copy of every datagram that leaves from now on.
    pub(super) fn capture(&mut self) -> Capture {
        let capture = Capture::default();
        let copy = capture.clone();
        self.tap = Some(Box::new(move |from, octets| {
            let header = Header::decode(octets).unwrap();
            let body = Bytes::copy_from_slice(&octets[HEADER_SIZE..]);
            copy.0.borrow_mut().push((from, header, body));
        }));
        capture
    }

    pub(super) fn connect(&mut self) -> ConnectionId {
        let server = self.sides[SERVER].address;
        self.sides[CLIENT]
            .endpoint
            .connect(self.now, server, SERVICE, &rxnull())
    }

    /// Begins a call and queues its whole request.
    pub(super) fn call(&mut self, connection: ConnectionId, request: Bytes) -> CallId {
        let call = self.sides[CLIENT]
            .endpoint
            .start_call(self.now, connection)
            .expect("a channel");
        self.write_all(CLIENT, call, request);
        call
    }

    /// Writes as the window opens, then ends the stream.
    pub(super) fn write_all(&mut self, side: usize, call: CallId, data: Bytes) {
        self.sides[side].to_write.insert(call, (data, false));
        self.pump_writes(side, call);
    }

    fn pump_writes(&mut self, side: usize, call: CallId) {
        let now = self.now;
        let Side {
            endpoint, to_write, ..
        } = &mut self.sides[side];
        let Some((data, _)) = to_write.get_mut(&call) else {
            return;
        };
        loop {
            if data.is_empty() {
                endpoint.finish(now, call);
                to_write.remove(&call);
                return;
            }
            let most = endpoint.granted(call).min(100_000);
            let part = data.split_to(data.len().min(most));
            match endpoint.write(now, call, part) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    to_write.remove(&call);
                    return;
                }
            }
        }
    }

    /// Runs until nothing is left to happen before `limit` from the start, or `done` says so.
    pub(super) fn run(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        loop {
            for side in [CLIENT, SERVER] {
                if self.busy_until[side] <= self.now {
                    self.work(side);
                    self.rest(side);
                    self.check(side);
                }
            }
            if done(self) {
                return true;
            }
            let next = [CLIENT, SERVER]
                .into_iter()
                .filter_map(|side| self.next_of(side))
                .min();
            let Some(next) = next else { return false };
            if next > self.start + limit {
                self.now = self.start + limit;
                return false;
            }
            self.now = self.now.max(next);
            self.steps += 1;
            for side in [CLIENT, SERVER] {
                if self.busy_until[side] <= self.now {
                    self.deliver(side);
                }
            }
        }
    }

    /// When one side's driver next has something to do, and runs.
    fn next_of(&self, side: usize) -> Option<Instant> {
        let arrival = self.wires[side].peek().map(|Reverse(packet)| packet.at);
        let timeout = self.sides[side].endpoint.poll_timeout();
        let next = arrival.into_iter().chain(timeout).min()?;
        Some(next.max(self.busy_until[side]))
    }

    /// Hands one side what has arrived, and its timers.
    fn deliver(&mut self, side: usize) {
        let endpoint = &mut self.sides[side].endpoint;
        while let Some(Reverse(packet)) = self.wires[side].peek()
            && packet.at <= self.now
        {
            let Some(Reverse(packet)) = self.wires[side].pop() else {
                break;
            };
            let ecn = if packet.ce { Some(Ecn::Ce) } else { None };
            endpoint.handle(self.now, packet.from, None, ecn, packet.octets.into());
        }
        endpoint.handle_timeout(self.now);
    }

    /// Looks at what must hold of one side's endpoint when its driver goes to sleep: each time at first, and
    /// seldom in a long transfer, all of which is alike.
    fn check(&self, side: usize) {
        if self.steps < ALL_CHECKED || self.steps.is_multiple_of(CHECKED_EVERY) {
            let endpoint = &self.sides[side].endpoint;
            endpoint.check();
            endpoint.check_timers();
        }
    }

    /// Decides when a driver that has just run does so again.
    fn rest(&mut self, side: usize) {
        let Scheduling { grain, stall_every } = self.scheduling;
        self.busy_until[side] = self.now + grain;
        if stall_every.is_zero() {
            return;
        }
        let due = self.stall_at[side].is_some_and(|at| at <= self.now);
        if due {
            self.busy_until[side] = self.now + Duration::from_micros(self.random.u64(1000..5000));
        }
        if due || self.stall_at[side].is_none() {
            let wait = stall_every.mul_f64(2.0 * self.random.f64());
            self.stall_at[side] = Some(self.busy_until[side] + wait);
        }
    }

    /// Lets one side's application act on events and its endpoint send.
    fn work(&mut self, side: usize) {
        loop {
            while let Some(event) = self.sides[side].endpoint.poll_event() {
                self.on_event(side, event);
            }
            let mut buf = Vec::new();
            let transmit = self.sides[side].endpoint.poll_transmit(self.now, &mut buf);
            let Some(transmit) = transmit else { break };
            assert_eq!(transmit.size, buf.len());
            let size = transmit.segment_size.unwrap_or(buf.len());
            for datagram in buf.chunks(size) {
                self.transmit(side, transmit.destination, datagram);
            }
        }
    }

    fn on_event(&mut self, side: usize, event: Event) {
        let now = self.now;
        match event {
            Event::Incoming { call, .. } => {
                self.sides[side].seen.incoming.push(call);
                self.read(side, call);
            }
            Event::Readable(call) => self.read(side, call),
            Event::Writable(call) => self.pump_writes(side, call),
            Event::Completed(call) => self.sides[side].seen.completed.push(call),
            Event::Failed(call, error) => {
                let Side { seen, to_write, .. } = &mut self.sides[side];
                to_write.remove(&call);
                seen.blocked.remove(&call);
                seen.failed.insert(call, error);
            }
            Event::ChannelFree(connection) => {
                self.sides[side].seen.channel_free.push(connection);
            }
            Event::Narrow { size, .. } => self.sides[side].seen.narrow.push(size),
        }
        let _ = now;
    }

    pub(super) fn read(&mut self, side: usize, call: CallId) {
        let now = self.now;
        let Side {
            endpoint,
            seen,
            reads,
            ..
        } = &mut self.sides[side];
        if !*reads {
            seen.blocked.insert(call);
            return;
        }
        loop {
            match endpoint.read(call) {
                Read::Data(data) => {
                    endpoint.consume(now, call, data.len());
                    seen.data.entry(call).or_default().extend_from_slice(&data);
                }
                Read::Pending => return,
                Read::End => break,
            }
        }
        if seen.ended.insert(call) && side == SERVER {
            let request = seen.data.get(&call).map_or(&[][..], |data| &data[..]);
            match (self.serve)(request) {
                Ok(reply) => self.write_all(SERVER, call, reply),
                Err(code) => endpoint.abort(now, call, code),
            }
        }
    }

    /// Puts a datagram on the wire, or not.
    fn transmit(&mut self, from: usize, destination: SocketAddr, octets: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap(from, octets);
        }
        self.sent[from] += 1;
        let to = 1 - from;
        let link = self.links[from].clone();
        let mut octets = octets.to_vec();
        if self
            .filter
            .as_mut()
            .is_some_and(|filter| !filter(from, &mut octets))
        {
            return;
        }
        if destination != self.seen_as[to]
            || octets.len() > link.mtu
            || self.random.f64() < link.loss
        {
            return;
        }
        let wire_size = octets.len() as u64 + 28;
        let mut leaves = self.now;
        if link.rate > 0 {
            let begins = self.free_at[from].max(self.now);
            let waiting = (begins - self.now).as_secs_f64() * link.rate as f64;
            if waiting as u64 + wire_size > link.queue {
                return;
            }
            leaves = begins + Duration::from_secs_f64(wire_size as f64 / link.rate as f64);
            self.free_at[from] = leaves;
        }
        let copies = 1 + usize::from(self.random.f64() < link.duplicate);
        for _ in 0..copies {
            let mut at = leaves + link.delay;
            if self.random.f64() < link.reorder {
                at += link.reorder_delay.mul_f64(self.random.f64() + 0.5);
            }
            let mut octets = octets.clone();
            if self.random.f64() < link.corrupt {
                let index = self.random.usize(..octets.len());
                octets[index] ^= 1 << self.random.u8(0..8);
            }
            self.order += 1;
            let from_address = self.seen_as[from];
            self.wires[to].push(Reverse(InFlight {
                at,
                order: self.order,
                from: from_address,
                ce: false,
                octets,
            }));
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }
}

/// What [`Pair::capture`] keeps: direction, header, body.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture(pub(super) Rc<RefCell<Vec<(usize, Header, Bytes)>>>);

impl Capture {
    /// Takes what was sent by one side in packets of one type.
    pub(super) fn of(&self, side: usize, packet_type: PacketType) -> Vec<(Header, Bytes)> {
        let all = self.0.borrow();
        all.iter()
            .filter(|(from, header, _)| *from == side && header.packet_type == packet_type)
            .map(|(_, header, body)| (*header, body.clone()))
            .collect()
    }

    /// The same for acknowledgements, decoded.
    pub(super) fn acks(&self, side: usize) -> Vec<(Header, Ack)> {
        let decode = |(header, body): (Header, Bytes)| (header, Ack::decode(&body).unwrap());
        self.of(side, PacketType::Ack)
            .into_iter()
            .map(decode)
            .collect()
    }
}

/// Bytes that differ everywhere, so that misplaced ones are noticed.
pub(super) fn pattern(len: usize, seed: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut data = vec![0; len];
    random.fill(&mut data);
    data.into()
}
