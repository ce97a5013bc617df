//! The data of files: read through the cache, written into it, stored from it.
//!
//! What a program sees of a file is made of three layers: what was written here and is not stored
//! yet, what the server has of the version the status tells, and zeroes where the file was cut and
//! made longer again.

mod ahead;
pub(crate) mod fetch;
mod open;
mod refused;
pub(crate) mod store;
mod write;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::Class;
use afar_types::FetchStatus;
use bytes::{Bytes, BytesMut};

use crate::model::error::Errno;
use crate::model::ranges::RangeSet;
use crate::model::types::Handle;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::storage::Pieces;

/// Times a file is read that changes while it is.
const TRIES: u32 = 8;
/// A read that takes no longer had everything there.
const AT_ONCE: Duration = Duration::from_millis(3);

/// A part of a file as it is seen here, but for what must come from a server.
struct View {
    range: Range<u64>,
    /// What was written here.
    written: Pieces,
    /// What the server has, as far as it is not hidden by that.
    wanted: Vec<Range<u64>>,
}

impl Cache {
    /// Reads bytes; fewer than asked for at the end only.
    ///
    /// # Errors
    /// As servers say.
    pub async fn read(&self, handle: Handle, offset: u64, size: u32) -> Result<Bytes, Errno> {
        let open = self.0.handles.file(handle)?;
        let vnode = &open.spot.vnode;
        let user = self.user(open.opener).await;
        for _ in 0..TRIES {
            let status = self.fresh(&user, vnode).await?;
            let view = self.view(vnode, &status, offset..offset.saturating_add(size.into()))?;
            if offset == 0 && !open.flags.direct {
                self.file_read(&user, &open.spot, &status, open.flags.class);
            }
            let class = self.read_ahead(&user, &open, &status, &view.range);
            let begun = Instant::now();
            let filled = self.fill(&user, vnode, &status, view, class).await;
            if begun.elapsed() > AT_ONCE {
                let mut ahead = open.ahead.lock();
                ahead.waited();
            }
            match filled {
                // The break of it may come later than the reply that tells another version.
                Err(Refetch::Changed) => vnode.lock().promise = None,
                Err(Refetch::Failed(error)) => return Err(error),
                Ok(data) => return Ok(data),
            }
        }
        tracing::warn!(fid = %vnode.fid, "a file changes faster than it can be read");
        Err(Errno::EIO)
    }

    /// What is to be seen of a part of a file, now.
    fn view(&self, vnode: &Vnode, status: &FetchStatus, range: Range<u64>) -> Result<View, Errno> {
        // For all of it: what was written and what it hides of the server's bytes must be of one moment.
        let state = vnode.lock();
        let mut view = View {
            range,
            written: Vec::new(),
            wanted: Vec::new(),
        };
        let (mut length, mut limit) = (status.length, status.length);
        let mut hidden = RangeSet::default();
        if let Some(dirty) = &state.rare.dirty {
            length = dirty.length;
            limit = limit.min(dirty.limit);
            let all = view.range.start..view.range.end.min(length);
            for part in dirty.ranges.within(all) {
                hidden.insert(part.clone());
                let pieces = self.0.storage.read_dirty(&vnode.key(), part);
                let pieces = pieces.map_err(|error| storage_failed(vnode, &error))?;
                view.written.extend(pieces);
            }
        }
        view.range.end = view.range.end.min(length).max(view.range.start);
        view.wanted = hidden.gaps(view.range.start..view.range.end.min(limit));
        Ok(view)
    }

    /// The bytes of a view; what is missing is fetched.
    async fn fill(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        view: View,
        class: Class,
    ) -> Result<Bytes, Refetch> {
        let mut pieces = view.written;
        for wanted in view.wanted {
            let fetched = self.fetched(user, vnode, status, wanted, class).await?;
            pieces.extend(fetched);
        }
        // Most reads are one piece, which need not be copied.
        if let [(at, data)] = pieces.as_slice()
            && *at == view.range.start
            && data.len() as u64 == view.range.end - at
        {
            return Ok(data.clone());
        }
        let length = usize::try_from(view.range.end - view.range.start);
        let length = length.map_err(|_| Refetch::Failed(Errno::EINVAL))?;
        let mut data = BytesMut::zeroed(length);
        for (at, piece) in pieces {
            let place = at.checked_sub(view.range.start);
            let place = place.and_then(|place| usize::try_from(place).ok());
            let target = place.and_then(|place| data.get_mut(place..place + piece.len()));
            if let Some(target) = target {
                target.copy_from_slice(&piece);
            }
        }
        Ok(data.freeze())
    }
}

/// Why data is not available.
pub(crate) enum Refetch {
    /// The file has another version now.
    Changed,
    /// It is not available.
    Failed(Errno),
}

/// Says in the log that the cache's own storage failed.
fn storage_failed(vnode: &Vnode, error: &std::io::Error) -> Errno {
    tracing::error!(fid = %vnode.fid, %error, "the cache's storage failed");
    Errno::of_storage(error)
}
