//! Users of this cell, as the service of their passwords and keys sees them.

use afar_rpc::Identity;
use afar_types::PtsId;

use super::access::Access;
use super::rows::{Entry, Rows};
use super::{PrError, ProtectionServer, change, name};
use crate::kv::{Database, View};

impl ProtectionServer {
    /// Where the rows are.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The name under which a user of this cell would be found.
    pub(crate) fn canonical(&self, name: &[u8]) -> Vec<u8> {
        let name = name::lower(name);
        self.config.local(&name).to_vec()
    }

    /// The user of this cell with this canonical name.
    pub(crate) fn user(&self, rows: View<'_>, name: &[u8]) -> Result<Option<Entry>, PrError> {
        let Some(id) = rows.id_of(name)? else {
            return Ok(None);
        };
        let entry = rows.entry(id)?;
        Ok(is_own_user(&entry).then_some(entry))
    }

    /// Refuses whoever is neither this user nor an administrator, and what is no user of this cell.
    pub(crate) fn check_own(
        &self,
        rows: View<'_>,
        identity: &Identity,
        id: PtsId,
    ) -> Result<(), PrError> {
        let access = Access::new(rows, &self.config, identity)?;
        if !access.is_admin()? && (access.id != id || id == PtsId::ANONYMOUS) {
            return Err(PrError::Permission);
        }
        if !is_own_user(&rows.entry(id)?) {
            return Err(PrError::BadArgument);
        }
        Ok(())
    }
}

/// Whether somebody may log in as this: a user, of this cell, and not everybody's.
fn is_own_user(entry: &Entry) -> bool {
    let foreign = name::at_cell(&entry.name).is_some();
    entry.id.0 > 0 && !entry.is_group() && !foreign && !change::is_fixed(entry.id)
}
