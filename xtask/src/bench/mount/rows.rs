//! What is measured of mounts.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Result, bail};

use super::client::Kind;
use super::server::{Origin, Server};
use super::small::{self, Task};
use super::stream::{self, Beside};
use super::work::{Amounts, Work};
use crate::bench::cell::gathered::{Figures, tcp};
use crate::bench::figures::{Goal, Row as Measured};
use crate::bench::link::{Place, Setup};
use crate::bench::rows::{self, Direction};
use crate::output;

/// OpenAFS's client in user space crashes now and then: so often it may.
const CRASHES_MOST: u32 = 3;

/// A row.
pub(super) struct Row {
    pub(super) name: Cow<'static, str>,
    pub(super) title: Cow<'static, str>,
    pub(super) link: Setup,
    pub(super) what: What,
}

pub(super) enum What {
    /// The same by every client.
    Each {
        work: Work,
        amounts: Amounts,
        /// What is wanted of afar's mount against TCP, of OpenAFS's server and of afar's.
        of_tcp: Option<[f64; 2]>,
        /// And against OpenAFS's client with its defaults.
        of_openafs: f64,
        /// Whether nobody may be faster.
        best: bool,
    },
    /// A film beside a copy.
    Stream { mib: u32 },
    /// Many small files.
    Small(Task),
}

/// How it is measured.
pub(super) struct Plan {
    pub(super) runs: u32,
    pub(super) mib: Option<u32>,
    pub(super) quick: bool,
    pub(super) clients: Vec<Kind>,
}

pub(super) const fn link(rtt_ms: f64, rate_mbit: u32) -> Setup {
    Setup {
        rtt_ms,
        rate_mbit,
        loss_percent: 0.0,
        reorder_percent: 0.0,
    }
}

const ROWS: [Row; 7] = [
    Row {
        name: Cow::Borrowed("read-12"),
        title: Cow::Borrowed("a file is read, 12.5 ms, 1 Gbit/s"),
        link: link(12.5, 1000),
        what: What::Each {
            work: Work::Read,
            amounts: Amounts {
                fast: 1024,
                slow: 32,
            },
            of_tcp: Some([0.6, 0.9]),
            of_openafs: 20.0,
            best: false,
        },
    },
    Row {
        name: Cow::Borrowed("write-12"),
        title: Cow::Borrowed("a file is written, 12.5 ms, 1 Gbit/s"),
        link: link(12.5, 1000),
        what: What::Each {
            work: Work::Write,
            amounts: Amounts {
                fast: 1024,
                slow: 32,
            },
            of_tcp: Some([0.0, 0.9]),
            of_openafs: 5.0,
            best: false,
        },
    },
    Row {
        name: Cow::Borrowed("read-230"),
        title: Cow::Borrowed("a file is read, 230 ms, 30 Mbit/s"),
        link: link(230.0, 30),
        what: What::Each {
            work: Work::Read,
            amounts: Amounts { fast: 256, slow: 2 },
            of_tcp: Some([0.9, 0.9]),
            of_openafs: 20.0,
            best: false,
        },
    },
    Row {
        name: Cow::Borrowed("write-230"),
        title: Cow::Borrowed("a file is written, 230 ms, 30 Mbit/s"),
        link: link(230.0, 30),
        what: What::Each {
            work: Work::Write,
            amounts: Amounts { fast: 256, slow: 2 },
            of_tcp: Some([0.7, 0.9]),
            of_openafs: 5.0,
            best: false,
        },
    },
    Row {
        name: Cow::Borrowed("list"),
        title: Cow::Borrowed("`ls -lR`, 12.5 ms, 1 Gbit/s"),
        link: link(12.5, 1000),
        what: What::Each {
            work: Work::List,
            amounts: Amounts {
                fast: 10_000,
                slow: 1000,
            },
            of_tcp: None,
            of_openafs: 5.0,
            best: false,
        },
    },
    Row {
        name: Cow::Borrowed("untar"),
        title: Cow::Borrowed("`tar x` of small files, 12.5 ms, 1 Gbit/s"),
        link: link(12.5, 1000),
        what: What::Each {
            work: Work::Untar,
            amounts: Amounts {
                fast: 2000,
                slow: 2000,
            },
            of_tcp: None,
            of_openafs: 1.0,
            best: true,
        },
    },
    Row {
        name: Cow::Borrowed("stream"),
        title: Cow::Borrowed(
            "a film of 8 MB/s beside a copy by another client, 230 ms, 100 Mbit/s",
        ),
        link: link(230.0, 100),
        what: What::Stream { mib: 512 },
    },
];

