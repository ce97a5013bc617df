//! `afar store check`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_store::{CheckOptions, CheckReport, Stage};
use serde::Serialize;

use super::progress::Progress;
use super::{TROUBLE, each};
use crate::output::Output;
use crate::units::grouped;

/// Options of `afar store check`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Check that partitions are consistent",
    long_about = "Check that partitions are consistent: every row's checksum; every volume's counts, \
    directories, entries, links and versions; every record's place in the segments, and the free \
    space there. Changes nothing without --reclaim. Does not read segments without --data.",
    after_help = "Exit status: 0 all is well, 1 problems found (one line each), 2 a partition could \
    not be checked, or wrong usage."
)]
pub(crate) struct CheckArgs {
    /// Partitions
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also read all file data and verify it, as `afar store scrub` does
    #[arg(long)]
    data: bool,
    /// Free bytes of segments that nothing refers to, as a crash leaves them; only if there are no
    /// problems
    #[arg(long)]
    reclaim: bool,
    /// Maximum number of problems to list for each partition; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
    /// Print JSON, one object for each partition
    #[arg(long)]
    json: bool,
}

/// Something wrong, in JSON.
#[derive(Serialize)]
pub(super) struct Problem {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<u32>,
    what: String,
}

impl From<&afar_store::Problem> for Problem {
    fn from(problem: &afar_store::Problem) -> Self {
        Self {
            kind: problem.kind.name(),
            volume: problem.volume.map(|volume| volume.0),
            what: problem.what.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind)?;
        if let Some(volume) = self.volume {
            write!(f, "volume {volume}: ")?;
        }
        f.write_str(&self.what)
    }
}

#[derive(Serialize)]
struct Report {
    path: PathBuf,
    clean: bool,
    problem_count: u64,
    problems: Vec<Problem>,
    rows: u64,
    volumes: u64,
    vnodes: u64,
    records: u64,
    segments: u64,
    #[serde(rename = "octets")]
    bytes: Bytes,
}

#[derive(Serialize)]
struct Bytes {
    live: u64,
    dead: u64,
    free: u64,
    lost: u64,
    reclaimed: u64,
    verified: u64,
}

impl Report {
    fn new(path: &Path, report: &CheckReport) -> Self {
        Self {
            path: path.to_owned(),
            clean: report.is_clean(),
            problem_count: report.problem_count,
            problems: report.problems.iter().map(Problem::from).collect(),
            rows: report.rows,
            volumes: report.volumes,
            vnodes: report.vnodes,
            records: report.records,
            segments: report.segments,
            bytes: Bytes {
                live: report.live_octets,
                dead: report.dead_octets,
                free: report.free_octets,
                lost: report.lost_octets,
                reclaimed: report.reclaimed_octets,
                verified: report.verified_octets,
            },
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for problem in &self.problems {
            writeln!(f, "{path}: {problem}")?;
        }
        let listed = self.problems.len() as u64;
        if listed < self.problem_count {
            writeln!(
                f,
                "{path}: and {} more",
                grouped(self.problem_count - listed)
            )?;
        }
        let n = grouped;
        write!(
            f,
            "{path}: {}; {} volumes with {} vnodes, {} records in {} segments; {} bytes live, {} \
             free, {} to be freed, {} of nothing",
            verdict(self.problem_count),
            n(self.volumes),
            n(self.vnodes),
            n(self.records),
            n(self.segments),
            n(self.bytes.live),
            n(self.bytes.free),
            n(self.bytes.dead),
            n(self.bytes.lost),
        )?;
        if self.bytes.reclaimed > 0 {
            write!(f, ", {} of these freed", n(self.bytes.reclaimed))?;
        }
        if self.bytes.verified > 0 {
            write!(f, "; {} bytes of data verified", n(self.bytes.verified))?;
        }
        Ok(())
    }
}

/// How much is wrong, in words.
pub(super) fn verdict(problems: u64) -> String {
    match problems {
        0 => "all is well".to_owned(),
        1 => "1 problem".to_owned(),
        many => format!("{} problems", grouped(many)),
    }
}

/// Exit status of a command that looks for what is wrong.
pub(super) fn exit_code(failed: u64, wrong: bool) -> ExitCode {
    match (failed, wrong) {
        (1.., _) => ExitCode::from(TROUBLE),
        (0, true) => ExitCode::FAILURE,
        (0, false) => ExitCode::SUCCESS,
    }
}

/// Shows how far a check or scrub is.
pub(super) fn show(progress: &Progress, at: afar_store::Progress) {
    progress.tell(match at.stage {
        Stage::Rows => "rows",
        Stage::Volumes => "volumes",
        Stage::Space => "segments",
        Stage::Data => "data",
        _ => "",
    });
    progress.set_of(at.done, at.total);
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut output = Output::new(args.json, None)?;
    let options = CheckOptions {
        data: args.data,
        reclaim: args.reclaim,
        limit: args.limit,
    };
    let mut wrong = false;
    let failed = each(&args.dirs, |partition| {
        let progress = Progress::of_things(0);
        let report = partition.check(&options, &mut |at| show(&progress, at))?;
        drop(progress);
        wrong |= !report.is_clean();
        output.report(&Report::new(partition.path(), &report))
    });
    Ok(exit_code(failed, wrong))
}
