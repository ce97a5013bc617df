//! Whole lives of two endpoints, made up from a seed: bad links, restarts, moving addresses, old
//! peers, aborts, slow readers. Every call must end, and nothing may be left.
//!
//! `AFAR_SIM_SEEDS` is how many seeds run; `AFAR_SIM_SEED` runs one, which is how a failure is
//! replayed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use crate::packet::PacketType;
use crate::packet::ack::Ack;
use crate::{AbortCode, CallError, CallId, Config, ConnectionId};

/// What the server answers with when asked to fail.
const REFUSED: AbortCode = AbortCode(49_733_376);
const DEAD_TIME: Duration = Duration::from_secs(30);

/// A call as it was asked for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    request: usize,
    reply: usize,
    seed: u64,
    refuse: bool,
}

impl Wish {
    const SIZE: usize = 17;

    fn request(&self) -> Bytes {
        let mut data = BytesMut::new();
        data.put_u64(self.reply as u64);
        data.put_u64(self.seed);
        data.put_u8(u8::from(self.refuse));
        data.put(pattern(self.request, self.seed));
        data.freeze()
    }

    /// The server's side: checks the request and does what it says.
    fn serve(request: &[u8]) -> Result<Bytes, AbortCode> {
        let number = |at: usize| u64::from_be_bytes(request[at..at + 8].try_into().unwrap());
        let (reply, seed) = (number(0) as usize, number(8));
        let expected = pattern(request.len() - Self::SIZE, seed);
        assert!(
            request[Self::SIZE..] == expected,
            "a request of {} bytes is wrong",
            expected.len()
        );
        if request[16] == 1 {
            Err(REFUSED)
        } else {
            Ok(pattern(reply, seed + 1))
        }
    }
}

/// One life.
struct Life {
    pair: Pair,
    random: fastrand::Rng,
    connections: Vec<ConnectionId>,
    wishes: BTreeMap<CallId, Wish>,
    /// Calls that this side gave up: no event may follow.
    cancelled: Vec<CallId>,
    /// Whether something happened that may end calls.
    restarts: u32,
    rebinds: u32,
    text: String,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let pick = |old: bool| Config {
            dead_time: DEAD_TIME,
            ..if old { old_peer() } else { Config::default() }
        };
        let kind = random.u8(0..8);
        let configs = [pick(kind == 1 || kind == 3), pick(kind == 2 || kind == 3)];
        let links = [random_link(&mut random), random_link(&mut random)];
        let text = format!(
            "old peers {}, links {links:?}",
            ["neither", "client", "server", "both"]
                .get(usize::from(kind))
                .unwrap_or(&"neither")
        );
        let mut pair = Pair::with_configs(seed, links[0].clone(), configs);
        pair.links = links;
        pair.serve = Wish::serve;
        let connections = (0..random.usize(1..4)).map(|_| pair.connect()).collect();
        Self {
            pair,
            random,
            connections,
            wishes: BTreeMap::new(),
            cancelled: Vec::new(),
            restarts: 0,
            rebinds: 0,
            text,
        }
    }

    fn begin_call(&mut self) {
        let connection = self.connections[self.random.usize(..self.connections.len())];
        let now = self.pair.now;
        let Some(call) = self.pair.sides[CLIENT].endpoint.start_call(now, connection) else {
            return;
        };
        let wish = Wish {
            request: random_size(&mut self.random),
            reply: random_size(&mut self.random),
            seed: self.random.u64(..1 << 60),
            refuse: self.random.u8(0..10) == 0,
        };
        self.wishes.insert(call, wish);
        self.pair.write_all(CLIENT, call, wish.request());
    }

    fn cancel(&mut self) {
        let running: Vec<_> = self
            .wishes
            .keys()
            .filter(|call| !self.pair.has_ended(**call))
            .copied()
            .collect();
        if running.is_empty() {
            return;
        }
        let call = running[self.random.usize(..running.len())];
        let now = self.pair.now;
        let side = &mut self.pair.sides[CLIENT];
        side.to_write.remove(&call);
        side.seen.blocked.remove(&call);
        side.endpoint.abort(now, call, AbortCode::RX_USER_ABORT);
        // It may have ended just now; then its event is waiting.
        self.wishes.remove(&call);
        self.cancelled.push(call);
    }

    fn restart_server(&mut self) {
        self.pair.restart(SERVER);
        self.restarts += 1;
    }

    /// Something happens.
    fn act(&mut self) {
        match self.random.u8(0..100) {
            0..60 => self.begin_call(),
            60..68 => self.cancel(),
            68..71 if self.restarts < 2 => self.restart_server(),
            71..74 if self.rebinds < 3 => {
                self.pair.rebind();
                self.rebinds += 1;
            }
            74..82 => self.pair.sides[self.random.usize(0..2)].reads = false,
            82..92 => {
                self.pair.unblock(CLIENT);
                self.pair.unblock(SERVER);
            }
            _ => {}
        }
        let pause = Duration::from_micros(self.random.u64(0..300_000));
        self.pair.idle(pause);
    }

    fn run(&mut self) {
        for _ in 0..self.random.usize(5..40) {
            self.act();
        }
        self.pair.unblock(CLIENT);
        self.pair.unblock(SERVER);
        // Slow links carry 500 KB each way in turn for every call.
        let limit = self.pair.elapsed() + Duration::from_secs(3000);
        let wishes = &self.wishes;
        let done = self.pair.run(limit, |pair| {
            wishes.keys().all(|call| pair.has_ended(*call))
        });
        assert!(
            done,
            "calls without end: {:?}; then {}",
            self.open_calls(),
            self.traffic()
        );
        self.check_ends();
        self.check_rest();
    }

    /// What goes over the wire in a few seconds more, for whoever looks for the reason.
    fn traffic(&mut self) -> String {
        let capture = self.pair.capture();
        self.pair.idle(Duration::from_secs(12));
        let packets = capture.0.take();
        packets
            .iter()
            .take(20)
            .fold(String::new(), |text, (from, header, body)| {
                let ack = Ack::decode(body).filter(|_| header.packet_type == PacketType::Ack);
                format!("{text}\n{from} {header:?} {ack:?}")
            })
    }

    fn open_calls(&self) -> Vec<(CallId, Wish)> {
        let open = self
            .wishes
            .iter()
            .filter(|(call, _)| !self.pair.has_ended(**call));
        open.map(|(call, wish)| (*call, *wish)).collect()
    }

    fn check_ends(&self) {
        let seen = &self.pair.sides[CLIENT].seen;
        for (call, wish) in &self.wishes {
            match seen.failed.get(call) {
                None => {
                    assert!(!wish.refuse, "{call:?} was not refused");
                    let reply = seen.data.get(call).map_or(&[][..], |data| &data[..]);
                    assert!(
                        reply == pattern(wish.reply, wish.seed + 1),
                        "{call:?}: {wish:?}"
                    );
                }
                Some(CallError::Aborted(REFUSED)) if wish.refuse => {}
                Some(CallError::Dead | CallError::Aborted(_)) if self.restarts > 0 => {}
                Some(error) => panic!("{call:?} failed with {error:?}: {wish:?}"),
            }
        }
        for call in &self.cancelled {
            assert!(!seen.failed.contains_key(call), "an event after a cancel");
        }
    }

    /// After a while nothing is held and nothing happens.
    fn check_rest(&mut self) {
        self.pair.idle(2 * DEAD_TIME + Duration::from_secs(10));
        for (name, side) in ["client", "server"].iter().zip(&self.pair.sides) {
            let stats = side.endpoint.stats();
            assert_eq!(side.endpoint.active_calls(), 0, "{name} has calls");
            assert_eq!(stats.receive_memory, 0, "{name} holds bytes");
            assert_eq!(stats.malformed, 0, "{name}: {stats:?}");
            if self.restarts == 0 && self.cancelled.is_empty() {
                assert_eq!(stats.violations, 0, "{name}: {stats:?}");
            }
            let in_flight: u64 = side
                .endpoint
                .peers()
                .iter()
                .map(|peer| peer.in_flight)
                .sum();
            assert_eq!(in_flight, 0, "{name} has packets in flight");
        }
        let (steps, sent) = (self.pair.steps, self.pair.sent);
        self.pair.idle(Duration::from_secs(100));
        assert!(
            self.pair.steps - steps <= 100,
            "timers spin: {}",
            self.pair.steps - steps
        );
        assert_eq!(self.pair.sent, sent, "packets without calls");
    }
}

