//! What names a file here.

use afar_types::{CellName, Fid};

/// Names a file in all cells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileKey {
    /// First, so that all that a break can mean lies together.
    pub(crate) fid: Fid,
    pub(crate) cell: CellName,
}
