//! A client that reads pieces of 63 packets: from whichever of its ports the server knows, in order, as its
//! controller allows.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::server::Transfer;
use super::{Event, SECOND, Time, World};
use crate::{Call, Controller, Fill, Scavenge, Tuning};

/// Packets of a piece, and their payload.
const PIECE: u32 = 63;
const PAYLOAD: u64 = 1416;
const PIECE_BYTES: u64 = PIECE as u64 * PAYLOAD;
/// Calls at a time on a connection, and connections of a port that only reads.
const CHANNELS: usize = 4;
const PORT_CONNECTIONS: usize = 8;
/// As in crate cell: lanes of the first port where others read, and pauses.
const BASIC_LANES: usize = 16;
const ANSWER_TIME: Time = 2_000_000;
const BUSY_PAUSE: Time = 20_000_000;
/// As in crate cache: bytes ahead of a reader, and the time ahead of one that never waits.
const AHEAD: f64 = 16e6;
const AHEAD_MOST: f64 = 128e6;
const AHEAD_TIME: f64 = 20.0;
const STEP: f64 = 2e6;
const HUNGRY: Time = 4 * SECOND;
const PACED: Time = 60 * SECOND;
/// How often a film is looked at.
const TICK: Time = 50_000_000;

/// What a client does, and how.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) tuning: Tuning,
    /// Ports that only read, besides the first.
    pub(super) ports: usize,
    /// Whether a film that never waited comes first, and whether any does.
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
pub(super) struct Lane {
    pub(super) host: usize,
    pub(super) connection: usize,
    /// Whether the server knows the client's window there.
    pub(super) warm: bool,
}

/// The server takes each port for a host of its own.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Until then it is being introduced.
    pub(super) locked_until: Time,
    /// Whether each connection is known.
    known: Vec<bool>,
    answered: usize,
    growing: bool,
    open: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    setup: Setup,
    flow: Flow,
    pub(super) lanes: Vec<Lane>,
    pub(super) hosts: Vec<Host>,
    /// Free lanes of the first host, and of the others.
    free: [VecDeque<usize>; 2],
    /// Lanes of the first host there should be, and whether there should be others.
    wanted: usize,
    wants_others: bool,
    /// Started calls that wait for a lane.
    waiting: VecDeque<(u64, Call)>,
    /// An admitted call that waits for its start.
    starting: Option<(u64, Call)>,
    admitted: usize,
    /// Pieces to be asked for again.
    again: VecDeque<u64>,
    next: u64,
    film: Option<Film>,
    left: bool,
    /// Packets that arrived since measuring began.
    pub(super) arrived: u64,
}

