//! What an update costs, in nanoseconds, with one thread and with as many as there are processors.
//!
//! `cargo run --release -p afar-telemetry --example update_cost`

#![expect(clippy::print_stdout, reason = "an example for a terminal")]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use afar_telemetry::{Cells, Counter, Desc, Histogram, Registry, Row, Table, TableConfig, Unit};

/// Few, so that some rounds are over before the scheduler takes the processor away.
const UPDATES: u64 = 200_000;
const ROUNDS: usize = 200;
const CALLS: Desc = Desc::counter("calls_total", Unit::None, "Calls.");

#[derive(Clone, Default)]
struct Calls(u64);

impl Row for Calls {
    const DESCS: &'static [Desc] = &[CALLS];

    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }

    fn tell(&self, cells: &mut Cells) {
        cells.count(&CALLS, &[], self.0);
    }
}

/// The least time that an update took in some rounds, in nanoseconds: other programs only add to it.
fn nanoseconds(threads: usize, update: impl Fn(u64) + Sync) -> f64 {
    let round = || {
        let barrier = Barrier::new(threads);
        let times: Vec<Duration> = std::thread::scope(|scope| {
            let work = || {
                barrier.wait();
                let began = Instant::now();
                (0..UPDATES).for_each(|n| update(black_box(n)));
                began.elapsed()
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ended = threads.into_iter().flat_map(|thread| thread.join());
            ended.collect()
        });
        times.into_iter().max().unwrap_or_default()
    };
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / UPDATES as f64
}

fn table(watched_only: bool) -> Table<u64, Calls> {
    let config = TableConfig {
        labels: &["key"],
        rows: 512,
        watched_only,
    };
    Registry::default().table(config, |key: &u64| vec![key.to_string()])
}

fn main() {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let (counter, histogram) = (Counter::default(), Histogram::default());
    let (open, closed) = (table(false), table(true));
    println!(
        "{:<42} {:>9} {:>9}",
        "nanoseconds an update",
        "1 thread",
        format!("{all} threads")
    );
    let show = |what: &str, update: &(dyn Fn(u64) + Sync)| {
        println!(
            "{what:<42} {:>9.1} {:>9.1}",
            nanoseconds(1, update),
            nanoseconds(all, update)
        );
    };
    show("nothing (the loop and a call)", &|n| {
        black_box(n);
    });
    show("counter", &|_| counter.inc());
    show("histogram", &|n| histogram.record(50_000 + (n & 0xffff)));
    show("table, 100 keys with rows", &|n| {
        open.update(&(n % 100), 1, |row| row.0 += 1)
    });
    show("table, each key once", &|n| {
        open.update(&n, 1, |row| row.0 += 1)
    });
    show("table that nobody looks at", &|n| {
        closed.update(&n, 1, |row| row.0 += 1)
    });
}
