//! Programs that are measured: each in a process group of its own, with a time limit, and
//! gone when its handle is.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::sh;

/// How often a program is looked after.
const GLANCE: Duration = Duration::from_millis(5);
/// How long a program may take to say that it is ready.
const READY: Duration = Duration::from_secs(10);
/// How long a program may take to end when told so: a server gives the calls it serves ten seconds.
const PARTING: Duration = Duration::from_secs(30);
/// The unit of processor times in `/proc`, the same on every Linux that we know.
const TICKS_PER_SECOND: f64 = 100.0;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C and its kin make waiting fail, so that everything is put away; a second
/// one ends at once.
///
/// # Errors
/// Signals cannot be caught.
pub(super) fn catch_signals() -> Result<()> {
    let stop = Arc::clone(STOP.get_or_init(Arc::default));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")?;
    }
    Ok(())
}

/// Whether the user wants an end.
pub(super) fn interrupted() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// Waits.
///
/// # Errors
/// Interrupted.
pub(super) fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if interrupted() {
            bail!("interrupted");
        }
        thread::sleep(GLANCE.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Processor time of a process, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cpu {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
}

/// What a program that ended has left.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
    pub(super) cpu: Cpu,
    /// From its start to its end.
    pub(super) time: Duration,
}

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    shown: String,
    began: Instant,
    out: Lines,
    err: Lines,
}

/// What arrives in a pipe.
#[derive(Debug, Default)]
struct Lines {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Lines {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text: Arc<Mutex<String>> = Arc::default();
        let sink = Arc::clone(&text);
        let reader = pipe.map(|pipe| {
            thread::spawn(move || {
                let mut pipe = BufReader::new(pipe);
                let mut line = Vec::new();
                while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                    sink.lock().push_str(&String::from_utf8_lossy(&line));
                    line.clear();
                }
            })
        });
        Self { text, reader }
    }

    fn so_far(&self) -> String {
        self.text.lock().clone()
    }

    /// Everything, once the pipe is closed.
    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            // A reader that panicked has left what it read.
            reader.join().ok();
        }
        self.so_far()
    }
}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        if interrupted() {
            bail!("interrupted");
        }
        let shown = sh::show(&command);
        let began = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            child,
            shown,
            began,
            out: Lines::read(out),
            err: Lines::read(err),
        })
    }

    /// Waits until it says that it is listening.
    ///
    /// # Errors
    /// It ended, said nothing in time, or the user interrupted.
    pub(super) fn until_listening(&mut self) -> Result<()> {
        let end = Instant::now() + READY;
        while !self.out.so_far().to_lowercase().contains("listening") {
            if self.has_ended()? || Instant::now() > end {
                let said = self.err.so_far();
                bail!("`{}` does not listen: {}", self.shown, said.trim());
            }
            pause(GLANCE)?;
        }
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It takes longer than `limit`, or the user interrupted; it is killed then.
    pub(super) fn wait(mut self, limit: Duration) -> Result<Ended> {
        let end = self.began + limit;
        while !self.has_ended()? {
            if Instant::now() > end {
                let said = self.err.so_far();
                bail!(
                    "`{}` did not end within {} s: {}",
                    self.shown,
                    limit.as_secs(),
                    said.trim()
                );
            }
            pause(GLANCE)?;
        }
        let time = self.began.elapsed();
        // Nobody has waited for it yet, so that its times are still there.
        let cpu = self.cpu();
        let status = self.child.wait().context("waiting for a program")?;
        Ok(Ended {
            status,
            cpu,
            time,
            out: self.out.all(),
            err: self.err.all(),
        })
    }

    /// Waits for its end, which must be a success.
    ///
    /// # Errors
    /// As `wait`; it failed.
    pub(super) fn succeed(self, limit: Duration) -> Result<Ended> {
        let shown = self.shown.clone();
        let ended = self.wait(limit)?;
        if !ended.status.success() {
            bail!("`{shown}`: {}: {}", ended.status, ended.err.trim());
        }
        Ok(ended)
    }

    /// Asks it to end, as Ctrl-C would, and waits for that.
    ///
    /// # Errors
    /// It does not end.
    pub(super) fn finish(self) -> Result<Ended> {
        self.signal(Signal::INT);
        let limit = self.began.elapsed() + PARTING;
        self.wait(limit)
    }

    /// The processor time it has used so far.
    pub(super) fn cpu(&self) -> Cpu {
        cpu_of(self.child.id())
    }

    /// Whether it has ended, without taking note of it.
    fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options);
        let status = status.with_context(|| format!("waiting for `{}`", self.shown))?;
        Ok(status.is_some())
    }

    fn signal(&self, signal: Signal) {
        // The group may be gone already, which is what is wanted.
        kill_process_group(Pid::from_child(&self.child), signal).ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once waited for, its number may belong to another.
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

/// The processor time a process has used so far; none if it is gone.
pub(super) fn cpu_of(pid: u32) -> Cpu {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.ok()
        .and_then(|stat| parse_cpu(&stat))
        .unwrap_or_default()
}

/// User and system time from `/proc/PID/stat`. The name, in parentheses, may hold anything.
fn parse_cpu(stat: &str) -> Option<Cpu> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut times = after
        .split_whitespace()
        .skip(11)
        .map(|ticks| ticks.parse::<f64>().ok().map(|t| t / TICKS_PER_SECOND));
    Some(Cpu {
        user_s: times.next()??,
        system_s: times.next()??,
    })
}

impl std::ops::Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[test]
    fn processor_times_are_read_whatever_the_name() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 1 0 0 0 250 75 0 0 20 0 1 0 5 1 1";
        let cpu = parse_cpu(stat).unwrap();
        assert_eq!((cpu.user_s, cpu.system_s), (2.5, 0.75));
        assert_eq!(parse_cpu("7 (a) R 1"), None);
    }

    #[test]
    fn output_status_and_time_are_collected() {
        let ended = shell("echo out; echo err >&2; exit 3")
            .wait(Duration::from_secs(10))
            .unwrap();
        assert_eq!(
            (ended.out.as_str(), ended.err.as_str(), ended.status.code()),
            ("out\n", "err\n", Some(3))
        );
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let process = shell("sleep 60 & echo $!; wait");
        let error = process.wait(Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
    }

    #[test]
    fn finishing_is_as_by_ctrl_c() {
        let mut process =
            shell("trap 'echo bye; exit 0' INT; echo listening; while :; do sleep 0.01; done");
        process.until_listening().unwrap();
        let ended = process.finish().unwrap();
        assert!(ended.out.ends_with("bye\n"), "{}", ended.out);
    }
}
