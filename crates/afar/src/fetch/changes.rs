//! What `afar sync` prints while it runs: changes as they are made.

use std::fmt;
use std::io;

use afar_transfer::Change;
use parking_lot::Mutex;
use serde::Serialize;

use super::format::{Lines, Name};

/// Prints changes.
pub(super) struct Changes {
    lines: Mutex<Lines>,
    json: bool,
}

#[derive(Serialize)]
struct Line {
    change: &'static str,
    #[serde(flatten)]
    name: Name,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("json", &self.json)
            .finish_non_exhaustive()
    }
}

impl Changes {
    pub(super) fn new(json: bool) -> Self {
        Self {
            lines: Mutex::new(Lines::new()),
            json,
        }
    }

    /// Prints one; the path is that below SOURCE and DEST.
    ///
    /// # Errors
    /// Nobody reads any more, or the disk is full.
    pub(super) fn print(&self, change: Change, path: &[u8]) -> io::Result<()> {
        let mut lines = self.lines.lock();
        let change = change.name();
        if self.json {
            let name = Name::new(path);
            lines.json(&Line { change, name })?;
        } else {
            lines.line(&[format!("{change:<7}").as_bytes(), path])?;
        }
        lines.flush()
    }
}