/// Lines that tell what there is.
pub(in crate::bench) fn list() -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
    all().map(|row| (row.name, row.title))
}

fn all() -> impl Iterator<Item = Row> {
    ROWS.into_iter().chain(small::rows())
}

/// The rows that are meant.
///
/// # Errors
/// A word means none.
pub(super) fn select(only: &[String]) -> Result<Vec<Row>> {
    rows::select(all(), |row| &row.name, only)
}

impl Row {
    /// Measures it so many times with files of these servers.
    ///
    /// # Errors
    /// The servers do not start, or afar's mount fails.
    pub(super) fn measure(&self, afar: &Path, origin: Origin, plan: &Plan) -> Result<Measured> {
        let place = Place::make(afar, Some(self.link))?;
        let mut server = Server::up(&place, afar, origin)?;
        let mut figures = Figures::default();
        let mut skipped = Vec::new();
        match &self.what {
            What::Each { .. } => {
                self.each(&mut server, origin, plan, &mut figures, &mut skipped)?;
            }
            What::Small(task) => {
                let measured = small::measure(*task, &mut server, self.link, plan)?;
                (figures, skipped) = measured;
            }
            What::Stream { mib } => {
                let mib = plan.mib.unwrap_or(if plan.quick { mib / 8 } else { *mib });
                stream::prepare(&server, mib)?;
                for _ in 0..plan.runs {
                    for beside in Beside::ALL {
                        let seen = stream::play(&mut server, Kind::Afar, beside)?;
                        let none = Some(Goal::AtMost(0.0));
                        let mut add = |what: &str, unit, goal, value| {
                            figures.add(&format!("{beside}, {what}"), unit, goal, value);
                        };
                        add("the film stands still", "s", none, seen.stalled);
                        add("until it begins", "s", None, seen.start);
                        add("the player's reserve at least", "s", None, seen.reserve);
                        add("the copy", "Mbit/s", None, seen.beside);
                    }
                }
            }
        }
        let suffix = match origin {
            Origin::Openafs => "openafs",
            Origin::Afar => "afar",
        };
        Ok(Measured {
            row: format!("{}-{suffix}", self.name),
            session: String::new(),
            title: format!("{}, from {origin}", self.title),
            skipped: (!skipped.is_empty()).then(|| skipped.join("; ")),
            figures: figures.into_inner(),
        })
    }

