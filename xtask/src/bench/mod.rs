//! `cargo xtask bench`: measurements whose results are committed.
//!
//! `rows` is the table of what is measured, `runner` measures it in turns with what it is
//! compared with, `sample` keeps the results as JSON lines, and `page` and `chart` make the
//! documents from those lines alone. `store`, `cell`, `mount` and `oob` have rows of named figures
//! (`figures`).

mod cell;
mod chart;
mod contender;
mod example;
mod fetch;
mod figures;
mod hash;
mod instructions;
mod lines;
mod link;
mod machine;
mod mount;
mod oob;
mod openafs;
mod page;
mod process;
mod rows;
mod runner;
mod sample;
mod shown;
mod stats;
mod store;
mod telemetry;
mod traffic;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::output;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure [default: list the choices]
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Rx between afar peers, and reading from OpenAFS, compared with TCP on the same link; needs root
    Rx(RxArgs),
    /// The volume store: attach, remove, clone, compression, durable changes; some rows need root
    Store(store::StoreArgs),
    /// Whole cells: afar's clients and servers, OpenAFS's programs on them, releases; needs root
    Cell(cell::CellArgs),
    /// Mounts over long links: afar's, OpenAFS's in user space, sshfs, NFS; needs root
    Mount(mount::MountArgs),
    /// Files out of band (TLS on TCP), compared with Rx and with iperf3; needs root
    Oob(oob::OobArgs),
    /// What counting costs a server: small calls and reading with counters, without them, and watched
    Telemetry(telemetry::TelemetryArgs),
}

/// Options of `cargo xtask bench rx`.
#[derive(clap::Args)]
pub(crate) struct RxArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of runs of each row; the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Run each row once, briefly, and write to the target folder: for a trial, not for publication
    #[arg(long)]
    quick: bool,
    /// Rewrite the page and the charts from the existing results
    #[arg(long)]
    render_only: bool,
    /// The program to measure [default: build it]
    #[arg(long, value_name = "PATH")]
    afar: Option<PathBuf>,
    /// The folder of the page, with results and charts in a folder beside it [default: docs]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Some(Command::Rx(options)) => runner::run(options),
        Some(Command::Store(options)) => store::run(options),
        Some(Command::Cell(options)) => cell::run(options),
        Some(Command::Mount(options)) => mount::run(options),
        Some(Command::Oob(options)) => oob::run(options),
        Some(Command::Telemetry(options)) => telemetry::run(options),
        None => {
            list();
            Ok(())
        }
    }
}

/// Tells what can be measured.
fn list() {
    output::line("cargo xtask bench rx [--only ROW,…] measures:");
    for row in rows::all() {
        let goals: Vec<String> = row.goals.iter().map(ToString::to_string).collect();
        output::line(&format!(
            "  {:16} {}{}{}",
            row.name,
            row.title,
            if goals.is_empty() { "" } else { ": " },
            goals.join(", ")
        ));
    }
    output::line("cargo xtask bench cell [--only ROW,…] measures:");
    for (name, title) in cell::list() {
        output::line(&format!("  {name:18} {title}"));
    }
    output::line("cargo xtask bench mount [--only ROW,…] measures:");
    for (name, title) in mount::list() {
        output::line(&format!("  {name:18} {title}"));
    }
    output::line("cargo xtask bench oob [--only ROW,…] measures:");
    for (name, title) in oob::list() {
        output::line(&format!("  {name:18} {title}"));
    }
    output::line("cargo xtask bench store measures what `afar store bench --list` tells");
    output::line("cargo xtask bench telemetry measures what counting costs a server");
}
