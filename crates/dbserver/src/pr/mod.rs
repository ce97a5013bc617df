//! The protection server: users, groups, and who is in which group.
//!
//! It answers as OpenAFS's ptserver built with supergroups does, down to the order of its checks,
//! which decides by which code a client is refused. Where it differs, the function says so.

mod access;
mod change;
mod create;
mod error;
mod lists;
mod members;
mod name;
pub mod prdb;
mod rows;
mod service;
mod user;

use std::sync::Arc;
use std::time::SystemTime;

use afar_rpc::{Calls, pr};
use afar_telemetry::Registry;
use afar_types::{PrAccess, PtsId};

use crate::kv::{Change, Database};

pub use error::PrError;
pub(crate) use rows::id_key;
pub use rows::{Entry, Flags, Header};
pub(crate) use service::refuse;

use create::Context;
use rows::Rows;

/// How a cell wants its protection server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectionConfig {
    /// The cell's names and its Kerberos realms: users at one of these are users of this cell.
    /// In any case.
    pub local_realms: Vec<String>,
    /// Only administrators may change anything (ptserver's `-restricted`).
    pub restricted: bool,
    /// Anonymous callers may look up names only (ptserver's `-restrict_anonymous`).
    pub restrict_anonymous: bool,
    /// Levels of groups in groups that count (ptserver's `-groupdepth`).
    pub supergroup_depth: u32,
    /// Access to users that have none of their own.
    pub user_access: PrAccess,
    /// Access to groups that have none of their own.
    pub group_access: PrAccess,
    /// The id of the first user of a new database. Below 1000 most systems number what is no
    /// person, and an id that is also a local user's shows up as that one's wherever ids are not
    /// translated.
    pub first_user: PtsId,
}

impl Default for ProtectionConfig {
    fn default() -> Self {
        Self {
            local_realms: Vec::new(),
            restricted: false,
            restrict_anonymous: false,
            supergroup_depth: 5,
            user_access: PrAccess::USER_DEFAULT,
            group_access: PrAccess::GROUP_DEFAULT,
            // As OpenAFS's ptserver counts.
            first_user: PtsId(1),
        }
    }
}

impl ProtectionConfig {
    /// The access of entries that have none of their own.
    fn default_access(&self, group: bool) -> PrAccess {
        if group {
            self.group_access
        } else {
            self.user_access
        }
    }

    /// The name by which a user is looked up: without the `@realm` of this cell.
    fn local<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        let Some(at) = name::at_cell(name) else {
            return name;
        };
        let user = &name[..name.len() - at.len()];
        let realm = at.get(1..).unwrap_or_default();
        let local = |known: &String| known.as_bytes().eq_ignore_ascii_case(realm);
        if realm.is_empty() || self.local_realms.iter().any(local) {
            user
        } else {
            name
        }
    }
}

/// The protection server of a cell. Its clones are the same server.
#[derive(Debug, Clone)]
pub struct ProtectionServer {
    database: Database,
    config: Arc<ProtectionConfig>,
    calls: Calls,
}

impl ProtectionServer {
    /// Serves what is in this database. A database without users and groups gets those that every
    /// cell has, such as `system:administrators`.
    ///
    /// # Errors
    /// When the database cannot be read or changed.
    pub async fn open(database: Database, config: ProtectionConfig) -> Result<Self, PrError> {
        let server = Self {
            database,
            config: Arc::new(config),
            calls: Calls::new(pr::INTERFACE, &Registry::default()),
        };
        if server.database.read(|rows| rows.header())?.is_none() {
            let made = server.write(|rows, context| {
                if rows.header()?.is_none() {
                    create::well_known(rows, context)?;
                }
                Ok(())
            });
            made.await?;
        }
        Ok(server)
    }

    /// The same, whose counters this registry shows.
    #[must_use]
    pub fn with_registry(mut self, registry: &Registry) -> Self {
        self.calls = Calls::new(pr::INTERFACE, registry);
        self
    }

    /// The database's header.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn header(&self) -> Result<Header, PrError> {
        let header = self.database.read(|rows| rows.header())?;
        header.ok_or(PrError::Damaged("the header is missing"))
    }

    /// Makes one change.
    async fn write<T: Send + 'static>(
        &self,
        change: impl Fn(&mut Change<'_>, Context<'_>) -> Result<T, PrError> + Send + 'static,
    ) -> Result<T, PrError> {
        let config = Arc::clone(&self.config);
        let now = now();
        let change = move |rows: &mut Change<'_>| {
            let config = &*config;
            change(rows, Context { config, now })
        };
        self.database.write(change).await
    }
}

/// Seconds since 1970; AFS has no later time than 2106.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

#[cfg(test)]
mod tests;
