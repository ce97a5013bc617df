//! Virtual time, and what all sides share.

use std::collections::BTreeMap;
use std::time::Duration;

use afar_types::{AfsUuid, Fid};

use crate::check::Check;
use crate::client::Client;
use crate::net::{Network, Packet};
use crate::server::Node;

/// A bug that is planted between an end and its program, to show that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    CountsFromReception,
    IgnoresNumbers,
    WordsWithoutRecalls,
    ReleasesEarly,
    TrustsStrangers,
    ForgetsRows,
    FastServer,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Packet(Packet),
    /// A client's program does something.
    Step(usize, u64),
    /// A client sends what is in its journal.
    Flush(usize, u64),
    /// A client sends a call again.
    Resend(usize, u64, u64),
    ClientTimer(usize),
    ClientStarts(usize),
    ServerTimer,
    ServerStarts,
    /// A call at the server has done its work.
    Finish(usize, u64, u64),
    Persisted(u64, AfsUuid, u32, u64),
    /// Something goes wrong.
    Trouble,
    Heal(usize),
    /// Somebody needs a volume as a whole.
    Close(u32),
    Open(u64, u32),
}

/// What happened, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) grants: u64,
    pub(crate) recalls: u64,
    pub(crate) revoked: u64,
    pub(crate) born: u64,
    pub(crate) claimed: u64,
    pub(crate) applied: u64,
    pub(crate) late: u64,
    pub(crate) conflicts: u64,
    pub(crate) synced: u64,
    pub(crate) volumes: u64,
    pub(crate) longest_wait_ms: u128,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.local += other.local;
        self.remote += other.remote;
        self.grants += other.grants;
        self.recalls += other.recalls;
        self.revoked += other.revoked;
        self.born += other.born;
        self.claimed += other.claimed;
        self.applied += other.applied;
        self.late += other.late;
        self.conflicts += other.conflicts;
        self.synced += other.synced;
        self.volumes += other.volumes;
        self.longest_wait_ms = self.longest_wait_ms.max(other.longest_wait_ms);
    }
}

/// A clock that starts somewhere and is fast or slow, by millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) start: u64,
    pub(crate) rate: u64,
}

impl Clock {
    pub(crate) fn local(&self, now: u64) -> Duration {
        Duration::from_micros(self.start + now * self.rate / 1_000_000)
    }

    /// The moment at which it shows this, or just behind it.
    pub(crate) fn global(&self, local: Duration) -> u64 {
        let micros = u64::try_from(local.as_micros()).unwrap_or(u64::MAX / 2_000_000);
        micros.saturating_sub(self.start) * 1_000_000 / self.rate + 2
    }
}

pub(crate) const CLIENTS: usize = 3;
pub(crate) const VOLUMES: u32 = 2;
/// Vnodes that there are from the beginning: all may have others made in them.
pub(crate) const VNODES: usize = 6;
/// How long a life is.
const LIFE: u64 = 400_000_000;

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: fastrand::Rng,
    pub(crate) bug: Bug,
    pub(crate) violation: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) network: Network,
    pub(crate) clients: Vec<Client>,
    pub(crate) server: Node,
    pub(crate) check: Check,
    pub(crate) twins: bool,
    /// Everything that there is or may be, apart from what it is.
    pub(crate) fids: Vec<Fid>,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
}

/// A client's identity. In lives with twins the last two have the same: one machine was copied from the other.
pub(crate) fn uuid(client: usize, twins: bool) -> AfsUuid {
    let shared = twins && client == CLIENTS - 1;
    AfsUuid {
        time_low: u32::try_from(client - usize::from(shared)).unwrap(),
        ..AfsUuid::default()
    }
}

