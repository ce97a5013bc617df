//! Writing into the cache, and cutting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use afar_types::{FetchStatus, UnixTime};

use super::storage_failed;
use crate::model::error::Errno;
use crate::model::types::Handle;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::table::handles::OpenFile;

/// The longest file: RPCs count bytes in signed words.
const LENGTH_MOST: u64 = i64::MAX.unsigned_abs();

/// Part of what may wait to be stored beyond which it is stored while more is written.
const STREAM_SHARE: u64 = 16;
/// Seconds of storing that are begun at a time then.
const STREAM_TIME: u64 = 4;

/// A file whose bytes are being stored while more are written, until this is dropped.
struct Streaming(Arc<Vnode>);

impl Drop for Streaming {
    fn drop(&mut self) {
        let work = self.0.work();
        work.streaming.store(false, Ordering::SeqCst);
        work.stored.notify_waiters();
    }
}

impl Cache {
    /// Writes bytes. They are stored when the file is closed, or earlier.
    ///
    /// # Errors
    /// When there is no room in the cache, or too much was written that could not be stored.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        self.write_to(handle, Some(offset), data).await
    }

    /// Writes bytes at the end of a file, wherever that is by now.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn append(&self, handle: Handle, data: &[u8]) -> Result<u32, Errno> {
        self.write_to(handle, None, data).await
    }

    async fn write_to(
        &self,
        handle: Handle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<u32, Errno> {
        let open = self.0.handles.file(handle)?;
        if !open.flags.write {
            return Err(Errno::EBADF);
        }
        let length = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let vnode = &open.spot.vnode;
        let user = self.user(open.opener).await;
        // The first bytes written are laid over the length that the server tells.
        self.fresh(&user, vnode).await?;
        let mut written = self.write_here(&open, offset, data);
        if written == Err(Errno::ENOSPC) && vnode.lock().rare.dirty.is_some() {
            // What is stored needs no room here any more.
            self.store(&user, vnode).await?;
            written = self.write_here(&open, offset, data);
        }
        let written = written?;
        self.0.keep_dirty(vnode);
        if written > self.stream_from() {
            self.stream(&user, vnode);
        }
        // The writer waits for the server when it is too far ahead of it.
        if written > self.0.config.dirty {
            self.make_room(&user, vnode).await?;
        }
        Ok(length)
    }

    /// Writes bytes into the cache, at the end if no place is given. Returns how many of the file are
    /// to be stored.
    fn write_here(&self, open: &OpenFile, offset: Option<u64>, data: &[u8]) -> Result<u64, Errno> {
        let vnode = &open.spot.vnode;
        // Until the bytes are noted: a store that ends in between would take them for its own, and clean.
        let mut state = vnode.lock();
        let offset = offset.unwrap_or_else(|| match state.rare.emptied {
            true => 0,
            false => state.length(),
        });
        let end = offset.checked_add(data.len() as u64);
        let end = end.filter(|end| *end <= LENGTH_MOST).ok_or(Errno::EFBIG)?;
        let stored = self.0.storage.write_dirty(&vnode.key(), offset, data);
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
        dirty.check();
        Ok(dirty.ranges.bytes())
    }

    /// Bytes written to a file beyond which they are stored while more are written.
    fn stream_from(&self) -> u64 {
        self.0.config.dirty / STREAM_SHARE
    }

    /// Waits until there may be written more.
    async fn make_room(&self, user: &User, vnode: &Arc<Vnode>) -> Result<(), Errno> {
        let work = vnode.work();
        loop {
            let stored = work.stored.notified();
            tokio::pin!(stored);
            // Before the look, so that a store that ends after it is heard.
            stored.as_mut().enable();
            let bytes = vnode.lock().written();
            if bytes <= self.0.config.dirty {
                return Ok(());
            }
            if !work.streaming.load(Ordering::SeqCst) {
                return self.store(user, vnode).await;
            }
            stored.await;
        }
    }

    /// Stores what is written to a file while more is written, a few seconds' worth at a time, as long as
    /// there is much.
    fn stream(&self, user: &Arc<User>, vnode: &Arc<Vnode>) {
        // The program that closes the file must learn of the failure first.
        let failed = vnode.lock().rare.failed.is_some();
        if failed || vnode.work().streaming.swap(true, Ordering::SeqCst) {
            return;
        }
        let streaming = Streaming(Arc::clone(vnode));
        let (cache, user) = (self.clone(), Arc::clone(user));
        tokio::spawn(async move {
            let (vnode, least) = (&streaming.0, cache.stream_from());
            loop {
                let most = {
                    let state = vnode.lock();
                    if state.written() <= least {
                        break;
                    }
                    state.rare.store_pace.saturating_mul(STREAM_TIME)
                };
                let most = most.clamp(least, cache.0.config.dirty);
                if cache.store_some(&user, vnode, most).await.is_err() {
                    // It is in the log, and told when the file is closed.
                    break;
                }
                vnode.work().stored.notify_waiters();
            }
        });
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
            if state.length() == length && (state.rare.dirty.is_some() || status.length == length) {
                return Ok(());
            }
            let cut = self.0.storage.cut_dirty(&vnode.key(), length);
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
