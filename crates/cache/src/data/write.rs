//! Writing into the cache, and cutting.

use std::sync::Arc;
use std::time::SystemTime;

use afar_types::{FetchStatus, UnixTime};

use super::storage_failed;
use crate::cache::Cache;
use crate::error::Errno;
use crate::handles::OpenFile;
use crate::types::Handle;
use crate::vnode::Vnode;

/// The longest file: RPCs count octets in signed words.
const LENGTH_MOST: u64 = i64::MAX.unsigned_abs();

impl Cache {
    /// Writes octets. They are stored when the file is closed, or earlier.
    ///
    /// # Errors
    /// When there is no room in the cache, or too much was written that could not be stored.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let open = self.0.handles.file(handle)?;
        if !open.flags.write {
            return Err(Errno::EBADF);
        }
        let length = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let vnode = &open.spot.vnode;
        let user = self.user(open.opener).await;
        self.fresh(&user, vnode).await?;
        let offset = (!open.flags.append).then_some(offset);
        let mut written = self.write_here(&open, offset, data);
        if written == Err(Errno::ENOSPC) && vnode.lock().dirty.is_some() {
            // What is stored needs no room here any more.
            self.store(&user, vnode).await?;
            written = self.write_here(&open, offset, data);
        }
        let written = written?;
        self.0.keep_dirty(vnode);
        // The writer waits for the server when it is too far ahead of it.
        if written > self.0.config.dirty {
            self.store(&user, vnode).await?;
        }
        Ok(length)
    }

    /// Writes octets into the cache, at the end if no place is given. Returns how many of the file are
    /// to be stored.
    fn write_here(&self, open: &OpenFile, offset: Option<u64>, data: &[u8]) -> Result<u64, Errno> {
        let vnode = &open.spot.vnode;
        let mut state = vnode.lock();
        let offset = offset.unwrap_or_else(|| state.length());
        let end = offset.checked_add(data.len() as u64);
        let end = end.filter(|end| *end <= LENGTH_MOST).ok_or(Errno::EFBIG)?;
        let stored = self.0.storage.write_dirty(&vnode.key, offset, data);
        stored.map_err(|error| storage_failed(vnode, &error))?;
        let dirty = state.dirty();
        dirty.ranges.insert(offset..end);
        if let Some(since) = &mut dirty.since {
            since.ranges.insert(offset..end);
        }
        dirty.length = dirty.length.max(end);
        dirty.kept = false;
        dirty.writer = open.opener;
        dirty.mtime = UnixTime::from(SystemTime::now());
        Ok(dirty.ranges.octets())
    }

    /// Sets a file's length for this user, here; it is stored with what was written.
    pub(crate) fn resize(
        &self,
        writer: u32,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        length: u64,
    ) -> Result<(), Errno> {
        if length > LENGTH_MOST {
            return Err(Errno::EFBIG);
        }
        {
            let mut state = vnode.lock();
            if state.length() == length && (state.dirty.is_some() || status.length == length) {
                return Ok(());
            }
            let cut = self.0.storage.cut_dirty(&vnode.key, length);
            cut.map_err(|error| storage_failed(vnode, &error))?;
            let dirty = state.dirty();
            dirty.ranges.remove(length..u64::MAX);
            if let Some(since) = &mut dirty.since {
                since.ranges.remove(length..u64::MAX);
                since.limit = since.limit.min(length);
            }
            dirty.length = length;
            dirty.limit = dirty.limit.min(length);
            dirty.resized = true;
            dirty.unstored = true;
            dirty.kept = false;
            dirty.writer = writer;
            dirty.mtime = UnixTime::from(SystemTime::now());
        }
        self.0.keep_dirty(vnode);
        Ok(())
    }
}
