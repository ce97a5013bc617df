//! Fetching ahead of those who read in order.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use afar_cell::Class;
use afar_types::FetchStatus;

use crate::model::ahead::{Read, TIMES_MOST};
use crate::model::user::User;
use crate::ops::cache::Cache;
use crate::table::handles::OpenFile;

impl Cache {
    /// Fetches what the reader of this range is likely to want next. Returns the class of what it wants now.
    pub(super) fn read_ahead(
        &self,
        user: &Arc<User>,
        open: &Arc<OpenFile>,
        status: &FetchStatus,
        range: &Range<u64>,
    ) -> Class {
        // Programs that read past the kernel's cache (O_DIRECT) prefetch for themselves.
        if range.is_empty() || open.flags.direct {
            return open.flags.class;
        }
        let (most, room) = (self.0.config.read_ahead, self.0.config.bytes / 4);
        let read = Read {
            range,
            length: status.length,
            most: most.min(room),
            most_paced: most.saturating_mul(TIMES_MOST).min(room),
            at_afar: open.spot.vnode.volume.is_at_afar(),
            class: open.flags.class,
            now: Instant::now(),
        };
        let (next, class) = {
            let mut ahead = open.ahead.lock();
            (ahead.note(&read), ahead.class(open.flags.class, read.now))
        };
        let Some((next, turn)) = next else {
            return class;
        };
        let (vnode, version) = (&open.spot.vnode, status.data_version);
        let present = self.0.storage.present(&vnode.key(), version, next.clone());
        let missing = present.unwrap_or_default().gaps(next.clone());
        if !missing.is_empty() {
            self.launch(user, vnode, status, next, (class, Some(turn)));
        }
        class
    }
}
