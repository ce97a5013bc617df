//! What peers without the extension rely on. OpenAFS's and Linux's rules, checked on the wire.

use std::time::Duration;

use bytes::Bytes;

use super::old_peer;
use super::pair::{CLIENT, Capture, Link, Pair, SERVER, pattern};
use super::raw::Raw;
use crate::packet::ack::{Ack, Reason};
use crate::packet::{Flags, Header, PacketType};
use crate::{Config, Read};

const SECOND: Duration = Duration::from_secs(1);

/// A transfer both ways between a side of each kind; gives what crossed the wire.
fn transfer(seed: u64, ours: usize, link: Link) -> (Pair, Capture) {
    let mut configs = [old_peer(), old_peer()];
    configs[ours] = Config::default();
    let mut pair = Pair::with_configs(seed, link, configs);
    let capture = pair.capture();
    let connection = pair.connect();
    pair.echo(connection, 400_000).unwrap();
    (pair, capture)
}

fn lossy() -> Link {
    Link {
        loss: 0.02,
        reorder: 0.02,
        duplicate: 0.02,
        ..Link::default()
    }
}

/// Follows one direction's DATA and the other's ACKs in the order in which they left.
#[derive(Default)]
struct Ledger {
    highest_sent: u32,
    highest_received: u32,
    first: u32,
    window: u32,
}

/// `from` sends DATA; the other side acknowledges. No delay, so leaving order is arrival order.
fn check_ledger(capture: &Capture, from: usize) {
    let mut ledger = Ledger {
        window: 16,
        first: 1,
        ..Ledger::default()
    };
    for (side, header, body) in capture.0.borrow().iter() {
        match header.packet_type {
            PacketType::Data if *side == from => {
                assert!(
                    header.sequence < ledger.first + ledger.window,
                    "{} is beyond {} + {}",
                    header.sequence,
                    ledger.first,
                    ledger.window
                );
                ledger.highest_sent = ledger.highest_sent.max(header.sequence);
            }
            PacketType::Ack if *side != from => {
                let ack = Ack::decode(body).unwrap();
                assert!(ack.first >= ledger.first, "firstPacket never goes back");
                assert!(ack.first + u32::from(ack.soft.len()) <= ledger.highest_sent + 1);
                assert!(ack.previous <= ledger.highest_sent);
                if ledger.highest_received > 0 || ack.first > 1 {
                    assert!(
                        ack.previous > 0,
                        "previousPacket 0 looks like a restart to Linux"
                    );
                }
                ledger.highest_received = ledger.highest_received.max(ack.previous);
                ledger.first = ack.first;
                ledger.window = ack.trailer.window.unwrap();
            }
            _ => {}
        }
    }
    assert!(ledger.highest_sent > 200);
}

#[test]
fn windows_and_acknowledgements_are_honest() {
    for ours in [CLIENT, SERVER] {
        let link = Link {
            delay: Duration::ZERO,
            ..Link::default()
        };
        let (_, capture) = transfer(1, ours, link);
        check_ledger(&capture, CLIENT);
        check_ledger(&capture, SERVER);
    }
}

#[test]
fn acknowledgements_are_honest_on_bad_links() {
    for seed in 0..super::seeds(20) {
        for ours in [CLIENT, SERVER] {
            let (pair, capture) = transfer(seed, ours, lossy());
            let mut highest_sent = [0; 2];
            for (side, header, body) in capture.0.borrow().iter() {
                let other = 1 - side;
                match header.packet_type {
                    PacketType::Data => {
                        highest_sent[*side] = highest_sent[*side].max(header.sequence)
                    }
                    PacketType::Ack => {
                        let ack = Ack::decode(body).unwrap();
                        assert!(ack.first + u32::from(ack.soft.len()) <= highest_sent[other] + 1);
                        assert!(ack.first == 1 || ack.previous > 0);
                        assert!(
                            !matches!(ack.reason, Reason::OutOfSequence | Reason::ExceedsWindow)
                                || ack.previous > 0
                        );
                    }
                    _ => {}
                }
            }
            assert_eq!(pair.sides[CLIENT].endpoint.stats().violations, 0);
            assert_eq!(pair.sides[SERVER].endpoint.stats().violations, 0);
        }
    }
}

