//! Starting other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::output;

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let told = std::env::var_os("CARGO_MANIFEST_DIR");
    let manifest = told.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = Path::new(&manifest);
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo`, the same one that runs this program, in the top of the checkout.
pub(crate) fn cargo<I: AsRef<OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// When it cannot be started or does not exit with 0; the error ends with what it wrote
/// to standard error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let also = String::from_utf8_lossy(&done.stdout);
        bail!(
            "`{shown}`: {}: {} {}",
            done.status,
            said.trim(),
            also.trim()
        );
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Whether a program runs and exits with 0; what it writes is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What a program that was followed did.
pub(crate) struct Followed {
    /// It exited with 0.
    pub(crate) success: bool,
    /// Everything it wrote, both streams in the order of arrival.
    pub(crate) text: String,
}

/// Runs a program to its end, passing on each line it writes as it comes.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn follow(command: &mut Command) -> Result<Followed> {
    let shown = show(command);
    output::line(&format!("$ {shown}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let (lines, arrivals) = mpsc::channel();
    let out = child.stdout.take().map(|pipe| forward(pipe, lines.clone()));
    let err = child.stderr.take().map(|pipe| forward(pipe, lines));
    let mut text = String::new();
    for line in arrivals {
        output::line(&line);
        text.push_str(&line);
        text.push('\n');
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for `{shown}`"))?;
    for reader in [out, err].into_iter().flatten() {
        if reader.join().is_err() {
            bail!("reading the output of `{shown}` failed");
        }
    }
    Ok(Followed {
        success: status.success(),
        text,
    })
}

/// Sends each line of a pipe to a channel, from a thread of its own.
fn forward(
    pipe: impl Read + Send + 'static,
    lines: mpsc::Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut buffer = Vec::new();
        while reader
            .read_until(b'\n', &mut buffer)
            .is_ok_and(|read| read > 0)
        {
            let line = String::from_utf8_lossy(&buffer)
                .trim_end_matches(['\n', '\r'])
                .to_owned();
            buffer.clear();
            if lines.send(line).is_err() {
                return;
            }
        }
    })
}

/// A command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![program_name(command.get_program())];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

fn program_name(program: &OsStr) -> String {
    Path::new(program)
        .file_name()
        .unwrap_or(program)
        .to_string_lossy()
        .into_owned()
}

/// Whether a program of this name is on the search path or in a system folder.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/lib/openafs"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follow_collects_both_streams_and_the_exit_status() {
        let mut command = Command::new("sh");
        let done = follow(command.args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert!(!done.success);
        assert!(
            done.text.contains("out\n") && done.text.contains("err\n"),
            "{}",
            done.text
        );
    }

    #[test]
    fn capture_tells_why_a_program_failed() {
        let mut command = Command::new("sh");
        let error = capture(command.args(["-c", "echo gone >&2; exit 1"])).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[test]
    fn programs_are_looked_for_by_name() {
        assert!(has_program("sh"));
        assert!(!has_program("no-such-program-anywhere"));
    }
}
