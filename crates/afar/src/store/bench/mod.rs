//! `afar store bench`: what the store is to be good at, measured.
//!
//! Each group of rows makes what it needs below one directory, measures it and puts it away. What
//! is compared is measured in turns within one run, and the ratio is taken of neighbours. What is
//! to be measured in a fresh process is done by a [`probe`]: this program, started again.

mod attach;
mod clone;
mod compress;
mod create;
mod data;
mod medium;
mod probe;
mod process;
mod remove;
mod report;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::progress::Progress;
use crate::output::{self, Output};
use report::Row;
use sizes::Sizes;

/// Options of `afar store bench`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Measure the store",
    long_about = "Measure the store: how long partitions of up to 1,500,000 volumes take to open \
    and to list, what removing and cloning volumes costs, how well and how fast the store compresses \
    and reads data, and how many durable changes it makes a second. All of it takes about 40 minutes \
    and 10 GB; --quick tries every row in seconds.",
    after_help = "A goal is the project's target at full size, on a quiet machine. `skipped` \
    says why a row cannot be measured here. `cargo xtask bench store` puts the results into \
    docs/benchmarks.md.\n\nExample: creates and renames, five times, on the disk in question\n  \
    afar store bench --only create --runs 5 --dir /vicepa/bench"
)]
pub(crate) struct BenchArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// List the names of the rows
    #[arg(long)]
    list: bool,
    /// Where to create the partitions to measure: in a new directory below this one, removed afterwards
    /// [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of runs; the median counts
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Use small sizes that take seconds: for a trial, not for publication
    #[arg(long)]
    quick: bool,
    /// Print JSON, one object for each row
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sizes: sizes::SizeArgs,
    /// Run as a probe; the job as JSON
    #[arg(long, hide = true)]
    probe: Option<String>,
}

/// Rows that are measured together.
struct Group {
    name: &'static str,
    title: &'static str,
    run: fn(&Bench) -> anyhow::Result<Vec<Row>>,
}

const GROUPS: &[Group] = &[
    Group {
        name: "attach",
        title: "open partitions, serve the first volume, list all: over the number of volumes",
        run: attach::run,
    },
    Group {
        name: "remove-empty",
        title: "remove empty volumes, among many and among few",
        run: remove::empty,
    },
    Group {
        name: "remove-full",
        title: "remove a volume of many files, while another is read",
        run: remove::full,
    },
    Group {
        name: "clone",
        title: "clone a large volume; dump what changed since",
        run: clone::run,
    },
    Group {
        name: "compress-ratio",
        title: "compress real data record by record, beside gzip -6",
        run: compress::ratio::run,
    },
    Group {
        name: "compress-read",
        title: "read from the page cache, beside plain files",
        run: compress::read::run,
    },
    Group {
        name: "compress-medium",
        title: "read from a slow medium, beside plain files; needs root and a cgroup",
        run: compress::medium::run,
    },
    Group {
        name: "create",
        title: "durable creates, renames, links and unlinks, beside one fsync each",
        run: create::run,
    },
];

/// What all rows need to know.
struct Bench {
    dir: PathBuf,
    runs: u32,
    sizes: Sizes,
}

impl Bench {
    /// An empty directory for a row, which is removed with what is in it when dropped.
    fn place(&self, name: &str) -> anyhow::Result<Place> {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Place(path))
    }
}

/// A directory that is removed when dropped.
struct Place(PathBuf);

impl std::ops::Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            output::note(&format!("{} is left behind: {error}", self.0.display()));
        }
    }
}

/// Does what the command says.
///
/// # Errors
/// A row cannot be measured for another reason than that the machine lacks what it takes.
pub(super) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let mut output = Output::new(args.json, None)?;
    if let Some(wanted) = &args.probe {
        return probe::run(wanted, &mut output);
    }
    let groups = select(&args.only)?;
    if args.list {
        for group in groups {
            output.report(&report::Listed {
                row: group.name,
                title: group.title,
            })?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let below = match &args.dir {
        Some(dir) => dir.clone(),
        None => std::env::current_dir()?,
    };
    let dir = below.join(format!("afar-store-bench-{}", std::process::id()));
    let bench = Bench {
        dir: std::path::absolute(dir)?,
        runs: args.runs,
        sizes: args.sizes.resolve(args.quick)?,
    };
    let _place = bench.place("")?;
    for group in groups {
        let rows = (group.run)(&bench).with_context(|| format!("measuring {}", group.name))?;
        for row in rows {
            output.report(&row)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn select(only: &[String]) -> anyhow::Result<Vec<&'static Group>> {
    let fits = |group: &Group, word: &str| {
        group.name == word
            || group
                .name
                .strip_prefix(word)
                .is_some_and(|rest| rest.starts_with('-'))
    };
    if let Some(word) = only
        .iter()
        .find(|word| !GROUPS.iter().any(|group| fits(group, word)))
    {
        bail!("no row {word:?}; `afar store bench --list` lists all");
    }
    let wanted = |group: &&Group| only.is_empty() || only.iter().any(|word| fits(group, word));
    Ok(GROUPS.iter().filter(wanted).collect())
}

/// A bar for a step of so many.
fn progress(what: impl Into<std::borrow::Cow<'static, str>>, total: u64) -> Progress {
    let progress = Progress::of_things(total);
    progress.tell(what);
    progress
}
