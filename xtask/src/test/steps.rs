//! The steps that are one or two calls of cargo, and the interop step.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::count::{self, Counts};
use super::packages;
use super::{Outcome, Verdict};
use crate::kafs;
use crate::openafs;
use crate::output;
use crate::sh;
use crate::tidy;

/// The one profile everything is checked and built with, so that nothing is compiled twice: libraries
/// in C and what runs while building are the same for a check and for a test.
const PROFILE: &str = "ci";
/// Tells the interop tests where the description of the running cell is.
const CELL_ENV: &str = "AFAR_TEST_OPENAFS";
/// Tells the interop tests how to start further cells: the path of this program.
const XTASK_ENV: &str = "AFAR_TEST_XTASK";
/// Tells the simulation how many seeds to run.
const SEEDS_ENV: &str = "AFAR_SIM_SEEDS";
/// Tells the store's tests how often the power fails.
const POINTS_ENV: &str = "AFAR_TEST_CRASH_POINTS";

pub(super) fn fmt() -> Result<Outcome> {
    let mut run = Runner::default();
    run.follow(&mut sh::cargo(["fmt", "--all", "--check"]))?;
    if exists("fuzz/Cargo.toml") {
        // A workspace of its own, which the line above does not reach.
        run.follow(sh::cargo(["fmt", "--check"]).current_dir(sh::root().join("fuzz")))?;
    }
    Ok(run.outcome())
}

pub(super) fn clippy() -> Result<Outcome> {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--profile",
        PROFILE,
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    plain(&mut sh::cargo(args))
}

pub(super) fn doc() -> Result<Outcome> {
    let args = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--profile",
        PROFILE,
        "--locked",
    ];
    plain(sh::cargo(args).env("RUSTDOCFLAGS", "-D warnings"))
}

/// What is depended on: licences, sources, and what is known against it.
pub(super) fn deny() -> Result<Outcome> {
    if !sh::has_program("cargo-deny") {
        let how = "no cargo-deny: `cargo install --locked cargo-deny`";
        return Ok((Verdict::Skipped(how.to_owned()), Counts::default()));
    }
    let mut run = Runner::default();
    let check = ["deny", "--offline", "--locked", "check"];
    run.follow(sh::cargo(check).args(["bans", "licenses", "sources"]))?;
    // The database of advisories is somewhere else, and not everybody reaches it.
    match sh::capture(&mut sh::cargo(["deny", "fetch", "db"])) {
        Ok(_) => run.follow(sh::cargo(check).arg("advisories"))?,
        Err(why) => {
            output::line(&format!(
                "LEFT OUT: advisories against what is depended on: {why:#}"
            ));
            run.counts.skipped += 1;
        }
    }
    Ok(run.outcome())
}

/// The house rules, in this process.
pub(super) fn tidy() -> Result<Outcome> {
    let findings = tidy::check(&sh::root())?;
    tidy::print(&findings);
    let verdict = match findings.len() {
        0 => Verdict::Passed,
        n => Verdict::Failed(format!("{n} findings")),
    };
    Ok((verdict, Counts::default()))
}

/// All tests but those of the engine, then the examples in the documentation; the store loses power
/// at this many points.
pub(super) fn unit(points: u64) -> Result<Outcome> {
    let mut run = Runner::default();
    run.tests(
        &["--workspace", "--exclude", "afar-rx"],
        &[(POINTS_ENV, points.to_string().into())],
        Ignored::Leave,
    )?;
    run.follow(&mut sh::cargo([
        "test",
        "--doc",
        "--workspace",
        "--profile",
        PROFILE,
        "--locked",
    ]))?;
    Ok(run.outcome())
}

/// The engine's tests, its simulation with this many seeds.
pub(super) fn sim(seeds: u64) -> Result<Outcome> {
    let mut run = Runner::default();
    run.tests(
        &["-p", "afar-rx"],
        &[(SEEDS_ENV, seeds.to_string().into())],
        Ignored::Leave,
    )?;
    Ok(run.outcome())
}

/// Starts a cell, checks it with the stock tools, and runs the tests marked `#[ignore]`
/// beside it: those that need root or a real peer.
pub(super) fn interop() -> Result<Outcome> {
    if let Some(why) = packages::missing_for_interop() {
        return Ok((Verdict::Skipped(why), Counts::default()));
    }
    let cell = openafs::TestCell::up()?;
    let mut run = Runner::default();
    let checks = openafs::verify(cell.dir())?;
    run.counts.add(checks);
    if checks.failed > 0 {
        run.fail("the stock tools do not find the cell as it should be".to_owned());
    }
    let this = std::env::current_exe().context("finding this program")?;
    let mut env = vec![(CELL_ENV, cell.description()), (XTASK_ENV, this)];
    match kafs::image(kafs::STABLE) {
        Ok(image) => env.push((kafs::IMAGE_ENV, image)),
        Err(why) => {
            output::line(&format!("LEFT OUT: tests with Linux's own client: {why:#}"));
            run.counts.skipped += 1;
        }
    }
    run.tests(
        &["--workspace", "--exclude", "afar-rx"],
        &env,
        Ignored::Only,
    )?;
    cell.down()?;
    Ok(run.outcome())
}

/// A step that is one command without tests.
fn plain(command: &mut Command) -> Result<Outcome> {
    let mut run = Runner::default();
    run.follow(command)?;
    Ok(run.outcome())
}

/// What to do with tests marked `#[ignore]`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ignored {
    Leave,
    Only,
}

/// Runs commands, counts their tests, and keeps the first failure.
#[derive(Default)]
struct Runner {
    counts: Counts,
    failure: Option<String>,
}

impl Runner {
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    fn follow(&mut self, command: &mut Command) -> Result<()> {
        let done = sh::follow(command)?;
        self.counts.add(count::from_output(&done.text));
        if !done.success {
            self.fail(format!("`{}`", sh::show(command)));
        }
        Ok(())
    }

    /// Runs the tests of a selection of packages: by nextest where it is installed.
    fn tests(&mut self, select: &[&str], env: &[(&str, PathBuf)], ignored: Ignored) -> Result<()> {
        let nextest = sh::has_program("cargo-nextest");
        let mut command = if nextest {
            let profile = ["nextest", "run", "--cargo-profile", PROFILE, "--locked"];
            let mut command = sh::cargo(profile);
            command
                .args(["--no-fail-fast", "--no-tests", "pass"])
                .args(select);
            if ignored == Ignored::Only {
                command.args(["--run-ignored", "only"]);
            }
            command
        } else {
            let mut command =
                sh::cargo(["test", "--profile", PROFILE, "--locked", "--no-fail-fast"]);
            command.args(["--all-targets"]).args(select);
            if ignored == Ignored::Only {
                command.args(["--", "--ignored"]);
            }
            command
        };
        command.envs(env.iter().map(|(name, value)| (name, value)));
        if ignored == Ignored::Only {
            let before = self.counts;
            self.follow(&mut command)?;
            // The others ran in an ordinary step: here they are no news.
            self.counts.skipped = before.skipped;
            self.counts.deferred_run +=
                self.counts.passed + self.counts.failed - before.passed - before.failed;
            return Ok(());
        }
        self.follow(&mut command)
    }

    fn outcome(self) -> Outcome {
        (
            self.failure.map_or(Verdict::Passed, Verdict::Failed),
            self.counts,
        )
    }
}

/// Whether a file exists below the top of the checkout.
pub(super) fn exists(path: impl AsRef<Path>) -> bool {
    sh::root().join(path).exists()
}
