//! Cells of OpenAFS to measure, which `cargo xtask openafs` starts and stops.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::link::{End, Place};
use super::process::Process;
use crate::{output, sh};

/// A cell is up after this time, or never: its programs need minutes.
const START_LIMIT: Duration = Duration::from_secs(900);

/// A cell of OpenAFS, gone when dropped.
#[derive(Debug)]
pub(super) struct OpenAfs {
    dir: PathBuf,
}

impl OpenAfs {
    /// Starts a cell with a file of `mib` MiB: its servers at the server's end of a link if there
    /// is one, its programs at the client's. Returns also what `cargo xtask openafs up` printed.
    ///
    /// # Errors
    /// Those of that command.
    pub(super) fn up(
        place: &Place,
        cell: &str,
        mib: u32,
        options: &[&str],
    ) -> Result<(Self, String)> {
        let name = format!("afar-bench-openafs-{}", std::process::id());
        let this = Self {
            dir: std::env::temp_dir().join(name),
        };
        let mut up = xtask("up")?;
        up.args(["--cell", cell]).args(options);
        for (option, end) in [("--netns", End::Server), ("--cli-netns", End::Client)] {
            if let Some(namespace) = place.namespace(end) {
                up.arg(option).arg(namespace);
            }
        }
        up.args(["--bench-mib", &mib.to_string(), "--dir"])
            .arg(&this.dir);
        // In a process group of its own: Ctrl-C must not end the daemons before `down` does.
        let said = Process::start(up)?.succeed(START_LIMIT)?.out;
        Ok((this, said))
    }

    /// The cell's directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program of OpenAFS's, run as `cargo xtask openafs exec` does with these options.
    ///
    /// # Errors
    /// This program cannot be found.
    pub(super) fn exec(&self, options: &[&str], words: &[&str]) -> Result<Command> {
        let mut command = xtask("exec")?;
        command.args(options).arg("--dir").arg(&self.dir);
        command.arg("--").args(words);
        Ok(command)
    }
}

impl Drop for OpenAfs {
    fn drop(&mut self) {
        let down = xtask("down").and_then(|mut command| {
            command.arg("--dir").arg(&self.dir);
            sh::capture(&mut command)
        });
        if let Err(error) = down {
            output::note(&format!("stopping the cell: {error:#}"));
        }
    }
}

/// A verb of this program's `openafs` command.
fn xtask(verb: &str) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.args(["openafs", verb]);
    Ok(command)
}
