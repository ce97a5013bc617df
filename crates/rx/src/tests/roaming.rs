//! Peers whose addresses change.

use std::net::SocketAddr;
use std::time::Duration;

use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use super::raw::Raw;
use crate::packet::{Flags, PacketType};
use crate::{Config, Epoch};

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

#[test]
fn only_newer_packets_move_a_connection() {
    let mut raw = Raw::server(Config::default());
    let home = raw.peer;
    raw.data(1, Flags(0), b"a");
    raw.data(2, Flags(0), b"b");
    raw.take();
    // A replayed packet from elsewhere does not draw the answers there.
    raw.header.serial = 0;
    raw.peer = SocketAddr::from(([192, 0, 2, 9], 7001));
    raw.data(1, Flags::REQUEST_ACK, b"a");
    raw.peer = home;
    assert_eq!(raw.take_of(PacketType::Ack).len(), 1);
}

/// A server with several addresses answers from another one than was called.
#[test]
fn a_multihomed_server_is_understood() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    let data = pattern(100_000, 1);
    let call = pair.call(connection, data.clone());
    // The client sends to the address it knows; answers carry another.
    let called = pair.seen_as[SERVER];
    let other = SocketAddr::from(([198, 51, 100, 1], 7000));
    pair.filter = None;
    pair.answers_from = Some((called, other));
    assert!(pair.finish(call, 10 * SECOND).unwrap() == data);
    assert_eq!(pair.sides[CLIENT].endpoint.stats().unmatched, 0);
}
