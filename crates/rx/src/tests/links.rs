//! What congestion control makes of long fat links, with drivers that run when they can.
//!
//! `cargo test --release -p afar-rx -- --ignored --nocapture links` prints a table; `AFAR_LINK`
//! picks scenarios by name and `AFAR_TIMELINE` prints what the sender did every so many
//! milliseconds.

use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, Scheduling};

/// Headers of IP, UDP and Rx take the rest of a packet.
const GOODPUT: f64 = 1416.0 / 1472.0;

/// A machine that does nothing else.
const CALM: Scheduling = Scheduling {
    grain: Duration::from_micros(50),
    stall_every: Duration::ZERO,
};
/// A machine on which each driver is kept off a core for a third of the time.
const BUSY: Scheduling = Scheduling {
    grain: Duration::from_micros(300),
    stall_every: Duration::from_millis(6),
};

/// One upload over one link.
struct Scenario {
    name: &'static str,
    megabits: f64,
    rtt: Duration,
    loss: f64,
    megabytes: usize,
    scheduling: Scheduling,
    /// The share of the link's rate, ramp included, that every seed must reach.
    least: f64,
}

impl Scenario {
    fn link(&self) -> Link {
        let rate = (self.megabits * 125e3) as u64;
        let queue = (rate as f64 * self.rtt.as_secs_f64()) as u64;
        Link {
            delay: self.rtt / 2,
            rate,
            queue,
            loss: self.loss,
            ..Link::default()
        }
    }

    /// The seconds an upload takes.
    fn run(&self, seed: u64) -> f64 {
        let mut pair = Pair::new(seed, self.link());
        // Acknowledgements take the same way back, and are not lost.
        pair.links[1].loss = 0.0;
        pair.scheduling = self.scheduling;
        pair.serve = |_| Ok(Bytes::new());
        let connection = pair.connect();
        let call = pair.call(connection, Bytes::from(vec![0; self.megabytes * 1_000_000]));
        if let Some(step) = timeline() {
            trace(&mut pair, call, step);
        }
        pair.finish(call, Duration::from_secs(600)).unwrap();
        pair.elapsed().as_secs_f64()
    }
}

fn timeline() -> Option<Duration> {
    let step = std::env::var("AFAR_TIMELINE").ok()?.parse().ok()?;
    Some(Duration::from_millis(step))
}

/// Runs a call to its end and prints what its sender did.
fn trace(pair: &mut Pair, call: crate::CallId, step: Duration) {
    let (mut sent_before, mut resent_before) = (0, 0);
    while !pair.has_ended(call) {
        pair.idle(step);
        let peers = pair.sides[CLIENT].endpoint.peers();
        let Some(peer) = peers.first() else { break };
        println!(
            "{:7.3} s {:10} sent {:7.1} Mbit/s resent {:4} window {:8} flight {:8} pace {:7.1} rtt {:?}/{:?}",
            pair.elapsed().as_secs_f64(),
            peer.congestion_state,
            (peer.data_sent - sent_before) as f64 * 1472.0 * 8e-6 / step.as_secs_f64(),
            peer.data_resent - resent_before,
            peer.congestion_window,
            peer.in_flight,
            peer.pacing_rate.unwrap_or(0) as f64 * 8e-6,
            peer.rtt_min.unwrap_or_default(),
            peer.rtt_smoothed.unwrap_or_default(),
        );
        (sent_before, resent_before) = (peer.data_sent, peer.data_resent);
    }
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (suffix, scheduling) in [("calm", CALM), ("busy", BUSY)] {
        for (name, megabits, rtt, loss, megabytes, [calm, busy]) in [
            ("metro", 1000.0, 12_500, 0.0, 500, [0.97, 0.95]),
            ("metro-0.1%", 1000.0, 12_500, 0.001, 500, [0.97, 0.93]),
            ("metro-1%", 1000.0, 12_500, 0.01, 500, [0.95, 0.92]),
            ("ocean", 1000.0, 100_000, 0.0, 1000, [0.89, 0.87]),
            ("slow", 30.0, 230_000, 0.0, 40, [0.902, 0.88]),
        ] {
            let is_calm = scheduling.stall_every.is_zero();
            all.push(Scenario {
                name: Box::leak(format!("{name} {suffix}").into_boxed_str()),
                megabits,
                rtt: Duration::from_micros(rtt),
                loss,
                megabytes,
                scheduling,
                least: if is_calm { calm } else { busy },
            });
        }
    }
    all
}

#[test]
#[ignore = "takes minutes without optimisation"]
fn links() {
    let wanted = std::env::var("AFAR_LINK").unwrap_or_default();
    let mut slow = Vec::new();
    for scenario in scenarios() {
        if !scenario.name.contains(&wanted) {
            continue;
        }
        let full = scenario.megabytes as f64 * 8.0 / scenario.megabits / GOODPUT;
        let shares: Vec<f64> = (0..super::seeds(3))
            .map(|seed| full / scenario.run(seed))
            .collect();
        println!("{:16} {shares:.3?}", scenario.name);
        if shares.iter().any(|share| *share < scenario.least) {
            slow.push(scenario.name);
        }
    }
    assert!(slow.is_empty(), "too slow: {slow:?}");
}
