//! A bottleneck in virtual time, packet by packet, to judge the algorithms on.
//!
//! Senders share one drop-tail queue; behind it lie a delay, random loss and reordering. Receivers
//! acknowledge every second packet, or at once when a packet is missing. Loss detection is as in
//! RACK: time-based, with a reordering window that grows when a loss proves spurious. Everything
//! follows from the seed.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::{Duration, Instant},
};

use super::{AckedPacket, CongestionKind, Controller, LostPacket, SentToken};
use crate::peer::{pacing::Pacer, rtt::RttEstimator};

/// A point in time to start from.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant cannot be made in another way"
)]
pub(super) fn start_of_time() -> Instant {
    Instant::now()
}

/// The shared path. Rates are in bytes per second.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    pub(super) queue: u64,
    pub(super) loss: f64,
    pub(super) reorder: f64,
    pub(super) reorder_delay: Duration,
}

impl Link {
    pub(super) fn new(megabits: u64, rtt_ms: f64, queue_bdp: f64) -> Self {
        let rate = megabits * 125_000;
        let rtt = Duration::from_secs_f64(rtt_ms / 1000.0);
        let bdp = rate as f64 * rtt.as_secs_f64();
        Self {
            rate,
            rtt,
            queue: super::flight::to_u64(bdp * queue_bdp),
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
        }
    }

    pub(super) fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    pub(super) fn reorder(self, reorder: f64, delay: Duration) -> Self {
        Self {
            reorder,
            reorder_delay: delay,
            ..self
        }
    }
}

/// One sender.
#[derive(Clone, Debug)]
pub(super) struct FlowSpec {
    pub(super) kind: CongestionKind,
    pub(super) packet: u64,
    pub(super) initial_window: u32,
    pub(super) paced: bool,
    pub(super) starts: Duration,
    pub(super) shares: u8,
    /// Bytes to deliver; `None` sends until the end of the run.
    pub(super) bytes: Option<u64>,
}

impl FlowSpec {
    pub(super) fn new(kind: CongestionKind) -> Self {
        Self {
            kind,
            packet: 1444,
            initial_window: 32,
            paced: true,
            starts: Duration::ZERO,
            shares: 1,
            bytes: None,
        }
    }

    /// What Linux does without the `fq` queueing discipline: CUBIC, clocked by acknowledgements.
    pub(super) fn tcp_cubic() -> Self {
        Self {
            initial_window: 10,
            paced: false,
            packet: 1500,
            ..Self::new(CongestionKind::Cubic)
        }
    }

    pub(super) fn bytes(self, bytes: u64) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    pub(super) fn shares(self, shares: u8) -> Self {
        Self { shares, ..self }
    }

    pub(super) fn starts(self, starts: Duration) -> Self {
        Self { starts, ..self }
    }
}

/// What became of one flow.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowReport {
    /// Bytes that arrived for the first time.
    pub(super) goodput: u64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) spurious: u64,
    /// When the last byte arrived, from the flow's start.
    pub(super) finished: Option<Duration>,
}

/// What became of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) flows: Vec<FlowReport>,
    pub(super) ran: Duration,
    /// The queue, averaged over time, after the first two seconds.
    pub(super) queue_mean: f64,
    pub(super) dropped: u64,
}

impl Report {
    /// Share of the link used by `flows` over the whole run.
    pub(super) fn share(&self, link: &Link, flows: std::ops::Range<usize>) -> f64 {
        let bytes: u64 = self.flows[flows].iter().map(|f| f.goodput).sum();
        bytes as f64 / (link.rate as f64 * self.ran.as_secs_f64())
    }

    /// Jain's fairness index of `flows`: 1 if all got the same, 1/n if one got all.
    pub(super) fn jain(&self, flows: std::ops::Range<usize>) -> f64 {
        let shares: Vec<f64> = self.flows[flows].iter().map(|f| f.goodput as f64).collect();
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|s| s * s).sum();
        sum * sum / (shares.len() as f64 * squares)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Wake(usize),
    Arrive { flow: usize, id: u64 },
    AckTimer { flow: usize },
    Ack { flow: usize, ack: usize },
    Timer { flow: usize },
}

struct Tracked {
    token: SentToken,
    sent: Instant,
    acked: bool,
    lost: bool,
}

