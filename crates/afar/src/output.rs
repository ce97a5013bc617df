//! All that the binary prints: text or JSON from the same data, and errors.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::advice;

/// Where reports go, and in which form.
pub(crate) struct Output {
    json: bool,
    sink: Box<dyn Write + Send>,
}

impl Output {
    /// Reports go to the file if one is named, else to standard output; one JSON object a line
    /// with `json`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn new(json: bool, file: Option<&Path>) -> anyhow::Result<Self> {
        let sink: Box<dyn Write + Send> = match file {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(File::create(path).with_context(|| {
                format!(
                    "cannot write reports to {}; name another file with -o",
                    path.display()
                )
            })?),
        };
        Ok(Self { json, sink })
    }

    /// Prints one report and flushes it.
    ///
    /// # Errors
    /// Its reader has gone or the disk is full.
    pub(crate) fn report(&mut self, report: &(impl Serialize + Display)) -> anyhow::Result<()> {
        let line = if self.json {
            serde_json::to_string(report)?
        } else {
            format!("{report}")
        };
        writeln!(self.sink, "{line}")
            .and_then(|()| self.sink.flush())
            .context("cannot write the report")
    }
}

/// Prints an error, its causes and the next step on standard error, in one line.
pub(crate) fn error(error: &anyhow::Error) {
    note(&advice::told(error));
}

/// Prints a remark on standard error, in one line.
pub(crate) fn note(text: &impl Display) {
    say(io::stderr(), format_args!("afar: {text}\n"));
}

/// Prints a document on standard output, to its end.
///
/// # Errors
/// The disk is full, say; that its reader has gone is none.
pub(crate) fn document(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Prints text as it is: help, on standard output.
pub(crate) fn help(text: &str) {
    say(io::stdout(), format_args!("{text}"));
}

/// Prints text as it is on standard error: what is wrong with a command line.
pub(crate) fn usage(text: &str) {
    say(io::stderr(), format_args!("{text}"));
}

/// A command that changes something does not stop halfway because nobody reads what it says of it
/// (`afar vos move -verbose | head`), so an error is no reason to end, and `print!` would panic.
fn say(mut to: impl Write, text: fmt::Arguments<'_>) {
    let _unread = to.write_fmt(text);
}
