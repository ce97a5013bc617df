//! Checking a partition: that everything in it holds together, and that all data is readable.
//!
//! [`Partition::check`] proves the invariants that docs/formats/store.md lists. It goes through
//! all rows once (`rows`, with the small tables in `tables`), through the tree of each volume
//! and clone (`volume`), and compares what rows refer to with the segments (`space`).
//! [`Partition::scrub`] reads all data (`scrub`). Both work while the partition is in use.

mod reclaim;
mod report;
mod rows;
mod scrub;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod volume;
mod whereabouts;

use crate::error::{Result, StoreError};
use crate::meta::Rows;
use crate::partition::{Partition, Reader};

use report::Problems;
use space::{Extents, Stretch};

pub use report::{CheckReport, Problem, ProblemKind, Progress, Stage};
pub use scrub::{BadRecord, ScrubOptions, ScrubReport};
pub use whereabouts::RecordOwner;

/// What a check does beyond checking. `Default` changes nothing and reads no file data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Also read and verify every record of file data, as [`Partition::scrub`] does without a
    /// limit of its rate.
    pub data: bool,
    /// Hand bytes of segments that nothing refers to over to the reaper, which gives them back to
    /// the file system. The segment that is being written to is left alone. Done only if nothing
    /// is wrong.
    pub reclaim: bool,
    /// Most problems that are listed; the rest is counted.
    pub limit: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            data: false,
            reclaim: false,
            limit: 1_000,
        }
    }
}

/// What the stages of a check share.
struct Check<'a> {
    partition: &'a Partition,
    reader: &'a Reader,
    problems: Problems,
    report: CheckReport,
    progress: &'a mut dyn FnMut(Progress),
}

impl Check<'_> {
    fn tell(&mut self, stage: Stage, done: u64, total: u64) {
        (self.progress)(Progress { stage, done, total });
    }
}

/// Rows between two reports of progress.
const STEP: u64 = 10_000;

/// Passes over a row that is damaged; other errors end a scan.
///
/// Damaged rows are reported once, where the check walks all of them.
fn skip_damaged<T>(row: Result<T>) -> Result<Option<T>> {
    match row {
        Ok(row) => Ok(Some(row)),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The report on a database that must not be read.
fn unreadable(damaged: Vec<String>, limit: usize) -> CheckReport {
    let mut problems = Problems::new(limit);
    for what in damaged {
        problems.add(ProblemKind::Database, || what);
    }
    CheckReport {
        problem_count: problems.count,
        problems: problems.listed,
        ..CheckReport::default()
    }
}

impl Partition {
    /// Checks that everything in the partition holds together.
    ///
    /// The partition can be in use meanwhile: all is checked as of one commit. That one state of
    /// the database is kept until the end, so what others free meanwhile gives its space back only
    /// then, and the database file can grow by what they change. Reading the data, if that is
    /// asked for, comes afterwards and does not hold anything up.
    ///
    /// Takes memory for the vnodes of the largest volume, about 50 bytes each, and 16 bytes for
    /// each record in a segment.
    ///
    /// # Errors
    ///
    /// Only if the check cannot go on: the database or the disk fails. Whatever is merely wrong is
    /// in the report.
    pub fn check(
        &self,
        options: &CheckOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CheckReport> {
        let quiet = if options.reclaim {
            self.quiet_segments()?
        } else {
            Vec::new()
        };
        progress(Progress {
            stage: Stage::Pages,
            done: 0,
            total: 1,
        });
        let damaged = self.reader()?.env().verify_pages()?;
        if !damaged.is_empty() {
            return Ok(unreadable(damaged, options.limit));
        }
        let (mut problems, mut report, lost) = self.check_view(options, &quiet, progress)?;
        if options.reclaim && problems.count == 0 {
            report.reclaimed_octets = reclaim::give_up(self, &lost)?;
        }
        if options.data {
            scrub::verify_data(self, &mut problems, &mut report, progress)?;
        }
        report.problem_count = problems.count;
        report.problems = problems.listed;
        Ok(report)
    }

    /// Checks all but the data, as of now. Also returns what is lost of `quiet` segments.
    fn check_view(
        &self,
        options: &CheckOptions,
        quiet: &[u32],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Problems, CheckReport, Vec<Stretch>)> {
        let mut check = Check {
            partition: self,
            reader: &self.reader()?,
            problems: Problems::new(options.limit),
            report: CheckReport::default(),
            progress,
        };
        let mut extents = Extents::default();
        check.tables()?;
        check.rows(&mut extents)?;
        check.volumes()?;
        let lost = check.space(extents, quiet)?;
        Ok((check.problems, check.report, lost))
    }

    /// Segments that nobody can add a record to any more, and whose records are all committed.
    fn quiet_segments(&self) -> Result<Vec<u32>> {
        let mut quiet = self.segments().numbers();
        quiet.retain(|segment| *segment != self.segments().current());
        self.retain_settled(&mut quiet)?;
        Ok(quiet)
    }
}
