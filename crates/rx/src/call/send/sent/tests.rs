use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::peer::congestion::Controller;
use crate::peer::rtt::RttEstimator;

/// What a packet of the model is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    state: State,
    serial: u32,
    losses: u8,
    kept: usize,
}

/// The packets, and what they should be.
struct Model {
    sent: SentPackets,
    known: BTreeMap<u32, Known>,
    controller: Controller,
    now: Instant,
    serial: u32,
}

impl Model {
    fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant cannot be made in another way"
        )]
        let now = Instant::now();
        Self {
            sent: SentPackets::new(),
            known: BTreeMap::new(),
            controller: Controller::new(crate::CongestionKind::default(), now, 1444, 10, 1),
            now,
            serial: 0,
        }
    }

    fn depart(&mut self) -> Departure {
        self.now += Duration::from_micros(10);
        self.serial += 1;
        let rtt = RttEstimator::new(Duration::from_millis(100));
        Departure {
            serial: self.serial,
            time: self.now,
            token: self.controller.on_packet_sent(self.now, 1000, false, &rtt),
            size: 1000,
        }
    }

    fn push(&mut self, len: usize) {
        let departure = self.depart();
        let known = Known {
            state: State::InFlight,
            serial: departure.serial,
            losses: 0,
            kept: len,
        };
        self.known.insert(self.sent.next(), known);
        self.sent.push(vec![7; len].into(), false, departure);
    }

    fn is(&self, sequence: u32, state: State) -> bool {
        self.known
            .get(&sequence)
            .is_some_and(|known| known.state == state)
    }

    /// Notes an arrival; says whether it is news.
    fn arrive(&mut self, sequence: u32, frees: bool) -> bool {
        let known = self.known.get_mut(&sequence);
        let Some(known) = known.filter(|known| known.state != State::Acked) else {
            return false;
        };
        known.state = State::Acked;
        known.kept = if frees { 0 } else { known.kept };
        true
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let frees = random.bool();
        let (first, next) = (self.sent.first(), self.sent.next());
        let near = random.u32(first.saturating_sub(2)..next + 3);
        match random.u8(0..10) {
            0..3 => self.push(random.usize(0..1400)),
            3 => {
                let arrived = self.sent.arrived_softly(near, frees);
                assert_eq!(arrived.is_some(), self.arrive(near, frees));
            }
            4 => {
                let end = near + random.u32(0..6);
                let mut told = Vec::new();
                self.sent
                    .range_arrived(near, end, frees, |arrived| told.push(arrived.sequence));
                let range = near..end.min(next);
                let may_be = near >= first;
                let expected = range.filter(|sequence| may_be && self.arrive(*sequence, frees));
                assert_eq!(told, expected.collect::<Vec<u32>>());
            }
            5 => {
                let is_taken = self.sent.take_back(near);
                assert_eq!(is_taken, self.is(near, State::Acked));
                if let Some(known) = self.known.get_mut(&near).filter(|_| is_taken) {
                    known.state = State::Lost;
                }
            }
            6 if self.is(near, State::InFlight) => {
                self.sent.lose(near);
                let known = self.known.get_mut(&near).unwrap();
                (known.state, known.losses) = (State::Lost, known.losses + 1);
            }
            7 if self.is(near, State::Lost) => {
                let departure = self.depart();
                self.sent.resend(near, departure);
                let known = self.known.get_mut(&near).unwrap();
                (known.state, known.serial) = (State::InFlight, departure.serial);
            }
            8 if random.u8(0..4) == 0 => {
                let first = near.clamp(first, next);
                for sequence in self.sent.first()..first {
                    let arrived = self.sent.arrived(sequence, frees).is_some();
                    assert_eq!(arrived, self.arrive(sequence, frees));
                }
                self.sent.release_below(first);
                self.known.retain(|sequence, _| *sequence >= first);
            }
            9 if random.u8(0..20) == 0 => {
                let mut told = Vec::new();
                self.sent.withdraw(|sequence, _| told.push(sequence));
                let known = self.known.iter_mut();
                let in_flight = known.filter(|(_, known)| known.state == State::InFlight);
                let expected = in_flight.map(|(sequence, known)| {
                    known.state = State::Lost;
                    *sequence
                });
                assert_eq!(told, expected.collect::<Vec<u32>>());
            }
            _ => {}
        }
    }

    fn check(&self) {
        self.sent.check();
        let packets = self.sent.iter().map(|(sequence, packet)| {
            let known = Known {
                state: packet.state,
                serial: packet.newest.serial,
                losses: packet.losses,
                kept: packet.payload.len(),
            };
            (sequence, known)
        });
        assert_eq!(packets.collect::<BTreeMap<u32, Known>>(), self.known);
        let kept: usize = self.known.values().map(|known| known.kept).sum();
        assert_eq!(self.sent.kept(), kept);
        let acked = |(_, known): &(&u32, &Known)| known.state == State::Acked;
        let highest = self.known.iter().rfind(acked);
        assert_eq!(self.sent.highest_acked(), highest.map(|(seq, _)| *seq));
        let oldest = self
            .known
            .values()
            .find(|known| known.state != State::Acked);
        let found = self.sent.oldest().map(|packet| packet.newest.serial);
        assert_eq!(found, oldest.map(|known| known.serial));
    }
}

/// Random events against a plain table of packets.
#[test]
fn agrees_with_a_table() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..100 {
        let mut model = Model::new();
        for _ in 0..200 {
            model.step(&mut random);
            model.check();
        }
    }
}

/// A packet that arrives tells which of its transmissions that may have been.
#[test]
fn an_arrival_tells_what_was_sent_before() {
    let mut model = Model::new();
    model.push(100);
    let first = model.sent.get(1).unwrap().newest;
    model.sent.lose(1);
    let again = model.depart();
    model.sent.resend(1, again);
    let arrived = model.sent.arrived_softly(1, false).unwrap();
    assert_eq!(arrived.newest.serial, again.serial);
    assert_eq!(arrived.lost_transmission, Some(first.time));
    assert!(!arrived.was_lost);
    assert!(model.sent.arrived_softly(1, false).is_none(), "known");
    assert!(model.sent.take_back(1));
    assert!(model.sent.arrived_softly(1, false).unwrap().was_lost);
}

/// A payload is kept for as long as the peer may ask for it again, and no longer.
#[test]
fn a_payload_is_kept_until_it_arrived_for_good() {
    let mut model = Model::new();
    for len in [100, 20, 3] {
        model.push(len);
    }
    model.sent.arrived_softly(2, false);
    assert_eq!(model.sent.kept(), 123);
    model.sent.arrived(1, false);
    model.sent.release_below(2);
    assert_eq!((model.sent.first(), model.sent.kept()), (2, 23));
    model.sent.arrived_softly(3, true);
    assert_eq!(model.sent.kept(), 20, "the peer never takes it back");
    model.sent.clear(|_| panic!("nothing is in flight"));
    assert_eq!((model.sent.kept(), model.sent.unacknowledged()), (0, 0));
    assert_eq!((model.sent.first(), model.sent.next()), (4, 4));
}
