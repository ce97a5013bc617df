//! Fresh processes, cold files, and how much memory a process has.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// This program, to be started again.
pub(super) fn afar() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.arg("store").stdin(Stdio::null());
    Ok(command)
}

/// Takes all files below a directory out of the page cache, so that they are read from the disk.
///
/// # Errors
/// A file cannot be opened or written back.
pub(super) fn make_cold(path: &Path) -> anyhow::Result<()> {
    let named = || format!("taking {} out of the cache", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(named)? {
            make_cold(&entry.with_context(named)?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path).with_context(named)?;
    // What is not written back would stay.
    file.sync_all().with_context(named)?;
    fadvise(&file, 0, None, Advice::DontNeed).with_context(named)
}

/// A probe that waits for the word to begin.
pub(super) struct Probe {
    child: Child,
    go: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Probe {
    /// Starts it.
    pub(super) fn start(wanted: &impl Serialize) -> anyhow::Result<Self> {
        let mut child = afar()?
            .args(["bench", "--json", "--probe"])
            .arg(serde_json::to_string(wanted)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a probe")?;
        let (Some(go), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a probe without its pipes");
        };
        Ok(Self {
            child,
            go,
            lines: BufReader::new(out),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it begin, and gives what it found.
    pub(super) fn finish<T: DeserializeOwned>(mut self) -> anyhow::Result<T> {
        writeln!(self.go).context("starting a probe")?;
        let mut line = String::new();
        self.lines
            .read_line(&mut line)
            .context("reading what a probe found")?;
        let status = self.child.wait().context("waiting for a probe")?;
        if !status.success() {
            bail!("the probe failed: {status}");
        }
        serde_json::from_str(&line).with_context(|| format!("what a probe said: {line:?}"))
    }
}

/// A figure of `/proc/self/status` in bytes; 0 if the kernel has none of that name.
pub(super) fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Seconds of processor time that this process has used.
pub(super) fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
