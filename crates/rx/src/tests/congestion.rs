//! Throughput over whole paths: what reordering and random loss may cost.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, SERVER, pattern};

/// Bytes a second of one upload.
fn rate(seed: u64, link: Link, len: usize) -> f64 {
    let mut pair = Pair::new(seed, link);
    pair.serve = |_| Ok(Bytes::new());
    let connection = pair.connect();
    let call = pair.call(connection, Bytes::from(vec![0; len]));
    pair.finish(call, Duration::from_secs(600)).unwrap();
    assert_eq!(pair.sides[CLIENT].endpoint.stats().violations, 0);
    len as f64 / pair.elapsed().as_secs_f64()
}

/// A megabit a second and a one-way delay; the queue holds a bandwidth-delay product.
fn link(megabits: f64, one_way: Duration) -> Link {
    let rate = (megabits * 125e3) as u64;
    let queue = (rate as f64 * 2.0 * one_way.as_secs_f64()) as u64;
    Link {
        delay: one_way,
        rate,
        queue: queue.max(100_000),
        ..Link::default()
    }
}

#[test]
fn reordering_does_not_shrink_throughput() {
    let clean = link(30.0, Duration::from_millis(115));
    let reordered = Link {
        reorder: 0.01,
        reorder_delay: Duration::from_millis(5),
        ..clean.clone()
    };
    let len = 40_000_000;
    let (without, with) = (rate(1, clean, len), rate(1, reordered, len));
    assert!(with >= 0.95 * without, "{with:.0} of {without:.0} bytes/s");
}

#[test]
fn random_loss_does_not_shrink_throughput() {
    let lossy = Link {
        loss: 0.001,
        ..link(100.0, Duration::from_micros(6250))
    };
    let got = rate(1, lossy, 60_000_000);
    // Headers of IP, UDP and Rx take 3.9 % of a packet.
    assert!(got >= 0.9 * 0.961 * 12.5e6, "{got:.0} bytes/s");
}

#[test]
fn a_peer_gets_the_shares_it_asks_for_and_no_more_than_four() {
    let mut pair = Pair::new(1, link(100.0, Duration::from_millis(10)));
    let connection = pair.connect();
    let [client, server] = [CLIENT, SERVER].map(|side| pair.sides[side].address);
    for (asked, given) in [(0, 1), (3, 3), (1, 1), (200, 4), (2, 2)] {
        let endpoint = &mut pair.sides[CLIENT].endpoint;
        endpoint.ask_for_shares(server, asked);
        // What goes there comes back.
        let call = pair.call(connection, pattern(2_000_000, 1));
        pair.finish(call, Duration::from_secs(60)).unwrap();
        let path = pair.sides[SERVER].endpoint.peer_stats(client).unwrap();
        assert_eq!(path.shares, given, "{asked} asked for");
        // Nobody asked for more of the other direction.
        let path = pair.sides[CLIENT].endpoint.peer_stats(server).unwrap();
        assert_eq!(path.shares, 1);
    }
    // Of somebody there is no path to nothing is asked.
    let stranger = SocketAddr::from(([10, 9, 9, 9], 7000));
    let endpoint = &mut pair.sides[CLIENT].endpoint;
    endpoint.ask_for_shares(stranger, 3);
    assert_eq!(endpoint.peer_stats(stranger), None);
}