#[test]
fn every_second_packet_is_acknowledged() {
    for ours in [CLIENT, SERVER] {
        // Packets that come at one moment are acknowledged together, so they come one by one here.
        let (_, capture) = transfer(
            1,
            ours,
            Link {
                rate: 12_500_000,
                ..Link::default()
            },
        );
        let data = capture.of(1 - ours, PacketType::Data).len();
        let acks = capture.acks(ours).len();
        assert!(acks * 2 + 2 >= data, "{acks} ACKs for {data} packets");
    }
}

/// Whether an ACK carries the extension.
fn is_extended(body: &Bytes) -> bool {
    body.windows(4).any(|magic| magic == b"afar")
}

#[test]
fn peers_that_proved_old_are_spared_the_extension() {
    for ours in [CLIENT, SERVER] {
        let link = Link {
            rate: 12_500_000,
            ..Link::default()
        };
        let (mut pair, capture) = transfer(1, ours, link);
        let acks = capture.of(ours, PacketType::Ack);
        let extended = acks.iter().filter(|(_, body)| is_extended(body)).count();
        // A client hears the server's acknowledgements first and soon knows; a server knows when it
        // has sent a reply.
        if ours == SERVER {
            assert!(extended > 0);
        }
        assert!(
            ours == SERVER || extended <= 10,
            "{extended} of {}",
            acks.len()
        );
        let connection = pair.connect();
        let capture = pair.capture();
        pair.echo(connection, 400_000).unwrap();
        let acks = capture.of(ours, PacketType::Ack);
        assert!(acks.len() > 100);
        assert!(!acks.iter().any(|(_, body)| is_extended(body)));
        let theirs = capture.of(1 - ours, PacketType::Ack);
        assert!(
            !theirs.iter().any(|(_, body)| is_extended(body)),
            "an old peer never sends it"
        );
    }
}

/// A client must acknowledge the reply's end by itself within 400 ms.
#[test]
fn the_last_packet_is_acknowledged_in_time() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.take();
    raw.data(1, Flags::LAST_PACKET, b"reply");
    while raw.endpoint.read(call) != Read::End {}
    let acks = raw.wait(Duration::from_millis(400));
    let last = acks
        .iter()
        .rfind(|(_, header, _)| header.packet_type == PacketType::Ack)
        .unwrap();
    assert_eq!(Ack::decode(&last.2).unwrap().first, 2);
}

/// A call whose request has left, to a peer whose round trip of 10 ms is known from a call before.
fn asked_a_known_peer() -> (Raw, crate::CallId) {
    let (mut raw, connection) = Raw::client(Config {
        mtu_discovery: false,
        ..Config::default()
    });
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    let ping = raw.take_of(PacketType::Ack).pop().unwrap().0;
    raw.now += Duration::from_millis(10);
    let mut answer = Vec::new();
    let ack = Ack {
        serial: ping.serial,
        ..super::raw::ack(1, "1", Reason::PingResponse, 32, None)
    };
    ack.encode(&mut answer);
    raw.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &answer);
    raw.data(1, Flags::LAST_PACKET, b"reply");
    while raw.endpoint.read(call) != Read::End {}
    raw.take();
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    assert_eq!(raw.take_of(PacketType::Data).len(), 1);
    (raw, call)
}

/// A server acknowledges a request late, hoping that its reply will do so; it may also have lost it.
#[test]
fn a_request_is_sent_once_more_and_not_again_when_it_has_come() {
    let (mut raw, _) = asked_a_known_peer();
    let data = |sent: Vec<(Duration, Header, Bytes)>| {
        let data = sent
            .into_iter()
            .filter(|(_, header, _)| header.packet_type == PacketType::Data);
        data.map(|(at, header, _)| (at.as_millis(), header.flags))
            .collect::<Vec<_>>()
    };
    let again = data(raw.wait(Duration::from_millis(300)));
    assert!(
        matches!(again[..], [(100..=200, flags)] if flags.has(Flags::REQUEST_ACK)),
        "{again:?}"
    );
    raw.ack(2, "", Reason::Duplicate, 32);
    assert_eq!(data(raw.wait(60 * SECOND)), []);
}

