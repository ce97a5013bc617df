//! Mounts over long links: afar's, OpenAFS's in user space, sshfs and NFS, on the same files of the
//! same servers in turns.
//!
//! `rows` is what is measured, `server` puts files where they are read from, `client` mounts them,
//! `work` does something with them and takes the time, `small` works on many small files, `stream`
//! plays a film, `section` makes the page's section.

mod client;
mod rows;
mod section;
mod server;
mod small;
mod stream;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum as _;

pub(super) use rows::list;
pub(super) use section::section;

use super::figures::Figures;
use super::machine::Session;
use super::{page, process, runner};
use crate::output;
use client::Kind;
use server::Origin;

/// Options of `cargo xtask bench mount`.
#[derive(clap::Args)]
pub(crate) struct MountArgs {
    /// Measure only these rows; a name's start up to a dash selects all rows of that kind
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure only files of these servers
    #[arg(long, value_name = "SERVER,…", value_delimiter = ',')]
    servers: Vec<Origin>,
    /// Measure only these clients
    #[arg(long, value_name = "CLIENT,…", value_delimiter = ',')]
    clients: Vec<Kind>,
    /// Number of runs; the median counts [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// MiB that fast clients read or write [default: a row's own size]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    mib: Option<u32>,
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

/// Does what `cargo xtask bench mount` was asked for.
///
/// # Errors
/// A row cannot be measured; those before it are kept.
pub(super) fn run(options: &MountArgs) -> Result<()> {
    let place = page::Place::open(options.out.as_deref(), options.quick)?;
    let mut results = Figures::load(&place.mount_results())?;
    if !options.render_only {
        process::catch_signals()?;
        let rows = rows::select(&options.only)?;
        let afar = runner::program(options.afar.as_deref())?;
        super::link::remove_stale(&afar)?;
        let plan = rows::Plan {
            runs: options.runs.unwrap_or(if options.quick { 1 } else { 3 }),
            mib: options.mib,
            quick: options.quick,
            clients: chosen(&options.clients),
        };
        let session = Session::now(&afar, &shown(options, plan.runs))?;
        for row in rows {
            for origin in chosen(&options.servers) {
                output::note(&format!("{}: {}, {origin}", row.name, row.title));
                let measured = row.measure(&afar, origin, &plan)?;
                results.replace(&session, measured);
                results.store(&place.mount_results())?;
            }
        }
    }
    page::finish(&place, &results.summary())
}

/// Those named, or all.
fn chosen<T: clap::ValueEnum>(named: &[T]) -> Vec<T> {
    match named {
        [] => T::value_variants().to_vec(),
        _ => named.to_vec(),
    }
}

/// The command as one would repeat it.
fn shown(options: &MountArgs, runs: u32) -> String {
    let mut words = format!("bench mount --runs {runs}");
    if options.quick {
        words += " --quick";
    }
    if let Some(mib) = options.mib {
        words += &format!(" --mib {mib}");
    }
    let names = |values: &[String]| values.join(",");
    let named = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned())
    };
    let servers = options.servers.iter().map(Origin::to_possible_value);
    let clients = options.clients.iter().map(Kind::to_possible_value);
    let lists = [
        ("--only", options.only.clone()),
        ("--servers", servers.filter_map(named).collect()),
        ("--clients", clients.filter_map(named).collect()),
    ];
    for (flag, values) in lists.iter().filter(|(_, values)| !values.is_empty()) {
        words += &format!(" {flag} {}", names(values));
    }
    words
}
