//! Packet sizes: found where the path allows, given up where it does no longer.

use std::time::Duration;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use crate::Config;

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

/// A route change makes large packets vanish without a word.
#[test]
fn a_black_hole_is_noticed() {
    for (before, after) in [(8972, 1472), (65_507, 1472), (8972, 1444)] {
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
        let at = pair.now;
        // A packet that has its number cannot be cut smaller any more, so this call is lost unless
        // the network fragments; the next one must go well.
        let limit = pair.elapsed() + 20 * SECOND;
        pair.run(limit, |pair| {
            pair.has_ended(call) || size(pair) <= after.max(1444)
        });
        assert!(
            pair.now - at < 10 * SECOND,
            "{before} to {after}: {:?}",
            pair.now - at
        );
        pair.sides[CLIENT].to_write.remove(&call);
        let now = pair.now;
        pair.sides[CLIENT]
            .endpoint
            .abort(now, call, crate::AbortCode::RX_MSGSIZE);
        let call = pair.call(connection, pattern(3_000_000, 1));
        pair.finish(call, 20 * SECOND).unwrap();
        assert!(size(&pair) <= after.max(1444));
    }
}
