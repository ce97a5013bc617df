//! What happens when nothing does.

use std::sync::Arc;
use std::time::Duration;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use super::raw::Raw;
use crate::packet::ack::Reason;
use crate::packet::{Flags, PacketType};
use crate::{CallError, Config, Event, RxNull, Service};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_silent_server_is_dead_after_the_dead_time() {
    let (mut raw, connection) = Raw::client(Config {
        dead_time: 12 * SECOND,
        ..Config::default()
    });
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.wait(Duration::from_millis(11_900));
    assert_eq!(raw.events(), []);
    raw.wait(Duration::from_millis(200));
    assert_eq!(raw.events(), [Event::Failed(call, CallError::Dead)]);
    // Nothing of it is left to happen but housekeeping.
    assert_eq!(raw.wait(100 * SECOND), []);
    // The number is not used again.
    raw.endpoint.start_call(raw.now, connection).unwrap();
}

#[test]
fn pings_keep_a_slow_call_alive() {
    let config = Config {
        dead_time: 12 * SECOND,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [config.clone(), config]);
    pair.sides[SERVER].reads = false;
    let connection = pair.connect();
    let call = pair.call(connection, pattern(100, 1));
    let capture = pair.capture();
    pair.idle(300 * SECOND);
    assert!(!pair.has_ended(call));
    let reasons = |side| {
        capture
            .acks(side)
            .into_iter()
            .map(|(_, ack)| ack.reason)
            .collect::<Vec<_>>()
    };
    let pings = reasons(CLIENT)
        .iter()
        .filter(|reason| **reason == Reason::Ping)
        .count();
    assert!((75..=200).contains(&pings), "{pings} pings in 300 s");
    assert!(capture.acks(CLIENT).iter().all(|(header, ack)| {
        (ack.reason == Reason::Ping) == header.flags.has(Flags::REQUEST_ACK)
    }));
    let answers = reasons(SERVER)
        .iter()
        .filter(|reason| **reason == Reason::PingResponse)
        .count();
    assert!(answers.abs_diff(pings) <= 1, "{answers} answers to {pings}");
    pair.unblock(SERVER);
    pair.finish(call, SECOND).unwrap();
}

#[test]
fn a_server_notices_a_dead_client() {
    let config = Config {
        dead_time: 12 * SECOND,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [config.clone(), config]);
    pair.serve = |_| Ok(pattern(10_000_000, 1));
    let connection = pair.connect();
    pair.call(connection, pattern(100, 1));
    pair.links = [100, 100].map(|ms| Link {
        delay: Duration::from_millis(ms),
        ..Link::default()
    });
    pair.run(Duration::from_millis(150), |_| false);
    pair.filter = Some(Box::new(|_, _| false));
    pair.idle(14 * SECOND);
    assert_eq!(pair.sides[SERVER].endpoint.active_calls(), 0);
    let failed: Vec<_> = pair.sides[SERVER].seen.failed.values().collect();
    assert_eq!(failed, [&CallError::Dead]);
    let peer = pair.sides[SERVER].endpoint.peers()[0];
    assert_eq!(peer.in_flight, 0);
}

#[test]
fn idle_limit() {
    let client = Config {
        idle_limit: Some(20 * SECOND),
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [client, Config::default()]);
    pair.sides[SERVER].reads = false;
    let connection = pair.connect();
    let call = pair.call(connection, pattern(100, 1));
    assert_eq!(pair.finish(call, 60 * SECOND), Err(CallError::TimedOut));
    assert!(
        pair.elapsed() > 20 * SECOND && pair.elapsed() < 21 * SECOND,
        "{:?}",
        pair.elapsed()
    );
    pair.idle(SECOND);
    assert_eq!(
        pair.sides[SERVER].endpoint.active_calls(),
        0,
        "the server was told"
    );
}

#[test]
fn hard_limit_holds_though_there_is_progress() {
    let client = Config {
        hard_limit: Some(5 * SECOND),
        ..Config::default()
    };
    let link = Link {
        rate: 100_000,
        queue: 20_000,
        ..Link::default()
    };
    let mut pair = Pair::with_configs(1, link, [client, Config::default()]);
    let connection = pair.connect();
    let call = pair.call(connection, pattern(2_000_000, 1));
    assert_eq!(pair.finish(call, 60 * SECOND), Err(CallError::TimedOut));
    assert!(
        pair.elapsed() < Duration::from_millis(5100),
        "{:?}",
        pair.elapsed()
    );
}

