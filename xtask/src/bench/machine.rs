//! What is measured on: machine, kernel, versions, and how busy it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::sh;

/// One run of the command, whose rows are measured under the same circumstances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    /// Its time, to the second, in UTC.
    pub(super) id: String,
    /// The commit, with a `+` if files that matter differed from it.
    pub(super) commit: String,
    /// The processor's name.
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) memory_gib: f64,
    /// The nominal clock.
    pub(super) clock_mhz: f64,
    pub(super) kernel: String,
    /// Empty where it is not compared with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) iperf: String,
    pub(super) afar: String,
    /// The command's options.
    pub(super) options: String,
}

impl Session {
    /// Asks the machine, and iperf3.
    ///
    /// # Errors
    /// iperf3, git or date do not answer.
    pub(super) fn now(afar: &Path, options: &str) -> Result<Self> {
        let iperf = first_line("iperf3", &["--version"])
            .context("iperf3 is needed to compare with: `cargo xtask test --only packages`")?;
        Ok(Self {
            iperf: iperf.split(" (").next().unwrap_or_default().to_owned(),
            ..Self::of_machine(afar, options)?
        })
    }

    /// Asks the machine.
    ///
    /// # Errors
    /// git or date do not answer.
    pub(super) fn of_machine(afar: &Path, options: &str) -> Result<Self> {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let commit = first_line("git", &["rev-parse", "--short", "HEAD"])?;
        let changed = first_line(
            "git",
            &[
                "status",
                "--porcelain",
                "--",
                "crates",
                "Cargo.toml",
                "Cargo.lock",
            ],
        )?;
        Ok(Self {
            id: first_line("date", &["-u", "+%FT%TZ"])?,
            commit: format!("{commit}{}", if changed.is_empty() { "" } else { "+" }),
            processor: field("model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib(&read("/proc/meminfo")),
            clock_mhz: field("cpu MHz")
                .and_then(|mhz| mhz.parse().ok())
                .unwrap_or(0.0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            iperf: String::new(),
            afar: sh::capture(Command::new(afar).arg("-V"))?.trim().to_owned(),
            options: options.to_owned(),
        })
    }
}

/// The first line that a program writes.
fn first_line(program: &str, args: &[&str]) -> Result<String> {
    let text = sh::capture(Command::new(program).args(args).current_dir(sh::root()))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Processes that wanted a processor, on average over the last minute.
pub(super) fn load() -> f64 {
    let text = read("/proc/loadavg");
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Time that a hypervisor has taken since the machine started, in milliseconds.
pub(super) fn steal_ms() -> u64 {
    // The eighth figure, in hundredths of a second.
    let text = read("/proc/stat");
    let steal = text.split_whitespace().nth(8);
    steal
        .and_then(|ticks| ticks.parse::<u64>().ok())
        .unwrap_or(0)
        * 10
}

fn memory_gib(meminfo: &str) -> f64 {
    let kib = meminfo.split_whitespace().nth(1);
    kib.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / f64::from(1 << 20)
}

/// A file of the kernel; empty where there is none.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
