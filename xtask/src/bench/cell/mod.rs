//! Whole cells: afar's servers with afar's client and with OpenAFS's, beside TCP and beside OpenAFS's
//! servers on the same link.
//!
//! `rows` is what is measured, `levels` that with rxkad and `stock` that with OpenAFS's programs; `site` starts
//! servers and clients at the ends of a link, `gathered` keeps the figures, `section` makes the page's section.

pub(super) mod gathered;
mod levels;
mod rows;
mod section;
pub(super) mod site;
mod stock;

use std::path::PathBuf;

use anyhow::Result;

pub(super) use section::section;

use super::figures::Figures;
use super::machine::Session;
use super::{page, process, runner};
use crate::output;

pub(super) use rows::list;

/// Options of `cargo xtask bench cell`.
#[derive(clap::Args)]
pub(crate) struct CellArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of runs; the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Use small sizes and write to the target folder: for a trial, not for publication
    #[arg(long)]
    quick: bool,
    /// Rewrite the page from the existing results
    #[arg(long)]
    render_only: bool,
    /// The program to measure [default: build it]
    #[arg(long, value_name = "PATH")]
    afar: Option<PathBuf>,
    /// The folder of the page, with the results in a folder beside it [default: docs]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Does what `cargo xtask bench cell` was asked for.
///
/// # Errors
/// A row cannot be measured; those before it are kept.
pub(super) fn run(options: &CellArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Figures::load(&place.cell_results())?;
    if !options.render_only {
        process::catch_signals()?;
        let rows = rows::select(&options.only)?;
        let afar = runner::program(options.afar.as_deref())?;
        super::link::remove_stale(&afar)?;
        let runs = options.runs.unwrap_or(if options.quick { 1 } else { 3 });
        let session = Session::now(&afar, &shown(options, runs))?;
        for row in rows {
            output::note(&format!("{}: {}", row.name, row.title));
            let measured = row.measure(&afar, runs, options.quick)?;
            results.replace(&session, measured);
            results.store(&place.cell_results())?;
        }
    }
    page::finish(&place, &results.summary())
}

/// The command as one would repeat it.
fn shown(options: &CellArgs, runs: u32) -> String {
    let mut words = format!("bench cell --runs {runs}");
    if options.quick {
        words += " --quick";
    }
    if !options.only.is_empty() {
        words += " --only ";
        words += &options.only.join(",");
    }
    words
}