#[test]
fn a_service_limits_idleness() {
    let mut pair = Pair::new(1, Link::default());
    pair.set_up(Box::new(|endpoint| {
        let service = Service {
            idle_limit: Some(10 * SECOND),
            ..Service::new(SERVICE, "test")
        };
        endpoint.add_service(service, vec![Arc::new(RxNull)]);
    }));
    let connection = pair.connect();
    let (now, client) = (pair.now, &mut pair.sides[CLIENT].endpoint);
    let call = client.start_call(now, connection).unwrap();
    // The rest of the request never comes.
    client.write(now, call, pattern(2000, 1)).unwrap();
    let error = pair.finish(call, 60 * SECOND).unwrap_err();
    assert_eq!(error, CallError::Aborted(crate::AbortCode::RX_CALL_TIMEOUT));
    let took = pair.elapsed();
    assert!((10..12).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn unreachable_peers_fail_at_once() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.take();
    let kind = std::io::ErrorKind::ConnectionRefused;
    raw.endpoint.handle_unreachable(raw.now, raw.peer, kind);
    assert_eq!(
        raw.events(),
        [Event::Failed(call, CallError::Unreachable(kind))]
    );
}

/// A client that was killed must not hold what its calls hold until they are dead.
#[test]
fn calls_of_a_client_that_is_gone_fail_soon() {
    let mut raw = Raw::server(Config::default());
    let refused = std::io::ErrorKind::ConnectionRefused;
    raw.data(1, Flags(0), b"half of a request");
    let call = raw.incoming();
    // It is there after all.
    raw.wait(SECOND / 2);
    raw.endpoint.handle_unreachable(raw.now, raw.peer, refused);
    raw.wait(SECOND / 2);
    raw.data(2, Flags(0), b"more");
    raw.wait(2 * SECOND);
    raw.endpoint.handle_unreachable(raw.now, raw.peer, refused);
    assert!(
        !raw.events()
            .iter()
            .any(|event| matches!(event, Event::Failed(..)))
    );
    // Its host goes on saying that nobody is there, whenever it is asked.
    let pings = raw.wait(2 * SECOND);
    assert!(!pings.is_empty());
    // A router in trouble says something else.
    let other = std::io::ErrorKind::HostUnreachable;
    raw.endpoint.handle_unreachable(raw.now, raw.peer, other);
    assert_eq!(raw.events(), []);
    raw.endpoint.handle_unreachable(raw.now, raw.peer, refused);
    let failed = Event::Failed(call, CallError::Unreachable(refused));
    assert_eq!(raw.events(), [failed]);
}

/// Requests and replies whose packets are lost come after a short time.
#[test]
fn lost_packets_of_short_calls_are_sent_again() {
    for (side, packet_type) in [(CLIENT, PacketType::Data), (SERVER, PacketType::Data)] {
        let mut pair = Pair::new(1, Link::default());
        let connection = pair.connect();
        pair.echo(connection, 100).unwrap();
        let mut lost = false;
        pair.filter = Some(Box::new(move |from, octets| {
            let hit = from == side && octets[20] == packet_type as u8 && !lost;
            lost |= hit;
            !hit
        }));
        let at = pair.now;
        pair.echo(connection, 100).unwrap();
        assert!(
            pair.now - at < Duration::from_millis(150),
            "{:?}",
            pair.now - at
        );
    }
}

/// How long an echo of so many bytes by an old peer takes whose last DATA packet is lost once.
fn echo_without_its_last(len: usize) -> Duration {
    let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), old_peer()]);
    let connection = pair.connect();
    pair.echo(connection, len).unwrap();
    let mut lost = 0;
    pair.filter = Some(Box::new(move |from, octets| {
        let data = from == CLIENT && octets[20] == PacketType::Data as u8;
        let last = octets[21] & Flags::LAST_PACKET.0 != 0;
        let hit = data && last && lost < 1;
        lost += u32::from(hit);
        !hit
    }));
    let at = pair.now;
    pair.echo(connection, len).unwrap();
    pair.now - at
}

/// Others may wait for a call whose end is lost: an old server locks the file it stores into.
#[test]
fn the_lost_end_of_a_long_request_to_an_old_peer_comes_soon() {
    let time = echo_without_its_last(20_000);
    assert!(time < Duration::from_millis(100), "{time:?}");
}

/// A short one may also be answered late; but who reads a file waits for it.
#[test]
fn a_lost_short_request_to_an_old_peer_does_not_take_as_long_as_its_acknowledgement_may() {
    let time = echo_without_its_last(100);
    assert!(time < Duration::from_millis(200), "{time:?}");
}

/// While a flood takes every second packet, a call takes a few seconds at most: tries are not further and
/// further apart, and neither is the question whether a new client is there.
#[test]
fn no_short_call_takes_long_through_a_flood() {
    let mut slowest = Duration::ZERO;
    for seed in 0..super::seeds(40) {
        for config in [Config::default(), old_peer()] {
            let link = Link {
                loss: 0.5,
                ..Link::default()
            };
            let mut pair = Pair::with_configs(seed, link, [config, Config::default()]);
            pair.set_up(Box::new(|endpoint| {
                let mut service = Service::new(SERVICE, "test");
                service.check_reach = true;
                endpoint.add_service(service, vec![Arc::new(RxNull)]);
            }));
            let connection = pair.connect();
            for _ in 0..50 {
                let at = pair.now;
                while let Err(error) = pair.echo(connection, 100) {
                    assert_eq!(error, CallError::TooLarge, "which is made once more");
                }
                slowest = slowest.max(pair.now - at);
            }
        }
    }
    assert!(slowest < Duration::from_secs(25), "{slowest:?}");
}

/// An endpoint with nothing to do wakes up for housekeeping only.
#[test]
fn idle_endpoints_sleep() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    pair.echo(connection, 1_000_000).unwrap();
    pair.idle(2 * SECOND);
    let (steps, sent) = (pair.steps, pair.sent);
    pair.idle(600 * SECOND);
    assert_eq!(pair.sent, sent);
    assert!(
        pair.steps - steps < 600,
        "{} wake-ups in 600 s",
        pair.steps - steps
    );
    // Idle connections and paths are forgotten.
    pair.idle(800 * SECOND);
    assert_eq!(pair.sides[SERVER].endpoint.peers(), []);
    pair.echo(connection, 1000).unwrap();
}
