//! `cargo xtask fuzz-live`: changed captures of all services to a live cell, as long as a night allows.
//!
//! It is a test of `crates/afar/tests/hostile`, which an ordinary run has do less.

use anyhow::{Result, bail};

use crate::sh;

/// Options of `cargo xtask fuzz-live`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of datagrams to send
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    packets: u32,
    /// Repeat the run with this number
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Does what `cargo xtask fuzz-live` was asked for.
///
/// # Errors
/// The test fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = sh::cargo(["test", "--profile", "ci", "--locked", "-p", "afar"]);
    command.args(["--test", "hostile", "--", "--nocapture", "live::"]);
    command.env("AFAR_TEST_FUZZ_PACKETS", args.packets.to_string());
    if let Some(seed) = args.seed {
        command.env("AFAR_TEST_SEED", seed.to_string());
    }
    if !sh::follow(&mut command)?.success {
        bail!("a live cell does not survive {} datagrams", args.packets);
    }
    Ok(())
}
