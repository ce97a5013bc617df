//! Measures rows: each contender in turns, so that what disturbs one disturbs all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result, bail};

use super::contender::Contender;
use super::fetch::Cell;
use super::link::{Noise, Place, Setup, remove_stale};
use super::machine::Session;
use super::rows::{self, Direction, Row, Work};
use super::sample::{Measured, Results, Sample};
use super::traffic::{self, Amount};
use super::{RxArgs, instructions, page, process};
use crate::{output, sh};

/// Runs of each row, if nobody says otherwise: the least number of which an interval means something.
const RUNS: u32 = 5;
/// The slowest that a transfer may be before it is given up: so much of the link's rate.
const SLOWEST: f64 = 0.15;
/// What a transfer may need beyond the time that its payload takes.
const SLACK: Duration = Duration::from_secs(30);
/// What the loopback device is taken to carry where a time limit is reckoned, in bits a
/// second.
const LOOPBACK_RATE: f64 = 2e9;

/// Does what `cargo xtask bench rx` was asked for.
///
/// # Errors
/// The program cannot be built, links cannot be made, or results not be written. A
/// contender that fails is a result.
pub(super) fn run(options: &RxArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Results::load(&place.results())?;
    if !options.render_only {
        process::catch_signals()?;
        let rows = rows::select(rows::all(), |row| &row.name, &options.only)?;
        let afar = program(options.afar.as_deref())?;
        remove_stale(&afar)?;
        let runs = options.runs.unwrap_or(if options.quick { 1 } else { RUNS });
        let session = Session::now(&afar, &shown(options, runs))?;
        for row in rows {
            let row = if options.quick {
                Row {
                    work: row.work.quick(),
                    ..row
                }
            } else {
                row
            };
            let samples = measure(&row, &afar, runs, &session)?;
            results.replace(&row.name, &session, samples);
            results.store(&place.results())?;
        }
    }
    page::finish(&place, &page::summary(&results))
}

/// The command as one would repeat it; where the program and the page lie is this machine's
/// own business.
fn shown(options: &RxArgs, runs: u32) -> String {
    let mut words = format!("bench rx --runs {runs}");
    if options.quick {
        words += " --quick";
    }
    if !options.only.is_empty() {
        words += " --only ";
        words += &options.only.join(",");
    }
    words
}

/// The program to measure: the one given, or what is built as it is shipped.
///
/// # Errors
/// It cannot be built.
pub(super) fn program(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => Ok(std::path::absolute(path)?),
        None => build(),
    }
}

/// Builds the program as it is shipped.
fn build() -> Result<PathBuf> {
    let mut cargo = sh::cargo(["build", "--release", "--quiet", "--package", "afar"]);
    sh::capture(&mut cargo)?;
    Ok(sh::target().join("release/afar"))
}

