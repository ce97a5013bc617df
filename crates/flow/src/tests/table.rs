//! The table: the share of a link that a client gets, alone and beside others, over many seeds.

use super::client::{Client, Setup};
use super::link::{Link, Tcp};
use super::{Event, SECOND, Time, World};

/// Threads of a file server.
const THREADS: usize = 10;
/// Runs for a cell.
const SEEDS: u64 = 20;

/// How many times as wide the link gets.
pub(super) const WIDER: f64 = 6.0;

/// The others on the link.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    Nobody,
    Tcp,
    Background,
    /// Another client, which began before the one measured.
    Earlier,
    Equal,
    /// Another client, which began before and ends when measuring begins.
    Leaving,
    /// Nobody; the link gets wider when measuring begins.
    Wider,
    /// Nobody, or TCP; the client itself is a background copy.
    Scavenging,
    ScavengingTcp,
    /// A copy that began before; the client plays a film of this many Mbit/s, with priority or without.
    Film(f64, bool),
}

/// A link, the time measured, and the bounds of its cells.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    milliseconds: f64,
    megabits: f64,
    loss: f64,
    /// Seconds by which others begin before, and seconds that are measured.
    lead: u64,
    time: u64,
    /// The bounds of the first nine cells: the median of the share must not be less.
    least: [f64; 9],
    /// Mbit/s of a film, and the bounds of its two cells: the median of the seconds for which it stands still.
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
        least: [0.88, 0.06, 0.18, 0.38, 0.38, 0.9, 0.9, 0.82, 0.0],
        film: None,
    },
    Row {
        name: "50 ms, 100 Mbit/s",
        milliseconds: 50.0,
        megabits: 100.0,
        loss: 0.0,
        lead: 12,
        time: 30,
        least: [0.94, 0.2, 0.86, 0.42, 0.42, 0.93, 0.92, 0.76, 0.01],
        film: Some((8.0, [0.5, 0.5])),
    },
    Row {
        name: "100 ms, 1 Gbit/s",
        milliseconds: 100.0,
        megabits: 1000.0,
        loss: 0.0,
        lead: 6,
        time: 12,
        least: [0.21, 0.01, 0.21, 0.21, 0.19, 0.29, 0.26, 0.15, 0.0],
        film: None,
    },
    Row {
        name: "230 ms, 30 Mbit/s",
        milliseconds: 230.0,
        megabits: 30.0,
        loss: 0.0,
        lead: 15,
        time: 60,
        least: [0.91, 0.18, 0.8, 0.4, 0.42, 0.88, 0.88, 0.64, 0.0],
        film: Some((8.0, [1.0, 1.0])),
    },
    Row {
        name: "230 ms, 30 Mbit/s, 1 % loss",
        milliseconds: 230.0,
        megabits: 30.0,
        loss: 0.01,
        lead: 15,
        time: 60,
        least: [0.8, 0.76, 0.65, 0.4, 0.4, 0.75, 0.55, 0.6, 0.56],
        film: Some((8.0, [1.0, 1.0])),
    },
    Row {
        name: "230 ms, 100 Mbit/s",
        milliseconds: 230.0,
        megabits: 100.0,
        loss: 0.0,
        lead: 15,
        time: 60,
        least: [0.86, 0.06, 0.7, 0.33, 0.4, 0.8, 0.85, 0.6, 0.0],
        film: Some((64.0, [25.0, 8.0])),
    },
];

/// The bound of the queue of a client that is alone, in the median and as a part of the round trip.
const QUEUE_MOST: f64 = 0.4;

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// The client's share of the link, and that of all.
    share: f64,
    used: f64,
    /// Milliseconds that a packet waited.
    queue: f64,
    /// Seconds for which a film stood still.
    stalled: f64,
}

fn run(row: &Row, beside: Beside, setup: &Setup, seed: u64) -> Found {
    let link = Link::new(row.milliseconds, row.megabits, 1.0, row.loss);
    let mut world = World::new(link, THREADS, seed);
    if beside == Beside::Wider {
        world.link.widen(1.0 / WIDER);
    }
    let mut lead = row.lead * SECOND;
    let time = row.time * SECOND;
    let subject = match beside {
        Beside::Scavenging | Beside::ScavengingTcp => Client::new(setup.clone(), true),
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
        Beside::Nobody | Beside::Wider | Beside::Scavenging => lead = 0,
        Beside::Tcp | Beside::ScavengingTcp => {
            world.tcp = Some(Tcp::new());
            world.tcp_send();
        }
        Beside::Background => world.clients.push(Client::new(setup.clone(), true)),
        Beside::Earlier | Beside::Leaving | Beside::Film(..) => {
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
    let changes = match beside {
        Beside::Leaving => Some((2 * begin, Event::Leave(1))),
        Beside::Wider => Some((begin + row.lead * SECOND, Event::Widen)),
        _ => None,
    };
    if let Some((at, event)) = changes {
        world.at(at, event);
    }
    let begin = changes.map_or(begin, |(at, _)| at);
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

/// The results of all seeds, sorted.
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
        ("when another has left", Beside::Leaving),
        ("when the link got wider", Beside::Wider),
        ("a background copy alone", Beside::Scavenging),
        ("a background copy beside TCP", Beside::ScavengingTcp),
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

/// The table without each part that a setting can take away: prints the cells whose median moves by more than
/// the seeds do.
#[test]
#[ignore = "takes minutes"]
fn ablation() {
    let seeds = SEEDS / 2;
    let of_all = |setup: &Setup| {
        let mut found = Vec::new();
        for row in ROWS {
            for (name, beside) in cells(&row) {
                let cell = cell(&row, beside, setup, seeds);
                found.push((format!("{}, {name}", row.name), cell));
            }
        }
        found
    };
    let with = of_all(&Setup::default());
    for (part, without) in PARTS {
        let mut setup = Setup::default();
        without(&mut setup);
        println!("\n{part}");
        for ((name, with), (_, without)) in with.iter().zip(of_all(&setup)) {
            let is_film = with.stalled.last().is_some_and(|stalled| *stalled > 0.0);
            let (what, one, other) = if is_film {
                ("stalled", &with.stalled, &without.stalled)
            } else {
                ("share", &with.share, &without.share)
            };
            for (what, one, other) in [(what, one, other), ("queue", &with.queue, &without.queue)] {
                let by = (median(one) - median(other)).abs();
                if by > spread(one).max(spread(other)).max(0.05 * median(one)) {
                    println!("- {name}: {what} {} -> {}", range(one, 2), range(other, 2));
                }
            }
        }
    }
}

fn spread(sorted: &[f64]) -> f64 {
    sorted[sorted.len() - 1] - sorted[0]
}

type Change = fn(&mut Setup);

/// Parts, each with the setting that takes it away.
const PARTS: &[(&str, Change)] = &[
    ("ports that only read", |setup| setup.ports = 0),
    ("pacing", |setup| setup.tuning.pace = 1e6),
    ("drains", |setup| {
        setup.tuning.pace_drain = setup.tuning.pace
    }),
    ("starting again", |setup| {
        setup.tuning.room_time = f64::INFINITY
    }),
    ("shares of readers with priority", |setup| {
        setup.tuning.priority_shares = 1;
    }),
    ("priority of films that never wait", |setup| {
        setup.paced = false;
    }),
    ("distance between a scavenger's calls", |setup| {
        setup.tuning.scavenge_distance = 0.0;
    }),
];
