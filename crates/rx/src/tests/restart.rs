//! Endpoints that lose their memory, and packets from before.

use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use super::raw::Raw;
use crate::packet::{Flags, PacketType};
use crate::{CallError, CallNumber, Config, Event, Read};

const SECOND: Duration = Duration::from_secs(1);

fn impatient() -> Config {
    Config {
        dead_time: 5 * SECOND,
        ..Config::default()
    }
}

#[test]
fn between_calls_a_server_may_forget_everything() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    for _ in 0..9 {
        pair.echo(connection, 3000).unwrap();
    }
    pair.restart(SERVER);
    // The call's number is 3 on its channel, and the server takes it.
    pair.echo(connection, 3000).unwrap();
    pair.echo(connection, 300_000).unwrap();
}

#[test]
fn during_a_call_the_client_notices_in_time() {
    for len in [3000, 10_000_000] {
        let mut pair = Pair::with_configs(1, Link::default(), [impatient(), impatient()]);
        pair.links[CLIENT].rate = 10_000_000;
        let connection = pair.connect();
        pair.sides[SERVER].reads = len > 3000;
        let call = pair.call(connection, pattern(len, 1));
        pair.run(Duration::from_millis(100), |_| false);
        assert!(!pair.has_ended(call));
        pair.restart(SERVER);
        pair.sides[SERVER].reads = true;
        match pair.finish(call, 20 * SECOND) {
            // Its first packets were still there to be sent again, so the new server may serve it.
            Ok(reply) => assert!(len == 3000 && reply == pattern(len, 1)),
            Err(error) => assert!(
                matches!(error, CallError::Dead | CallError::Aborted(_)),
                "{error:?}"
            ),
        }
        assert!(pair.elapsed() < 8 * SECOND, "{:?}", pair.elapsed());
        pair.echo(connection, 3000).unwrap();
    }
}

#[test]
fn a_client_begins_again() {
    let mut pair = Pair::with_configs(1, Link::default(), [impatient(), impatient()]);
    let connection = pair.connect();
    pair.call(connection, pattern(10_000_000, 1));
    pair.run(Duration::from_millis(100), |_| false);
    pair.restart(CLIENT);
    let connection = pair.connect();
    pair.echo(connection, 100_000).unwrap();
    // The server gives the abandoned call up after the dead time.
    pair.idle(20 * SECOND);
    assert_eq!(pair.sides[SERVER].endpoint.active_calls(), 0);
    assert_eq!(pair.sides[SERVER].endpoint.stats().receive_memory, 0);
}

/// Everything a client ever sent is sent once more: nothing runs twice.
#[test]
fn replayed_calls_change_nothing() {
    let mut pair = Pair::new(1, Link::default());
    let capture = pair.capture();
    let connection = pair.connect();
    for len in [10, 5000, 20_000, 1, 0, 7, 9000, 30, 4] {
        pair.echo(connection, len).unwrap();
    }
    pair.idle(SECOND);
    pair.tap = None;
    let before = pair.sides[SERVER].endpoint.stats().calls_received;
    let client = pair.sides[CLIENT].address;
    for (from, header, body) in capture.0.take() {
        let mut octets = header.encode().to_vec();
        octets.extend_from_slice(&body);
        pair.inject(
            1 - from,
            if from == CLIENT {
                client
            } else {
                pair.sides[SERVER].address
            },
            octets,
        );
    }
    pair.idle(SECOND);
    let stats = pair.sides[SERVER].endpoint.stats();
    assert_eq!((before, stats.calls_received), (9, 9));
    assert_eq!(pair.sides[SERVER].endpoint.active_calls(), 0);
    pair.echo(connection, 5000).unwrap();
}

/// A middle packet of a call that the server has forgotten must not begin one.
#[test]
fn a_packet_from_the_middle_begins_nothing() {
    let mut raw = Raw::server(Config::default());
    raw.header.call_number = CallNumber(7);
    raw.data(65, Flags(0), b"middle");
    assert_eq!((raw.events(), raw.take()), (vec![], vec![]));
    assert_eq!(raw.endpoint.stats().unmatched, 1);
    raw.put(PacketType::Ack, 0, Flags(0), &[0; 40]);
    assert_eq!(raw.take(), []);
    // A later packet of the first window may come before the first.
    raw.data(2, Flags::LAST_PACKET, b"b");
    raw.data(1, Flags(0), b"a");
    let events = raw.events();
    let Event::Incoming { call, .. } = events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(
        raw.endpoint.read(call),
        Read::Data(Bytes::from_static(b"a"))
    );
    assert_eq!(
        raw.endpoint.read(call),
        Read::Data(Bytes::from_static(b"b"))
    );
    assert_eq!(raw.endpoint.read(call), Read::End);
}