struct Flow {
    spec: FlowSpec,
    controller: Controller,
    pacer: Pacer,
    rtt: RttEstimator,
    started: Instant,
    /// Packets by id, from `base`.
    packets: VecDeque<Tracked>,
    base: u64,
    /// Ids before this were examined for loss.
    examined: u64,
    newest_acked: Option<(u64, Instant)>,
    reorder_window: u32,
    last_progress: Instant,
    timeouts: u32,
    wake_at: Option<Instant>,
    timer_at: Option<Instant>,
    /// Lost packets to send again, in bytes.
    resend: u64,
    fresh_left: Option<u64>,
    received: Vec<u64>,
    next_expected: u64,
    ack_timer: bool,
    report: FlowReport,
}

/// The running simulation.
pub(super) struct Sim {
    link: Link,
    now: Instant,
    began: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    acks: Vec<Vec<u64>>,
    free_acks: Vec<usize>,
    flows: Vec<Flow>,
    random: fastrand::Rng,
    link_free_at: Instant,
    queue_area: f64,
    queue_since: Instant,
    report: Report,
    /// Prints the state of all flows once per interval when set.
    pub(super) trace: Option<Duration>,
}

impl Sim {
    pub(super) fn new(link: Link, flows: Vec<FlowSpec>, seed: u64) -> Self {
        let began = start_of_time();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sim = Self {
            link,
            now: began,
            began,
            events: BinaryHeap::new(),
            order: 0,
            acks: Vec::new(),
            free_acks: Vec::new(),
            flows: Vec::new(),
            random: random.fork(),
            link_free_at: began,
            queue_area: 0.0,
            queue_since: began,
            report: Report::default(),
            trace: None,
        };
        for (index, spec) in flows.into_iter().enumerate() {
            let started = began + spec.starts;
            let size = usize::try_from(spec.packet).unwrap();
            sim.push(started, Event::Start(index));
            let (kind, window) = (spec.kind, spec.initial_window);
            let mut controller = Controller::new(kind, started, size, window, random.u64(..));
            controller.set_shares(started, spec.shares);
            sim.flows.push(Flow {
                controller,
                pacer: Pacer::new(started, size),
                rtt: RttEstimator::new(Duration::from_millis(100)),
                started,
                packets: VecDeque::new(),
                base: 0,
                examined: 0,
                newest_acked: None,
                reorder_window: 0,
                last_progress: started,
                timeouts: 0,
                wake_at: None,
                timer_at: None,
                resend: 0,
                fresh_left: spec.bytes,
                received: Vec::new(),
                next_expected: 0,
                ack_timer: false,
                report: FlowReport {
                    ..FlowReport::default()
                },
                spec,
            });
        }
        sim
    }

