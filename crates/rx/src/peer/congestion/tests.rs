//! Behaviour of the algorithms, alone and against each other.

use std::time::{Duration, Instant};

use super::{
    AckedPacket, CongestionKind, Controller, LostPacket,
    sim::{FlowReport, FlowSpec, Link, Report, Sim, start_of_time},
};
use crate::peer::rtt::RttEstimator;

const SECOND: Duration = Duration::from_secs(1);

fn trace() -> Option<Duration> {
    let ms = std::env::var("TRACE").ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}

fn run(link: &Link, flows: Vec<FlowSpec>, seed: u64, limit: Duration) -> Report {
    let mut sim = Sim::new(link.clone(), flows, seed);
    sim.trace = trace();
    sim.run(limit)
}

fn bbr() -> FlowSpec {
    FlowSpec::new(CongestionKind::Bbr)
}

/// Share of the link's rate from the first packet to the last byte's arrival.
fn utilisation(link: &Link, spec: FlowSpec, seed: u64, limit: Duration) -> (f64, Report) {
    let report = run(link, vec![spec], seed, limit);
    let took = report.flows[0].finished.unwrap_or(report.ran).as_secs_f64();
    (
        report.flows[0].goodput as f64 / took / link.rate as f64,
        report,
    )
}

#[test]
fn bbr_fills_a_clean_link_and_keeps_the_queue_small() {
    let link = Link::new(1000, 12.5, 1.0);
    let (share, report) = utilisation(&link, bbr(), 1, 4 * SECOND);
    assert!(share > 0.97, "{share}");
    assert!(report.queue_mean < 0.25 * link.rate as f64 * link.rtt.as_secs_f64());
}

#[test]
fn bbr_keeps_up_with_random_loss() {
    for (link, least) in [
        (Link::new(1000, 12.5, 1.0).loss(0.001), 0.95),
        (Link::new(1000, 12.5, 1.0).loss(0.01), 0.9),
        (Link::new(20, 20.0, 1.0).loss(0.01), 0.9),
    ] {
        for seed in 0..2 {
            let (share, _) = utilisation(&link, bbr(), seed, 4 * SECOND);
            assert!(share > least, "{link:?} seed {seed}: {share}");
        }
    }
}

#[test]
fn reordering_does_not_shrink_the_window() {
    let link = Link::new(30, 230.0, 1.0);
    let reordering = link.clone().reorder(0.01, Duration::from_millis(5));
    for kind in [CongestionKind::Bbr, CongestionKind::Cubic] {
        let spec = FlowSpec::new(kind).bytes(40_000_000);
        let (clean, _) = utilisation(&link, spec.clone(), 1, 60 * SECOND);
        let (reordered, report) = utilisation(&reordering, spec, 1, 60 * SECOND);
        assert!(
            report.flows[0].spurious > 0,
            "the first reordering is taken for a loss"
        );
        assert!(
            reordered > 0.99 * clean && reordered > 0.9,
            "{kind:?}: {clean} {reordered}"
        );
    }
}

#[test]
fn bbr_shares_a_queue_with_cubic() {
    for (queue, jain) in [(0.5, 0.95), (1.0, 0.95), (2.0, 0.9)] {
        let link = Link::new(100, 25.0, queue);
        let ours = (0..4).map(|i| bbr().starts(Duration::from_millis(10 * i)));
        let theirs =
            (0..4).map(|i| FlowSpec::tcp_cubic().starts(Duration::from_millis(5 + 10 * i)));
        let report = run(&link, ours.chain(theirs).collect(), 3, 60 * SECOND);
        let share = report.share(&link, 0..4);
        assert!(
            (0.35..0.65).contains(&share),
            "queue {queue}: bbr got {share}"
        );
        assert!(report.share(&link, 4..8) > 0.35);
        assert!(
            report.jain(0..4) > jain,
            "queue {queue}: {}",
            report.jain(0..4)
        );
    }
}

/// What the flows of `one` have of all that arrives in the first `half` of a run, and in the second.
fn shares(
    link: &Link,
    (one, other): (&[FlowSpec], &[FlowSpec]),
    seed: u64,
    half: Duration,
) -> [f64; 2] {
    let flows = [one, other].concat();
    let goodput = |limit| {
        let flows = run(link, flows.clone(), seed, limit).flows;
        let sum = |flows: &[FlowReport]| flows.iter().map(|f| f.goodput as f64).sum::<f64>();
        [sum(&flows[..one.len()]), sum(&flows[one.len()..])]
    };
    let [first, both] = [half, 2 * half].map(goodput);
    let second = [both[0] - first[0], both[1] - first[1]];
    assert!(second[0] + second[1] > 0.9 * link.rate as f64 * half.as_secs_f64());
    [first, second].map(|[one, other]| one / (one + other))
}

