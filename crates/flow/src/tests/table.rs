//! The table: what a client gets of a link, beside whom, over many seeds.

use super::client::{Client, Setup};
use super::link::{Link, Tcp};
use super::{Event, SECOND, Time, World};

/// Threads of a file server.
const THREADS: usize = 10;
/// Runs of a cell.
const SEEDS: u64 = 20;

/// Who uses the link.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    Nobody,
    Tcp,
    Background,
    /// The client measured comes later than another.
    Earlier,
    Equal,
    /// A film of so many Mbit/s beside a copy that began before, and whether it is played first.
    Film(f64, bool),
}

/// A link, for how long it is watched, and what it must give.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    milliseconds: f64,
    megabits: f64,
    loss: f64,
    /// Seconds that others are ahead, and that are measured.
    lead: u64,
    time: u64,
    /// The median of the share must not be less in the first five cells.
    least: [f64; 5],
    /// Mbit/s of a film, and seconds for which it may stand still in the median, if it is played first too.
    film: Option<(f64, [f64; 2])>,
}

const ROWS: [Row; 6] = [
    Row {
        name: "12.5 ms, 1 Gbit/s",
        milliseconds: 12.5,
        megabits: 1000.0,
        loss: 0.0,
        lead: 4,
        time: 6,
        least: [0.85, 0.05, 0.1, 0.3, 0.35],
        film: None,
    },
    Row {
        name: "50 ms, 100 Mbit/s",
        milliseconds: 50.0,
        megabits: 100.0,
        loss: 0.0,
        lead: 12,
        time: 30,
        least: [0.94, 0.22, 0.88, 0.36, 0.42],
        film: Some((8.0, [0.5, 0.5])),
    },
    Row {
        name: "100 ms, 1 Gbit/s",
        milliseconds: 100.0,
        megabits: 1000.0,
        loss: 0.0,
        lead: 6,
        time: 12,
        least: [0.21, 0.01, 0.21, 0.21, 0.2],
        film: None,
    },
    Row {
        name: "230 ms, 30 Mbit/s",
        milliseconds: 230.0,
        megabits: 30.0,
        loss: 0.0,
        lead: 15,
        time: 60,
        least: [0.91, 0.17, 0.8, 0.32, 0.42],
        film: Some((8.0, [2.0, 1.0])),
    },
    Row {
        name: "230 ms, 30 Mbit/s, 1 % loss",
        milliseconds: 230.0,
        megabits: 30.0,
        loss: 0.01,
        lead: 15,
        time: 60,
        least: [0.75, 0.72, 0.55, 0.38, 0.36],
        film: Some((8.0, [1.0, 1.0])),
    },
    Row {
        name: "230 ms, 100 Mbit/s",
        milliseconds: 230.0,
        megabits: 100.0,
        loss: 0.0,
        lead: 15,
        time: 60,
        least: [0.86, 0.07, 0.78, 0.24, 0.4],
        film: Some((64.0, [30.0, 30.0])),
    },
];

/// The queue of a client that is alone is no longer than this part of a round trip, in the median.
const QUEUE_MOST: f64 = 0.4;

/// What came of one run.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// The client's part of the link, and that of all.
    share: f64,
    used: f64,
    /// Milliseconds a packet waited.
    queue: f64,
    /// Seconds a film stood still.
    stalled: f64,
}

fn run(row: &Row, beside: Beside, setup: &Setup, seed: u64) -> Found {
    let link = Link::new(row.milliseconds, row.megabits, 1.0, row.loss);
    let mut world = World::new(link, THREADS, seed);
    let mut lead = row.lead * SECOND;
    let time = row.time * SECOND;
    let subject = match beside {
        Beside::Film(megabits, first) => {
            let first = setup.first || first;
            Client::film(
                Setup {
                    first,
                    ..setup.clone()
                },
                megabits,
            )
        }
        _ => Client::new(setup.clone(), false),
    };
    world.clients.push(subject);
    match beside {
        Beside::Nobody => lead = 0,
        Beside::Tcp => {
            world.tcp = Some(Tcp::new());
            world.tcp_send();
        }
        Beside::Background => world.clients.push(Client::new(setup.clone(), true)),
        Beside::Earlier | Beside::Film(..) => {
            world.clients.push(Client::new(setup.clone(), false));
        }
        Beside::Equal => {
            world.clients.push(Client::new(setup.clone(), false));
            lead = 0;
        }
    }
    let jitter = |world: &mut World| world.random.u64(..world.link.round_trip * 2);
    if world.clients.len() > 1 {
        let at = jitter(&mut world);
        world.at(at, Event::Join(1));
    }
    let begin: Time = lead + jitter(&mut world);
    world.at(begin, Event::Join(0));
    world.measure_from = begin;
    world.at(begin, Event::Sample);
    let before = tcp_arrived(&mut world, begin);
    world.run(begin + time);
    let all = world.link.rate() * row.time as f64;
    let arrived = |number: usize| world.clients.get(number).map_or(0, |client| client.arrived);
    let tcp = world.tcp.as_ref().map_or(0, |tcp| tcp.arrived) - before;
    let share = |packets: u64| packets as f64 / all;
    let own = match beside {
        Beside::Equal => arrived(0).min(arrived(1)),
        _ => arrived(0),
    };
    Found {
        share: share(own),
        used: share(arrived(0) + arrived(1) + tcp),
        queue: world.queued / world.samples.max(1.0) * 1e3,
        stalled: world.clients[0].stalled(),
    }
}

