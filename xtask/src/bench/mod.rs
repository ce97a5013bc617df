//! `cargo xtask bench`: measurements whose results are committed. Each is a module of its
//! own with a `run` function.

use anyhow::Result;
use clap::Subcommand;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args.command {}
}
