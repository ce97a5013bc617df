//! Packet sizes: found where the path allows, given up where it does no longer.

use std::time::Duration;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use crate::packet::{Header, PacketType};
use crate::{CallError, Config};

const SECOND: Duration = Duration::from_secs(1);

fn size(pair: &Pair) -> usize {
    pair.sides[CLIENT].endpoint.peers()[0].packet_size
}

#[test]
fn the_largest_size_that_fits_is_found() {
    let cases = [
        (1444, 1444),
        (1452, 1452),
        (1460, 1452),
        (1472, 1472),
        (8972, 8972),
        (9000, 8972),
        (65_507, 65_507),
    ];
    for (mtu, expected) in cases {
        let mut pair = Pair::new(
            1,
            Link {
                mtu,
                ..Link::default()
            },
        );
        let connection = pair.connect();
        for _ in 0..10 {
            pair.echo(connection, 3_000_000).unwrap();
        }
        let found = size(&pair);
        assert_eq!(found, expected, "path of {mtu}");
        let stats = pair.sides[CLIENT].endpoint.stats();
        assert_eq!(
            (stats.data_resent, stats.violations),
            (0, 0),
            "data never depends on a probe"
        );
    }
}

#[test]
fn both_ends_limit_it() {
    for configs in [
        [
            Config {
                datagram_max: 4096,
                ..Config::default()
            },
            Config::default(),
        ],
        [
            Config::default(),
            Config {
                datagram_max: 4096,
                ..Config::default()
            },
        ],
    ] {
        let mut pair = Pair::with_configs(
            1,
            Link {
                mtu: 65_507,
                ..Link::default()
            },
            configs,
        );
        let connection = pair.connect();
        for _ in 0..10 {
            pair.echo(connection, 3_000_000).unwrap();
        }
        assert_eq!(size(&pair), 4052);
    }
}

#[test]
fn old_peers_get_classic_packets() {
    let mut pair = Pair::with_configs(
        1,
        Link {
            mtu: 65_507,
            ..Link::default()
        },
        [Config::default(), old_peer()],
    );
    let connection = pair.connect();
    let mut largest = 0;
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let copy = seen.clone();
    pair.tap = Some(Box::new(move |_, octets| {
        copy.set(copy.get().max(octets.len()))
    }));
    pair.echo(connection, 3_000_000).unwrap();
    largest = largest.max(seen.get());
    assert_eq!((size(&pair), largest), (1444, 1444));
    assert_eq!(pair.sides[CLIENT].endpoint.stats().data_resent, 0);
}

#[test]
fn discovery_can_be_switched_off() {
    let config = Config {
        mtu_discovery: false,
        ..Config::default()
    };
    let link = Link {
        mtu: 65_507,
        ..Link::default()
    };
    let mut pair = Pair::with_configs(1, link, [config.clone(), config]);
    let connection = pair.connect();
    pair.echo(connection, 3_000_000).unwrap();
    assert_eq!(size(&pair), 1444);
}

/// An unmodified peer: it sends what it always has, unless it is told to send less, and looks for nothing.
fn classic_peer() -> Config {
    Config {
        mtu_discovery: false,
        ..old_peer()
    }
}

/// A path that drops packets of more than so many bytes, IP header included.
fn step(mtu: usize) -> Link {
    Link {
        mtu: mtu - 28,
        rate: 20_000_000,
        ..Link::default()
    }
}

/// Datagrams of a side that leave from now on, and the largest that carries data.
fn count(pair: &mut Pair, side: usize) -> std::rc::Rc<std::cell::Cell<(u64, usize)>> {
    let seen = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let copy = seen.clone();
    pair.tap = Some(Box::new(move |from, bytes| {
        if from == side {
            let (count, largest) = copy.get();
            let data = bytes[20] == 1;
            copy.set((
                count + 1,
                if data {
                    largest.max(bytes.len())
                } else {
                    largest
                },
            ));
        }
    }));
    seen
}