/// OpenAFS's file server, which asks a client who it is, acknowledges the answer at once. When it is lost,
/// all calls of the client wait until it comes.
#[test]
fn a_lost_reply_is_sent_again_soon_to_a_peer_that_acknowledges_replies_at_once() {
    for (prompt, expected) in [(true, 100..=200), (false, 600..=1200)] {
        let mut raw = Raw::server(Config::default());
        let delays = [10, if prompt { 10 } else { 350 }];
        for (call, delay) in (1..).zip(delays) {
            replied(&mut raw, call);
            let sent = raw.take_of(PacketType::Data);
            raw.wait(Duration::from_millis(delay));
            let mut body = Vec::new();
            let ack = Ack {
                serial: sent[0].0.serial,
                ..super::raw::ack(2, "", Reason::Idle, 32, None)
            };
            ack.encode(&mut body);
            raw.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &body);
        }
        replied(&mut raw, 3);
        let sent = raw.wait(SECOND);
        let data: Vec<_> = sent
            .iter()
            .filter(|(_, header, _)| header.packet_type == PacketType::Data)
            .map(|(at, ..)| at.as_millis())
            .collect();
        assert!(
            matches!(data[..], [0, again, ..] if expected.contains(&again)),
            "{prompt}: {data:?}"
        );
    }
}

/// Makes the endpoint answer a call.
fn replied(raw: &mut Raw, call: u32) {
    raw.header.call_number = crate::CallNumber(call);
    raw.data(1, Flags::LAST_PACKET, b"question");
    let id = raw.incoming();
    while raw.endpoint.read(id) != Read::End {}
    raw.endpoint
        .write(raw.now, id, Bytes::from_static(b"answer"))
        .unwrap();
    raw.endpoint.finish(raw.now, id);
}

/// What has come is told again to a peer that falls silent in the middle of a reply, less and less often,
/// as it may not have been heard, and not without end, as the peer may have nothing to say.
#[test]
fn a_silent_peer_is_told_again_three_times() {
    let (mut raw, call) = asked_a_known_peer();
    for sequence in 1..=2 {
        raw.data(sequence, Flags(0), b"reply");
    }
    let acks = |sent: Vec<(Duration, Header, Bytes)>| {
        let acks = sent
            .into_iter()
            .filter(|(_, header, _)| header.packet_type == PacketType::Ack);
        let acks = acks.map(|(at, _, body)| (at, Ack::decode(&body).unwrap()));
        acks.collect::<Vec<_>>()
    };
    let told = acks(raw.wait(4 * SECOND));
    assert!(told.iter().all(|(_, ack)| ack.first == 3), "{told:?}");
    let again = &told[1..];
    assert_eq!(again.len(), 3, "{told:?}");
    // Its round trip is not measured by such a one.
    assert!(again.iter().all(|(_, ack)| ack.reason == Reason::Delay));
    let at: Vec<_> = again.iter().map(|(at, _)| at.as_millis()).collect();
    assert!(
        at[0] <= 50 && at[1] >= 3 * at[0] && at[2] >= 7 * at[0],
        "{at:?}"
    );
    // Of a reply that has come whole nothing is said again.
    raw.data(3, Flags::LAST_PACKET, b"reply");
    while raw.endpoint.read(call) != Read::End {}
    assert_eq!(acks(raw.wait(4 * SECOND)).len(), 1);
}

/// Sixteen packets until the peer says more, and never more than it says.
#[test]
fn the_window_is_sixteen_until_told() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint
        .write(raw.now, call, pattern(1_000_000, 1))
        .unwrap();
    let sent = raw.wait(Duration::from_millis(50));
    assert_eq!(highest(sent.iter().map(|(_, header, _)| header)), 16);
    raw.ack(3, "", Reason::Idle, 4);
    let sent = raw.wait(Duration::from_millis(50));
    let fresh = sent
        .iter()
        .map(|(_, header, _)| header)
        .filter(|header| header.sequence > 16);
    assert_eq!(fresh.count(), 0, "3 to 6 is less than was sent");
    raw.ack(17, "", Reason::Idle, 32);
    let sent = raw.wait(Duration::from_millis(50));
    assert_eq!(highest(sent.iter().map(|(_, header, _)| header)), 48);
}

