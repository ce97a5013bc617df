//! Peers whose addresses change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use super::raw::{Raw, STRANGER, ack, rxnull};
use crate::packet::ack::Reason;
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType};
use crate::{CallId, CallNumber, Config, Epoch, Event, Read};

const SECOND: Duration = Duration::from_secs(1);

/// A NAT forgets the client in the middle of a long request, and of a long reply.
#[test]
fn a_nat_rebinds_during_a_call() {
    for (request, reply_from) in [(10_000_000, 1), (20_000, 500)] {
        let mut pair = Pair::new(
            1,
            Link {
                rate: 10_000_000,
                ..Link::default()
            },
        );
        pair.serve = if reply_from == 1 {
            |request| Ok(pattern(request.len() / 1000, 7))
        } else {
            |request| Ok(pattern(request.len() * 500, 7))
        };
        let connection = pair.connect();
        let call = pair.call(connection, pattern(request, 1));
        pair.run(Duration::from_millis(200), |_| false);
        assert!(!pair.has_ended(call));
        pair.rebind();
        let at = pair.now;
        let reply = pair.finish(call, 60 * SECOND).unwrap();
        let expected = if reply_from == 1 {
            request / 1000
        } else {
            request * 500
        };
        assert!(reply == pattern(expected, 7));
        let transfer = Duration::from_secs_f64(request.max(expected) as f64 / 10e6);
        let stall = (pair.now - at).saturating_sub(transfer);
        assert!(stall < 8 * SECOND, "{stall:?} lost to the new address");
        let seen = pair.seen_as[CLIENT];
        assert!(pair.sides[SERVER].endpoint.peer_stats(seen).is_some());
    }
}

#[test]
fn a_nat_rebinds_between_calls() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    for _ in 0..10 {
        pair.echo(connection, 50_000).unwrap();
        pair.rebind();
    }
    pair.echo(connection, 50_000).unwrap();
    pair.idle(SECOND);
    let peers = pair.sides[SERVER].endpoint.peers();
    assert!(peers.iter().all(|peer| peer.in_flight == 0), "{peers:?}");
}

/// Epochs without the high bit name a connection only together with an address.
#[test]
fn old_epochs_do_not_roam() {
    let mut raw = Raw::server(Config::default());
    raw.header.epoch = Epoch(0x1a5b_3c21);
    raw.data(1, Flags(0), b"a");
    raw.incoming();
    raw.take();
    raw.peer = SocketAddr::from(([192, 0, 2, 8], 7001));
    raw.data(2, Flags::LAST_PACKET, b"b");
    // The same numbers from elsewhere are another connection, and another call.
    raw.incoming();
    assert_eq!(raw.endpoint.active_calls(), 2);
}

/// A server with a call of a client on it, of which it is not yet known whether it is complete.
fn with_call() -> (Raw, CallId) {
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags(0), b"a");
    let call = raw.incoming();
    raw.take();
    raw.now += Duration::from_millis(20);
    (raw, call)
}

/// All that the endpoint sends to strangers within a time, where home answers what is asked of it or not.
fn sent_elsewhere(raw: &mut Raw, time: Duration, home_lives: bool) -> Vec<(Header, Bytes)> {
    let end = raw.now + time;
    let mut elsewhere = Vec::new();
    while raw.now < end {
        for (to, header, body) in raw.take_all() {
            if to != raw.peer {
                elsewhere.push((header, body));
            } else if header.packet_type == PacketType::Version && home_lives {
                let answer = Header {
                    flags: header.flags.without(Flags::CLIENT_INITIATED),
                    ..header
                };
                raw.put_raw(&answer, b"afar");
            }
        }
        raw.now += Duration::from_millis(100);
        raw.endpoint.handle_timeout(raw.now);
    }
    elsewhere
}

/// Answers a PING from elsewhere.
fn answer(raw: &mut Raw, sent: &[(Header, Bytes)]) {
    let pings = sent
        .iter()
        .filter(|(header, _)| header.packet_type == PacketType::Ack);
    for (header, _) in pings {
        let mut ack = ack(1, "", Reason::PingResponse, 255, None);
        ack.serial = header.serial;
        let mut body = Vec::new();
        ack.encode(&mut body);
        raw.from(STRANGER, |raw| raw.put(PacketType::Ack, 0, Flags(0), &body));
    }
}

