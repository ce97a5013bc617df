//! What is measured: the table.

use std::fmt;

use anyhow::{Result, bail};

use super::contender::Contender;
use super::link::Setup;

const GI: u64 = 1 << 30;

/// One line of the table: what is done, where, by whom, and what is good enough.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// How it is selected.
    pub(super) name: String,
    /// What it is, in a table.
    pub(super) title: String,
    /// The link, or the machine's loopback device.
    pub(super) link: Option<Setup>,
    pub(super) work: Work,
    /// The programs that do it, in turns.
    pub(super) contenders: &'static [Contender],
    pub(super) goals: &'static [Goal],
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Work {
    /// One call, or one TCP connection, moves so many bytes.
    Transfer {
        direction: Direction,
        bytes: u64,
        /// CUBIC is given so many seconds instead: under random loss it would need many
        /// minutes, and its rate does not depend on how long it is measured.
        cubic_seconds: Option<u32>,
    },
    /// One call, or one TCP connection, moves what it can to the client in so many seconds.
    Timed { seconds: u32 },
    /// Small calls, so many at a time.
    Rpc { parallel: u32, seconds: u32 },
    /// So many flows of afar beside as many of TCP CUBIC, all to the clients.
    Fairness { flows: u32, seconds: u32 },
    /// A file is read from an OpenAFS file server.
    Fetch { mib: u32 },
    /// Instructions for each packet, counted by callgrind.
    Instructions { direction: Direction },
}

/// Which way payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From client to server.
    Send,
    /// From server to client.
    Recv,
}

/// What is good enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// So much of the better TCP, within a run.
    OfTcp(f64),
    /// So many times the OpenAFS client, within a run.
    OfOpenafs(f64),
    /// At least so much, in the row's unit.
    AtLeast(f64, &'static str),
    /// Afar's share of the link in percent, and so TCP's.
    Share(f64, f64),
    /// Jain's index among afar's flows.
    Jain(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfTcp(ratio) => write!(f, "≥ {ratio} of iperf3"),
            Self::OfOpenafs(ratio) => write!(f, "≥ {ratio} × OpenAFS"),
            Self::AtLeast(value, unit) => write!(f, "≥ {value} {unit}"),
            Self::Share(least, most) => write!(f, "{least} to {most} %"),
            Self::Jain(index) => write!(f, "Jain ≥ {index}"),
        }
    }
}

impl Work {
    /// The unit of what is measured.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Transfer { .. } | Self::Timed { .. } | Self::Fetch { .. } => "Mbit/s",
            Self::Rpc { .. } => "calls/s",
            Self::Fairness { .. } => "%",
            Self::Instructions { .. } => "instructions",
        }
    }

    /// The same work, short enough to try it.
    pub(super) fn quick(self) -> Self {
        match self {
            Self::Transfer {
                direction,
                bytes,
                cubic_seconds,
            } => Self::Transfer {
                direction,
                bytes: if bytes > GI / 4 {
                    bytes / 16
                } else {
                    bytes / 8
                },
                cubic_seconds: cubic_seconds.map(|_| 3),
            },
            Self::Timed { .. } => Self::Timed { seconds: 2 },
            Self::Rpc { parallel, .. } => Self::Rpc {
                parallel,
                seconds: 2,
            },
            Self::Fairness { flows, .. } => Self::Fairness { flows, seconds: 12 },
            Self::Fetch { mib } => Self::Fetch {
                mib: if mib > 64 { mib / 4 } else { mib / 8 },
            },
            Self::Instructions { .. } => self,
        }
    }
}

const TCP: &[Contender] = &[Contender::Afar, Contender::Cubic, Contender::Bbr];
const ALL: &[Contender] = &[
    Contender::Afar,
    Contender::Cubic,
    Contender::Bbr,
    Contender::Openafs,
];
/// OpenAFS's best was 3.35 MB/s when the goal was set: 20 times that is 536 Mbit/s.
const FETCH_GOALS: &[Goal] = &[
    Goal::OfTcp(0.6),
    Goal::OfOpenafs(20.0),
    Goal::AtLeast(536.0, "Mbit/s"),
];
const ALONE: &[Contender] = &[Contender::Afar];

