//! What a mount shows of itself: what it counts of its requests, and a line for each to those who read along.
//!
//! - `operation`: kinds of requests, and what comes of them; `noted`: one request from its beginning to its end
//! - `counts`: how many there were, how long they took, and how much was read and written
//! - `processes`: the same by process, while somebody looks, and what is under way
//! - `log`: lines, to those who read along; `line`: what is in one
//! - `own`: the files that a mount adds to those of AFS

mod counts;
mod line;
mod log;
mod noted;
mod operation;
pub(crate) mod own;
mod processes;

use std::sync::Arc;

use afar_telemetry::Registry;

pub(crate) use line::{args, quoted};
pub(crate) use noted::Noted;
pub(crate) use operation::{Operation, Outcome};

use counts::Counts;
use log::AccessLog;
use processes::Processes;

/// What watches the requests of a mount.
#[derive(Debug)]
pub(crate) struct Eyes {
    counts: Counts,
    processes: Processes,
    /// Whether servers are told which process asks for a change.
    tells_process: bool,
    /// Lines for those who read along.
    pub(crate) log: AccessLog,
}

impl Eyes {
    /// Those of a mount whose metrics this registry shows.
    pub(crate) fn new(registry: &Registry, tells_process: bool) -> Arc<Self> {
        Arc::new(Self {
            tells_process,
            counts: Counts::new(registry),
            processes: Processes::new(registry),
            log: AccessLog::default(),
        })
    }
}
