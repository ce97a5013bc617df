//! Bounds on what peers can make an endpoint hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use super::raw::Raw;
use crate::packet::ack::{Ack, Reason};
use crate::packet::{Flags, PacketType, abort_code};
use crate::{AbortCode, Cid, Config, Event, Read, RxNull, Service};

const SECOND: Duration = Duration::from_secs(1);

/// 100,000 connections from as many addresses within 10 s, and a client that just wants its call.
#[test]
fn a_flood_of_connections_is_survived() {
    let limit = 2000;
    let server = Config {
        server_connections_max: limit,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), server]);
    let connection = pair.connect();
    pair.echo(connection, 10_000).unwrap();
    let mut header = Raw::server(Config::default()).header;
    for index in 0..100_000u32 {
        header.cid = Cid(index << 2);
        (header.sequence, header.serial) = (1, 1);
        // Half of them are requests that never end, half are complete.
        header.flags = Flags(if index % 2 == 0 { 0x01 } else { 0x05 });
        let mut octets = header.encode().to_vec();
        octets.extend([0; 100]);
        let from = SocketAddr::from((
            [10, 1, (index >> 8) as u8, index as u8],
            1024 + (index >> 4) as u16,
        ));
        pair.inject(SERVER, from, octets);
        if index % 100 == 0 {
            pair.idle(Duration::from_millis(10));
        }
    }
    let endpoint = &pair.sides[SERVER].endpoint;
    assert!(
        endpoint.active_calls() <= limit,
        "{}",
        endpoint.active_calls()
    );
    assert!(endpoint.stats().refused > 0);
    assert!(endpoint.stats().receive_memory <= 100 * limit as u64);
    pair.idle(SECOND);
    pair.echo(connection, 10_000).unwrap();
    let fresh = pair.connect();
    pair.echo(fresh, 10_000).unwrap();
    // Calls that never end are dead in the end, and all is as before.
    pair.idle(120 * SECOND);
    let endpoint = &pair.sides[SERVER].endpoint;
    assert_eq!(
        (endpoint.active_calls(), endpoint.stats().receive_memory),
        (0, 0)
    );
}

#[test]
fn calls_wait_for_a_place_then_are_refused() {
    let mut raw = Raw::server(Config::default());
    let service = Service {
        max_calls: 2,
        ..Service::new(SERVICE, "narrow")
    };
    raw.endpoint.add_service(service, vec![Arc::new(RxNull)]);
    let begin = |raw: &mut Raw, index: u32| {
        raw.header.cid = Cid(0x1000 + index);
        raw.data(1, Flags(0), b"a");
        raw.data(2, Flags::LAST_PACKET, b"b");
        // Once more: a call waits once however often its packets come.
        raw.data(2, Flags::LAST_PACKET, b"b");
    };
    (0..10).for_each(|index| begin(&mut raw, index));
    let running: Vec<_> = raw
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Incoming { call, .. } => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(running.len(), 2);
    assert_eq!(raw.endpoint.stats().calls_waited, 8);
    raw.take();
    raw.endpoint.abort(raw.now, running[0], AbortCode(1));
    let next = raw.incoming();
    assert_eq!(raw.endpoint.read(next), Read::Data((&b"a"[..]).into()));
    raw.take();
    (10..1200).for_each(|index| begin(&mut raw, index));
    let aborts = raw.take_of(PacketType::Abort);
    assert!(
        aborts
            .iter()
            .all(|(_, body)| abort_code(body) == AbortCode::VBUSY)
    );
    // Most of the line is free for others.
    let refused = raw.endpoint.stats().refused;
    assert!((1060..1500).contains(&refused), "{refused}");
    assert!(aborts.len() >= 1000);
    assert_eq!(raw.events(), []);
    // A waiting call that its client gives up leaves the line.
    for index in 3..2000 {
        raw.header.cid = Cid(0x1000 + index);
        raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
    }
    raw.endpoint.abort(raw.now, running[1], AbortCode(1));
    raw.endpoint.abort(raw.now, next, AbortCode(1));
    assert_eq!(raw.events(), []);
    raw.header.cid = Cid(0x9000);
    raw.data(1, Flags::LAST_PACKET, b"");
    raw.incoming();
}

#[test]
fn who_has_taken_many_places_leaves_some_to_others() {
    let mut raw = Raw::server(Config::default());
    let service = Service {
        max_calls: 400,
        ..Service::new(SERVICE, "narrow")
    };
    raw.endpoint.add_service(service, vec![Arc::new(RxNull)]);
    let begun = |raw: &mut Raw, first: u32, calls: u32| {
        for index in 0..calls {
            raw.header.cid = Cid(first + index);
            raw.data(1, Flags::LAST_PACKET, b"a");
        }
        let incoming = |event| match event {
            Event::Incoming { call, .. } => Some(call),
            _ => None,
        };
        let running: Vec<_> = raw.events().into_iter().filter_map(incoming).collect();
        running
    };
    let greedy = begun(&mut raw, 0x1000, 1000);
    assert_eq!(greedy.len(), 64);
    raw.peer = SocketAddr::from(([192, 0, 2, 8], 7009));
    let modest = begun(&mut raw, 0x10_0000, 50);
    assert_eq!(modest.len(), 50, "all at once, though others wait");
    // What the modest one gives back goes to nobody who has a share.
    raw.endpoint.abort(raw.now, modest[0], AbortCode(1));
    assert_eq!(raw.events(), []);
    raw.endpoint.abort(raw.now, greedy[0], AbortCode(1));
    assert_eq!(raw.events().len(), 1, "the next one of its own");
    for call in &modest[1..] {
        raw.endpoint.abort(raw.now, *call, AbortCode(1));
    }
    assert_eq!(raw.events(), []);
    let waited = raw.endpoint.stats().calls_waited;
    assert!((80..130).contains(&waited), "{waited}");
}

