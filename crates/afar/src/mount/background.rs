//! Going to the background once a mount is live: the command starts itself again as the process
//! that serves, and ends when that one says it is ready, or why it is not.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context;

/// The flag by which the process that serves knows that another one waits for it.
pub(super) const FLAG: &str = "--report-ready";
/// What it says on its standard output then.
const READY: &str = "ready";
/// This program, also when its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";
/// Where the journal takes the output of programs.
const JOURNAL: &str = "/run/systemd/journal/stdout";

/// Runs this program with these arguments, [`FLAG`] among them, as the process of a mount. Says
/// whether that is ready; if not, it has said why on standard error, which is ours too.
pub(super) fn spawn(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<(Child, bool)> {
    let mut child = Command::new(SELF)
        .arg0("afar")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that serves the mount")?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut said)?;
    }
    Ok((child, said.trim_end() == READY))
}

/// Runs this command line again in the background; returns when that is ready or has failed.
pub(super) fn start(argv: &[OsString]) -> anyhow::Result<ExitCode> {
    let command = argv.get(1..2).unwrap_or_default();
    let rest = argv.get(2..).unwrap_or_default();
    let (mut child, ready) = spawn(command.iter().chain([&OsString::from(FLAG)]).chain(rest))?;
    if ready {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the mount")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Tells the waiting process that the mount is live, and unless this one stays in the foreground,
/// leaves its terminal. What is logged from then on goes to `log`, else to the journal if there is
/// one, else nowhere.
pub(super) fn report(stay: bool, log: Option<&Path>) -> anyhow::Result<()> {
    let target = if stay { None } else { log_target(log)? };
    let mut out = io::stdout();
    writeln!(out, "{READY}")
        .and_then(|()| out.flush())
        .context("cannot report that the mount is live")?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    if stay {
        return Ok(());
    }
    // A session of its own: no terminal that hangs up ends it. It leads a group only if it has one.
    let _leads_already = rustix::process::setsid();
    std::env::set_current_dir("/").context("cannot change to /")?;
    rustix::stdio::dup2_stdin(&null)?;
    match target {
        Some(target) => rustix::stdio::dup2_stderr(target)?,
        None => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}

fn log_target(log: Option<&Path>) -> anyhow::Result<Option<OwnedFd>> {
    if let Some(path) = log {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        return Ok(Some(file.into()));
    }
    // Without a journal, or one that does not take it, there is nobody to tell.
    Ok(journal().ok())
}

/// A stream into the journal, as systemd-cat(1) opens one.
fn journal() -> io::Result<OwnedFd> {
    let mut stream = UnixStream::connect(JOURNAL)?;
    // Identifier, unit, priority (info), whether lines begin with a priority, and whether it is
    // forwarded to syslog, to the kernel's log and to the console.
    stream.write_all(b"afar-mount\n\n6\n0\n0\n0\n0\n")?;
    Ok(stream.into())
}
