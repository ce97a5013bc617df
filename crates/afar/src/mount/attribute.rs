//! Extended attributes, by which a mount tells of its files and of itself.

use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The longest value of one (Linux's XATTR_SIZE_MAX).
const VALUE_MAX: usize = 65_536;

/// What an attribute says.
///
/// # Errors
/// The kernel's; [`BADMSG`](Errno::BADMSG) for what is no text.
pub(crate) fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; VALUE_MAX];
    let length = getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    String::from_utf8(value).map_err(|_| Errno::BADMSG)
}