impl World {
    pub(crate) fn run(seed: u64, bug: Bug) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // The margin is a factor of 20/19.
        let clock = |random: &mut fastrand::Rng| Clock {
            start: random.u64(0..1_000_000_000_000),
            rate: random.u64(975_000..=1_025_000),
        };
        let mut server_clock = clock(&mut random);
        if bug == Bug::FastServer {
            server_clock.rate = 1_300_000;
        }
        let clients = (0..CLIENTS).map(|_| Client::new(clock(&mut random)));
        let clients: Vec<Client> = clients.collect();
        let fids: Vec<Fid> = (1..=VOLUMES)
            .flat_map(|volume| [1, 3, 5].map(|vnode| Fid::new(volume, vnode, vnode)))
            .collect();
        let twins = seed % 4 == 3;
        let loss = [0.0, 0.02, 0.2][random.usize(..3)];
        let mut world = Self {
            now: 0,
            bug,
            violation: None,
            counts: Counts::default(),
            network: Network {
                loss,
                cut: vec![[false; 2]; CLIENTS],
            },
            clients,
            server: Node::new(server_clock, &fids),
            check: Check {
                twins,
                ..Check::default()
            },
            twins,
            fids,
            queue: BTreeMap::new(),
            events: 0,
            random,
        };
        world.start_server();
        for client in 0..CLIENTS {
            world.start_client(client);
        }
        world.after(5_000_000, Event::Trouble);
        world.after(60_000_000, Event::Close(1));
        world.live();
        world
    }

    fn live(&mut self) {
        while let Some(((time, _), event)) = self.queue.pop_first() {
            if time > LIFE || self.violation.is_some() {
                return;
            }
            self.now = time;
            self.handle(event);
        }
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time.max(self.now), self.events), event);
    }

    pub(crate) fn send(&mut self, packet: &Packet) {
        for delay in self.network.delays(&mut self.random, packet) {
            self.after(delay, Event::Packet(packet.clone()));
        }
    }

    pub(crate) fn fail(&mut self, what: String) {
        let at = self.now as f64 / 1e6;
        self.violation
            .get_or_insert_with(|| format!("{at:.6} s: {what}"));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Packet(packet) if packet.to_server() => self.server_receives(packet),
            Event::Packet(packet) => self.client_receives(packet),
            Event::Step(client, life) => self.step(client, life),
            Event::Flush(client, life) => {
                if self.clients[client].lives(life) {
                    self.flush(client);
                }
            }
            Event::Resend(client, life, id) => self.resend(client, life, id),
            Event::ClientTimer(client) => self.client_timer(client),
            Event::ClientStarts(client) => self.start_client(client),
            Event::ServerTimer => self.server_timer(),
            Event::ServerStarts => self.start_server(),
            Event::Finish(client, life, id) => self.finish(client, life, id),
            Event::Persisted(instance, host, volume, session) => {
                self.persisted(instance, host, volume, session);
            }
            Event::Trouble => self.trouble(),
            Event::Heal(client) => self.network.cut[client] = [false; 2],
            Event::Close(volume) => self.close(volume),
            Event::Open(instance, volume) => self.open(instance, volume),
        }
    }

    fn trouble(&mut self) {
        let client = self.random.usize(..CLIENTS);
        let long = self.random.u64(100_000..35_000_000);
        match self.random.u8(..10) {
            0..=1 => {
                self.stop_server();
                let down = self.random.u64(10_000..12_000_000);
                self.after(down, Event::ServerStarts);
            }
            2..=3 => {
                self.stop_client(client);
                let down = self.random.u64(10_000..25_000_000);
                self.after(down, Event::ClientStarts(client));
            }
            4 => {
                self.network.cut[client] = [true, false];
                self.after(long, Event::Heal(client));
            }
            5..=6 => {
                self.network.cut[client] = [false, true];
                self.after(long, Event::Heal(client));
            }
            _ => {
                self.network.cut[client] = [true; 2];
                self.after(long, Event::Heal(client));
            }
        }
        let next = self.random.u64(1_000_000..40_000_000);
        self.after(next, Event::Trouble);
    }
}