    /// Runs for `limit`, or until every flow with a size is done.
    pub(super) fn run(mut self, limit: Duration) -> Report {
        let end = self.began + limit;
        let mut next_trace = self.began;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                self.now = end;
                break;
            }
            self.now = at;
            if let Some(interval) = self.trace
                && at >= next_trace
            {
                next_trace = at + interval;
                self.print();
            }
            self.handle(event);
            if self.flows.iter().all(|f| f.report.finished.is_some()) {
                break;
            }
        }
        self.report.ran = self.now - self.began;
        let measured = self
            .now
            .saturating_duration_since(self.queue_since)
            .as_secs_f64();
        self.report.queue_mean = self.queue_area / measured.max(1e-9);
        self.report.flows = self.flows.into_iter().map(|f| f.report).collect();
        self.report
    }

    fn print(&self) {
        use std::fmt::Write;
        let mut line = format!("{:8.3}", (self.now - self.began).as_secs_f64());
        let queued = self
            .link_free_at
            .saturating_duration_since(self.now)
            .as_secs_f64();
        write!(line, " q={:5.1}ms", queued * 1e3).unwrap();
        for f in &self.flows {
            let c = &f.controller;
            write!(
                line,
                " | {} {} w={} fl={} rate={:.1}M lost={} srtt={:.1}",
                c.name(),
                c.state(),
                c.window() / f.spec.packet,
                c.bytes_in_flight() / f.spec.packet,
                c.pacing_rate(&f.rtt).unwrap_or(0) as f64 * 8e-6,
                f.report.lost,
                f.rtt.smoothed().as_secs_f64() * 1e3,
            )
            .unwrap();
        }
        eprintln!("{line}");
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start(flow) => self.send(flow),
            Event::Wake(flow) => {
                if self.flows[flow].wake_at == Some(self.now) {
                    self.flows[flow].wake_at = None;
                    self.send(flow);
                }
            }
            Event::Arrive { flow, id } => self.arrive(flow, id),
            Event::AckTimer { flow } => {
                self.flows[flow].ack_timer = false;
                self.send_ack(flow);
            }
            Event::Ack { flow, ack } => self.ack(flow, ack),
            Event::Timer { flow } => self.timer(flow),
        }
    }

    fn send(&mut self, index: usize) {
        let now = self.now;
        loop {
            let f = &mut self.flows[index];
            let size = f.spec.packet;
            let has_data = f.resend > 0 || f.fresh_left != Some(0);
            if !has_data || f.controller.available() < size {
                break;
            }
            let rate = f.controller.pacing_rate(&f.rtt).filter(|_| f.spec.paced);
            let quantum = f.controller.send_quantum(&f.rtt);
            let mut budget = f.pacer.budget(now, rate, quantum).min(64 * size);
            if budget == 0 {
                if let Some(at) = f.pacer.next_release(now)
                    && f.wake_at.is_none_or(|old| at < old || old < now)
                {
                    f.wake_at = Some(at);
                    self.push(at, Event::Wake(index));
                }
                break;
            }
            while budget > 0 && self.flows[index].controller.available() >= size {
                let f = &mut self.flows[index];
                if f.resend > 0 {
                    f.resend = f.resend.saturating_sub(size);
                } else {
                    match &mut f.fresh_left {
                        Some(0) => break,
                        Some(left) => *left = left.saturating_sub(size),
                        None => {}
                    }
                }
                let drained = f.resend == 0 && f.fresh_left == Some(0);
                let bytes = usize::try_from(size).unwrap();
                let token = f.controller.on_packet_sent(now, bytes, drained, &f.rtt);
                f.pacer.on_sent(now, bytes);
                let id = f.base + f.packets.len() as u64;
                f.packets.push_back(Tracked {
                    token,
                    sent: now,
                    acked: false,
                    lost: false,
                });
                f.report.sent += size;
                budget = budget.saturating_sub(size);
                self.enter_link(index, id, size);
            }
        }
        self.arm(index);
    }

    fn enter_link(&mut self, flow: usize, id: u64, size: u64) {
        let backlog = self
            .link_free_at
            .saturating_duration_since(self.now)
            .as_secs_f64();
        let queued = backlog * self.link.rate as f64;
        if queued + size as f64 > self.link.queue as f64 + size as f64 {
            self.report.dropped += 1;
            return;
        }
        let transmit = Duration::from_secs_f64(size as f64 / self.link.rate as f64);
        self.link_free_at = self.link_free_at.max(self.now) + transmit;
        if self.now >= self.began + Duration::from_secs(2) {
            if self.queue_since == self.began {
                self.queue_since = self.now;
            }
            // Each packet waits for what is before it: the area under the queue grows by that.
            self.queue_area += backlog * size as f64;
        }
        if self.random.f64() < self.link.loss {
            return;
        }
        let mut at = self.link_free_at + self.link.rtt / 2;
        if self.link.reorder > 0.0 && self.random.f64() < self.link.reorder {
            at += self.link.reorder_delay;
        }
        self.push(at, Event::Arrive { flow, id });
    }

    fn arrive(&mut self, index: usize, id: u64) {
        let now = self.now;
        let f = &mut self.flows[index];
        f.received.push(id);
        let in_order = id == f.next_expected;
        f.next_expected = f.next_expected.max(id + 1);
        if f.received.len() >= 2 || !in_order {
            self.send_ack(index);
        } else if !f.ack_timer {
            f.ack_timer = true;
            self.push(
                now + Duration::from_millis(2),
                Event::AckTimer { flow: index },
            );
        }
    }

    fn send_ack(&mut self, index: usize) {
        let f = &mut self.flows[index];
        if f.received.is_empty() {
            return;
        }
        let slot = self.free_acks.pop().unwrap_or_else(|| {
            self.acks.push(Vec::new());
            self.acks.len() - 1
        });
        std::mem::swap(&mut self.acks[slot], &mut f.received);
        let at = self.now + self.link.rtt / 2;
        self.push(
            at,
            Event::Ack {
                flow: index,
                ack: slot,
            },
        );
    }

    fn ack(&mut self, index: usize, slot: usize) {
        let now = self.now;
        let mut ids = std::mem::take(&mut self.acks[slot]);
        let began = self.flows[index].started;
        let f = &mut self.flows[index];
        let size = f.spec.packet;
        let bytes = usize::try_from(size).unwrap();
        f.last_progress = now;
        f.timeouts = 0;
        f.controller.begin_ack();
        for id in ids.drain(..) {
            let Some(packet) = id
                .checked_sub(f.base)
                .and_then(|i| f.packets.get_mut(usize::try_from(i).unwrap()))
            else {
                // Declared lost long ago and forgotten.
                f.resend = f.resend.saturating_sub(size);
                f.report.spurious += 1;
                f.report.goodput += size;
                continue;
            };
            packet.acked = true;
            f.report.goodput += size;
            if packet.lost {
                f.report.spurious += 1;
                let token = packet.token;
                f.controller
                    .on_spurious_loss(now, token, bytes, packet.sent);
                f.reorder_window = (f.reorder_window + 1).min(4);
                // The retransmission, if it did not leave yet, is not needed.
                if f.resend >= size {
                    f.resend -= size;
                } else if let Some(left) = &mut f.fresh_left {
                    // It did: what it carries counts as the next piece of the file.
                    *left = left.saturating_sub(size);
                }
                continue;
            }
            if f.newest_acked.is_none_or(|(newest, _)| id > newest) {
                f.newest_acked = Some((id, packet.sent));
                f.rtt.update(now, now - packet.sent, None);
            }
            let acked = AckedPacket {
                token: packet.token,
                time_sent: packet.sent,
                bytes,
            };
            f.controller.on_packet_acked(now, &acked);
        }
        self.acks[slot] = ids;
        self.free_acks.push(slot);
        Self::detect_loss(f, now);
        f.controller.end_ack(now, &f.rtt);
        let keep = f.rtt.smoothed() * 2;
        while f
            .packets
            .front()
            .is_some_and(|p| p.acked || (p.lost && p.sent + keep < now))
        {
            f.packets.pop_front();
            f.base += 1;
        }
        if f.spec.bytes.is_some_and(|bytes| f.report.goodput >= bytes)
            && f.report.finished.is_none()
        {
            // The last byte arrived half a round trip ago.
            f.report.finished = Some(now - began - self.link.rtt / 2);
        }
        self.send(index);
    }

    /// RACK: a packet is lost if one sent later, by more than the reordering window, was acknowledged.
    fn detect_loss(f: &mut Flow, now: Instant) {
        let Some((newest, newest_sent)) = f.newest_acked else {
            return;
        };
        let window = f.rtt.min() / 4 * f.reorder_window;
        let bytes = usize::try_from(f.spec.packet).unwrap();
        let mut new_burst = true;
        let mut id = f.examined.max(f.base);
        let mut settled = true;
        while id < newest {
            let packet = &mut f.packets[usize::try_from(id - f.base).unwrap()];
            let late = if f.reorder_window == 0 {
                newest - id >= 3
            } else {
                newest_sent >= packet.sent && now >= packet.sent + f.rtt.latest() + window
            };
            if !packet.acked && !packet.lost {
                if late {
                    packet.lost = true;
                    f.report.lost += 1;
                    f.resend += f.spec.packet;
                    let lost = LostPacket {
                        token: packet.token,
                        time_sent: packet.sent,
                        bytes,
                    };
                    f.controller.on_loss(now, &lost, new_burst, false, &f.rtt);
                    new_burst = false;
                } else {
                    settled = false;
                    if f.reorder_window > 0 {
                        break;
                    }
                }
            } else {
                new_burst = true;
            }
            id += 1;
            if settled {
                f.examined = id;
            }
        }
    }

    fn arm(&mut self, index: usize) {
        let now = self.now;
        let f = &mut self.flows[index];
        if f.controller.bytes_in_flight() == 0 {
            return;
        }
        if f.timer_at.is_none_or(|at| at <= now) {
            let at = now + (f.rtt.rto(Duration::from_millis(10)) * (1 << f.timeouts.min(6)));
            f.timer_at = Some(at);
            self.push(at, Event::Timer { flow: index });
        }
    }

    /// The retransmission timer: lazily re-armed, it acts if nothing was acknowledged for an RTO.
    fn timer(&mut self, index: usize) {
        let now = self.now;
        let f = &mut self.flows[index];
        f.timer_at = None;
        let rto = f.rtt.rto(Duration::from_millis(10)) * (1 << f.timeouts.min(6));
        if f.controller.bytes_in_flight() > 0 && now >= f.last_progress + rto {
            f.timeouts += 1;
            let bytes = usize::try_from(f.spec.packet).unwrap();
            for packet in f.packets.iter_mut().filter(|p| !p.acked && !p.lost) {
                packet.lost = true;
                f.report.lost += 1;
                f.resend += f.spec.packet;
                let lost = LostPacket {
                    token: packet.token,
                    time_sent: packet.sent,
                    bytes,
                };
                f.controller.on_loss(now, &lost, false, false, &f.rtt);
            }
            if f.timeouts >= 2 {
                f.controller.on_persistent_timeout(now, &f.rtt);
            }
            f.last_progress = now;
        } else if f.reorder_window > 0 {
            Self::detect_loss(f, now);
        }
        self.send(index);
    }
}