/// A film that is read ahead and played.
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
            lanes: Vec::new(),
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
        // The first connection was used before there was anything to read.
        let lane = client.connect(0);
        client.make_known(0, 0);
        client.free[0].extend(lane..lane + CHANNELS);
        client
    }

    /// One that plays a film of so many Mbit/s.
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

    /// It wants nothing more.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// Seconds the film stood still.
    pub(super) fn stalled(&self) -> f64 {
        self.film.as_ref().map_or(0.0, |film| film.stalled)
    }

    pub(super) fn is_known(&self, host: usize, connection: usize) -> bool {
        self.hosts[host].known[connection]
    }

    pub(super) fn make_known(&mut self, host: usize, connection: usize) {
        self.hosts[host].known[connection] = true;
    }

    /// Makes a connection; returns its first lane.
    fn connect(&mut self, host: usize) -> usize {
        let first = self.lanes.len();
        let connection = self.hosts[host].known.len();
        self.hosts[host].known.push(false);
        self.lanes.extend((0..CHANNELS).map(|_| Lane {
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

    /// The next piece to be asked for.
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

    /// Admits calls while it may.
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
                fill.come_first(now);
            }
            this.admitted += 1;
            this.starting = Some((piece, Call::new(PIECE_BYTES)));
            let at = this.flow.controller().may_start(now, PIECE_BYTES);
            if at > now {
                let wait = at.duration_since(now).as_nanos() as Time;
                self.after(wait, Event::Start(client));
                return;
            }
            self.take_lane(client);
        }
    }

    pub(super) fn start_call(&mut self, client: usize) {
        self.take_lane(client);
        self.pump(client);
    }

    /// Finds a lane for the call whose start has come.
    fn take_lane(&mut self, client: usize) {
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
            this.wanted = BASIC_LANES;
            this.wants_others = true;
        }
        this.waiting.push_back(started);
        self.grow(client);
        self.use_lanes(client);
    }

    /// Starts calls on free lanes.
    fn use_lanes(&mut self, client: usize) {
        loop {
            let this = &mut self.clients[client];
            if this.waiting.is_empty() {
                return;
            }
            let lane = match this.free[1].pop_front() {
                Some(lane) => lane,
                None if this.others_are_open() => return,
                None => match this.free[0].pop_front() {
                    Some(lane) => lane,
                    None => return,
                },
            };
            let Some((piece, call)) = this.waiting.pop_front() else {
                return;
            };
            self.begin_call(client, lane, piece, call);
        }
    }

    fn begin_call(&mut self, client: usize, lane: usize, piece: u64, mut call: Call) {
        let now = self.instant();
        let flow = self.clients[client].flow.controller();
        flow.on_start(now, &mut call);
        self.request(Transfer::new(client, lane, PIECE, piece, call));
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
            let (client, lane, piece) = (call.client, call.lane, call.piece);
            self.come_piece(client, piece);
            self.end(number, lane, false);
        }
        let client = self.calls[number].client;
        self.pump(client);
    }

    fn end(&mut self, number: usize, lane: usize, failed: bool) {
        let now = self.instant();
        let call = &self.calls[number];
        let client = call.client;
        let this = &mut self.clients[client];
        this.flow.controller().on_end(now, &call.call);
        this.admitted -= 1;
        let free = &mut this.free[usize::from(this.lanes[lane].host > 0)];
        if failed {
            free.push_back(lane);
        } else {
            free.push_front(lane);
        }
        self.use_lanes(client);
    }

    pub(super) fn on_answer(&mut self, number: usize, busy: bool) {
        let now = self.instant();
        let call = &mut self.calls[number];
        call.over = true;
        let (client, lane, piece, is_data) = (call.client, call.lane, call.piece, call.packets > 0);
        if is_data {
            // Data itself tells that it comes, so this is a refusal.
            self.clients[client].flow.controller().on_refused(now);
            self.clients[client].again.push_back(piece);
            self.end(number, lane, true);
            self.after(BUSY_PAUSE, Event::Again(client));
        } else if busy {
            let again = Transfer::new(client, lane, 0, 0, Call::new(0));
            self.calls.push(again);
            let at = self.link.round_trip / 2 + BUSY_PAUSE;
            self.after(at, Event::Request(self.calls.len() - 1));
        } else {
            self.introduced(client, lane);
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

/// Introductions.
impl World {
    /// Has hosts introduced that are needed.
    fn grow(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let first = &mut this.hosts[0];
        if !first.growing && first.known.len() * CHANNELS < this.wanted {
            first.growing = true;
            self.introduce(client, 0);
        }
        if std::mem::take(&mut self.clients[client].wants_others) {
            for host in 1..self.clients[client].hosts.len() {
                if !std::mem::replace(&mut self.clients[client].hosts[host].growing, true) {
                    self.introduce(client, host);
                }
            }
        }
    }

    /// Makes the next connection of a host.
    pub(super) fn introduce(&mut self, client: usize, host: usize) {
        let this = &mut self.clients[client];
        let connections = this.hosts[host].known.len();
        if host == 0 && connections * CHANNELS >= this.wanted {
            this.hosts[0].growing = false;
            return;
        }
        if host > 0 && connections == PORT_CONNECTIONS {
            return;
        }
        let lane = this.connect(host);
        self.request(Transfer::new(client, lane, 0, 0, Call::new(0)));
    }

    pub(super) fn on_asked(&mut self, client: usize, host: usize) {
        self.after(ANSWER_TIME, Event::Introduce { client, host });
    }

    fn introduced(&mut self, client: usize, lane: usize) {
        let this = &mut self.clients[client];
        let host = this.lanes[lane].host;
        if host == 0 {
            this.free[0].extend(lane..lane + CHANNELS);
            self.use_lanes(client);
            return;
        }
        this.hosts[host].answered += 1;
        if this.hosts[host].answered == PORT_CONNECTIONS {
            self.open(client, host);
        }
    }

    /// All lanes of a host that reads are ready.
    fn open(&mut self, client: usize, host: usize) {
        let this = &mut self.clients[client];
        if std::mem::replace(&mut this.hosts[host].open, true) {
            return;
        }
        for (number, lane) in this.lanes.iter().enumerate() {
            if lane.host == host {
                this.free[1].push_back(number);
            }
        }
        self.grow(client);
        self.use_lanes(client);
    }
}

fn real(number: u64) -> f64 {
    number as f64
}
