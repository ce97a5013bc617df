//! Whole transfers on good and bad links.

use std::time::Duration;

use bytes::Bytes;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use crate::Config;

/// Sends `len` bytes there and back; gives the seconds it took.
fn echo(pair: &mut Pair, len: usize) -> f64 {
    let connection = pair.connect();
    let data = pattern(len, 1);
    let call = pair.call(connection, data.clone());
    let done = pair.run(Duration::from_secs(600), |pair| {
        pair.sides[CLIENT].seen.completed.contains(&call)
            || pair.sides[CLIENT].seen.failed.contains_key(&call)
    });
    assert!(
        done,
        "no end after {:?}: {:?}",
        pair.elapsed(),
        pair.sides[CLIENT].endpoint.stats()
    );
    assert_eq!(pair.sides[CLIENT].seen.failed.get(&call), None);
    let got = pair.sides[CLIENT]
        .seen
        .data
        .remove(&call)
        .unwrap_or_default();
    assert!(got == data, "{} bytes came back of {len}", got.len());
    pair.elapsed().as_secs_f64()
}

#[test]
fn small_call() {
    let mut pair = Pair::new(1, Link::default());
    let seconds = echo(&mut pair, 100);
    assert!(seconds < 0.011, "{seconds}");
}

#[test]
fn empty_request_and_reply() {
    let mut pair = Pair::new(1, Link::default());
    pair.serve = |_| Ok(Bytes::new());
    let connection = pair.connect();
    let call = pair.call(connection, Bytes::new());
    assert!(pair.run(Duration::from_secs(1), |p| {
        p.sides[CLIENT].seen.completed.contains(&call)
    }));
}

#[test]
fn large_both_ways() {
    for configs in [
        [Config::default(), Config::default()],
        [Config::default(), old_peer()],
        [old_peer(), Config::default()],
        [old_peer(), old_peer()],
    ] {
        let mut pair = Pair::with_configs(3, Link::default(), configs);
        echo(&mut pair, 3_000_000);
        assert_eq!(pair.sides[CLIENT].endpoint.stats().violations, 0);
        assert_eq!(pair.sides[SERVER].endpoint.stats().violations, 0);
    }
}

#[test]
fn fills_a_long_fat_link() {
    let link = Link {
        delay: Duration::from_millis(50),
        rate: 125_000_000,
        queue: 12_500_000,
        ..Link::default()
    };
    let mut pair = Pair::new(1, link);
    pair.serve = |request| Ok(Bytes::from(vec![0; request.len() / 1000]));
    let connection = pair.connect();
    let len = 400_000_000;
    let call = pair.call(connection, Bytes::from(vec![0; len]));
    assert!(pair.run(Duration::from_secs(60), |p| {
        p.sides[CLIENT].seen.completed.contains(&call)
    }));
    let rate = len as f64 / pair.elapsed().as_secs_f64();
    let stats = pair.sides[CLIENT].endpoint.peers();
    // Three seconds of data and more than one of ramp.
    assert!(rate > 0.6 * 125e6, "{rate:.0} bytes/s, {stats:?}");
}

#[test]
fn bad_links() {
    for seed in 0..crate::tests::seeds(50) {
        let mut random = fastrand::Rng::with_seed(seed);
        let link = Link {
            delay: Duration::from_micros(random.u64(50..60_000)),
            rate: [0, 1_000_000, 10_000_000][random.usize(0..3)],
            queue: random.u64(20_000..500_000),
            loss: random.f64() * 0.05,
            duplicate: random.f64() * 0.05,
            reorder: random.f64() * 0.1,
            mtu: [1444, 1472, 9000, 65_507][random.usize(0..4)],
            ..Link::default()
        };
        let configs = match seed % 4 {
            0 | 1 => [Config::default(), Config::default()],
            2 => [Config::default(), old_peer()],
            _ => [old_peer(), Config::default()],
        };
        let text = format!("seed {seed}: {link:?}");
        let result = std::panic::catch_unwind(move || {
            echo(&mut Pair::with_configs(seed, link, configs), 300_000);
        });
        assert!(result.is_ok(), "{text}");
    }
}