/// Measures one row.
fn measure(row: &Row, afar: &Path, runs: u32, session: &Session) -> Result<Vec<Sample>> {
    output::note(&format!("{}: {}", row.name, row.title));
    let bench = Bench::set_up(row, afar)?;
    let mut samples = Vec::new();
    for run in 1..=runs {
        for contender in row.contenders {
            // OpenAFS's client takes minutes, and so long that noise does not matter.
            if *contender == Contender::Openafs && run > 1 {
                continue;
            }
            let sample = bench.sample(*contender, run, session)?;
            tell(&sample, &row.work);
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// A row with what it needs, which is put away when dropped: the cell before the link.
struct Bench<'a> {
    row: &'a Row,
    afar: &'a Path,
    cell: Option<Cell>,
    place: Place,
}

impl<'a> Bench<'a> {
    fn set_up(row: &'a Row, afar: &'a Path) -> Result<Self> {
        let place = Place::make(afar, row.link)?;
        let cell = match row.work {
            Work::Fetch { mib } => Some(Cell::up(&place, mib)?),
            _ => None,
        };
        Ok(Self {
            row,
            afar,
            cell,
            place,
        })
    }

    /// One run of a contender. That it fails is a result; that the user wants an end, or the
    /// link is gone, is an error.
    fn sample(&self, contender: Contender, run: u32, session: &Session) -> Result<Sample> {
        let watch = self.place.watch()?;
        let done = self.work(contender);
        if process::interrupted() {
            bail!("interrupted");
        }
        let noise = self.place.noise(&watch)?;
        let (measured, error) = match done {
            Ok(measured) => (measured, None),
            Err(error) => (Measured::default(), Some(self.without_paths(&error))),
        };
        Ok(Sample {
            row: self.row.name.clone(),
            session: session.id.clone(),
            run,
            contender,
            measured,
            noise,
            error,
        })
    }

    /// An error without the paths of this machine, since it is published.
    fn without_paths(&self, error: &Error) -> String {
        format!("{error:#}")
            .replace(&*self.afar.to_string_lossy(), "afar")
            .replace(&*std::env::temp_dir().to_string_lossy(), "TMP")
    }

    fn work(&self, contender: Contender) -> Result<Measured> {
        let (place, afar) = (&self.place, self.afar);
        match (self.row.work, &self.cell) {
            (
                Work::Transfer {
                    direction,
                    bytes,
                    cubic_seconds,
                },
                _,
            ) => {
                let bytes = Amount::Bytes(bytes, limit(self.row.link, bytes));
                let amount = match cubic_seconds {
                    Some(seconds) if contender == Contender::Cubic => Amount::Seconds(seconds),
                    _ => bytes,
                };
                self.transfer(contender, direction, amount)
            }
            (Work::Timed { seconds }, _) => {
                self.transfer(contender, Direction::Recv, Amount::Seconds(seconds))
            }
            (Work::Rpc { parallel, seconds }, _) => {
                traffic::afar_rpc(place, afar, parallel, seconds)
            }
            (Work::Fairness { flows, seconds }, _) => {
                traffic::fairness(place, afar, flows, seconds)
            }
            (Work::Instructions { direction }, _) => instructions::count(place, afar, direction),
            (Work::Fetch { .. }, Some(cell)) => {
                let limit = limit(self.row.link, cell.bytes());
                match contender {
                    Contender::Afar => cell.read_with_afar(place, afar, limit),
                    Contender::Openafs => cell.read_with_openafs(),
                    tcp => {
                        let amount = Amount::Bytes(cell.bytes(), limit);
                        self.transfer(tcp, Direction::Recv, amount)
                    }
                }
            }
            (Work::Fetch { .. }, None) => bail!("the cell is missing"),
        }
    }

    fn transfer(
        &self,
        contender: Contender,
        direction: Direction,
        amount: Amount,
    ) -> Result<Measured> {
        match contender {
            Contender::Afar => traffic::afar_transfer(&self.place, self.afar, direction, amount),
            tcp => traffic::tcp_transfer(&self.place, tcp, direction, amount),
        }
    }
}

/// How long a transfer may take.
fn limit(link: Option<Setup>, bytes: u64) -> Duration {
    let rate = link.map_or(LOOPBACK_RATE, |link| f64::from(link.rate_mbit) * 1e6);
    SLACK + Duration::from_secs_f64(bytes as f64 * 8.0 / (rate * SLOWEST))
}

/// Tells what was measured, as it comes.
fn tell(sample: &Sample, work: &Work) {
    let Sample {
        run,
        contender,
        measured,
        noise,
        error,
        ..
    } = sample;
    let what = match error {
        Some(error) => format!("FAILED: {error}"),
        None => format!(
            "{:.1} {}, {}",
            measured.value,
            work.unit(),
            describe(work, measured, noise)
        ),
    };
    output::note(&format!("  {run} {contender:10} {what}"));
}

fn describe(work: &Work, measured: &Measured, noise: &Noise) -> String {
    let mut parts = vec![format!("{:.2} s", measured.seconds)];
    if let Some(jain) = measured.jain {
        parts.push(format!("Jain {jain:.3}"));
    }
    // The path of the side that sent: losses are seen there.
    let sender = match work {
        Work::Transfer {
            direction: Direction::Send,
            ..
        } => "client",
        _ => "server",
    };
    let path = &measured.detail[sender]["path"];
    for name in ["lost", "spurious", "cwnd_bytes"] {
        if let Some(value) = path[name].as_u64() {
            parts.push(format!("{name} {value}"));
        }
    }
    if let Some(link) = &noise.link {
        parts.push(format!("queue drops {}", link.dropped_queue));
        parts.push(format!("late p99 {:.0} us", link.late_us_p99));
    }
    parts.push(format!("load {:.1}", noise.load));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_given_up_when_far_too_slow() {
        let row = rows::all()
            .into_iter()
            .find(|row| row.name == "12ms-send")
            .unwrap();
        let limit = limit(row.link, 1 << 30);
        assert!(limit > Duration::from_secs(80) && limit < Duration::from_secs(100));
    }
}