fn tcp_arrived(world: &mut World, until: Time) -> u64 {
    world.run(until - 1);
    world.tcp.as_ref().map_or(0, |tcp| tcp.arrived)
}

/// What came of all seeds, in order.
#[derive(Debug)]
struct Cell {
    share: Vec<f64>,
    used: f64,
    queue: Vec<f64>,
    stalled: Vec<f64>,
}

fn cell(row: &Row, beside: Beside, setup: &Setup, seeds: u64) -> Cell {
    let found: Vec<_> = std::thread::scope(|scope| {
        let half = |from: u64| {
            (from..seeds)
                .step_by(2)
                .map(|seed| run(row, beside, setup, seed))
        };
        let other = scope.spawn(move || half(1).collect::<Vec<_>>());
        let mut all: Vec<_> = half(0).collect();
        all.extend(other.join().unwrap());
        all
    });
    let sorted = |of: fn(&Found) -> f64| {
        let mut values: Vec<_> = found.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    Cell {
        share: sorted(|found| found.share),
        used: median(&sorted(|found| found.used)),
        queue: sorted(|found| found.queue),
        stalled: sorted(|found| found.stalled),
    }
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn range(sorted: &[f64], digits: usize) -> String {
    let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
    let middle = median(sorted);
    format!("{middle:.digits$} [{low:.digits$}..{high:.digits$}]")
}

fn cells(row: &Row) -> Vec<(&'static str, Beside)> {
    let mut cells = vec![
        ("alone", Beside::Nobody),
        ("beside TCP", Beside::Tcp),
        ("beside a background copy", Beside::Background),
        ("after another", Beside::Earlier),
        ("two at once, the lesser", Beside::Equal),
    ];
    if let Some((film, _)) = row.film {
        cells.push(("film beside a copy", Beside::Film(film, false)));
        cells.push(("film played first beside a copy", Beside::Film(film, true)));
    }
    cells
}

#[test]
fn table() {
    println!("| link | | share | all | queue, ms | stalled, s |");
    println!("|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for row in ROWS {
        for (number, (name, beside)) in cells(&row).into_iter().enumerate() {
            let cell = cell(&row, beside, &Setup::default(), SEEDS);
            let stalled = match beside {
                Beside::Film(..) => range(&cell.stalled, 1),
                _ => String::new(),
            };
            let line = format!(
                "| {} | {name} | {} | {:.2} | {:.0} | {stalled} |",
                row.name,
                range(&cell.share, 2),
                cell.used,
                median(&cell.queue),
            );
            println!("{line}");
            let is_queue_long = median(&cell.queue) > QUEUE_MOST * row.milliseconds;
            let is_missed = match (row.least.get(number), row.film) {
                (Some(least), _) => median(&cell.share) < *least || number == 0 && is_queue_long,
                (None, Some((_, most))) => median(&cell.stalled) > most[number - row.least.len()],
                _ => false,
            };
            if is_missed {
                missed.push(line);
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// What each part moves: the cells of which the median is outside of what the seeds gave with it.
#[test]
#[ignore = "takes minutes"]
fn ablation() {
    let seeds = 6;
    let only = std::env::var("ONLY").ok();
    // The fast links take most of the time.
    let cells = |row: &Row| {
        let mut cells = cells(row);
        let slow = row.megabits < 1000.0;
        cells.retain(|(_, beside)| slow || matches!(beside, Beside::Nobody | Beside::Equal));
        cells
    };
    let base: Vec<Vec<Cell>> = ROWS
        .iter()
        .map(|row| {
            cells(row)
                .into_iter()
                .map(|(_, beside)| cell(row, beside, &Setup::default(), seeds))
                .collect()
        })
        .collect();
    for (name, change) in variants() {
        if only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let mut setup = Setup::default();
        change(&mut setup);
        println!("## {name}");
        for (row, base) in ROWS.iter().zip(&base) {
            for ((what, beside), base) in cells(row).into_iter().zip(base) {
                let found = cell(row, beside, &setup, seeds);
                let moved = |base: &[f64], found: &[f64], least: f64| {
                    let (one, other) = (median(base), median(found));
                    let spread =
                        (base[base.len() - 1] - base[0]).max(found[found.len() - 1] - found[0]);
                    ((one - other).abs() > spread.max(least)).then_some(other - one)
                };
                let film = matches!(beside, Beside::Film(..));
                if film {
                    if let Some(by) = moved(&base.stalled, &found.stalled, 0.5) {
                        println!(
                            "{} | {what} | stalled {} -> {} ({by:+.1})",
                            row.name,
                            range(&base.stalled, 1),
                            range(&found.stalled, 1)
                        );
                    }
                } else if let Some(by) = moved(&base.share, &found.share, 0.01) {
                    println!(
                        "{} | {what} | share {} -> {} ({by:+.2})",
                        row.name,
                        range(&base.share, 2),
                        range(&found.share, 2)
                    );
                }
                if let Some(by) = moved(&base.queue, &found.queue, row.milliseconds / 50.0) {
                    println!(
                        "{} | {what} | queue {} -> {} ({by:+.0})",
                        row.name,
                        range(&base.queue, 0),
                        range(&found.queue, 0)
                    );
                }
            }
        }
    }
}

type Change = fn(&mut Setup);

fn variants() -> Vec<(&'static str, Change)> {
    vec![
        ("ports 0", |s| s.ports = 0),
        ("ports 2", |s| s.ports = 2),
        ("ports 4", |s| s.ports = 4),
        ("ports 8 all at a time", |s| s.ports_at_a_time = 8),
        ("no stuck", |s| s.stuck = false),
        ("no drains", |s| {
            s.tuning.pace_drain = s.tuning.pace;
            s.tuning.pace_deep_drain = s.tuning.pace;
        }),
        ("no deep drains", |s| {
            s.tuning.pace_deep_drain = s.tuning.pace_drain
        }),
        ("no starts again", |s| s.tuning.room_time = f64::INFINITY),
        ("no first start pacing", |s| s.tuning.first_start = 0.0),
        ("no introducing slack", |s| {
            s.tuning.introducing_slack = s.tuning.start_slack
        }),
        ("no start trip", |s| {
            s.tuning.trip_slack = f64::INFINITY;
            s.tuning.first_trip_slack = f64::INFINITY;
        }),
        ("no first trip", |s| {
            s.tuning.first_trip_slack = s.tuning.trip_slack
        }),
        ("no first shares", |s| {
            s.tuning.first_shares = 1;
        }),
        ("no first gain", |s| s.tuning.first_gain = s.tuning.gain),
        ("no first pace", |s| s.tuning.pace_first = s.tuning.pace),
        ("no paced", |s| s.paced = false),
        ("no load filter", |s| s.tuning.load_time = 0.0),
        ("no pacing", |s| {
            s.tuning.pace = 1e6;
            s.tuning.pace_start = 1e6;
            s.tuning.pace_first = 1e6;
        }),
        ("no start pacing", |s| s.tuning.pace_start = 1e6),
        ("no queue basic", |s| s.tuning.queue_basic = 0.0),
        ("start slack 1.5", |s| {
            s.tuning.start_slack = 1.5;
        }),
        ("gain 1", |s| s.tuning.gain = 1.0),
        ("gain 1.3", |s| s.tuning.gain = 1.3),
        ("basic 3", |s| s.tuning.basic = 3),
        ("basic 12", |s| s.tuning.basic = 12),
        ("initial 6", |s| s.tuning.initial = 6),
        ("growth 3", |s| s.tuning.growth = 3),
        ("growth 12", |s| s.tuning.growth = 12),
        ("scavenge no start again", |s| {
            s.tuning.scavenge_start_again = f64::INFINITY
        }),
        ("scavenge no pause", |s| s.tuning.scavenge_pause_most = 0.0),
        ("scavenge no distance", |s| s.tuning.scavenge_distance = 0.0),
        ("scavenge no queue part", |s| {
            s.tuning.scavenge_queue_part = 0.0
        }),
        ("scavenge queue 3 ms", |s| s.tuning.scavenge_queue = 0.003),
    ]
}
