//! A process among others: what it tells a service manager, and what a hangup means to it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// No service manager is told more often.
const SHORTEST: Duration = Duration::from_millis(100);
/// SIGHUP among the signals of `/proc/self/status`.
const HANGUP: u64 = 1;

/// Tells the service manager, at half of the interval that it asks for. A process whose runtime hangs does
/// not, and is started again.
pub(crate) async fn keep() {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        std::future::pending::<()>().await;
        return;
    };
    let mut ticks = tokio::time::interval((interval / 2).max(SHORTEST));
    loop {
        ticks.tick().await;
        notify(NotifyState::Watchdog);
    }
}

/// Tells the service manager, if there is one.
pub(crate) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// Hangups of this process, which do not end it any more; none if it was started to survive them (nohup).
///
/// # Errors
/// Signals cannot be caught.
pub(crate) fn hangups() -> std::io::Result<Option<Signal>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores_hangups(&status) {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some)
}

/// How a process that a service manager shall start again ends: EX_TEMPFAIL.
const AGAIN: u8 = 75;

/// Starts this program again with the same command line, after everything has ended in good order: by the
/// service manager if there is one, which may keep sockets open, else in this process.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn start_again() -> anyhow::Result<ExitCode> {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        return Ok(ExitCode::from(AGAIN));
    }
    let mut words = std::env::args_os();
    // By its name, as an update may have put another file there.
    let program = words.next().context("cannot find this process's program")?;
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| format!("cannot start {} again", program.display()))
}

fn ignores_hangups(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & HANGUP != 0)
}

/// Waits for a hangup, if there can be one.
pub(crate) async fn hangup(hangups: &mut Option<Signal>) {
    match hangups {
        Some(hangups) => {
            if hangups.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_under_nohup_knows_it() {
        let status = |bits: &str| format!("Name:\tafar\nSigIgn:\t{bits}\nSigCgt:\t0\n");
        assert!(ignores_hangups(&status("0000000000000001")));
        assert!(ignores_hangups(&status("0000000000001001")));
        assert!(!ignores_hangups(&status("0000000000001000")));
        assert!(!ignores_hangups(""));
    }
}
