//! A client that reads pieces of 63 packets in order: on the ports that the server knows, and as its controller
//! allows.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::server::Transfer;
use super::{Event, SECOND, Time, World};
use crate::{Call, Controller, Fill, Scavenge, Tuning};

/// Packets of a piece, and their payload.
const PIECE: u32 = 63;
const PAYLOAD: u64 = 1416;
const PIECE_BYTES: u64 = PIECE as u64 * PAYLOAD;
/// Channels of a connection, and connections of a port that only reads.
const CHANNELS: usize = 4;
const PORT_CONNECTIONS: usize = 8;
/// As in crate `cell`: channels of the first port where others read, and pauses.
const BASIC_CHANNELS: usize = 16;
const ANSWER_TIME: Time = 2_000_000;
const BUSY_PAUSE: Time = 20_000_000;
/// As in crate `cache`: how many bytes it prefetches for a reader, and how many seconds for one that never waits.
const AHEAD: f64 = 16e6;
const AHEAD_MOST: f64 = 128e6;
const AHEAD_TIME: f64 = 20.0;
const STEP: f64 = 2e6;
const HUNGRY: Time = 4 * SECOND;
const PACED: Time = 60 * SECOND;
/// The time between two steps of a film.
const TICK: Time = 50_000_000;

/// The settings of a client.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) tuning: Tuning,
    /// Ports that only read, beside the first.
    pub(super) ports: usize,
    /// Whether a film that never waited has priority, and whether any film has.
    pub(super) paced: bool,
    pub(super) first: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            tuning: Tuning::default(),
            ports: 8,
            paced: true,
            first: false,
        }
    }
}

#[derive(Debug)]
pub(super) enum Flow {
    Fill(Box<Fill>),
    Scavenge(Box<Scavenge>),
}

impl Flow {
    fn controller(&mut self) -> &mut dyn Controller {
        match self {
            Self::Fill(fill) => fill.as_mut(),
            Self::Scavenge(scavenge) => scavenge.as_mut(),
        }
    }
}

/// A channel of a connection.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) host: usize,
    pub(super) connection: usize,
    /// Whether the server knows the client's window on this channel.
    pub(super) warm: bool,
}

/// A port of a client, which the server takes for a separate host.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// When the current handshake ends.
    pub(super) locked_until: Time,
    /// For each connection, whether the server knows it.
    known: Vec<bool>,
    answered: usize,
    growing: bool,
    open: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    setup: Setup,
    flow: Flow,
    pub(super) channels: Vec<Channel>,
    pub(super) hosts: Vec<Host>,
    /// Free channels of the first host, and those of the others.
    free: [VecDeque<usize>; 2],
    /// Wanted channels of the first host, and whether the client wants other hosts.
    wanted: usize,
    wants_others: bool,
    /// Started calls that wait for a channel.
    waiting: VecDeque<(u64, Call)>,
    /// An admitted call that may not start yet.
    starting: Option<(u64, Call)>,
    admitted: usize,
    /// Pieces to ask for again.
    again: VecDeque<u64>,
    next: u64,
    film: Option<Film>,
    left: bool,
    /// Packets that arrived since measuring began.
    pub(super) arrived: u64,
}

/// A film, prefetched and played.
#[derive(Debug)]
struct Film {
    /// Bytes a second.
    rate: f64,
    /// Pieces that came, from the first missing one on.
    came: BTreeSet<u64>,
    /// The first missing one.
    missing: u64,
    asked: f64,
    played: f64,
    playing: bool,
    waited: Time,
    paced: Option<Time>,
    stalled: f64,
}

impl Client {
    pub(super) fn new(setup: Setup, scavenge: bool) -> Self {
        let tuning = setup.tuning.clone();
        let flow = if scavenge {
            Flow::Scavenge(Box::new(Scavenge::new(tuning, super::start(), None)))
        } else {
            Flow::Fill(Box::new(Fill::new(tuning, None)))
        };
        let mut client = Self {
            flow,
            channels: Vec::new(),
            hosts: vec![Host::default()],
            free: Default::default(),
            wanted: 0,
            wants_others: false,
            waiting: VecDeque::new(),
            starting: None,
            admitted: 0,
            again: VecDeque::new(),
            next: 0,
            film: None,
            left: false,
            arrived: 0,
            setup,
        };
        client
            .hosts
            .resize_with(client.setup.ports + 1, Host::default);
        // The first connection carried calls before the read.
        let channel = client.connect(0);
        client.make_known(0, 0);
        client.free[0].extend(channel..channel + CHANNELS);
        client
    }

    /// A client that plays a film of this many Mbit/s.
    pub(super) fn film(setup: Setup, megabits: f64) -> Self {
        let mut client = Self::new(setup, false);
        client.film = Some(Film {
            rate: megabits * 1e6 / 8.0,
            came: BTreeSet::new(),
            missing: 0,
            asked: AHEAD,
            played: 0.0,
            playing: false,
            waited: 0,
            paced: None,
            stalled: 0.0,
        });
        client
    }