/// Somebody knows epoch and connection id of another's connection without protection, has newer serials, and
/// answers what it is asked. The client is there, though, and says nothing unless it is asked.
#[test]
fn a_connection_is_not_taken_from_a_client_that_is_there() {
    for kind in [PacketType::Ack, PacketType::Data] {
        let (mut raw, call) = with_call();
        raw.endpoint
            .write(raw.now, call, pattern(100_000, 1))
            .unwrap();
        let mut body = Vec::new();
        ack(1, "", Reason::PingResponse, 255, None).encode(&mut body);
        raw.header.serial = 0x7000_0000;
        let mut elsewhere = Vec::new();
        for _ in 0..20 {
            raw.from(STRANGER, |raw| raw.put(kind, 2, Flags(0), &body));
            let sent = sent_elsewhere(&mut raw, Duration::from_millis(500), true);
            answer(&mut raw, &sent);
            elsewhere.extend(sent);
        }
        let got = |kind| {
            elsewhere
                .iter()
                .filter(|(header, _)| header.packet_type == kind)
                .count()
        };
        assert_eq!(got(PacketType::Data), 0, "{kind:?}");
        assert!(
            (1..=6).contains(&got(PacketType::Ack)),
            "{}",
            got(PacketType::Ack)
        );
        // The client goes on as if nothing had been.
        raw.header.serial = 1;
        raw.data(2, Flags::LAST_PACKET, b"b");
        let mut request = Vec::new();
        while let Read::Data(data) = raw.endpoint.read(call) {
            request.extend_from_slice(&data);
        }
        assert_eq!((&request[..], raw.endpoint.stats().moved), (&b"ab"[..], 0));
    }
}

/// Without the answer, nothing moves either: the address may be anybody's.
#[test]
fn a_connection_is_not_sent_where_nobody_answers() {
    let (mut raw, call) = with_call();
    raw.endpoint
        .write(raw.now, call, pattern(100_000, 1))
        .unwrap();
    raw.from(STRANGER, |raw| raw.data(2, Flags(0), b"b"));
    let sent = sent_elsewhere(&mut raw, 10 * SECOND, false);
    let octets: usize = sent.iter().map(|(_, body)| HEADER_SIZE + body.len()).sum();
    assert!(octets <= 3 * 29, "{octets}");
    assert_eq!(raw.endpoint.stats().moved, 0);
}

#[test]
fn a_connection_follows_a_client_that_answers_when_the_old_address_is_silent() {
    let (mut raw, call) = with_call();
    raw.from(STRANGER, |raw| raw.data(2, Flags::LAST_PACKET, b"b"));
    let sent = sent_elsewhere(&mut raw, Duration::from_millis(100), false);
    answer(&mut raw, &sent);
    sent_elsewhere(&mut raw, SECOND, false);
    assert_eq!(raw.endpoint.stats().moved, 1);
    raw.peer = STRANGER;
    raw.data(2, Flags::LAST_PACKET, b"b");
    assert_eq!(raw.endpoint.read(call), Read::Data((&b"a"[..]).into()));
    assert_eq!(raw.endpoint.read(call), Read::Data((&b"b"[..]).into()));
    raw.endpoint
        .write(raw.now, call, pattern(100_000, 1))
        .unwrap();
    assert!(raw.take_of(PacketType::Data).len() > 10);
}

/// What else comes from elsewhere ends nothing and acknowledges nothing.
#[test]
fn packets_from_elsewhere_have_no_effect() {
    let (mut raw, call) = with_call();
    raw.endpoint.write(raw.now, call, pattern(3000, 1)).unwrap();
    let unacknowledged = raw.take_of(PacketType::Data).len() as u32;
    let mut acks = Vec::new();
    ack(1 + unacknowledged, "", Reason::Idle, 255, None).encode(&mut acks);
    raw.from(STRANGER, |raw| {
        raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
        raw.put(PacketType::Ack, 0, Flags(0), &acks);
        raw.put(PacketType::AckAll, 0, Flags(0), &[]);
        raw.put(PacketType::Busy, 0, Flags(0), &[]);
        raw.header.call_number = CallNumber(0);
        raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
        raw.put(PacketType::Response, 0, Flags(0), &[0; 100]);
        raw.header.call_number = CallNumber(2);
        raw.data(1, Flags::LAST_PACKET, b"another call");
        raw.header.call_number = CallNumber(1);
    });
    assert_eq!((raw.events(), raw.endpoint.active_calls()), (vec![], 1));
    assert_eq!(raw.endpoint.stats().elsewhere, 7);
    raw.take_all();
    raw.wait(SECOND);
    assert!(
        raw.endpoint.stats().data_resent > 0,
        "it was not acknowledged"
    );
}

/// A client takes replies from the address it called, whatever numbers others know.
#[test]
fn a_reply_from_elsewhere_is_not_taken() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.write(raw.now, call, pattern(10, 1)).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.take();
    let other_port = SocketAddr::new(raw.peer.ip(), raw.peer.port() + 1);
    let other_host = SocketAddr::new(STRANGER.ip(), raw.peer.port());
    for address in [other_port, other_host] {
        raw.from(address, |raw| {
            raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
            raw.put(PacketType::Busy, 0, Flags(0), &[]);
            raw.data(1, Flags::LAST_PACKET, b"forged");
            let number = std::mem::replace(&mut raw.header.call_number, CallNumber(0));
            raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
            raw.put(PacketType::Challenge, 0, Flags(0), &[0; 16]);
            raw.header.call_number = number;
        });
        assert_eq!(raw.take_all().len(), 0);
        assert_eq!(
            (raw.endpoint.read(call), raw.events()),
            (Read::Pending, vec![])
        );
    }
    raw.data(1, Flags::LAST_PACKET, b"true");
    assert_eq!(raw.endpoint.read(call), Read::Data((&b"true"[..]).into()));
}

