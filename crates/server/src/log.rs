//! The log: what goes to standard error, how much of it, and its last lines for `bos getlog`.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// Bytes of the log that are kept for `bos getlog`.
const KEPT: usize = 256 << 10;

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();
static LINES: Mutex<VecDeque<u8>> = Mutex::new(VecDeque::new());

/// Begins the log, with this filter.
pub fn start_log(filter: &str) -> anyhow::Result<()> {
    let (filter, handle) = reload::Layer::new(understood(filter)?);
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // The journal has the time already.
    let lines = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => lines.without_time().boxed(),
        None => lines.boxed(),
    };
    let kept = fmt::layer().with_writer(|| Last).with_ansi(false);
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(kept)
        .try_init();
    if let Err(error) = started {
        bail!("logging is set up already: {error}");
    }
    if FILTER.set(handle).is_err() {
        bail!("logging was set up twice");
    }
    Ok(())
}

/// Changes what is logged from now on.
pub(crate) fn set_log(filter: &str) -> anyhow::Result<()> {
    let filter = understood(filter)?;
    let handle = FILTER.get().context("this process has no log")?;
    Ok(handle.reload(filter)?)
}

fn understood(filter: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(filter)
        .with_context(|| format!("log = {filter:?}: not understood; `afar config explain log`"))
}

/// The last lines of the log, without NULs.
pub(crate) fn last_lines() -> Vec<u8> {
    LINES.lock().iter().copied().collect()
}

/// Keeps the last lines.
struct Last;

impl Write for Last {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        keep(&mut LINES.lock(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends bytes, and drops whole lines at the front beyond [`KEPT`].
fn keep(lines: &mut VecDeque<u8>, bytes: &[u8]) {
    lines.extend(bytes.iter().filter(|byte| **byte != 0));
    let Some(over) = lines.len().checked_sub(KEPT).filter(|over| *over > 0) else {
        return;
    };
    let end = lines.iter().skip(over).position(|byte| *byte == b'\n');
    lines.drain(..end.map_or(lines.len(), |end| over + end + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_whole_and_no_more_than_that() {
        let mut lines = VecDeque::new();
        keep(&mut lines, b"first\0\n");
        assert_eq!(lines, b"first\n");
        let line = [&[b'x'; 999][..], b"\n"].concat();
        for _ in 0..300 {
            keep(&mut lines, &line);
            assert!(lines.len() <= KEPT);
        }
        assert_eq!(lines.len() % line.len(), 0);
        keep(&mut lines, &vec![b'y'; KEPT + 1]);
        assert!(lines.is_empty());
    }
}