/// What is sent is cut to what the path takes from the first packet on: nothing stops, nothing is sent twice.
#[test]
fn a_path_that_drops_large_packets_carries_calls() {
    for mtu in [1200, 1280, 1400] {
        for side in [CLIENT, SERVER] {
            let mut pair = Pair::new(1, step(mtu));
            pair.serve = if side == CLIENT {
                |request| Ok(pattern(request.len() / 1000, 1))
            } else {
                |_| Ok(pattern(5_000_000, 2))
            };
            let seen = count(&mut pair, side);
            let connection = pair.connect();
            let request = if side == CLIENT { 5_000_000 } else { 10 };
            let began = pair.now;
            let call = pair.call(connection, pattern(request, 1));
            let reply = pair.finish(call, 20 * SECOND).unwrap();
            assert_eq!(reply.len(), if side == CLIENT { 5000 } else { 5_000_000 });
            let (datagrams, largest) = seen.get();
            let of = format!("{mtu} from {side}: {datagrams} datagrams of {largest}");
            assert!(largest <= mtu - 28, "{of}");
            assert!(datagrams < 6000, "{of}");
            let stats = pair.sides[side].endpoint.stats();
            assert_eq!(stats.data_resent, 0, "{of}");
            assert!(
                pair.now - began < 3 * SECOND,
                "{of}: {:?}",
                pair.now - began
            );
            // It is known in time, and said once.
            for _ in 0..5 {
                pair.idle(SECOND);
                let call = pair.call(connection, pattern(request, 1));
                pair.finish(call, 20 * SECOND).unwrap();
            }
            let most = [(1200, 1172), (1280, 1252), (1400, 1372)];
            let most = most
                .iter()
                .find(|(step, _)| *step == mtu)
                .map(|(_, size)| *size);
            let found = pair.sides[side].endpoint.peers()[0].packet_size;
            assert_eq!(Some(found), most, "{of}");
            assert_eq!(pair.sides[side].seen.narrow, [found], "{of}");
        }
    }
}

/// An old server is told to send less, and does; to an old server, and to an old client, less is sent.
#[test]
fn old_peers_are_told_of_a_narrow_path() {
    for mtu in [1200, 1280, 1400] {
        for kind in ["an old server", "an old client"] {
            let configs = match kind {
                "an old server" => [Config::default(), classic_peer()],
                _ => [classic_peer(), Config::default()],
            };
            let mut pair = Pair::with_configs(1, step(mtu), configs);
            pair.serve = |request| match request.len() {
                0..100 => Ok(pattern(100, 1)),
                _ => Ok(pattern(2_000_000, 2)),
            };
            let connection = pair.connect();
            let afar = usize::from(kind == "an old client");
            // As all clients of file servers begin.
            let call = pair.call(connection, pattern(10, 1));
            pair.finish(call, 20 * SECOND).unwrap();
            pair.idle(3 * SECOND);
            let began = pair.now;
            let call = pair.call(connection, pattern(1000, 3));
            let mut reply = pair.finish(call, 20 * SECOND);
            if reply == Err(CallError::TooLarge) {
                // What the server had cut before it was told.
                assert_eq!(kind, "an old server");
                let call = pair.call(connection, pattern(1000, 3));
                reply = pair.finish(call, 20 * SECOND);
            }
            assert!(pair.now - began < 6 * SECOND, "{:?}", pair.now - began);
            assert_eq!(
                reply.map(|reply| reply.len()),
                Ok(2_000_000),
                "{kind}, {mtu}"
            );
            assert!(pair.sides[afar].seen.narrow.len() <= 1, "{kind}, {mtu}");
            if afar == CLIENT {
                let call = pair.call(connection, pattern(2_000_000, 4));
                pair.finish(call, 60 * SECOND).unwrap();
            }
        }
    }
}

