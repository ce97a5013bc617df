//! What `afar cp` and `afar sync` share: many jobs at a time, both ends of a copy, files in the making that outlive
//! an interruption, progress and totals.

mod directory;
mod extents;
mod facts;
mod jobs;
mod local;
mod origin;
mod part;
mod progress;
mod resume;
mod segments;
mod store;
mod target;
mod totals;

pub(super) use directory::{make_directory, set_attributes};
pub(super) use facts::{Facts, Kind};
pub(super) use jobs::{Done, Limits, Worker, run};
pub(super) use origin::{Origin, children};
pub(super) use part::{KEEP_LEAST, Part, part_name, part_name_of, part_of};
pub(super) use progress::Progress;
pub(super) use resume::{Publish, fetch_into};
pub(super) use segments::{SEGMENT, Segments, stored_before, version_of};
pub(super) use store::{Storing, room_for, spooled};
pub(super) use target::{Target, is_special, replaced, symlink};
pub(super) use totals::{Report, Totals, Traffic};

use std::path::Path;

/// Jobs at a time for copies from AFS. Each file has calls of its own; how many a server gets in all
/// is its window's concern.
pub(super) const JOBS: usize = 32;
/// Bits the owner needs to fill a new file or directory.
pub(super) const FILL_FILE: u32 = 0o200;
pub(super) const FILL_DIRECTORY: u32 = 0o700;

/// Whether a path is in AFS.
pub(super) fn is_afs(path: &Path) -> bool {
    path.starts_with("/afs")
}
