//! Behaviour of the algorithms, alone and against each other.

use std::time::Duration;

use super::{
    CongestionKind,
    sim::{FlowSpec, Link, Report, Sim},
};

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

#[test]
#[ignore = "prints the comparison table; takes a minute"]
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
}
