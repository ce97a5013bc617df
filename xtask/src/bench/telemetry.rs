//! What counting costs: a server with all counters in turns with one that counts nothing, nobody looking and watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::example;
use super::figures::{Figure, Figures, Goal, Row, tables};
use super::machine::Session;
use super::page;
use super::process::Process;
use crate::{output, sh};

/// The package and its example that is measured, and the package and its example that times single updates.
const RATES: [&str; 2] = ["afar-server", "call_rates"];
const UPDATES: [&str; 2] = ["afar-telemetry", "update_cost"];
/// How long a run may take: it needs five seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Runs each way.
const RUNS: u32 = 10;

/// Options of `cargo xtask bench telemetry`.
#[derive(clap::Args)]
pub(crate) struct TelemetryArgs {
    /// Number of runs each way, in turns
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Write to the target folder: for a trial, not for publication
    #[arg(long)]
    quick: bool,
    /// Rewrite the page from the existing results
    #[arg(long)]
    render_only: bool,
    /// The folder of the page, with the results in a folder beside it [default: docs]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// What a run has found.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Rates {
    calls: Rate,
    data: Rate,
}

/// What a run has found of one kind of load: calls, or bytes.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Rate {
    per_second: f64,
    /// Seconds of processor time of client and server.
    processor_each: f64,
}

/// Runs that belong together: one each way.
#[derive(Debug, Clone, Copy)]
struct Round {
    uncounted: Rates,
    counted: Rates,
    watched: Rates,
}

/// Does what `cargo xtask bench telemetry` was asked for.
///
/// # Errors
/// The programs cannot be built, or a run fails.
pub(super) fn run(options: &TelemetryArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Figures::load(&place.telemetry_results())?;
    if !options.render_only {
        let uncounted = uncounted()?;
        let counted = example::build(RATES[0], RATES[1], None)?;
        let updates = example::build(UPDATES[0], UPDATES[1], None)?;
        let session = Session::of_machine(
            &counted,
            &format!("bench telemetry --runs {}", options.runs),
        )?;
        let mut rounds = Vec::new();
        for number in 1..=options.runs {
            output::note(&format!("round {number} of {}", options.runs));
            rounds.push(Round {
                uncounted: rates(&uncounted, &[])?,
                counted: rates(&counted, &[])?,
                watched: rates(&counted, &["--watched"])?,
            });
        }
        results.replace(
            &session,
            paired(
                "telemetry-calls",
                "small calls, 8 at a time",
                &rounds,
                |rates| rates.calls,
            ),
        );
        results.replace(
            &session,
            paired(
                "telemetry-data",
                "reading 16 MiB, 8 at a time",
                &rounds,
                |rates| rates.data,
            ),
        );
        results.replace(&session, costs(&updates)?);
        results.store(&place.telemetry_results())?;
    }
    page::finish(&place, &results.summary())
}

/// Builds the example whose counters do nothing, and keeps it where the build of the usual one does not replace it.
fn uncounted() -> Result<PathBuf> {
    let built = example::build(RATES[0], RATES[1], Some("afar-telemetry/off"))?;
    let folder = sh::target().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let kept = folder.join("call_rates-off");
    fs::copy(&built, &kept).with_context(|| format!("copying {}", built.display()))?;
    Ok(kept)
}

fn rates(program: &Path, words: &[&str]) -> Result<Rates> {
    let mut command = Command::new(program);
    command.args(words);
    let said = Process::start(command)?.succeed(LIMIT)?.out;
    serde_json::from_str(&said).with_context(|| format!("reading the rates: {said}"))
}

/// A row of ratios, one a round, and of what they are ratios of.
///
/// The goals are for processor time: what a processor does beside the runs moves it less than it moves rates.
fn paired(name: &str, title: &str, rounds: &[Round], load: fn(Rates) -> Rate) -> Row {
    let figure = |name: &str, unit: &str, goal, value: &dyn Fn(&Round) -> f64| Figure {
        name: name.to_owned(),
        unit: unit.to_owned(),
        values: rounds.iter().map(value).collect(),
        goal,
    };
    let mut figures = vec![figure("counting nothing", "/s", None, &|round| {
        load(round.uncounted).per_second
    })];
    type Way = (&'static str, f64, fn(&Round) -> Rates);
    let ways: [Way; 2] = [
        ("counting", 0.98, |round| round.counted),
        ("counting, and watched", 0.95, |round| round.watched),
    ];
    for (name, least, way) in ways {
        let rate = |round: &Round| load(way(round)).per_second / load(round.uncounted).per_second;
        let processor =
            |round: &Round| load(round.uncounted).processor_each / load(way(round)).processor_each;
        figures.push(figure(name, "of that rate", None, &rate));
        let done = "done with the same processor time";
        figures.push(figure(name, done, Some(Goal::AtLeast(least)), &processor));
    }
    Row {
        row: name.to_owned(),
        session: String::new(),
        title: title.to_owned(),
        skipped: None,
        figures,
    }
}

/// What single updates cost, as the example's table tells it: a name, and nanoseconds with one thread and with as
/// many as there are processors.
fn costs(program: &Path) -> Result<Row> {
    let said = Process::start(Command::new(program))?.succeed(LIMIT)?.out;
    let figures = said.lines().skip(1).map(|line| {
        let mut words = line.split_whitespace().rev();
        let (_, alone) = (words.next(), words.next());
        let nanoseconds = alone.and_then(|word| word.parse().ok());
        let nanoseconds = nanoseconds.with_context(|| format!("no figures in {line:?}"))?;
        let mut name: Vec<&str> = words.collect();
        name.reverse();
        Ok(Figure {
            name: name.join(" "),
            unit: "ns".to_owned(),
            values: vec![nanoseconds],
            goal: Some(Goal::AtMost(10.0)),
        })
    });
    Ok(Row {
        row: "telemetry-update".to_owned(),
        session: String::new(),
        title: "one update by one thread".to_owned(),
        skipped: None,
        figures: figures.collect::<Result<_>>()?,
    })
}

/// The page's section as Markdown; nothing if nothing was measured.
pub(in crate::bench) fn section(results: &Figures) -> String {
    tables::section(INTRODUCTION, results, METHOD)
}

const INTRODUCTION: &str = "
## What counting costs

Made by `cargo xtask bench telemetry` from [the single results](benchmarks/telemetry.json).
";

const METHOD: &str = "
### How it is measured

- A server and a client of it run in one process over the loopback (`crates/server/examples/call_rates.rs`), with
  eight calls under way. The ratio is taken within a round: a build whose counters do nothing (feature `off` of
  `afar-telemetry`), the usual build, and the usual build whose metrics and `afar top` tables are read each second.
- Processor time is that of client and server, and so are the counters.
- An update is timed in a loop (`crates/telemetry/examples/update_cost.rs`), the least time of 200 rounds.
";
