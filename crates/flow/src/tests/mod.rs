//! Clients of an OpenAFS file server in virtual time.
//!
//! - `link`: a drop-tail queue, and a TCP sender that shares it
//! - `server`: threads, the host lock, calls that start with one packet, lost packets
//! - `client`: channels, handshakes, pieces, a film
//! - `table`: the results, link by link
//!
//! Not simulated: the server's processor and disk, packets out of order, and anything that takes longer than a
//! minute.

#![expect(
    clippy::cast_possible_truncation,
    reason = "times and packets of a simulation are small"
)]

mod client;
mod link;
mod server;
mod table;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use client::Client;
use link::{Link, Tcp};
use server::{Server, Transfer};

/// The moment from which virtual time counts.
#[expect(
    clippy::disallowed_methods,
    reason = "a test needs one moment to begin with"
)]
pub(crate) fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Virtual time, in nanoseconds.
type Time = u64;

const SECOND: Time = 1_000_000_000;

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client starts.
    Join(usize),
    /// A client asks for nothing more.
    Leave(usize),
    /// The link gets as wide as shares count it.
    Widen,
    /// A client's pacer lets its next call start.
    Start(usize),
    /// A client tries a refused call again.
    Again(usize),
    /// A request reaches the server.
    Request(usize),
    /// A thread of the server is free again.
    ThreadFree,
    /// The server begins to send a call.
    Send(usize),
    /// Packets of a call reach the client, or are missing there.
    Arrive {
        call: usize,
        good: u32,
        lost: u32,
        again: bool,
    },
    /// Their acknowledgement reaches the server.
    Ack {
        call: usize,
        packets: u32,
    },
    /// The server sends lost packets again.
    Resend {
        call: usize,
        packets: u32,
        timeout: bool,
    },
    /// The server's answer to a call without data, or its refusal, reaches the client.
    Answer {
        call: usize,
        busy: bool,
    },
    /// The server's question for the identity of a client's host reaches that host.
    Asked {
        client: usize,
        host: usize,
    },
    /// A host of a client begins its next handshake.
    Handshake {
        client: usize,
        host: usize,
    },
    /// A film plays on.
    Play(usize),
    TcpArrive {
        good: u32,
        lost: u32,
    },
    TcpAck {
        packets: u32,
    },
    TcpLoss {
        packets: u32,
    },
    /// A sample of the queue.
    Sample,
}

/// The link, the server, its clients, and what happens to them.
struct World {
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    random: fastrand::Rng,
    link: Link,
    server: Server,
    clients: Vec<Client>,
    calls: Vec<Transfer>,
    tcp: Option<Tcp>,
    /// When measuring begins, and the queue then: seconds of delay, and samples.
    measure_from: Time,
    queued: f64,
    samples: f64,
}

impl World {
    fn new(link: Link, threads: usize, seed: u64) -> Self {
        Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            random: fastrand::Rng::with_seed(seed),
            link,
            server: Server::new(threads),
            clients: Vec::new(),
            calls: Vec::new(),
            tcp: None,
            measure_from: 0,
            queued: 0.0,
            samples: 0.0,
        }
    }

    fn at(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events
            .push(Reverse((at.max(self.now), self.sequence, event)));
    }

    fn after(&mut self, wait: Time, event: Event) {
        self.at(self.now + wait, event);
    }

    /// The time that controllers see.
    fn instant(&self) -> Instant {
        start() + Duration::from_nanos(self.now)
    }

    fn run(&mut self, until: Time) {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > until {
                self.at(at, event);
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Join(client) => self.join(client),
            Event::Leave(client) => self.clients[client].leave(),
            Event::Widen => self.link.widen(table::WIDER),
            Event::Start(client) => self.start_call(client),
            Event::Again(client) => self.pump(client),
            Event::Request(call) => self.on_request(call),
            Event::ThreadFree => self.on_thread_free(),
            Event::Send(call) => self.send(call),
            Event::Arrive {
                call,
                good,
                lost,
                again,
            } => self.on_arrive(call, good, lost, again),
            Event::Ack { call, packets } => self.on_ack(call, packets),
            Event::Resend {
                call,
                packets,
                timeout,
            } => self.on_resend(call, packets, timeout),
            Event::Answer { call, busy } => self.on_answer(call, busy),
            Event::Asked { client, host } => self.on_asked(client, host),
            Event::Handshake { client, host } => self.handshake(client, host),
            Event::Play(client) => self.play(client),
            Event::TcpArrive { good, lost } => self.on_tcp_arrive(good, lost),
            Event::TcpAck { packets } => self.on_tcp_ack(packets),
            Event::TcpLoss { packets } => self.on_tcp_loss(packets),
            Event::Sample => self.sample(),
        }
    }

    fn sample(&mut self) {
        if self.now >= self.measure_from {
            self.queued += self.link.queue(self.now);
            self.samples += 1.0;
        }
        self.after(self.link.round_trip / 7, Event::Sample);
    }
}
