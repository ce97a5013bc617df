//! `cargo xtask tidy`: the house rules, as a test.

use std::path::Path;

use anyhow::{Result, bail};

use crate::output;
use crate::sh;

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    let findings = check(&sh::root())?;
    print(&findings);
    match findings.len() {
        0 => Ok(()),
        n => bail!("{n} findings"),
    }
}

pub(crate) fn check(_: &Path) -> Result<Vec<String>> {
    Ok(Vec::new())
}

pub(crate) fn print(findings: &[String]) {
    for finding in findings {
        output::line(finding);
    }
}