    fn each(
        &self,
        server: &mut Server<'_>,
        origin: Origin,
        plan: &Plan,
        figures: &mut Figures,
        skipped: &mut Vec<String>,
    ) -> Result<()> {
        let What::Each {
            work,
            amounts,
            of_tcp,
            of_openafs,
            best,
        } = &self.what
        else {
            return Ok(());
        };
        let amounts = sized(*work, *amounts, plan);
        let (here, missing): (Vec<Kind>, Vec<Kind>) = plan
            .clients
            .iter()
            .filter(|kind| match kind {
                Kind::AfarThrough => matches!(work, Work::Untar),
                Kind::Rclone => false,
                _ => true,
            })
            .partition(|kind| kind.missing().is_none());
        skipped.extend(missing.into_iter().filter_map(Kind::why_skipped));
        work.prepare(server, amounts)?;
        for run in 0..plan.runs {
            let mut ours = Vec::new();
            let mut rates = Vec::new();
            for &kind in &here {
                let amount = amounts.of(kind);
                let rate = tried(kind, || work.rate(server, kind, amount, run));
                let Some(rate) = rate? else {
                    skipped.push(format!("{} crashed in run {}", kind.shown(), run + 1));
                    continue;
                };
                let name = format!("{}, {}", kind.shown(), work.amount(amount));
                output::note(&format!("  {name}: {rate:.1} {}", work.unit()));
                figures.add(&name, work.unit(), None, rate);
                let side = if kind.is_afar() {
                    &mut ours
                } else {
                    &mut rates
                };
                side.push((kind, rate));
            }
            let mut against = |name: &str, other: f64, goal: Option<f64>| {
                for (kind, rate) in &ours {
                    let name = format!("{} / {name}", kind.shown());
                    figures.add(&name, "", goal.map(Goal::AtLeast), rate / other);
                }
            };
            for (kind, rate) in &rates {
                let goal = (*kind == Kind::Afsd).then_some(*of_openafs);
                against(kind.shown(), *rate, goal);
            }
            let fastest = rates.iter().map(|(_, rate)| *rate).reduce(f64::max);
            if let Some(fastest) = fastest.filter(|_| *best) {
                against("the fastest other", fastest, Some(1.0));
            }
            if let Some([openafs, afar]) = of_tcp {
                let direction = match work {
                    Work::Write => Direction::Send,
                    _ => Direction::Recv,
                };
                let tcp = tcp(server.place, direction)?;
                let goal = match origin {
                    Origin::Openafs => *openafs,
                    Origin::Afar => *afar,
                };
                against("TCP", tcp, (goal > 0.0).then_some(goal));
                figures.add("TCP", "Mbit/s", None, tcp);
            }
        }
        Ok(())
    }
}

/// The amounts as the plan wants them.
fn sized(work: Work, amounts: Amounts, plan: &Plan) -> Amounts {
    let data = matches!(work, Work::Read | Work::Write);
    let fast = match plan.mib {
        Some(mib) if data => mib,
        _ if plan.quick => amounts.fast.div_ceil(8),
        _ => amounts.fast,
    };
    Amounts {
        fast,
        slow: amounts.slow.min(fast),
    }
}

/// What is measured of a client; none if another than ours fails whenever it is tried.
pub(super) fn tried(kind: Kind, mut measure: impl FnMut() -> Result<f64>) -> Result<Option<f64>> {
    for _ in 0..CRASHES_MOST {
        match measure() {
            Ok(figure) => return Ok(Some(figure)),
            Err(error) if kind.is_afar() || crate::bench::process::interrupted() => {
                bail!("{}: {error:#}", kind.shown())
            }
            Err(error) => output::note(&format!("  {}: {error:#}", kind.shown())),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_kind_or_name() {
        let names = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            select(&words).map(|rows| rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["write"]).unwrap(), ["write-12", "write-230"]);
        let mut every = names(&[]).unwrap();
        let small = names(&["small"]).unwrap().len();
        assert_eq!(every.len(), ROWS.len() + small);
        every.sort_unstable();
        every.dedup();
        assert_eq!(every.len(), ROWS.len() + small);
        assert_eq!(names(&["small-untar-50"]).unwrap(), ["small-untar-50"]);
        let error = names(&["lis"]).unwrap_err().to_string();
        assert!(error.contains("lis:"), "{error}");
    }

    #[test]
    fn the_slow_are_given_no_more_than_the_fast() {
        let plan = Plan {
            runs: 1,
            mib: Some(8),
            quick: false,
            clients: Vec::new(),
        };
        let amounts = Amounts {
            fast: 1024,
            slow: 32,
        };
        let sized = sized(Work::Read, amounts, &plan);
        assert_eq!((sized.of(Kind::Afar), sized.of(Kind::Afsd)), (8, 8));
    }
}