/// A link without faults.
const fn clean(rtt_ms: f64, rate_mbit: u32) -> Setup {
    Setup {
        rtt_ms,
        rate_mbit,
        loss_percent: 0.0,
        reorder_percent: 0.0,
    }
}

const fn lossy(loss_percent: f64) -> Setup {
    Setup {
        loss_percent,
        ..clean(12.5, 1000)
    }
}

/// Transfers measured in both directions: name, title, link, bytes, goals.
type Transfer = (
    &'static str,
    &'static str,
    Option<Setup>,
    u64,
    &'static [Goal],
);

const TRANSFERS: &[Transfer] = &[
    (
        "12ms",
        "12.5 ms, 1 Gbit/s, 1 GiB",
        Some(clean(12.5, 1000)),
        GI,
        &[Goal::OfTcp(0.97)],
    ),
    (
        "100ms",
        "100 ms, 1 Gbit/s, 4 GiB",
        Some(clean(100.0, 1000)),
        4 * GI,
        &[Goal::OfTcp(0.95)],
    ),
    (
        "230ms",
        "230 ms, 30 Mbit/s, 1 % reordered, 40 MB",
        Some(Setup {
            reorder_percent: 1.0,
            ..clean(230.0, 30)
        }),
        40_000_000,
        &[Goal::OfTcp(0.97)],
    ),
    (
        "loss0.1",
        "12.5 ms, 1 Gbit/s, 0.1 % lost, 1 GiB",
        Some(lossy(0.1)),
        GI,
        &[Goal::OfTcp(0.9)],
    ),
    (
        "loss1",
        "12.5 ms, 1 Gbit/s, 1 % lost, 1 GiB",
        Some(lossy(1.0)),
        GI,
        &[Goal::OfTcp(0.8)],
    ),
    (
        "loopback",
        "loopback, 8 GiB",
        None,
        8 * GI,
        &[Goal::OfTcp(0.4), Goal::AtLeast(10_000.0, "Mbit/s")],
    ),
];

/// Round-trip times of the chart, in milliseconds.
pub(super) const SWEEP_RTT_MS: &[f64] = &[0.1, 1.0, 5.0, 12.5, 25.0, 50.0, 100.0, 200.0];
/// Losses of the chart, in percent.
pub(super) const SWEEP_LOSS_PERCENT: &[f64] = &[0.0, 0.01, 0.1, 0.5, 1.0, 2.0];
/// Starts the names of the rows that make a chart.
pub(super) const SWEEP_RTT: &str = "sweep-rtt-";
/// The same for loss.
pub(super) const SWEEP_LOSS: &str = "sweep-loss-";
/// How long each point of a chart is measured.
const SWEEP_SECONDS: u32 = 6;
/// What OpenAFS's window lets through in each round trip, as measured: 32 packets, 45 KB.
pub(super) const OPENAFS_WINDOW_BYTES: f64 = 45_000.0;

/// All rows.
pub(super) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, title, link, bytes, goals) in TRANSFERS {
        for (direction, way) in [(Direction::Send, "send"), (Direction::Recv, "recv")] {
            let lossy = link.is_some_and(|link| link.loss_percent > 0.0);
            rows.push(Row {
                name: format!("{name}-{way}"),
                title: format!("{title}, {way}"),
                link: *link,
                work: Work::Transfer {
                    direction,
                    bytes: *bytes,
                    cubic_seconds: lossy.then_some(15),
                },
                contenders: TCP,
                goals,
            });
        }
    }
    rows.extend(special());
    let points = SWEEP_RTT_MS
        .iter()
        .map(|rtt| (format!("{SWEEP_RTT}{rtt}"), clean(*rtt, 1000)))
        .chain(
            SWEEP_LOSS_PERCENT
                .iter()
                .map(|loss| (format!("{SWEEP_LOSS}{loss}"), lossy(*loss))),
        );
    rows.extend(points.map(|(name, link)| Row {
        name,
        title: format!("{link}, {SWEEP_SECONDS} s, recv"),
        link: Some(link),
        work: Work::Timed {
            seconds: SWEEP_SECONDS,
        },
        contenders: TCP,
        goals: &[],
    }));
    rows
}