#[test]
fn who_comes_late_gets_a_share_in_time() {
    for (rtt, queue) in [(230.0, 0.5), (25.0, 1.0)] {
        let link = Link::new(100, rtt, queue);
        let found = (1..3).map(|seed| {
            let late = bbr().starts(10 * SECOND);
            shares(&link, (&[bbr()], &[late]), seed, 100 * SECOND)[1]
        });
        let found: Vec<_> = found.collect();
        let mean = found.iter().sum::<f64>() / 2.0;
        assert!(
            (0.4..0.6).contains(&mean) && found.iter().all(|share| (0.3..0.7).contains(share)),
            "{rtt} ms, queue {queue}: {found:?}"
        );
    }
}

#[test]
fn three_shares_get_about_three_times_as_much() {
    for (rtt, queue) in [(230.0, 1.0), (25.0, 1.0)] {
        let link = Link::new(100, rtt, queue);
        for late in [0, 10] {
            let flows = ([bbr().shares(3)], [bbr().starts(late * SECOND)]);
            let [_, share] = shares(&link, (&flows.0, &flows.1), 1, 50 * SECOND);
            assert!(
                (0.65..0.9).contains(&share),
                "{rtt} ms, queue {queue}, the other {late} s later: {share}"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let link = Link::new(50, 20.0, 1.0).loss(0.01);
    let one = run(&link, vec![bbr(), FlowSpec::tcp_cubic()], 9, 5 * SECOND);
    let two = run(&link, vec![bbr(), FlowSpec::tcp_cubic()], 9, 5 * SECOND);
    let goodput = |r: &Report| {
        r.flows
            .iter()
            .map(|f| (f.goodput, f.lost))
            .collect::<Vec<_>>()
    };
    assert_eq!(goodput(&one), goodput(&two));
}

/// Sends `count` packets of `size` at `now`.
fn send(
    c: &mut Controller,
    rtt: &RttEstimator,
    now: Instant,
    count: usize,
    size: usize,
) -> Vec<LostPacket> {
    (0..count)
        .map(|_| LostPacket {
            token: c.on_packet_sent(now, size, false, rtt),
            time_sent: now,
            bytes: size,
        })
        .collect()
}

fn ack(c: &mut Controller, rtt: &mut RttEstimator, now: Instant, packets: &[LostPacket]) {
    rtt.update(now, now - packets[packets.len() - 1].time_sent, None);
    c.begin_ack();
    for p in packets {
        c.on_packet_acked(
            now,
            &AckedPacket {
                token: p.token,
                time_sent: p.time_sent,
                bytes: p.bytes,
            },
        );
    }
    c.end_ack(now, rtt);
}

#[test]
fn spurious_losses_are_undone_and_real_ones_are_not() {
    for kind in [CongestionKind::Reno, CongestionKind::Cubic] {
        for spurious in [true, false] {
            let start = start_of_time();
            let mut rtt = RttEstimator::new(Duration::from_millis(20));
            let mut c = Controller::new(kind, start, 1000, 32, 1);
            let sent = send(&mut c, &rtt, start, 32, 1000);
            let now = start + Duration::from_millis(20);
            ack(&mut c, &mut rtt, now, &sent[8..]);
            let before = c.window();
            for lost in &sent[..8] {
                c.on_loss(now, lost, false, false, &rtt);
            }
            assert_eq!(c.bytes_in_flight(), 0);
            assert!(c.window() < before);
            let count = if spurious { 8 } else { 7 };
            for lost in &sent[..count] {
                c.on_spurious_loss(now, lost.token, lost.bytes, lost.time_sent);
            }
            assert_eq!(
                c.window() >= before,
                spurious,
                "{kind:?} {} of {before}",
                c.window()
            );
        }
    }
}

#[test]
fn large_packets_and_large_windows_do_not_overflow() {
    for kind in [
        CongestionKind::Reno,
        CongestionKind::Cubic,
        CongestionKind::Bbr,
    ] {
        let start = start_of_time();
        let mut rtt = RttEstimator::new(Duration::from_micros(100));
        let mut c = Controller::new(kind, start, 65_000, 1 << 20, 1);
        assert_eq!(c.window(), 65_000 << 20);
        let mut now = start;
        for _ in 0..50 {
            let sent = send(&mut c, &rtt, now, 1000, 65_000);
            now += Duration::from_micros(100);
            ack(&mut c, &mut rtt, now, &sent[1..]);
            c.on_loss(now, &sent[0], true, false, &rtt);
            c.on_ecn_ce(now, 1, now, &rtt);
            assert!(c.send_quantum(&rtt) == 65_000 && c.window() >= 4 * 65_000);
            assert!(c.pacing_rate(&rtt).is_some_and(|rate| rate > 0));
        }
        assert_eq!(c.bytes_in_flight(), 0);
        c.on_mtu_change(1444);
        c.on_persistent_timeout(now, &rtt);
        assert!(c.window() >= 4 * 1444);
    }
}

#[test]
fn discarded_packets_leave_the_flight_without_a_trace() {
    let start = start_of_time();
    let rtt = RttEstimator::new(Duration::from_millis(20));
    let mut c = Controller::new(CongestionKind::Bbr, start, 1444, 32, 1);
    let window = c.window();
    for packet in send(&mut c, &rtt, start, 10, 1444) {
        c.on_discarded(packet.token, packet.bytes);
    }
    assert_eq!(
        (c.bytes_in_flight(), c.window(), c.totals()),
        (0, window, (0, 0))
    );
}

#[test]
fn persistent_timeout_collapses_and_acknowledgements_restore() {
    for kind in [
        CongestionKind::Reno,
        CongestionKind::Cubic,
        CongestionKind::Bbr,
    ] {
        let start = start_of_time();
        let mut rtt = RttEstimator::new(Duration::from_millis(20));
        let mut c = Controller::new(kind, start, 1000, 32, 1);
        c.on_persistent_timeout(start, &rtt);
        assert_eq!(c.window(), 4000);
        let mut now = start;
        for _ in 0..6 {
            let count = usize::try_from(c.window() / 1000).unwrap();
            let sent = send(&mut c, &rtt, now, count, 1000);
            now += Duration::from_millis(20);
            ack(&mut c, &mut rtt, now, &sent);
        }
        assert!(c.window() >= 16_000, "{kind:?} {}", c.window());
    }
}

#[test]
#[ignore = "prints the comparison table of the module's documentation; takes a minute"]
fn table() {
    let bbr = CongestionKind::Bbr;
    let which = std::env::var("ONLY").unwrap_or_default();
    let cases: Vec<(&str, Link, Option<u64>)> = vec![
        ("12.5/1G", Link::new(1000, 12.5, 1.0), None),
        ("100/1G/4GiB", Link::new(1000, 100.0, 1.0), Some(4 << 30)),
        ("230/30M/40MB", Link::new(30, 230.0, 1.0), Some(40_000_000)),
        (
            "230/30M/40MB/1%reo",
            Link::new(30, 230.0, 1.0).reorder(0.01, Duration::from_millis(5)),
            Some(40_000_000),
        ),
        ("12.5/1G/.1%", Link::new(1000, 12.5, 1.0).loss(0.001), None),
        ("12.5/1G/1%", Link::new(1000, 12.5, 1.0).loss(0.01), None),
        ("100/100M/1%", Link::new(100, 100.0, 1.0).loss(0.01), None),
        ("20/20M/1%", Link::new(20, 20.0, 1.0).loss(0.01), None),
    ];
    for (name, link, bytes) in cases {
        if !name.contains(&which) {
            continue;
        }
        for kind in [bbr, CongestionKind::Cubic, CongestionKind::Reno] {
            for seed in 0..if kind == bbr { 3 } else { 1 } {
                let mut spec = FlowSpec::new(kind);
                spec.bytes = bytes;
                let report = run(
                    &link,
                    vec![spec],
                    seed,
                    if bytes.is_some() {
                        300 * SECOND
                    } else {
                        15 * SECOND
                    },
                );
                let f = &report.flows[0];
                let took = f.finished.unwrap_or(report.ran).as_secs_f64();
                let use_ = f.goodput as f64 / took / link.rate as f64;
                eprintln!(
                    "{name:20} {kind:?} seed {seed}: {use_:.3} took {took:.2} lost {} spurious {} queue {:.2} bdp",
                    f.lost,
                    f.spurious,
                    report.queue_mean / (link.rate as f64 * link.rtt.as_secs_f64()),
                );
            }
        }
    }
    for (name, queue) in [("fair q=.5", 0.5), ("fair q=1", 1.0), ("fair q=2", 2.0)] {
        if !name.contains(&which) {
            continue;
        }
        for seed in 0..8 {
            let link = Link::new(100, 25.0, queue);
            let mut flows = vec![];
            for i in 0..4 {
                flows.push(FlowSpec::new(bbr).starts(Duration::from_millis(10 * i)));
            }
            for i in 0..4 {
                flows.push(FlowSpec::tcp_cubic().starts(Duration::from_millis(5 + 10 * i)));
            }
            let r = run(&link, flows, seed, 60 * SECOND);
            eprintln!(
                "{name} seed {seed}: bbr {:.3} cubic {:.3} jain {:.3} / {:.3}  queue {:.2}",
                r.share(&link, 0..4),
                r.share(&link, 4..8),
                r.jain(0..4),
                r.jain(4..8),
                r.queue_mean / (link.rate as f64 * link.rtt.as_secs_f64()),
            );
        }
    }
    for link in [(230.0, 0.5), (230.0, 1.0), (230.0, 2.0), (25.0, 1.0)] {
        if !"shares".contains(&which) {
            continue;
        }
        let one = FlowSpec::new(bbr);
        let late = one.clone().starts(10 * SECOND);
        let three = [(); 3].map(|()| one.clone());
        for (name, flows) in [
            ("late", &[late][..]),
            ("three shares", &[one.clone().shares(3)]),
            ("three peers", &three),
        ] {
            let (rtt, queue) = link;
            let path = Link::new(100, rtt, queue);
            for seed in 1..4 {
                let beside = (flows, &[one.clone()][..]);
                let [first, second] = shares(&path, beside, seed, 100 * SECOND);
                eprintln!("{name} {rtt} ms q={queue} seed {seed}: {first:.2}, then {second:.2}");
            }
        }
    }
}
