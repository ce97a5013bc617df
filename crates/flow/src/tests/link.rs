//! A link with a drop-tail queue, and a TCP sender (CUBIC, RFC 9438) beside the file server.

use super::{Event, SECOND, Time, World};

/// Bytes of a full packet on the wire.
const WIRE: f64 = 1472.0;
/// Packets that TCP sends in one piece, as segmentation offload does.
const BURST: u32 = 16;

/// The direction from the server to its clients; the other one has no queue.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) round_trip: Time,
    /// Nanoseconds that a packet takes.
    packet: f64,
    /// Packets that may wait.
    queue_most: f64,
    /// The part of the packets that the link loses.
    loss: f64,
    /// When the last packet in the queue leaves.
    free: f64,
}

impl Link {
    /// A link of a round trip in milliseconds and a width in Mbit/s; `queue` is in bandwidth-delay products.
    pub(super) fn new(milliseconds: f64, megabits: f64, queue: f64, loss: f64) -> Self {
        let packet = WIRE * 8.0 * 1e3 / megabits;
        let round_trip = milliseconds * 1e6;
        Self {
            round_trip: round_trip as Time,
            packet,
            queue_most: round_trip / packet * queue,
            loss,
            free: 0.0,
        }
    }

    /// Makes the link `times` as wide.
    pub(super) fn widen(&mut self, times: f64) {
        self.packet /= times;
    }

    /// Packets that the link carries in a second.
    pub(super) fn rate(&self) -> f64 {
        SECOND as f64 / self.packet
    }

    /// Seconds that a packet waits now.
    pub(super) fn queue(&self, now: Time) -> f64 {
        (self.free - now as f64).max(0.0) / SECOND as f64
    }

    /// Sends packets; returns how many get through and when the last of them arrives.
    fn carry(&mut self, now: Time, packets: u32, random: &mut fastrand::Rng) -> (u32, Time) {
        self.free = self.free.max(now as f64);
        let waiting = (self.free - now as f64) / self.packet;
        let room = (self.queue_most - waiting).max(0.0) as u32;
        let mut good = packets.min(room);
        if self.loss > 0.0 {
            let lost = (0..good).filter(|_| random.f64() < self.loss).count();
            good -= lost as u32;
        }
        self.free += self.packet * f64::from(good);
        (good, self.free as Time + self.round_trip / 2)
    }
}

/// A sender with endless data.
#[derive(Debug)]
pub(super) struct Tcp {
    window: f64,
    in_flight: u32,
    slow_start: bool,
    /// The window before the last loss, and the time of that loss.
    before: f64,
    lost_at: Time,
    pub(super) arrived: u64,
}

impl Tcp {
    pub(super) fn new() -> Self {
        Self {
            window: 10.0,
            in_flight: 0,
            slow_start: true,
            before: 0.0,
            lost_at: 0,
            arrived: 0,
        }
    }
}

impl World {
    /// Sends packets; returns how many get through and when the last of them arrives.
    pub(super) fn carry(&mut self, packets: u32) -> (u32, Time) {
        self.link.carry(self.now, packets, &mut self.random)
    }

    pub(super) fn tcp_send(&mut self) {
        loop {
            let Some(tcp) = &mut self.tcp else { return };
            let room = (tcp.window as u32).saturating_sub(tcp.in_flight);
            let packets = room.min(BURST);
            if packets == 0 {
                return;
            }
            tcp.in_flight += packets;
            let (good, at) = self.carry(packets);
            let lost = packets - good;
            self.at(at, Event::TcpArrive { good, lost });
        }
    }

    pub(super) fn on_tcp_arrive(&mut self, good: u32, lost: u32) {
        let Some(tcp) = &mut self.tcp else { return };
        tcp.arrived += u64::from(good);
        let half = self.link.round_trip / 2;
        if good > 0 {
            self.after(half, Event::TcpAck { packets: good });
        }
        if lost > 0 {
            self.after(half, Event::TcpLoss { packets: lost });
        }
    }

    pub(super) fn on_tcp_ack(&mut self, packets: u32) {
        let now = self.now;
        let Some(tcp) = &mut self.tcp else { return };
        tcp.in_flight -= packets;
        if tcp.slow_start {
            tcp.window += f64::from(packets);
        } else {
            let since = (now - tcp.lost_at) as f64 / SECOND as f64;
            let k = (tcp.before * 0.3 / 0.4).cbrt();
            let cubic = 0.4 * (since - k).powi(3) + tcp.before;
            let reno = 0.5 * f64::from(packets) / tcp.window;
            let step = (cubic - tcp.window) / tcp.window * f64::from(packets);
            tcp.window += step.max(reno).min(f64::from(packets));
        }
        self.tcp_send();
    }

    pub(super) fn on_tcp_loss(&mut self, packets: u32) {
        let (now, round_trip) = (self.now, self.link.round_trip);
        let Some(tcp) = &mut self.tcp else { return };
        tcp.in_flight -= packets;
        if tcp.slow_start || now > tcp.lost_at + round_trip * 3 / 2 {
            tcp.slow_start = false;
            tcp.lost_at = now;
            tcp.before = tcp.window;
            tcp.window = (tcp.window * 0.7).max(2.0);
        }
        self.tcp_send();
    }
}
