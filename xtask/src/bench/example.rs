//! Examples of crates, which measure and print what they find.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh;

/// Builds an example of a package, with a feature that it has not by default; returns where cargo puts it. The next
/// build of it with other features takes its place.
pub(super) fn build(package: &str, example: &str, feature: Option<&str>) -> Result<PathBuf> {
    let mut build = sh::cargo(["build", "--release", "--quiet", "--package", package]);
    build.args(["--example", example]);
    build.args(feature.map(|feature| format!("--features={feature}")));
    sh::capture(&mut build)?;
    Ok(sh::target().join("release/examples").join(example))
}
