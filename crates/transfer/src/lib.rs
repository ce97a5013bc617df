//! Copies of files and trees to, from and within AFS, which go on where an interrupted one left off.
//!
//! [`copy`] copies as `cp` does; [`SyncPlan`] compares two trees and makes one the same as the other; [`Tree`] removes
//! one. Nothing is printed here: a transfer returns [`Totals`], hands over an [`Error`] for each name that failed, and
//! tells a [`Progress`] how far it has come, so that the same transfers serve a command line, a program and a test.

mod cp;
mod directory;
mod error;
mod extents;
mod facts;
mod jobs;
mod local;
mod origin;
mod part;
mod path;
mod progress;
mod resume;
mod segments;
mod store;
mod sync;
mod target;
mod totals;
mod tree;

pub use cp::{CopyOptions, Destination, copy};
pub use error::{Error, PatternProblem, Remedy, Result};
pub use path::{is_afs, umask};
pub use progress::{Change, Event, Progress};
pub use sync::{SyncOptions, SyncPlan};
pub use totals::Totals;
pub use tree::Tree;