fn row(name: &str, title: &str, link: Option<Setup>, work: Work) -> Row {
    Row {
        name: name.to_owned(),
        title: title.to_owned(),
        link,
        work,
        contenders: ALONE,
        goals: &[],
    }
}

/// Rows of which there is one of a kind.
fn special() -> Vec<Row> {
    let rpc = Work::Rpc {
        parallel: 64,
        seconds: 5,
    };
    let fairness = Work::Fairness {
        flows: 4,
        seconds: 60,
    };
    let instructions = |direction| Work::Instructions { direction };
    vec![
        Row {
            goals: &[Goal::AtLeast(100_000.0, "calls/s")],
            ..row("rpc", "loopback, small calls, 64 at a time", None, rpc)
        },
        row(
            "instructions-send",
            "user-space instructions a packet of 1,444 bytes, sender",
            None,
            instructions(Direction::Send),
        ),
        row(
            "instructions-recv",
            "user-space instructions a packet of 1,444 bytes, receiver",
            None,
            instructions(Direction::Recv),
        ),
        Row {
            goals: &[Goal::Share(35.0, 65.0), Goal::Jain(0.95)],
            ..row(
                "fairness",
                "4 flows beside 4 of TCP CUBIC, 25 ms, 100 Mbit/s, queue of 1 BDP, 60 s",
                Some(clean(25.0, 100)),
                fairness,
            )
        },
        Row {
            contenders: ALL,
            goals: FETCH_GOALS,
            ..row(
                "cp-12ms",
                "12.5 ms, 1 Gbit/s, 256 MiB from OpenAFS's file server",
                Some(clean(12.5, 1000)),
                Work::Fetch { mib: 256 },
            )
        },
        Row {
            contenders: TCP,
            goals: &[Goal::OfTcp(0.9)],
            ..row(
                "cp-230ms",
                "230 ms, 30 Mbit/s, 256 MiB from OpenAFS's file server",
                Some(clean(230.0, 30)),
                Work::Fetch { mib: 256 },
            )
        },
    ]
}

/// Of all these, those that `--only` selects: by name, or by the start of a name up to a dash. All if it
/// selects nothing.
///
/// # Errors
/// A word selects none.
pub(super) fn select<R>(
    rows: impl IntoIterator<Item = R>,
    name: impl Fn(&R) -> &str,
    only: &[String],
) -> Result<Vec<R>> {
    let selects = |word: &str, row: &R| {
        let rest = name(row).strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let mut rows: Vec<R> = rows.into_iter().collect();
    if let Some(word) = only
        .iter()
        .find(|word| !rows.iter().any(|row| selects(word, row)))
    {
        bail!("no row {word}: `cargo xtask bench` lists them");
    }
    rows.retain(|row| only.is_empty() || only.iter().any(|word| selects(word, row)));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().into_iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn rows_are_selected_by_name_and_kind() {
        let only = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            select(all(), |row| &row.name, &words).map(|rows| rows.len())
        };
        assert_eq!(only(&["rpc"]).unwrap(), 1);
        assert_eq!(only(&["12ms", "rpc"]).unwrap(), 3);
        assert_eq!(only(&["sweep-rtt"]).unwrap(), SWEEP_RTT_MS.len());
        assert_eq!(only(&[]).unwrap(), all().len());
        let error = only(&["12"]).unwrap_err().to_string();
        assert!(error.contains("12:"), "{error}");
    }
}
