//! What was written to a vnode, and what became of it.

use std::time::SystemTime;

use afar_types::UnixTime;

use super::VnodeState;
use crate::model::dirty::Dirty;
use crate::model::error::Errno;

impl VnodeState {
    /// Bytes written and not stored yet.
    pub(crate) fn written(&self) -> u64 {
        self.rare
            .dirty
            .as_ref()
            .map_or(0, |dirty| dirty.ranges.bytes())
    }

    /// The length as programs here see it.
    pub(crate) fn length(&self) -> u64 {
        let stored = self.status.map_or(0, |status| status.length);
        self.rare
            .dirty
            .as_ref()
            .map_or(stored, |dirty| dirty.length)
    }

    /// What was written, if anything was.
    pub(crate) fn dirty_mut(&mut self) -> Option<&mut Dirty> {
        self.rare.if_any().and_then(|rare| rare.dirty.as_mut())
    }

    /// What was written, if only from now on.
    pub(crate) fn dirty(&mut self) -> &mut Dirty {
        let emptied = std::mem::take(&mut self.rare.emptied);
        let length = self.status.filter(|_| !emptied);
        let length = length.map_or(0, |status| status.length);
        self.rare.dirty.get_or_insert_with(|| Dirty {
            length,
            limit: length,
            resized: emptied,
            mtime: UnixTime::from(SystemTime::now()),
            ..Dirty::default()
        })
    }

    /// Has the one who closes the file told that storing failed.
    pub(crate) fn store_failed(&mut self, error: Errno) {
        let (status, rare) = (self.status(), &mut *self.rare);
        rare.failed = Some(error);
        if let Some(dirty) = &mut rare.dirty {
            dirty.note_failure(error, status);
        }
    }

    /// How storing failed since somebody was told last.
    pub(crate) fn take_failure(&mut self) -> Result<(), Errno> {
        let failed = self.rare.if_any().and_then(|rare| rare.failed.take());
        failed.map_or(Ok(()), Err)
    }
}
