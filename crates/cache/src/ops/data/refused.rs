//! What becomes of what was written and could not be stored.
//!
//! The one who closes the file is told, by `close` or `fsync`: that is all that AFS promises, and what
//! programs must look at. After that it depends on why:
//!
//! - **Refused for good** (the quota is used up, the disk is full, the volume is read-only, the file too
//!   large): as long as the file is open for writing all stays, so that a program may make room and
//!   try again. When it is closed last, what was written is dropped, and all see what the server has:
//!   nobody would expect it to be stored a day later, perhaps over something newer. If nobody was told, as a
//!   process has ended without closing it, or a mapping was written to after that, it is put into `lost+found`.
//! - **Anything else** (no server answers, no token any more): it stays, is seen here, and is tried again
//!   every half minute.
//! - If somebody else has changed the file before it could be stored, theirs was stored in good order
//!   and stays; what was written here is put into `lost+found` then, and the log says so.

use std::sync::Arc;

use afar_types::FetchStatus;

use crate::model::error::Errno;
use crate::model::types::Handle;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::conflicts::STORE;
use crate::table::handles::Open;

impl Cache {
    /// What [`flush`](Self::flush) said came to nobody: the file was not closed by close(2), but by the end of a
    /// process, or in passing. So it is told again.
    pub fn nobody_heard(&self, handle: Handle, error: Errno) {
        let vnode = match self.0.handles.find(handle) {
            Ok(Open::File(open)) => Arc::clone(&open.spot.vnode),
            Ok(Open::Directory(open)) => Arc::clone(&open.spot.vnode),
            _ => return,
        };
        vnode.lock().rare.failed = Some(error);
    }

    /// Drops what a server refused for good, if nobody has the file open for writing any more.
    /// Returns whether that is so.
    pub(crate) fn drop_refused(&self, vnode: &Arc<Vnode>) -> bool {
        let (refused, untold) = {
            let state = vnode.lock();
            let failed = state.rare.dirty.as_ref().and_then(|dirty| dirty.failed);
            let refused = state.rare.writers == 0 && failed.is_some_and(|failed| failed.for_good);
            (refused, state.rare.failed.is_some())
        };
        if refused {
            vnode.lock().take_failure().ok();
            self.drop_written(vnode, "its server refused it, and it was closed", untold);
        }
        refused
    }

    /// Drops what was written and could not be stored before somebody else changed the file. Returns
    /// whether that is so. While it is open for writing both are merged, as always.
    pub(super) fn drop_overtaken(&self, vnode: &Arc<Vnode>, status: &FetchStatus) -> bool {
        let overtaken = {
            let state = vnode.lock();
            let dirty = state.rare.dirty.as_ref();
            state.rare.writers == 0 && dirty.is_some_and(|dirty| dirty.is_overtaken(status))
        };
        if overtaken {
            let why = "another client changed it before it could be stored";
            self.drop_written(vnode, why, true);
        }
        overtaken
    }

    /// Drops what was written to a file that is no more: there is nowhere it could ever be stored. If it was not
    /// removed from here, nobody here knows.
    pub(crate) fn drop_removed(&self, vnode: &Arc<Vnode>) {
        let known = vnode.lock().rare.gone;
        self.drop_written(vnode, "the file was removed", !known);
    }

    /// Drops what was written to a file; says why. What nobody was told of is put where a user finds it.
    pub(super) fn drop_written(&self, vnode: &Arc<Vnode>, why: &str, untold: bool) {
        let Some(dirty) = vnode.lock().rare.dirty.take() else {
            return;
        };
        let (cell, fid, bytes) = (vnode.cell(), vnode.fid, dirty.ranges.bytes());
        let aside = match untold {
            true => self.0.storage.set_aside(&vnode.key(), dirty.length),
            false => Ok(None),
        };
        match &aside {
            Ok(Some(path)) => tracing::error!(
                %cell, %fid, bytes, path = %path.display(),
                "data written to a file could not be stored: {why}; kept here, with zeroes in the \
                 gaps"
            ),
            Ok(None) if bytes == 0 => tracing::debug!(%cell, %fid, "{why}"),
            Ok(None) => {
                tracing::error!(%cell, %fid, bytes, "dropped data written to a file: {why}");
            }
            Err(error) => tracing::error!(
                %cell, %fid, bytes, %error,
                "dropped data written to a file, because it cannot be kept elsewhere: {why}"
            ),
        }
        // Else somebody knows of it, or nothing was there to be lost.
        if untold && (bytes > 0 || matches!(aside, Ok(Some(_)))) {
            let kept = aside.ok().flatten();
            self.note_conflict((cell, fid), STORE, why, kept);
        }
        self.0.storage.forget(&vnode.key());
        self.drop_dirty(vnode);
        self.data_changed(vnode);
    }
}
