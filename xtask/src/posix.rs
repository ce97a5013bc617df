//! `cargo xtask posix`: the long run of what programs expect of a file system, on mounts of afar.
//!
//! A foreign suite, pjdfstest, is installed for it; then come random operations on a file held against
//! a model, and a tree as large as that of a kernel. All are tests of `crates/afar/tests/mount`, which
//! an ordinary run has do less.

use std::path::Path;

use anyhow::{Result, bail};

use crate::sh;

/// The release whose cases the table of exclusions names.
const SUITE: &str = "pjdfstest@0.2.2";
/// Where it is installed, below the top of the checkout.
const FOLDER: &str = "target/posix";

/// Options of `cargo xtask posix`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of random operations on a file
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    operations: u64,
    /// Number of files in the tree to unpack and remove
    #[arg(long, value_name = "NUMBER", default_value_t = 80_000)]
    tree: u64,
    /// Run only tests whose names contain one of these
    #[arg(value_name = "NAME", default_values = ["posix", "random", "workloads"])]
    only: Vec<String>,
}

/// Does what `cargo xtask posix` was asked for.
///
/// # Errors
/// Something cannot be installed, or a test fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = sh::root().join(FOLDER);
    let suite = folder.join("bin/pjdfstest");
    if !suite.exists() {
        install(&folder)?;
    }
    let test = ["test", "--profile", "ci", "--locked", "-p", "afar"];
    let mut command = sh::cargo(test);
    command.args(["--test", "mount", "--", "--include-ignored"]);
    command.args(["--nocapture", "--test-threads=1"]);
    command.args(&args.only);
    command.env("AFAR_TEST_PJDFSTEST", suite);
    command.env("AFAR_MOUNT_OPERATIONS", args.operations.to_string());
    command.env("AFAR_TEST_MOUNT_TREE", args.tree.to_string());
    if !sh::follow(&mut command)?.success {
        bail!("not everything holds on a mount");
    }
    Ok(())
}

fn install(folder: &Path) -> Result<()> {
    let mut command = sh::cargo(["install", "--locked", SUITE, "--root"]);
    command.arg(folder);
    // Its own, as the checkout's lock is held by whoever builds there.
    command.env("CARGO_TARGET_DIR", folder.join("build"));
    if !sh::follow(&mut command)?.success {
        bail!("{SUITE} cannot be installed");
    }
    Ok(())
}