/// The most that was held at any time, in bytes.
fn most_held(pair: &mut Pair, side: usize, limit: Duration) -> u64 {
    let mut most = 0;
    pair.run(limit, |pair| {
        most = most.max(pair.sides[side].endpoint.stats().receive_memory);
        false
    });
    most
}

#[test]
fn a_slow_reader_holds_the_sender_back() {
    for client in [Config::default(), old_peer()] {
        let server = Config {
            receive_window_max: 1 << 20,
            ..Config::default()
        };
        let mut pair = Pair::with_configs(1, Link::default(), [client, server]);
        pair.sides[SERVER].reads = false;
        let connection = pair.connect();
        let data = pattern(8_000_000, 1);
        let call = pair.call(connection, data.clone());
        let most = most_held(&mut pair, SERVER, 10 * SECOND);
        assert!((10_000..(1 << 20) + 100_000).contains(&most), "{most}");
        assert!(!pair.has_ended(call));
        pair.unblock(SERVER);
        assert!(pair.finish(call, 60 * SECOND).unwrap() == data);
        assert_eq!(pair.sides[SERVER].endpoint.stats().receive_memory, 0);
    }
}

/// The peer of a call that is not read yet, as another is before it, sends as much as ever of the next
/// at once.
#[test]
fn a_call_that_waits_does_not_hold_the_next_one_back() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    let call = pair.call(connection, pattern(40_000_000, 1));
    pair.finish(call, 60 * SECOND).unwrap();
    pair.sides[SERVER].reads = false;
    let held = |pair: &Pair| pair.sides[SERVER].endpoint.stats().receive_memory;
    pair.call(connection, pattern(40_000_000, 2));
    pair.idle(5 * SECOND);
    let of_one = held(&pair);
    assert!((8 << 20..64 << 20).contains(&of_one), "{of_one}");
    pair.call(connection, pattern(1_000_000, 3));
    // Before it can have heard how large the window of this call is.
    pair.idle(2 * Link::default().delay);
    let of_next = held(&pair) - of_one;
    assert!(of_next > 200_000, "{of_next}");
}

/// Many calls that nobody reads share what there is, and the one that is read goes on.
#[test]
fn all_calls_together_stay_within_memory() {
    let max = 8 << 20;
    let server = Config {
        memory_max: max,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), server]);
    pair.sides[SERVER].reads = false;
    for _ in 0..10 {
        let connection = pair.connect();
        for _ in 0..4 {
            pair.call(connection, pattern(3_000_000, 1));
        }
    }
    let most = most_held(&mut pair, SERVER, 10 * SECOND);
    // Every call has a floor, so that none starves.
    assert!(
        (max / 4..=max + 40 * (66 << 10)).contains(&most),
        "{most} of {max}"
    );
    pair.unblock(SERVER);
    pair.idle(300 * SECOND);
    assert_eq!(pair.sides[CLIENT].seen.completed.len(), 40);
    assert_eq!(pair.sides[SERVER].endpoint.stats().receive_memory, 0);
}

/// The acknowledgements that would open a closed window are all lost for a while.
#[test]
fn a_window_reopens_though_updates_are_lost() {
    for client in [Config::default(), old_peer()] {
        for server in [
            Config {
                receive_window_max: 200_000,
                ..Config::default()
            },
            old_peer(),
        ] {
            let configs = [client.clone(), server];
            let mut pair = Pair::with_configs(1, Link::default(), configs);
            pair.sides[SERVER].reads = false;
            let connection = pair.connect();
            let data = pattern(1_000_000, 1);
            let call = pair.call(connection, data.clone());
            pair.idle(3 * SECOND);
            let mut lost = 0;
            pair.filter = Some(Box::new(move |from, _| {
                lost += usize::from(from == SERVER);
                from == CLIENT || lost > 3
            }));
            pair.unblock(SERVER);
            let at = pair.now;
            assert!(pair.finish(call, 60 * SECOND).unwrap() == data);
            let took = pair.now - at;
            assert!(
                took < 8 * SECOND,
                "{took:?}, {:?}",
                pair.sides[CLIENT].endpoint.stats()
            );
        }
    }
}

/// A peer that ignores the window cannot make us hold more than it.
#[test]
fn packets_beyond_the_window_are_dropped() {
    let mut raw = Raw::server(Config {
        receive_window_max: 100_000,
        ..old_peer()
    });
    for sequence in 1..5000 {
        raw.data(sequence, Flags(0), &[0; 1400]);
    }
    raw.incoming();
    let held = raw.endpoint.stats().receive_memory;
    assert!(held <= 200_000, "{held}");
    assert!(raw.endpoint.stats().violations > 4700);
    let (_, body) = raw.take_of(PacketType::Ack).pop().unwrap();
    let ack = Ack::decode(&body).unwrap();
    // What was dropped is not acknowledged.
    assert!(
        u64::from(ack.first - 1 + u32::from(ack.soft.len())) * 1400 <= held,
        "{ack:?}"
    );
    raw.wait(Duration::from_millis(50));
    // The next one over hears why.
    raw.data(4999, Flags(0), &[0; 1400]);
    let (_, body) = raw.take_of(PacketType::Ack).pop().unwrap();
    let reason = Ack::decode(&body).unwrap().reason;
    assert!(
        matches!(reason, Reason::ExceedsWindow | Reason::NoSpace),
        "{reason:?}"
    );
}
