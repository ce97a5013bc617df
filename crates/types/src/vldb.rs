//! The volume location database: entries in their three wire forms, and as one.

mod attributes;
mod chain;
mod entry;
mod forms;
mod update;
mod wire;

pub use attributes::{AddrsU, ListAddrByAttributes, ListByAttributes};
pub use chain::Chain;
pub use entry::{EntryError, Site, SiteFlags, SiteServer, VldbEntry, VldbFlags};
pub use forms::FormError;
pub use update::{VitalVlHeader, VlCallBack, VldStats, VldbUpdateEntry};
pub use wire::{NvldbEntry, UvldbEntry, VldbEntryO};

use afar_xdr::List;

/// Entries of the oldest form in one reply. AFS-3 sets no limit; larger databases are listed by
/// parts.
pub type VldbEntriesO = List<VldbEntryO, 262_144>;
/// Entries in one reply. AFS-3 sets no limit; larger databases are listed by parts.
pub type NvldbEntries = List<NvldbEntry, 262_144>;

#[cfg(test)]
mod tests;
