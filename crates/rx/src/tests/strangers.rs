//! What an address is sent before it has shown that it receives anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use super::raw::{Raw, STRANGER, ack};
use crate::packet::ack::{Ack, Reason};
use crate::packet::debug::Question;
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType};
use crate::{AbortCode, CallId, Cid, Config, Event, RxNull, SecurityIndex, Service, ServiceId};

const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a request that asks for much by little: FetchData64 of a file.
const REQUEST: [u8; 32] = [7; 32];

/// A server whose service asks clients before it runs their calls, or not, and a client it does not know.
fn server(check_reach: bool) -> Raw {
    let mut raw = Raw::server(Config {
        debug_for_all: true,
        ..Config::default()
    })
    .stranger();
    let service = Service {
        check_reach,
        ..Service::new(SERVICE, "test")
    };
    raw.endpoint.add_service(service, vec![Arc::new(RxNull)]);
    raw
}

/// Bytes of all that the endpoint sends within a time.
fn octets_within(raw: &mut Raw, time: Duration) -> usize {
    let sent = raw.wait(time);
    sent.iter()
        .map(|(_, _, body)| HEADER_SIZE + body.len())
        .sum()
}

/// Answers PINGs, naming their serials, or others.
fn answer_pings(raw: &mut Raw, sent: &[(Header, Bytes)], serial: impl Fn(u32) -> u32) {
    for (header, body) in sent {
        let is_ack = header.packet_type == PacketType::Ack;
        if is_ack && Ack::decode(body).is_some_and(|ack| ack.reason == Reason::Ping) {
            let mut answer = ack(1, "", Reason::PingResponse, 255, None);
            answer.serial = serial(header.serial);
            let mut body = Vec::new();
            answer.encode(&mut body);
            raw.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &body);
        }
    }
}

/// The call that began, given a long reply.
fn reply(raw: &mut Raw, len: usize) -> CallId {
    let call = raw.incoming();
    raw.endpoint.write(raw.now, call, pattern(len, 1)).unwrap();
    raw.endpoint.finish(raw.now, call);
    call
}

#[test]
fn a_silent_address_gets_three_times_what_it_sent_at_most() {
    for (check_reach, last) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut raw = server(check_reach);
        let flags = if last { Flags::LAST_PACKET } else { Flags(0) };
        raw.data(1, flags.with(Flags::REQUEST_ACK), &REQUEST);
        if !check_reach {
            reply(&mut raw, 1 << 20);
        }
        let sent = octets_within(&mut raw, 120 * SECOND);
        assert!(sent <= 3 * 60, "{sent} bytes, {check_reach} {last}");
        // Nothing stays of it.
        assert_eq!(raw.endpoint.active_calls(), 0);
        if check_reach {
            assert_eq!(raw.events(), []);
        }
    }
}

/// The more it asks for, the less it gets for each.
#[test]
fn many_calls_of_a_silent_address_share_what_it_may_be_sent() {
    let mut raw = server(false);
    for index in 0..50 {
        raw.header.cid = Cid(0x1000 + 4 * index);
        raw.data(1, Flags::LAST_PACKET, &REQUEST);
        reply(&mut raw, 100_000);
    }
    let sent = octets_within(&mut raw, 120 * SECOND);
    assert!(sent <= 50 * 3 * 60, "{sent} bytes");
    assert_eq!(raw.endpoint.active_calls(), 0);
}

#[test]
fn who_answers_gets_its_reply_and_who_guesses_does_not() {
    for check_reach in [true, false] {
        let mut raw = server(check_reach);
        raw.data(1, Flags::LAST_PACKET, &REQUEST);
        if !check_reach {
            reply(&mut raw, 100_000);
        }
        let sent = raw.take();
        assert!(
            sent.iter()
                .all(|(header, _)| header.packet_type == PacketType::Ack)
        );
        for wrong in [0, 1, 2, 3, 77] {
            answer_pings(&mut raw, &sent, |_| wrong);
            answer_pings(&mut raw, &sent, |serial| serial + 1 + wrong);
        }
        assert_eq!(raw.take_of(PacketType::Data).len(), 0);
        answer_pings(&mut raw, &sent, |serial| serial);
        if check_reach {
            reply(&mut raw, 100_000);
        }
        assert!(raw.take_of(PacketType::Data).len() > 10);
    }
}

/// Old peers say so as well: the PING is one to them.
#[test]
fn a_ping_is_sent_again_when_it_was_lost() {
    let mut raw = server(true);
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    assert_eq!(raw.take_of(PacketType::Ack).len(), 1);
    let again = raw.wait(3 * SECOND);
    let again: Vec<_> = again
        .into_iter()
        .map(|(_, header, body)| (header, body))
        .collect();
    assert_eq!(again.len(), 1, "as many as there is room for");
    answer_pings(&mut raw, &again, |serial| serial);
    raw.incoming();
}

#[test]
fn a_short_reply_does_not_wait() {
    let mut raw = server(false);
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    reply(&mut raw, 16);
    let data = raw.take_of(PacketType::Data);
    assert_eq!(data.len(), 1);
    // A client that acknowledges it by its serial has got it, and need not be asked for the next call.
    let mut known = ack(2, "", Reason::Delay, 255, None);
    known.serial = data[0].0.serial;
    let mut body = Vec::new();
    known.encode(&mut body);
    raw.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &body);
    raw.header.call_number.0 += 1;
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    reply(&mut raw, 100_000);
    assert!(raw.take_of(PacketType::Data).len() > 10);
}