fn highest<'a>(headers: impl Iterator<Item = &'a Header>) -> u32 {
    let data = headers.filter(|header| header.packet_type == PacketType::Data);
    data.map(|header| header.sequence).max().unwrap()
}

/// OpenAFS may drop what it acknowledged softly: then it says so, and gets it again.
#[test]
fn soft_acknowledgements_may_be_withdrawn() {
    let (mut raw, connection) = Raw::client(Config {
        mtu_discovery: false,
        ..Config::default()
    });
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    let data = pattern(10_000, 1);
    raw.endpoint.write(raw.now, call, data.clone()).unwrap();
    raw.endpoint.finish(raw.now, call);
    let mut sent = raw.wait(Duration::from_millis(50));
    sent.retain(|(_, header, _)| header.packet_type == PacketType::Data);
    assert_eq!(sent.len(), 8);
    raw.ack(1, "11111111", Reason::Idle, 32);
    assert_eq!(raw.take(), []);
    raw.now += Duration::from_millis(5);
    raw.ack(1, "11011110", Reason::Idle, 32);
    let again = raw.wait(3 * SECOND);
    let mut sequences: Vec<_> = again
        .iter()
        .filter(|(_, header, _)| header.packet_type == PacketType::Data)
        .map(|(_, header, body)| {
            assert_eq!(
                *body,
                sent[header.sequence as usize - 1].2,
                "the same bytes"
            );
            assert!(header.serial > 8, "a new serial");
            header.sequence
        })
        .collect();
    sequences.sort_unstable();
    sequences.dedup();
    assert_eq!(sequences, [3, 8]);
}

/// An old libafs puts serials where the sequence belongs: windows must not depend on it.
#[test]
fn previous_packet_is_not_trusted() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint
        .write(raw.now, call, pattern(1_000_000, 1))
        .unwrap();
    raw.wait(Duration::from_millis(50));
    let mut body = Vec::new();
    let ack = Ack {
        previous: 4_000_000,
        ..super::raw::ack(11, "", Reason::Idle, 32, None)
    };
    ack.encode(&mut body);
    raw.put(PacketType::Ack, 0, Flags(0), &body);
    let sent = raw.wait(Duration::from_millis(50));
    assert_eq!(highest(sent.iter().map(|(_, header, _)| header)), 42);
    assert_eq!(raw.endpoint.stats().violations, 0);
}

/// The last packet of a reply never asks for an acknowledgement the first time: OpenAFS would
/// answer softly and then forget the call.
#[test]
fn the_last_of_a_reply_asks_for_nothing() {
    for len in [0, 100, 5000, 100_000] {
        let mut pair = Pair::with_configs(1, Link::default(), [old_peer(), Config::default()]);
        let capture = pair.capture();
        let connection = pair.connect();
        pair.echo(connection, len).unwrap();
        let data = capture.of(SERVER, PacketType::Data);
        let last: Vec<_> = data
            .iter()
            .filter(|(header, _)| header.flags.has(Flags::LAST_PACKET))
            .collect();
        assert_eq!(last.len(), 1);
        assert!(!last[0].0.flags.has(Flags::REQUEST_ACK));
    }
}

/// Serials never repeat, and those of retransmissions are new.
#[test]
fn serials_are_fresh() {
    let (_, capture) = transfer(3, CLIENT, lossy());
    for side in [CLIENT, SERVER] {
        let mut serials: Vec<_> = capture
            .0
            .borrow()
            .iter()
            .filter(|(from, ..)| *from == side)
            .map(|(_, header, _)| header.serial)
            .collect();
        let len = serials.len();
        serials.sort_unstable();
        serials.dedup();
        assert_eq!(serials.len(), len);
    }
}
