//! The one binary: flags, wiring, output.

mod afs_args;
mod cli;
mod fetch;
mod local_cell;
mod output;
mod rxperf;
mod store;
mod vos;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
