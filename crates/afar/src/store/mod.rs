//! `afar store`: partitions of the volume store, as their administrator sees them.
//!
//! Crate `afar-store` does the work; here are flags and what is printed. A partition is open in one
//! process at a time, so these commands are for one that no server is using.

mod bench;
mod check;
mod export;
mod import;
mod init;
mod list;
pub(crate) mod progress;
mod scrub;
mod stat;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use afar_store::{Partition, PartitionOptions, Volume};
use afar_types::VolumeId;
use anyhow::{Context, bail};
use clap::Subcommand;

use crate::output;

pub(crate) use text::short_kind;

/// `afar store …`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    Init(init::InitArgs),
    Stat(stat::StatArgs),
    List(list::ListArgs),
    Check(check::CheckArgs),
    Scrub(scrub::ScrubArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Bench(bench::BenchArgs),
}

/// Exit status of `check` and `scrub` when they could not look at everything.
const TROUBLE: u8 = 2;

/// Does what the command says.
///
/// # Errors
/// What failed, on which partition, why, and what to try.
pub(crate) fn run(command: StoreCommand) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Init(args) => init::run(&args),
        StoreCommand::Stat(args) => stat::run(&args),
        StoreCommand::List(args) => list::run(&args),
        StoreCommand::Check(args) => check::run(&args),
        StoreCommand::Scrub(args) => scrub::run(&args),
        StoreCommand::Import(args) => import::run(&args),
        StoreCommand::Export(args) => export::run(&args),
        StoreCommand::Bench(args) => bench::run(&args),
    }
}

/// Opens a partition that is there.
fn open(path: &Path) -> anyhow::Result<Arc<Partition>> {
    Ok(Arc::new(Partition::open(
        path,
        &PartitionOptions::default(),
    )?))
}

/// Does something with each partition. One that fails does not keep the others from their turn.
///
/// Returns how many failed.
fn each(paths: &[PathBuf], mut work: impl FnMut(&Arc<Partition>) -> anyhow::Result<()>) -> u64 {
    let mut failed = 0;
    for path in paths {
        if let Err(error) = open(path).and_then(|partition| work(&partition)) {
            failed += 1;
            output::error(&error);
        }
    }
    failed
}

/// The volume of a number or name.
fn find(partition: &Arc<Partition>, wanted: &str) -> anyhow::Result<Volume> {
    if let Ok(id) = wanted.parse::<u32>() {
        let found = partition.volume(VolumeId(id));
        return found.with_context(|| partition.path().display().to_string());
    }
    let mut after = VolumeId(0);
    loop {
        let states = partition.states(after, PAGE)?;
        if let Some(state) = states.iter().find(|state| state.name == wanted) {
            return Ok(partition.volume(state.id)?);
        }
        match states.last() {
            Some(last) => after = last.id,
            None => bail!(
                "{}: no volume {wanted:?}; `afar store list` lists all",
                partition.path().display()
            ),
        }
    }
}

/// Volumes looked at in one view of a database.
const PAGE: usize = 10_000;
