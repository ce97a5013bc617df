//! The volume store: `afar store bench` run, its rows kept, and made into a section of the page.

mod section;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

pub(super) use section::{CHART, chart, section};

use super::figures::Figures;
use super::machine::Session;
use super::{page, runner};
use crate::sh;

/// Options of `cargo xtask bench store`.
#[derive(clap::Args)]
pub(crate) struct StoreArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of runs; the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Use small sizes and write to the target folder: for a trial, not for publication
    #[arg(long)]
    quick: bool,
    /// Rewrite the page and the charts from the existing results
    #[arg(long)]
    render_only: bool,
    /// The program to measure [default: build it]
    #[arg(long, value_name = "PATH")]
    afar: Option<PathBuf>,
    /// Where to create the partitions to measure [default: the target folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The folder of the page, with results and charts in a folder beside it [default: docs]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Further options of `afar store bench`, after --
    #[arg(last = true, value_name = "OPTION")]
    more: Vec<String>,
}

/// Does what `cargo xtask bench store` was asked for.
///
/// # Errors
/// The program cannot be built or a row not be measured; those before it are kept.
pub(super) fn run(options: &StoreArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Figures::load(&place.store_results())?;
    if !options.render_only {
        let afar = runner::program(options.afar.as_deref())?;
        let session = Session::of_machine(&afar, &shown(options))?;
        let measured = measure(options, &afar, &session, &mut results);
        results.store(&place.store_results())?;
        measured?;
    }
    page::finish(&place, &results.summary())
}

/// The command as one would repeat it.
fn shown(options: &StoreArgs) -> String {
    let mut words = "bench store".to_owned();
    if options.quick {
        words += " --quick";
    }
    if let Some(runs) = options.runs {
        words += &format!(" --runs {runs}");
    }
    if !options.only.is_empty() {
        words += " --only ";
        words += &options.only.join(",");
    }
    if !options.more.is_empty() {
        words += " -- ";
        words += &options.more.join(" ");
    }
    words
}

/// Runs the program and takes its rows as they come.
fn measure(
    options: &StoreArgs,
    afar: &Path,
    session: &Session,
    results: &mut Figures,
) -> Result<()> {
    let mut command = Command::new(afar);
    command.args(["store", "bench", "--json", "--dir"]);
    command.arg(options.dir.clone().unwrap_or_else(sh::target));
    if options.quick {
        command.arg("--quick");
    }
    if let Some(runs) = options.runs {
        command.args(["--runs", &runs.to_string()]);
    }
    if !options.only.is_empty() {
        command.args(["--only", &options.only.join(",")]);
    }
    command.args(&options.more);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("starting `{}`", sh::show(&command)))?;
    let out = child.stdout.take().context("it has no output")?;
    for line in BufReader::new(out).lines() {
        let line = line.context("reading a row")?;
        let row = serde_json::from_str(&line).with_context(|| format!("a row: {line}"))?;
        results.replace(session, row);
    }
    let status = child.wait().context("waiting for the program")?;
    if !status.success() {
        bail!("`{}`: {status}", sh::show(&command));
    }
    Ok(())
}
