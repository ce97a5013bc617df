//! Running every fuzz target for a while.
//!
//! The targets are ordinary libFuzzer programs. They are built here with the compiler's own
//! coverage pass and without the address sanitizer (the code is safe Rust), so neither a
//! nightly compiler nor cargo-fuzz is needed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::count::Counts;
use super::steps::exists;
use super::{Outcome, Verdict};
use crate::output;
use crate::sh;

/// What makes a libFuzzer program: inline 8-bit counters, a table of places, and traced
/// comparisons, so that the fuzzer finds magic numbers.
const FLAGS: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// Builds the targets and runs each of them for `time`.
pub(super) fn run(time: Duration) -> Result<Outcome> {
    if !exists("fuzz/Cargo.toml") {
        return Ok((
            Verdict::Skipped("no targets in fuzz/".to_owned()),
            Counts::default(),
        ));
    }
    if !sh::has_program("c++") {
        return Ok((
            Verdict::Skipped("no C++ compiler".to_owned()),
            Counts::default(),
        ));
    }
    let fuzz = sh::root().join("fuzz");
    let manifest =
        fs::read_to_string(fuzz.join("Cargo.toml")).context("reading fuzz/Cargo.toml")?;
    let out = target_dir();
    let host = host()?;
    let mut build = sh::cargo(["build", "--release", "--bins", "--target", &host]);
    build
        .current_dir(&fuzz)
        .env("CARGO_TARGET_DIR", &out)
        .env("RUSTFLAGS", FLAGS.join(" "));
    if !sh::follow(&mut build)?.success {
        return Ok((
            Verdict::Failed("the targets do not build".to_owned()),
            Counts::default(),
        ));
    }
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    for target in targets(&manifest) {
        let program = out.join(&host).join("release").join(&target);
        if fuzz_one(&program, &fuzz, &target, time)? {
            counts.passed += 1;
        } else {
            counts.failed += 1;
            failed.push(target);
        }
    }
    let verdict = match failed.is_empty() {
        true => Verdict::Passed,
        false => Verdict::Failed(failed.join(", ")),
    };
    Ok((verdict, counts))
}

/// Runs one target; new inputs go to a scratch folder, the committed corpus is only read,
/// and an input that crashes the target is left in `fuzz/artifacts`.
fn fuzz_one(program: &Path, fuzz: &Path, target: &str, time: Duration) -> Result<bool> {
    let scratch = program.with_extension("corpus");
    let artifacts = fuzz.join("artifacts").join(target);
    for folder in [&scratch, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(&artifacts);
    prefix.push("/");
    let mut command = std::process::Command::new(program);
    command
        .arg(format!("-max_total_time={}", time.as_secs()))
        .args([
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            "-verbosity=0",
        ])
        .arg(prefix)
        .arg(&scratch);
    let corpus = fuzz.join("corpus").join(target);
    if corpus.is_dir() {
        command.arg(corpus);
    }
    let done = sh::follow(&mut command)?;
    if let Some(executions) = done
        .text
        .lines()
        .find_map(|l| l.strip_prefix("stat::number_of_executed_units:"))
    {
        output::line(&format!("{target}: {} executions", executions.trim()));
    }
    Ok(done.success)
}

/// A target folder of its own beside the workspace's: other flags, other artifacts.
fn target_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| sh::root().join("target"), PathBuf::from);
    target.join("fuzz")
}

/// The host's triple: with `--target`, the flags do not reach build scripts.
fn host() -> Result<String> {
    let text = sh::capture(std::process::Command::new("rustc").arg("-vV"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}

/// The names of the `[[bin]]` sections of a manifest.
fn targets(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_bin = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_bin = line == "[[bin]]";
        } else if in_bin
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "name"
        {
            names.push(value.trim().trim_matches('"').to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins() {
        let manifest = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"packet\"\npath = \"a.rs\"\n\
                        [dependencies]\nname = \"1\"\n[[bin]]\npath = \"b.rs\"\nname=\"ack\"\n";
        assert_eq!(targets(manifest), ["packet", "ack"]);
    }
}