fn random_size(random: &mut fastrand::Rng) -> usize {
    match random.u8(0..10) {
        0 => 0,
        1..6 => random.usize(1..3000),
        6..9 => random.usize(3000..60_000),
        _ => random.usize(60_000..500_000),
    }
}

fn random_link(random: &mut fastrand::Rng) -> Link {
    let bad = |random: &mut fastrand::Rng, most: f64| match random.u8(0..3) {
        0 => 0.0,
        _ => random.f64() * most,
    };
    Link {
        delay: Duration::from_micros(match random.u8(0..3) {
            0 => random.u64(10..1000),
            1 => random.u64(1000..30_000),
            _ => random.u64(30_000..150_000),
        }),
        rate: [0, 200_000, 1_000_000, 12_500_000][random.usize(0..4)],
        queue: random.u64(20_000..500_000),
        loss: bad(random, 0.05),
        duplicate: bad(random, 0.05),
        reorder: bad(random, 0.1),
        reorder_delay: Duration::from_micros(random.u64(100..20_000)),
        corrupt: 0.0,
        mtu: [1444, 1452, 1472, 4000, 9000, 65_507][random.usize(0..6)],
    }
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.run()));
    if let Err(panic) = result {
        eprintln!(
            "{} restarts, {} rebinds, {}",
            life.restarts, life.rebinds, life.text
        );
        eprintln!("replay: AFAR_SIM_SEED={seed} cargo test -p afar-rx random");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn lives() {
    let one = std::env::var("AFAR_SIM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    match one {
        Some(seed) => live(seed),
        None => (0..super::seeds(50)).for_each(live),
    }
}

/// The same seed gives the same life, packet by packet, or replaying would be worthless.
#[test]
fn a_seed_repeats() {
    let trace = |seed| {
        let mut life = Life::new(seed);
        life.run();
        let stats = life.pair.sides.each_ref().map(|side| side.endpoint.stats());
        (stats, life.pair.sent, life.pair.steps, life.pair.elapsed())
    };
    for seed in [3, 11] {
        assert_eq!(trace(seed), trace(seed));
    }
}
