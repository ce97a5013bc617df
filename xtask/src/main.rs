//! The project's routines: `cargo xtask tidy|test|posix|openafs|kafs|fuzz-live|bench|dist`.
//!
//! Each subcommand is a module with a `run` function; `sh` starts other programs and
//! `output` is the only place that prints.

mod bench;
mod dist;
mod fuzz_live;
mod kafs;
mod openafs;
mod output;
mod posix;
mod sh;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own routines.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the house rules; fast, needs no network.
    Tidy(tidy::Args),
    /// Install what the tests need, then run them all.
    Test(test::Args),
    /// Test mounts for hours against what programs expect of a file system; needs root.
    Posix(posix::Args),
    /// Measure, and record the results.
    Bench(bench::Args),
    /// Run a real OpenAFS cell to test against.
    Openafs(openafs::Args),
    /// Test with Linux's own AFS client, in an emulated machine.
    Kafs(kafs::Args),
    /// Send a live cell a million mutated packets.
    FuzzLive(fuzz_live::Args),
    /// Build Debian packages.
    Dist(dist::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tidy(args) => tidy::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Posix(args) => posix::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Openafs(args) => openafs::run(args),
        Command::Kafs(args) => kafs::run(&args),
        Command::FuzzLive(args) => fuzz_live::run(&args),
        Command::Dist(args) => dist::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
