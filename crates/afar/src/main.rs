//! The one binary: flags, wiring, output.

mod afs_args;
mod bos;
mod cli;
mod codes;
mod fetch;
mod fs;
mod keys;
mod local_cell;
mod mount;
mod output;
mod password;
mod pts;
mod resolve;
mod rxperf;
mod server;
mod store;
mod tokens;
mod vos;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
