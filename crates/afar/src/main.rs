//! The one binary: flags, wiring, output.

mod cli;
mod fetch;
mod output;
mod rxperf;
mod store;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
