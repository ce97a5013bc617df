//! Files out of band (TLS on TCP) in turns with Rx and with iperf3 on the same link.
//!
//! `rows` is the table and measures it as `plan` says, `cell` copies files by each way and tells what that cost, `tree` is the files,
//! `tcp` is iperf3, `limited` a path that lets little UDP through, `moves` volumes between servers, `aes` what the machine encrypts, `section` makes the
//! page's section.

mod aes;
mod cell;
mod limited;
mod moves;
mod plan;
mod rows;
mod section;
mod tcp;
mod tree;

use std::path::PathBuf;

use anyhow::Result;

pub(super) use rows::list;
pub(super) use section::section;

use super::figures::Figures;
use super::machine::Session;
use super::{link, page, process, runner};
use crate::{output, sh};

/// Runs, if nobody says otherwise: the least number of which an interval means something.
const RUNS: u32 = 5;

/// Options of `cargo xtask bench oob`.
#[derive(clap::Args)]
pub(crate) struct OobArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of runs; the median counts [default: 5]
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

/// Does what `cargo xtask bench oob` was asked for.
///
/// # Errors
/// A row cannot be measured, above all as files do not go out of band; rows before it are kept.
pub(super) fn run(options: &OobArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Figures::load(&place.oob_results())?;
    if !options.render_only {
        process::catch_signals()?;
        let rows = rows::select(&options.only)?;
        let afar = runner::program(options.afar.as_deref())?;
        link::remove_stale(&afar)?;
        let plan = plan::Plan {
            runs: options.runs.unwrap_or(if options.quick { 1 } else { RUNS }),
            quick: options.quick,
            has_iperf: sh::has_program("iperf3"),
        };
        let words = shown(options, plan.runs);
        let session = if plan.has_iperf {
            Session::now(&afar, &words)?
        } else {
            output::note("iperf3 is not installed: nothing is compared with TCP");
            Session::of_machine(&afar, &words)?
        };
        for row in rows {
            output::note(&format!("{}: {}", row.name, row.title));
            let measured = row.measure(&afar, &plan)?;
            results.replace(&session, measured);
            results.store(&place.oob_results())?;
        }
    }
    page::finish(&place, &results.summary())
}

/// The command as one would repeat it.
fn shown(options: &OobArgs, runs: u32) -> String {
    let mut words = format!("bench oob --runs {runs}");
    if options.quick {
        words += " --quick";
    }
    if !options.only.is_empty() {
        words += " --only ";
        words += &options.only.join(",");
    }
    words
}