/// It has shown that it receives; so have its other ports, for a while.
#[test]
fn a_known_client_is_not_asked() {
    let mut raw = server(true);
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    let sent = raw.take();
    answer_pings(&mut raw, &sent, |serial| serial);
    raw.incoming();
    raw.peer.set_port(7002);
    raw.header.cid = Cid(0x5000);
    raw.take_all();
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    reply(&mut raw, 100_000);
    assert!(raw.take_of(PacketType::Data).len() > 10);
    // Not for ever.
    raw.wait(3600 * SECOND);
    raw.events();
    raw.header.cid = Cid(0x6000);
    raw.data(1, Flags::LAST_PACKET, &REQUEST);
    assert_eq!(raw.events(), []);
}

#[test]
fn answers_to_strangers_are_small_too() {
    let version = |raw: &mut Raw| raw.put(PacketType::Version, 0, Flags(0), &[]);
    let service = |raw: &mut Raw| {
        raw.header.service_id = ServiceId(999);
        raw.data(1, Flags::LAST_PACKET, b"");
    };
    let class = |raw: &mut Raw| {
        raw.header.security_index = SecurityIndex(2);
        raw.data(1, Flags::LAST_PACKET, b"");
    };
    for (name, ask) in [
        ("version", version as fn(&mut Raw)),
        ("service", service),
        ("class", class),
    ] {
        let mut raw = server(true);
        ask(&mut raw);
        let sent = octets_within(&mut raw, 60 * SECOND);
        assert!((28..=3 * 28).contains(&sent), "{name}: {sent} bytes");
    }
    for question in [
        Question::Stats,
        Question::Connection {
            index: 0,
            all: true,
        },
        Question::Connection {
            index: 9,
            all: false,
        },
        Question::RxStats,
        Question::Peer { index: 0 },
        Question::Unknown,
    ] {
        let mut raw = server(false);
        let home = SocketAddr::from(([192, 0, 2, 7], 7001));
        raw.from(home, |raw| raw.data(1, Flags(0), b"somebody else's"));
        raw.take_all();
        raw.put(PacketType::Debug, 0, Flags(0), &question.encode());
        let sent = raw.take_of(PacketType::Debug);
        assert_eq!(sent.len(), 1, "{question:?}");
        assert!(HEADER_SIZE + sent[0].1.len() <= 3 * 36, "{question:?}");
    }
}

#[test]
fn aborts_are_limited_for_each_address() {
    let mut raw = server(true);
    raw.header.service_id = ServiceId(999);
    for _ in 0..10_000 {
        raw.data(1, Flags::LAST_PACKET, b"");
    }
    let aborts = raw.take_of(PacketType::Abort).len();
    assert!((1..=200).contains(&aborts), "{aborts}");
    assert!(raw.endpoint.stats().answers_limited > 9000);
    // Another's are not.
    raw.peer = SocketAddr::from(([198, 51, 100, 67], 7001));
    raw.data(1, Flags::LAST_PACKET, b"");
    assert_eq!(raw.take_of(PacketType::Abort).len(), 1);
}

/// A call that is refused, and the ABORT that says so, again and again.
#[test]
fn a_silent_address_cannot_have_aborts_repeated() {
    let mut raw = server(false);
    raw.data(1, Flags(0), &REQUEST);
    let call = raw.incoming();
    raw.endpoint.abort(raw.now, call, AbortCode::RXGEN_OPCODE);
    let mut received = 60;
    let mut sent: usize = octets_within(&mut raw, SECOND);
    for _ in 0..1000 {
        raw.data(1, Flags(0), b"");
        received += 28;
        sent += octets_within(&mut raw, Duration::from_millis(10));
    }
    assert!(sent <= 3 * received, "{sent} for {received}");
}

/// Two that are new to each other, of every kind, in both directions, with and without the extension.
#[test]
fn new_clients_of_all_kinds_are_served() {
    for (client, len) in [
        (Config::default(), 10),
        (Config::default(), 300_000),
        (super::old_peer(), 10),
        (super::old_peer(), 300_000),
    ] {
        for check_reach in [true, false] {
            let mut pair =
                Pair::with_configs(7, Link::default(), [client.clone(), Config::default()]);
            pair.set_up(Box::new(move |endpoint| {
                let service = Service {
                    check_reach,
                    ..Service::new(SERVICE, "test")
                };
                endpoint.add_service(service, vec![Arc::new(RxNull)]);
            }));
            let connection = pair.connect();
            let begin = pair.elapsed();
            pair.echo(connection, len).unwrap();
            if len == 10 {
                // The round trip of the call, and one to be known.
                let took = pair.elapsed() - begin;
                assert!(took <= Duration::from_millis(25), "{took:?}");
            }
            let begin = pair.elapsed();
            let other = pair.connect();
            pair.echo(other, 10).unwrap();
            let took = pair.elapsed() - begin;
            assert!(
                took <= Duration::from_millis(13),
                "a known one took {took:?}"
            );
            let stats = [CLIENT, SERVER].map(|side| pair.sides[side].endpoint.stats());
            assert_eq!(stats.map(|stats| stats.violations), [0, 0]);
        }
    }
}

/// Packets get lost on the way to being known.
#[test]
fn a_lossy_way_makes_a_client_known_as_well() {
    for seed in 0..super::seeds(40) {
        let link = Link {
            loss: 0.2,
            ..Link::default()
        };
        let mut pair = Pair::with_configs(seed, link, [super::old_peer(), Config::default()]);
        let connection = pair.connect();
        pair.echo(connection, 20_000).unwrap();
    }
}

#[test]
fn nothing_is_asked_of_a_stranger_that_no_service_wants() {
    let mut raw = server(true);
    raw.put(PacketType::Ack, 0, Flags(0), &[0; 40]);
    raw.put(PacketType::Abort, 0, Flags(0), &[0; 4]);
    assert_eq!((raw.take().len(), raw.events()), (0, Vec::<Event>::new()));
    assert_eq!(raw.peer, STRANGER);
}
