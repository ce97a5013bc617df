//! The volume location database: entries in their three wire forms, and as one.

mod attributes;
mod entry;
mod wire;

pub use attributes::{AddrsU, ListAddrByAttributes, ListByAttributes};
pub use entry::{EntryError, Site, SiteFlags, SiteServer, VldbEntry, VldbFlags};
pub use wire::{NvldbEntry, UvldbEntry, VldbEntryO};

#[cfg(test)]
mod tests;
