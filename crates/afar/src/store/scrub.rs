//! `afar store scrub`.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_store::{BadRecord, ScrubOptions, ScrubReport};
use serde::Serialize;

use super::check::{Problem, exit_code, show, verdict};
use super::each;
use super::progress::Progress;
use crate::output::Output;
use crate::units::{grouped, parse_bytes};

/// Options of `afar store scrub`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Read all file data and verify its checksums",
    long_about = "Read all rows and all file data, in disk order, and verify their checksums. Report \
    each bad record with the files it belongs to.",
    after_help = "Exit status: 0 all is well, 1 damage found (one line each), 2 a partition could \
    not be scrubbed, or wrong usage.\n\nExample: at 100 MB a second\n  \
    afar store scrub /vicepa --rate 100M"
)]
pub(crate) struct ScrubArgs {
    /// Partitions
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Maximum bytes to read per second, such as 100M or 1G [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Maximum number of bad records to list for each partition; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
    /// Print JSON, one object for each partition
    #[arg(long)]
    json: bool,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("this rate reads nothing".to_owned()),
        rate => Ok(rate),
    }
}

#[derive(Serialize)]
struct Report {
    path: PathBuf,
    clean: bool,
    problem_count: u64,
    problems: Vec<Problem>,
    bad_record_count: u64,
    bad_records: Vec<Bad>,
    rows: u64,
    records: u64,
    octets: u64,
}

#[derive(Serialize)]
struct Bad {
    segment: u32,
    offset: u32,
    length: u32,
    why: String,
    owners: Vec<String>,
    #[serde(skip)]
    text: String,
}

impl From<&BadRecord> for Bad {
    fn from(bad: &BadRecord) -> Self {
        Self {
            segment: bad.segment,
            offset: bad.offset,
            length: bad.length,
            why: bad.why.clone(),
            owners: bad.owners.iter().map(ToString::to_string).collect(),
            text: bad.to_string(),
        }
    }
}

impl Report {
    fn new(path: &Path, report: &ScrubReport) -> Self {
        Self {
            path: path.to_owned(),
            clean: report.is_clean(),
            problem_count: report.problem_count,
            problems: report.problems.iter().map(Problem::from).collect(),
            bad_record_count: report.bad_record_count,
            bad_records: report.bad_records.iter().map(Bad::from).collect(),
            rows: report.rows,
            records: report.records,
            octets: report.octets,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for problem in &self.problems {
            writeln!(f, "{path}: {problem}")?;
        }
        for bad in &self.bad_records {
            writeln!(f, "{path}: {}", bad.text)?;
        }
        let wrong = self.problem_count + self.bad_record_count;
        let listed = (self.problems.len() + self.bad_records.len()) as u64;
        if listed < wrong {
            writeln!(f, "{path}: and {} more", grouped(wrong - listed))?;
        }
        write!(
            f,
            "{path}: {}; {} rows, {} records of {} bytes",
            verdict(wrong),
            grouped(self.rows),
            grouped(self.records),
            grouped(self.octets)
        )
    }
}

pub(super) fn run(args: &ScrubArgs) -> anyhow::Result<ExitCode> {
    let mut output = Output::new(args.json, None)?;
    let options = ScrubOptions {
        octets_per_second: args.rate,
        limit: args.limit,
    };
    let mut wrong = false;
    let failed = each(&args.dirs, |partition| {
        let progress = Progress::of_things(0);
        let report = partition.scrub(&options, &mut |at| {
            show(&progress, at);
            ControlFlow::Continue(())
        })?;
        drop(progress);
        wrong |= !report.is_clean();
        output.report(&Report::new(partition.path(), &report))
    });
    Ok(exit_code(failed, wrong))
}