    /// Asks for nothing more from now on.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// Seconds for which the film stood still.
    pub(super) fn stalled(&self) -> f64 {
        self.film.as_ref().map_or(0.0, |film| film.stalled)
    }

    pub(super) fn is_known(&self, host: usize, connection: usize) -> bool {
        self.hosts[host].known[connection]
    }

    pub(super) fn make_known(&mut self, host: usize, connection: usize) {
        self.hosts[host].known[connection] = true;
    }

    /// Makes a connection; returns its first channel.
    fn connect(&mut self, host: usize) -> usize {
        let first = self.channels.len();
        let connection = self.hosts[host].known.len();
        self.hosts[host].known.push(false);
        self.channels.extend((0..CHANNELS).map(|_| Channel {
            host,
            connection,
            warm: false,
        }));
        first
    }

    fn limit(&mut self) -> usize {
        self.flow.controller().limit()
    }

    fn others_are_open(&self) -> bool {
        self.hosts.iter().skip(1).any(|host| host.open)
    }

    /// The next piece to ask for.
    fn next_piece(&mut self) -> Option<u64> {
        if self.left {
            return None;
        }
        if let Some(piece) = self.again.pop_front() {
            return Some(piece);
        }
        let wanted = match &self.film {
            Some(film) => real(self.next * PIECE_BYTES) < film.asked,
            None => true,
        };
        wanted.then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl World {
    pub(super) fn join(&mut self, client: usize) {
        let (now, round_trip) = (self.instant(), self.link.round_trip);
        let learnt = Duration::from_nanos(round_trip);
        let this = &mut self.clients[client];
        this.flow.controller().learn(now, learnt);
        if let Some(film) = &mut this.film {
            film.waited = self.now;
            self.play(client);
        }
        self.pump(client);
    }

    /// Admits as many calls as the controller allows.
    pub(super) fn pump(&mut self, client: usize) {
        let now = self.instant();
        loop {
            let time = self.now;
            let this = &mut self.clients[client];
            if this.starting.is_some() || this.admitted >= this.limit() {
                return;
            }
            let Some(piece) = this.next_piece() else {
                return;
            };
            let first = this.film.as_ref().is_some_and(|film| {
                let is_paced = film.paced.is_some_and(|paced| time - paced < PACED);
                this.setup.first || this.setup.paced && is_paced
            });
            if first && let Flow::Fill(fill) = &mut this.flow {
                fill.prioritize(now);
            }
            this.admitted += 1;
            this.starting = Some((piece, Call::new(PIECE_BYTES)));
            let at = this.flow.controller().may_start(now, PIECE_BYTES);
            if at > now {
                let wait = at.duration_since(now).as_nanos() as Time;
                self.after(wait, Event::Start(client));
                return;
            }
            self.take_channel(client);
        }
    }

    pub(super) fn start_call(&mut self, client: usize) {
        self.take_channel(client);
        self.pump(client);
    }

    /// Finds a channel for the call that may start now.
    fn take_channel(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let Some(started) = this.starting.take() else {
            return;
        };
        let limit = this.limit();
        if this.setup.ports == 0 {
            if this.free[0].is_empty() {
                this.wanted = this.wanted.max(limit);
            }
        } else if this.free[0].is_empty() {
            this.wanted = BASIC_CHANNELS;
            this.wants_others = true;
        }
        this.waiting.push_back(started);
        self.grow(client);
        self.use_channels(client);
    }

    /// Starts calls on free channels.
    fn use_channels(&mut self, client: usize) {
        loop {
            let this = &mut self.clients[client];
            if this.waiting.is_empty() {
                return;
            }
            let channel = match this.free[1].pop_front() {
                Some(channel) => channel,
                None if this.others_are_open() => return,
                None => match this.free[0].pop_front() {
                    Some(channel) => channel,
                    None => return,
                },
            };
            let Some((piece, call)) = this.waiting.pop_front() else {
                return;
            };
            self.begin_call(client, channel, piece, call);
        }
    }

    fn begin_call(&mut self, client: usize, channel: usize, piece: u64, mut call: Call) {
        let now = self.instant();
        let flow = self.clients[client].flow.controller();
        flow.on_start(now, &mut call);
        self.request(Transfer::new(client, channel, PIECE, piece, call));
    }

    fn request(&mut self, mut transfer: Transfer) {
        transfer.since = self.now;
        self.calls.push(transfer);
        let half = self.link.round_trip / 2;
        self.after(half, Event::Request(self.calls.len() - 1));
    }

    /// Data of a call came, in order.
    pub(super) fn on_data(&mut self, number: usize, packets: u32) {
        let (now, time) = (self.instant(), self.now);
        let is_measured = time >= self.measure_from;
        let call = &mut self.calls[number];
        let this = &mut self.clients[call.client];
        let was_answered = std::mem::replace(&mut call.answered, true);
        if !was_answered {
            let delay = Duration::from_nanos(time - call.since);
            let flow = this.flow.controller();
            flow.on_first_byte(now, &mut call.call, delay);
        }
        let bytes = u64::from(packets) * PAYLOAD;
        call.arrived += packets;
        call.since = time;
        this.flow
            .controller()
            .on_progress(now, &mut call.call, bytes);
        if is_measured {
            this.arrived += u64::from(packets);
        }
        if call.arrived == call.packets {
            call.over = true;
            let (client, channel, piece) = (call.client, call.channel, call.piece);
            self.come_piece(client, piece);
            self.end(number, channel, false);
        }
        let client = self.calls[number].client;
        self.pump(client);
    }

    fn end(&mut self, number: usize, channel: usize, failed: bool) {
        let now = self.instant();
        let call = &self.calls[number];
        let client = call.client;
        let this = &mut self.clients[client];
        this.flow.controller().on_end(now, &call.call);
        this.admitted -= 1;
        let free = &mut this.free[usize::from(this.channels[channel].host > 0)];
        if failed {
            free.push_back(channel);
        } else {
            free.push_front(channel);
        }
        self.use_channels(client);
    }

    pub(super) fn on_answer(&mut self, number: usize, busy: bool) {
        let now = self.instant();
        let call = &mut self.calls[number];
        call.over = true;
        let (client, channel, piece, is_data) =
            (call.client, call.channel, call.piece, call.packets > 0);
        if is_data {
            // A reply with data gives no other answer, so this is a refusal.
            self.clients[client].flow.controller().on_refused(now);
            self.clients[client].again.push_back(piece);
            self.end(number, channel, true);
            self.after(BUSY_PAUSE, Event::Again(client));
        } else if busy {
            let again = Transfer::new(client, channel, 0, 0, Call::new(0));
            self.calls.push(again);
            let at = self.link.round_trip / 2 + BUSY_PAUSE;
            self.after(at, Event::Request(self.calls.len() - 1));
        } else {
            self.shook_hands(client, channel);
        }
    }

    fn come_piece(&mut self, client: usize, piece: u64) {
        if let Some(film) = &mut self.clients[client].film {
            film.came.insert(piece);
            while film.came.remove(&film.missing) {
                film.missing += 1;
            }
        }
    }

    pub(super) fn play(&mut self, client: usize) {
        let now = self.now;
        let Some(film) = &mut self.clients[client].film else {
            return;
        };
        let tick = TICK as f64 / SECOND as f64;
        let there = real(film.missing * PIECE_BYTES);
        film.playing |= there >= 2.0 * film.rate;
        if !film.playing {
            film.waited = now;
        } else if there >= film.played + film.rate * tick {
            film.played += film.rate * tick;
        } else {
            film.waited = now;
            film.stalled += tick;
        }
        if now - film.waited >= HUNGRY {
            film.paced = Some(now);
        }
        let ahead = match film.paced {
            Some(_) => (film.rate * AHEAD_TIME).min(AHEAD_MOST),
            None => AHEAD,
        };
        if film.asked + STEP <= film.played + ahead {
            film.asked = film.played + ahead;
        }
        self.after(TICK, Event::Play(client));
        self.pump(client);
    }
}

/// Handshakes.
impl World {
    /// Begins the handshakes of the hosts that the client wants.
    fn grow(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let first = &mut this.hosts[0];
        if !first.growing && first.known.len() * CHANNELS < this.wanted {
            first.growing = true;
            self.handshake(client, 0);
        }
        if std::mem::take(&mut self.clients[client].wants_others) {
            for host in 1..self.clients[client].hosts.len() {
                if !std::mem::replace(&mut self.clients[client].hosts[host].growing, true) {
                    self.handshake(client, host);
                }
            }
        }
    }

    /// Makes the next connection of a host, and begins its handshake.
    pub(super) fn handshake(&mut self, client: usize, host: usize) {
        let this = &mut self.clients[client];
        let connections = this.hosts[host].known.len();
        if host == 0 && connections * CHANNELS >= this.wanted {
            this.hosts[0].growing = false;
            return;
        }
        if host > 0 && connections == PORT_CONNECTIONS {
            return;
        }
        let channel = this.connect(host);
        self.request(Transfer::new(client, channel, 0, 0, Call::new(0)));
    }

    pub(super) fn on_asked(&mut self, client: usize, host: usize) {
        self.after(ANSWER_TIME, Event::Handshake { client, host });
    }

    fn shook_hands(&mut self, client: usize, channel: usize) {
        let this = &mut self.clients[client];
        let host = this.channels[channel].host;
        if host == 0 {
            this.free[0].extend(channel..channel + CHANNELS);
            self.use_channels(client);
            return;
        }
        this.hosts[host].answered += 1;
        if this.hosts[host].answered == PORT_CONNECTIONS {
            self.open(client, host);
        }
    }

    /// Frees all channels of a host that reads.
    fn open(&mut self, client: usize, host: usize) {
        let this = &mut self.clients[client];
        if std::mem::replace(&mut this.hosts[host].open, true) {
            return;
        }
        for (number, channel) in this.channels.iter().enumerate() {
            if channel.host == host {
                this.free[1].push_back(number);
            }
        }
        self.grow(client);
        self.use_channels(client);
    }
}

fn real(number: u64) -> f64 {
    number as f64
}
