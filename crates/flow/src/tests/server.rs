//! An OpenAFS file server: threads, hosts that it asks for their identity, and its calls on the link.

use std::collections::VecDeque;

use super::{Event, SECOND, Time, World};

/// The most packets of a call in flight.
// spec: rx#windows
const WINDOW: u32 = 32;
/// The window of a channel before its first call. A longer reply keeps a thread for a round trip.
// spec: rx#windows
const COLD_WINDOW: u32 = 16;
/// The most packets in one event: fewer are more exact, more are faster.
const CHUNK: u32 = 8;
/// The server refuses a call that has waited longer than this for a thread.
// spec: rx#busy-servers
const BUSY: Time = 2 * SECOND;
/// The part of a retransmission timeout beyond the round trip.
// spec: rx#retransmission
const TIMEOUT: Time = 350_000_000;
/// The mean time in which a thread works on a call, in nanoseconds.
const WORK: u64 = 300_000;

/// The threads, and the calls that wait for one, each with the time it came.
#[derive(Debug)]
pub(super) struct Server {
    free: usize,
    waiting: VecDeque<(usize, Time)>,
    /// The number of refused calls.
    pub(super) refused: usize,
}

impl Server {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            free: threads,
            waiting: VecDeque::new(),
            refused: 0,
        }
    }
}

/// A call, as the server and the client see it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) client: usize,
    pub(super) channel: usize,
    /// The number of the piece, and the call as the controller counts it.
    pub(super) piece: u64,
    pub(super) call: crate::Call,
    /// Packets of the reply; 0 for the handshake of a connection.
    pub(super) packets: u32,
    pub(super) since: Time,
    /// Whether it is over for the client.
    pub(super) over: bool,
    pub(super) answered: bool,
    /// Packets not sent yet, and those to send again, which go first.
    unsent: u32,
    again: u32,
    window: u32,
    in_flight: u32,
    timeouts: u32,
    /// Packets that the client misses, and those that came after them.
    holes: u32,
    held: u32,
    pub(super) arrived: u32,
}

impl Transfer {
    pub(super) fn new(
        client: usize,
        channel: usize,
        packets: u32,
        piece: u64,
        call: crate::Call,
    ) -> Self {
        Self {
            client,
            channel,
            piece,
            call,
            packets,
            since: 0,
            over: false,
            answered: false,
            unsent: packets,
            again: 0,
            window: 1,
            in_flight: 0,
            timeouts: 0,
            holes: 0,
            held: 0,
            arrived: 0,
        }
    }
}

impl World {
    pub(super) fn on_request(&mut self, call: usize) {
        self.server.waiting.push_back((call, self.now));
        self.serve();
    }

    pub(super) fn on_thread_free(&mut self) {
        self.server.free += 1;
        self.serve();
    }

    fn serve(&mut self) {
        while self.server.free > 0 {
            let Some((call, since)) = self.server.waiting.pop_front() else {
                return;
            };
            if self.calls[call].over {
                continue;
            }
            if self.now - since > BUSY {
                self.refuse(call);
                continue;
            }
            self.server.free -= 1;
            let until = self.begin(call);
            self.at(until, Event::ThreadFree);
        }
    }

    fn refuse(&mut self, call: usize) {
        self.server.refused += 1;
        let half = self.link.round_trip / 2;
        self.after(half, Event::Answer { call, busy: true });
    }

    /// A thread takes a call; returns until when that keeps it busy.
    fn begin(&mut self, call: usize) -> Time {
        let (now, round_trip) = (self.now, self.link.round_trip);
        let work = self.random.u64(..2 * WORK);
        let Transfer {
            client,
            channel,
            packets,
            ..
        } = self.calls[call];
        let channel = &mut self.clients[client].channels[channel];
        let (host, connection) = (channel.host, channel.connection);
        let was_warm = std::mem::replace(&mut channel.warm, true);
        let host_locked = self.clients[client].hosts[host].locked_until;
        let known = self.clients[client].is_known(host, connection);
        if !known {
            if host_locked > now {
                self.refuse(call);
                return now;
            }
            let until = now + round_trip;
            self.clients[client].hosts[host].locked_until = until;
            self.clients[client].make_known(host, connection);
            self.after(round_trip / 2, Event::Asked { client, host });
            self.at(until + round_trip / 2, Event::Answer { call, busy: false });
            return until;
        }
        let begin = now.max(host_locked) + work;
        if packets == 0 {
            self.at(begin + round_trip / 2, Event::Answer { call, busy: false });
            return begin;
        }
        self.at(begin, Event::Send(call));
        if was_warm || packets <= COLD_WINDOW {
            begin
        } else {
            begin + round_trip
        }
    }

    /// Sends as much as a call's window allows.
    pub(super) fn send(&mut self, number: usize) {
        loop {
            let call = &mut self.calls[number];
            if call.over {
                return;
            }
            let room = call.window.saturating_sub(call.in_flight).min(CHUNK);
            let again = call.again > 0;
            let packets = room.min(if again { call.again } else { call.unsent });
            if packets == 0 {
                return;
            }
            if again {
                call.again -= packets;
            } else {
                call.unsent -= packets;
            }
            call.in_flight += packets;
            let (good, at) = self.carry(packets);
            let lost = packets - good;
            self.at(
                at,
                Event::Arrive {
                    call: number,
                    good,
                    lost,
                    again,
                },
            );
        }
    }

    pub(super) fn on_arrive(&mut self, number: usize, good: u32, lost: u32, again: bool) {
        let round_trip = self.link.round_trip;
        let call = &mut self.calls[number];
        if call.over {
            return;
        }
        let mut came = 0;
        if again {
            call.holes -= good;
            call.held += good;
        } else if call.holes > 0 {
            call.held += good;
        } else {
            came += good;
        }
        if call.holes == 0 {
            came += std::mem::take(&mut call.held);
        }
        if lost > 0 {
            if !again {
                call.holes += lost;
            }
            // Later packets soon show a single loss; else the server's timer does.
            let shown = !again && lost == 1 && call.holes == 1 && call.in_flight > good + lost;
            let wait = if shown {
                round_trip / 2 + round_trip / 10
            } else {
                (round_trip + TIMEOUT) << call.timeouts.min(4)
            };
            let event = Event::Resend {
                call: number,
                packets: lost,
                timeout: !shown,
            };
            self.after(wait, event);
        }
        if good > 0 {
            let packets = good;
            self.after(
                round_trip / 2,
                Event::Ack {
                    call: number,
                    packets,
                },
            );
        }
        if came > 0 {
            self.on_data(number, came);
        }
    }

    pub(super) fn on_ack(&mut self, number: usize, packets: u32) {
        let call = &mut self.calls[number];
        call.in_flight -= packets;
        call.window = (call.window + packets).min(WINDOW);
        self.send(number);
    }

    pub(super) fn on_resend(&mut self, number: usize, packets: u32, timeout: bool) {
        let call = &mut self.calls[number];
        call.in_flight -= packets;
        call.again += packets;
        if timeout {
            call.timeouts += 1;
            call.window = 1;
        } else {
            call.window = (call.window / 2).max(1);
        }
        // The oldest goes at once, even if the window is full.
        call.window = call.window.max(call.in_flight + 1);
        self.send(number);
    }
}
