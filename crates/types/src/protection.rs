//! Users and groups as protection servers describe them (AFS-3 ptint).

mod entry;

pub use entry::{PrAccess, PrDebugEntry, PrEntry, PrUpdateEntry};

use afar_xdr::{CharArray, List, XdrString};

use crate::PtsId;

/// The name of a user or group in a list (AFS-3 prname, 64 words).
pub type PrName = CharArray<64>;
/// The name of a user or group as an argument, at most 63 bytes in practice.
pub type PrNameText = XdrString<64>;
/// Users and groups, in requests and replies (AFS-3 idlist and prlist).
pub type PrIds = List<PtsId, 500_000>;
/// Names in a reply (AFS-3 namelist).
pub type PrNames = List<PrName, 500_000>;
/// Names in a request. AFS-3 allows a hundred times as many, 128 MB of them from anyone; its
/// clients stop at these 5000 (PR_MAXLIST).
pub type PrNamesAsked = List<PrName, 5000>;
/// Users and groups in a reply (AFS-3 prentries). OpenAFS sends up to 500 at a time.
pub type PrEntries = List<PrEntry, 500_000>;

impl PtsId {
    /// system:anyuser: everyone.
    pub const ANYUSER: Self = Self(-101);
    /// system:authuser: everyone the cell knows.
    pub const AUTHUSER: Self = Self(-102);
    /// system:ptsviewers: may see all entries.
    pub const PTSVIEWERS: Self = Self(-203);
    /// system:administrators.
    pub const ADMINISTRATORS: Self = Self(-204);
    /// system:backup.
    pub const BACKUP: Self = Self(-205);
    /// The anonymous user, unknown to the cell; also the answer where a name is not known.
    pub const ANONYMOUS: Self = Self(32766);

    /// Whether it is a group.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0 < 0
    }
}

#[cfg(test)]
mod tests;
