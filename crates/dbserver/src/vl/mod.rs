//! The location server: which volumes there are, and at which servers (VL, service 52).
//!
//! It answers as OpenAFS's vlserver does, error codes and the order of checks included; where it
//! does not, the function says so. Entries are found by the ids and names of their volumes; in
//! lists they come in the order in which they were made, and a place in a list is an entry's
//! number.
//!
//! Clients of a ubik database need nothing more of this service than its codes: a server that
//! cannot answer says UNOQUORUM, upon which they go to the next. As each server takes changes,
//! none ever says that another one must be asked. The services by which ubik's servers elect and
//! copy (VOTE, DISK) are not served, and `udebug` gets no answer.

pub mod codes;
mod db0;
mod entries;
mod form;
mod list;
mod load;
mod pattern;
mod row;
mod servers;
mod service;
mod stats;
mod tables;
mod update;

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{Calls, Lists, vl};
use afar_telemetry::Registry;
use afar_types::{AddrsU, ListAddrByAttributes, VldbEntry, VolumeId, VolumeType};

pub use db0::{Db0Error, decode as decode_vldb, export_vldb, import_vldb};
pub use load::Vldb;
pub use row::{Entry, Identity, Server, SiteBytes};

use crate::kv::{Database, DbError};
use form::Naming;
use stats::Stats;

/// How the location server behaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocationConfig {
    /// Whether only administrators may list entries and read the counters. Off by default, as in
    /// OpenAFS (`-restricted_query`).
    pub restricted_query: bool,
}

/// A location server; its clones are the same one.
#[derive(Debug, Clone)]
pub struct LocationServer {
    database: Database,
    config: LocationConfig,
    stats: Arc<Stats>,
    lists: Lists,
    calls: Calls,
}

impl LocationServer {
    /// Serves what is in this database.
    ///
    /// # Errors
    /// When the database cannot be read, or holds something else.
    pub fn open(database: Database, config: LocationConfig) -> Result<Self, DbError> {
        database.read(|view| view.get(row::HEADER).map(|_| ()))?;
        Ok(Self {
            database,
            config,
            stats: Arc::new(Stats::new()),
            lists: Lists::default(),
            calls: Calls::new(vl::INTERFACE, &Registry::default()),
        })
    }

    /// The same, whose counters this registry shows.
    #[must_use]
    pub fn with_registry(mut self, registry: &Registry) -> Self {
        self.calls = Calls::new(vl::INTERFACE, registry);
        self
    }

    /// The entry with this volume id; of any type if none is given. Servers with a UUID are named
    /// by it.
    ///
    /// # Errors
    /// VL_NOENT, VL_ENTDELETED, or when the database cannot be read.
    pub fn entry_by_id(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
    ) -> Result<VldbEntry, AbortCode> {
        self.by_id(id, kind, Naming::Uuid)
    }

    /// The entry with this name of one of its volumes: with `.readonly` or `.backup` it means the
    /// same entry. A name of digits only is an id.
    ///
    /// # Errors
    /// VL_NOENT, VL_ENTDELETED, VL_BADNAME, or when the database cannot be read.
    pub fn entry_by_name(&self, name: &[u8]) -> Result<VldbEntry, AbortCode> {
        self.by_name(name, Naming::Uuid)
    }

    /// A server's identity and addresses.
    ///
    /// # Errors
    /// VL_NOENT, VL_BADMASK, VL_INDEXERANGE, or when the database cannot be read.
    pub fn server_addresses(&self, wanted: &ListAddrByAttributes) -> Result<AddrsU, AbortCode> {
        self.database.read(|view| servers::find(view, wanted))
    }

    fn by_id(
        &self,
        id: VolumeId,
        kind: Option<VolumeType>,
        naming: Naming,
    ) -> Result<VldbEntry, AbortCode> {
        self.database.read(|view| {
            let entry = entries::alive(tables::find_by_id(view, id.0, kind)?)?;
            form::look_up(view, &entry, naming)
        })
    }

    fn by_name(&self, name: &[u8], naming: Naming) -> Result<VldbEntry, AbortCode> {
        if let Some(id) = id_in(name) {
            return self.by_id(id, None, naming);
        }
        entries::check_name(name)?;
        self.database.read(|view| {
            let entry = entries::alive(tables::find_by_name(view, name)?)?;
            form::look_up(view, &entry, naming)
        })
    }
}

/// The volume id that a name of digits only stands for: the last 32 bits of the number, as in
/// OpenAFS. No digits are 0.
// spec: afs-rpc#location-entries
fn id_in(name: &[u8]) -> Option<VolumeId> {
    let mut id = 0u64;
    for byte in name {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        id = id.saturating_mul(10).saturating_add(digit.into());
    }
    u32::try_from(id & 0xffff_ffff).ok().map(VolumeId)
}

/// The code for the caller; the operator is told what lies behind it.
impl From<DbError> for AbortCode {
    fn from(error: DbError) -> Self {
        match &error {
            DbError::NoQuorum => tracing::debug!(%error, "a call was refused"),
            _ => tracing::error!(
                error = &error as &dyn std::error::Error,
                "the database failed the call"
            ),
        }
        error.code()
    }
}

#[cfg(test)]
mod tests;