/// A route change makes large packets vanish without a word. A packet that has its number cannot be cut
/// smaller any more, so that call ends soon, and says why; the next one goes well.
#[test]
fn a_black_hole_is_noticed() {
    for (before, after) in [
        (8972, 1472),
        (65_507, 1472),
        (8972, 1444),
        (1444, 1252),
        (1472, 1172),
        (1472, 548),
    ] {
        let link = Link {
            mtu: before,
            rate: 20_000_000,
            ..Link::default()
        };
        let mut pair = Pair::new(1, link);
        pair.serve = |request| Ok(pattern(request.len() / 1000, 1));
        let connection = pair.connect();
        for _ in 0..10 {
            let call = pair.call(connection, pattern(3_000_000, 1));
            pair.finish(call, 60 * SECOND).unwrap();
        }
        assert_eq!(size(&pair), before);
        let call = pair.call(connection, pattern(3_000_000, 1));
        pair.run(pair.elapsed() + Duration::from_millis(50), |_| false);
        pair.links = [CLIENT, SERVER].map(|side| Link {
            mtu: after,
            ..pair.links[side].clone()
        });
        let seen = count(&mut pair, CLIENT);
        let at = pair.now;
        let ended = pair.finish(call, 20 * SECOND);
        assert_eq!(ended, Err(CallError::TooLarge), "{before} to {after}");
        assert!(
            pair.now - at < 5 * SECOND,
            "{before} to {after}: {:?}",
            pair.now - at
        );
        let (datagrams, _) = seen.get();
        assert!(datagrams < 1000, "{before} to {after}: {datagrams}");
        // The reply to the next may meet the same, which its client is told: it asks once more.
        let mut ended = Err(CallError::Aborted(crate::AbortCode::RX_MSGSIZE));
        for _ in 0..2 {
            if ended == Err(CallError::Aborted(crate::AbortCode::RX_MSGSIZE)) {
                let call = pair.call(connection, pattern(3_000_000, 1));
                ended = pair.finish(call, 20 * SECOND);
            }
        }
        assert_eq!(
            ended.map(|reply| reply.len()),
            Ok(3000),
            "{before} to {after}"
        );
        assert!(size(&pair) <= after);
    }
}

/// Some packets of a call never get through, and all others do: each of them is sent more and more rarely.
#[test]
fn what_is_lost_again_and_again_rests() {
    let mut pair = Pair::new(
        1,
        Link {
            delay: Duration::from_micros(50),
            ..Link::default()
        },
    );
    let connection = pair.connect();
    pair.echo(connection, 100_000).unwrap();
    let lost = std::rc::Rc::new(std::cell::Cell::new(0_u64));
    let copy = lost.clone();
    pair.filter = Some(Box::new(move |from, bytes| {
        let header = Header::decode(bytes).unwrap();
        let drops =
            from == CLIENT && header.packet_type == PacketType::Data && header.sequence == 5;
        copy.set(copy.get() + u64::from(drops));
        !drops
    }));
    let call = pair.call(connection, pattern(3_000_000, 1));
    pair.run(pair.elapsed() + 10 * SECOND, |_| false);
    assert!(!pair.has_ended(call));
    // Ten seconds are 100,000 round trips.
    assert!((8..30).contains(&lost.get()), "{} times", lost.get());
    pair.filter = None;
    pair.finish(call, 30 * SECOND).unwrap();
}

/// A peer that is away for a while has no narrow path, and gets no more packets than ever.
#[test]
fn an_outage_is_no_narrow_path() {
    for config in [Config::default(), classic_peer()] {
        let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), config]);
        let connection = pair.connect();
        pair.echo(connection, 1_000_000).unwrap();
        let before = size(&pair);
        let call = pair.call(connection, pattern(1_000_000, 1));
        pair.run(pair.elapsed() + Duration::from_millis(20), |_| false);
        pair.filter = Some(Box::new(|_, _| false));
        let seen = count(&mut pair, CLIENT);
        pair.idle(10 * SECOND);
        assert!(
            seen.get().0 < 200,
            "{} datagrams into nothing",
            seen.get().0
        );
        pair.filter = None;
        pair.finish(call, 30 * SECOND).unwrap();
        pair.echo(connection, 1_000_000).unwrap();
        assert_eq!(size(&pair), before);
        assert!(pair.sides[CLIENT].seen.narrow.is_empty());
    }
}