/// Knowing some of a host's connections tells nothing about the next one.
#[test]
fn connection_ids_do_not_follow_from_others() {
    let (mut raw, first) = Raw::client(Config::default());
    let mut seen = Vec::new();
    for index in 0..100 {
        let connection = match index {
            0 => first,
            _ => raw.endpoint.connect(raw.now, raw.peer, SERVICE, &rxnull()),
        };
        let call = raw.endpoint.start_call(raw.now, connection).unwrap();
        raw.endpoint.finish(raw.now, call);
        seen.push(raw.take()[0].0.cid.0);
    }
    assert!(seen.iter().all(|cid| cid & 3 == 0));
    let steps: BTreeSet<u32> = seen
        .windows(2)
        .map(|two| two[1].wrapping_sub(two[0]))
        .collect();
    assert_eq!(steps.len(), 99);
}

/// A server's serials would otherwise tell strangers what to repeat.
#[test]
fn first_serials_cannot_be_guessed() {
    let serials = (1..50).map(|seed| {
        let mut raw = Raw::server(Config {
            seed,
            ..Config::default()
        });
        raw.data(1, Flags::REQUEST_ACK, b"a");
        raw.take()[0].0.serial
    });
    let serials: BTreeSet<u32> = serials.collect();
    assert!(serials.len() == 49 && serials.iter().all(|serial| *serial > 1 << 16));
}

/// The server has lost the connection, or gives its calls to somebody else: every call on it dies. The next is
/// made on another.
#[test]
fn a_lost_connection_has_a_successor() {
    for abort in [false, true] {
        let (mut raw, connection) = Raw::client(Config::default());
        let old = raw.endpoint.start_call(raw.now, connection).unwrap();
        raw.endpoint.finish(raw.now, old);
        let cid = raw.take()[0].0.cid;
        if abort {
            raw.header.call_number = CallNumber(0);
            raw.put(PacketType::Abort, 0, Flags(0), &[0xff, 0xff, 0xff, 0xfb]);
        } else {
            raw.wait(40 * SECOND);
        }
        assert!(matches!(raw.events()[..], [Event::Failed(..)]));
        let call = raw.endpoint.start_call(raw.now, connection).unwrap();
        raw.endpoint.finish(raw.now, call);
        let sent = raw.take();
        assert!(sent[0].0.cid != cid && sent[0].0.call_number == CallNumber(1));
        raw.data(1, Flags::LAST_PACKET, b"here");
        assert_eq!(raw.endpoint.read(call), Read::Data((&b"here"[..]).into()));
        assert_eq!(raw.endpoint.read(call), Read::End);
        // Then that one is kept.
        let next = raw.endpoint.start_call(raw.now, connection).unwrap();
        raw.endpoint.finish(raw.now, next);
        assert_eq!(raw.take()[0].0.cid.connection(), sent[0].0.cid.connection());
    }
}

/// Calls that still run on a lost connection end there, and it is forgotten then.
#[test]
fn calls_on_a_lost_connection_end_there() {
    let (mut raw, connection) = Raw::client(Config::default());
    let [one, other] = [1, 2].map(|_| {
        let call = raw.endpoint.start_call(raw.now, connection).unwrap();
        raw.endpoint.finish(raw.now, call);
        call
    });
    let sent = raw.take_of(PacketType::Data);
    let mut header = sent[1].0;
    header.flags = Flags(0);
    // One is answered by its server's PINGs, the other by nothing.
    for _ in 0..12 {
        raw.wait(3 * SECOND);
        header.serial += 1;
        let mut body = Vec::new();
        ack(1, "", Reason::Ping, 255, None).encode(&mut body);
        header.packet_type = PacketType::Ack;
        raw.put_raw(&header, &body);
    }
    let dead = raw.events();
    assert!(
        matches!(dead[..], [Event::Failed(call, _)] if call == one),
        "{dead:?}"
    );
    let fresh = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, fresh);
    assert_ne!(
        raw.take_of(PacketType::Data)[0].0.cid.connection(),
        header.cid.connection()
    );
    header.serial += 1;
    header.sequence = 1;
    header.packet_type = PacketType::Data;
    header.flags = Flags::LAST_PACKET;
    raw.put_raw(&header, b"late");
    assert_eq!(raw.endpoint.read(other), Read::Data((&b"late"[..]).into()));
    assert_eq!(raw.endpoint.read(other), Read::End);
}
