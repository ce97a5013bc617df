//! `-localauth` by a server's keys: whoever can read them is the cell itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_cell::{Credentials, Secured};
use afar_security::{KeyRing, Level, rxkad, ticket};
use afar_types::CellName;
use anyhow::{Context, ensure};
use parking_lot::Mutex;

use crate::advice;

/// Where OpenAFS's servers have their keys.
pub(crate) const SERVER_KEYS: &str = "/etc/openafs/server/KeyFileExt";

/// The keys in this file.
///
/// # Errors
/// When it cannot be read, or has no key that can be used.
pub(crate) fn open_keys(path: &Path) -> anyhow::Result<KeyRing> {
    let keys = KeyRing::open([PathBuf::from(path)]).context("-localauth needs the cell's keys")?;
    ensure!(
        keys.newest().is_some(),
        "-localauth: there is no key in {}; name a server's key file",
        path.display()
    );
    Ok(keys)
}

/// The superuser of a cell, by tickets printed with its keys.
#[derive(Debug)]
pub(crate) struct Printed {
    /// The cell whose keys these are; without it whichever is asked for.
    cell: Option<CellName>,
    keys: KeyRing,
    level: Level,
    last: Mutex<Option<Secured>>,
}

impl Printed {
    pub(crate) const fn new(cell: Option<CellName>, keys: KeyRing, level: Level) -> Self {
        Self {
            cell,
            keys,
            level,
            last: Mutex::new(None),
        }
    }

    /// A class for connections at this level, with a ticket printed now.
    ///
    /// # Errors
    /// When there is no key.
    pub(crate) fn class(&self, level: Level) -> anyhow::Result<Arc<rxkad::Client>> {
        let token = ticket::print(&self.keys)?;
        Ok(Arc::new(rxkad::Client::new(Arc::new(token), level)))
    }
}

impl Credentials for Printed {
    fn security(
        &self,
        cell: &CellName,
        refused: Option<&Secured>,
    ) -> Result<Option<Secured>, String> {
        if self.cell.as_ref().is_some_and(|own| own != cell) {
            return Ok(None);
        }
        let mut last = self.last.lock();
        let refused = |last: &Secured| refused.is_some_and(|refused| refused.is(last));
        if let Some(last) = last.as_ref().filter(|last| !refused(last)) {
            return Ok(Some(last.clone()));
        }
        // The keys may have changed since: the ring reads their file again.
        let security = self
            .class(self.level)
            .map_err(|error| advice::told(&error))?;
        let secured = Secured {
            security,
            who: "the cell's superuser".into(),
            until: None,
        };
        *last = Some(secured.clone());
        Ok(Some(secured))
    }
}
