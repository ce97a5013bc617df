//! Where a user finds what no server will get from here.

use std::io;
use std::path::{Path, PathBuf};

use super::private;

/// The directory, in that of the cache.
pub(super) const NAME: &str = "lost+found";

/// A place there that is free, for something of this name. The directory is made if there is none.
pub(super) fn place(lost: &Path, name: &str) -> io::Result<PathBuf> {
    private::make_dir(lost)?;
    let mut place = lost.join(name);
    let mut count = 1_u32;
    while place.try_exists()? {
        count += 1;
        place = lost.join(format!("{name}-{count}"));
    }
    Ok(place)
}
