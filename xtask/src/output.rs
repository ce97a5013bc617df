//! The one place that writes to the terminal.

use std::io::Write;

/// Writes one line of result to standard output.
///
/// A reader that has gone away (a closed pipe) is no error of ours, so it is ignored.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").is_ok() {
        out.flush().ok();
    }
}

/// Writes one line of progress or trouble to standard error.
pub(crate) fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}
