//! `cargo xtask test`: everything that must hold before a change goes in.

mod count;
mod fuzz;
mod packages;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{ArgAction, ValueEnum};

use crate::output;
pub(crate) use count::Counts;

/// Seeds of the simulation in an ordinary run and in a nightly one.
const SEEDS: u64 = 500;
const SEEDS_NIGHTLY: u64 = 10_000;
/// Power failures of the store in an ordinary run and in a nightly one.
const POINTS: u64 = 120;
const POINTS_NIGHTLY: u64 = 3000;
/// Time for each fuzz target in an ordinary run and in a nightly one.
const FUZZ_TIME: Duration = Duration::from_secs(5);
const FUZZ_TIME_NIGHTLY: Duration = Duration::from_secs(600);

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in the usual order
    #[arg(long, value_enum, value_delimiter = ',', action = ArgAction::Append)]
    only: Vec<Step>,
    /// Skip these steps
    #[arg(long, value_enum, value_delimiter = ',', action = ArgAction::Append)]
    skip: Vec<Step>,
    /// Seeds for the simulation [default: 500, nightly 10000]
    #[arg(long)]
    seeds: Option<u64>,
    /// Seconds for each fuzz target [default: 5, nightly 600]
    #[arg(long)]
    fuzz_seconds: Option<u64>,
    /// Do the long run: more seeds, more power failures, longer fuzzing
    #[arg(long)]
    nightly: bool,
}

impl Args {
    fn seeds(&self) -> u64 {
        self.seeds
            .unwrap_or(if self.nightly { SEEDS_NIGHTLY } else { SEEDS })
    }

    fn crash_points(&self) -> u64 {
        if self.nightly { POINTS_NIGHTLY } else { POINTS }
    }

    fn fuzz_time(&self) -> Duration {
        let usual = if self.nightly {
            FUZZ_TIME_NIGHTLY
        } else {
            FUZZ_TIME
        };
        self.fuzz_seconds.map_or(usual, Duration::from_secs)
    }

    fn selected(&self) -> Vec<Step> {
        Step::value_variants()
            .iter()
            .copied()
            .filter(|step| self.only.is_empty() || self.only.contains(step))
            .filter(|step| !self.skip.contains(step))
            .collect()
    }
}

/// One step of a run; they run in this order.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Install the system packages the tests need
    Packages,
    /// Formatting
    Fmt,
    /// The house rules
    Tidy,
    /// Licences of dependencies, and advisories against them
    Deny,
    /// Lints, warnings are errors
    Clippy,
    /// Documentation, warnings are errors
    Doc,
    /// All tests but the engine's, documentation examples included
    Unit,
    /// The engine's tests, with the seeded simulation
    Sim,
    /// Tests against real peers, beside a real OpenAFS cell
    Interop,
    /// Every fuzz target for a short while
    Fuzz,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How a step ended.
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// What one step did.
struct Report {
    name: String,
    verdict: Verdict,
    counts: Counts,
    took: Duration,
}

/// What a step hands back: its verdict and the tests it counted.
type Outcome = (Verdict, Counts);

/// Runs the selected steps, prints the summary and fails if any step failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut reports: Vec<Report> = Vec::new();
    for step in args.selected() {
        output::line(&format!("\n== {} ==", step.name()));
        let begin = Instant::now();
        let outcome = match step {
            Step::Packages => packages::run(),
            Step::Fmt => steps::fmt(),
            Step::Tidy => steps::tidy(),
            Step::Deny => steps::deny(),
            Step::Clippy => steps::clippy(),
            Step::Doc => steps::doc(),
            Step::Unit => steps::unit(args.crash_points()),
            Step::Sim => steps::sim(args.seeds()),
            Step::Interop => steps::interop(),
            Step::Fuzz => fuzz::run(args.fuzz_time()),
        };
        let (verdict, counts) =
            outcome.unwrap_or_else(|e| (Verdict::Failed(format!("{e:#}")), Counts::default()));
        reports.push(Report {
            name: step.name(),
            verdict,
            counts,
            took: begin.elapsed(),
        });
    }
    let total = summarise(&reports);
    for text in describe(&reports) {
        output::line(&text);
    }
    output::line(&format!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    ));
    if total.failed > 0 {
        bail!("not everything passed");
    }
    Ok(())
}

/// One line for each step.
fn describe(reports: &[Report]) -> Vec<String> {
    let mut lines = vec![String::new(), "== summary ==".to_owned()];
    for report in reports {
        let (word, why) = match &report.verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Failed(why) => ("FAILED", why.as_str()),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
        };
        let tests = report.counts.describe();
        let seconds = report.took.as_secs_f64();
        let text = format!(
            "{:<9} {word:<7} {seconds:>7.1} s  {tests} {why}",
            report.name
        );
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// Adds the steps up. A failed step counts as one failure even if none of its tests failed
/// (it did not build, say); a skipped one as one skip. Tests that an ordinary step left to
/// the interop step are not counted as skipped if that step ran them.
fn summarise(reports: &[Report]) -> Counts {
    let mut total = Counts::default();
    let mut deferred = 0;
    for report in reports {
        total.passed += report.counts.passed;
        total.failed += report.counts.failed;
        if report.name == Step::Interop.name() {
            deferred = report.counts.deferred_run;
        }
        match report.verdict {
            Verdict::Failed(_) if report.counts.failed == 0 => total.failed += 1,
            Verdict::Skipped(_) => total.skipped += 1,
            _ => {}
        }
        total.skipped += report.counts.skipped;
    }
    total.skipped = total.skipped.saturating_sub(deferred);
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: Verdict, counts: Counts) -> Report {
        Report {
            name: name.to_owned(),
            verdict,
            counts,
            took: Duration::from_millis(1500),
        }
    }

    #[test]
    fn a_failed_step_without_failed_tests_is_one_failure() {
        let reports = [
            report(
                "clippy",
                Verdict::Failed("exit 101".to_owned()),
                Counts::default(),
            ),
            report(
                "fuzz",
                Verdict::Skipped("no targets".to_owned()),
                Counts::default(),
            ),
        ];
        let total = summarise(&reports);
        assert_eq!((total.passed, total.failed, total.skipped), (0, 1, 1));
        assert_eq!(
            describe(&reports)[2],
            "clippy    FAILED      1.5 s   exit 101"
        );
    }

    #[test]
    fn tests_left_to_the_interop_step_are_not_skipped_when_it_ran_them() {
        let unit = Counts {
            passed: 7,
            skipped: 3,
            ..Counts::default()
        };
        let interop = Counts {
            passed: 2,
            deferred_run: 2,
            ..Counts::default()
        };
        let total = summarise(&[
            report("unit", Verdict::Passed, unit),
            report("interop", Verdict::Passed, interop),
        ]);
        assert_eq!((total.passed, total.failed, total.skipped), (9, 0, 1));
    }

    #[test]
    fn only_and_skip_keep_the_order() {
        let args = Args {
            only: vec![Step::Doc, Step::Fmt, Step::Tidy],
            skip: vec![Step::Tidy],
            seeds: None,
            fuzz_seconds: None,
            nightly: true,
        };
        assert!(args.selected() == [Step::Fmt, Step::Doc]);
        assert_eq!(args.seeds(), 10_000);
    }
}
