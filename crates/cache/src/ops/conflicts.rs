//! Changes that could not be made at their servers, noted so that a user finds them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use afar_types::{CellName, Fid, UnixTime};
use tokio::runtime::Handle;

use crate::model::conflict::Conflict;
use crate::ops::cache::Cache;

/// What was written to a file: the verb, and no name.
pub(crate) const STORE: (&str, &[u8]) = ("store", b"");

impl Cache {
    /// Changes made with this cache that could not be made at their servers, the oldest first: the last of them, as far
    /// as a record of 1 MiB has them. It reads from a disk.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn conflicts(&self) -> std::io::Result<Vec<Conflict>> {
        self.0.conflicts.read()
    }

    /// Notes that a change could not be made: the verb with its name, why, and where data is kept, if it is. Nothing
    /// waits for that, and it cannot fail.
    pub(crate) fn note_conflict(
        &self,
        (cell, fid): (&CellName, Fid),
        (verb, name): (&str, &[u8]),
        why: &str,
        kept: Option<PathBuf>,
    ) {
        let is_due = self.0.conflicts.add(&Conflict {
            time: UnixTime::from(SystemTime::now()),
            cell: cell.clone(),
            fid,
            verb: verb.to_owned(),
            name: name.to_vec(),
            why: why.to_owned(),
            kept,
        });
        // Otherwise it is written at the end, or before it is read.
        if is_due && let Ok(runtime) = Handle::try_current() {
            let conflicts = Arc::clone(&self.0.conflicts);
            runtime.spawn_blocking(move || conflicts.write());
        }
    }
}
