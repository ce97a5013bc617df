//! Storing what was written.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::{Error, Source};
use afar_types::{DataVersion, FetchStatus, StoreStatus};
use bytes::Bytes;

use super::storage_failed;
use crate::model::dirty::{Dirty, Since};
use crate::model::error::Errno;
use crate::model::key::FileKey;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::changing::Calling;
use crate::storage::{Pieces, Storage, Wait};

/// Bytes between two written ranges that are stored again rather than that another call is made, if
/// they are at hand.
const BRIDGE: u64 = 256 << 10;

/// Bytes between all ranges of a file at most, as they are in memory until it is stored.
const BRIDGES: u64 = 8 << 20;

/// Bytes of a file that are to be stored: those written, and between them some that the server has
/// already.
struct Written {
    storage: Arc<dyn Storage>,
    key: FileKey,
    /// Bytes between those written, with their places. The cache may drop them at any time.
    bridges: Pieces,
    /// Behind it, what was not written is zero.
    limit: u64,
    length: u64,
}

impl Source for Written {
    fn length(&self) -> u64 {
        self.length
    }

    async fn read_at(&self, offset: u64, most: usize) -> io::Result<Bytes> {
        let end = offset.saturating_add(most as u64);
        let dirty = self.storage.read_dirty(&self.key, offset..end)?;
        if let Some((at, data)) = dirty.first() {
            if *at == offset {
                return Ok(data.clone());
            }
            return self.between(offset, *at);
        }
        self.between(offset, end)
    }
}

impl Written {
    /// Bytes that were not written.
    fn between(&self, from: u64, to: u64) -> io::Result<Bytes> {
        if from >= self.limit {
            let length = usize::try_from(to - from).map_err(io::Error::other)?;
            return Ok(Bytes::from(vec![0; length]));
        }
        let after = self.bridges.partition_point(|(at, _)| *at <= from);
        let piece = after.checked_sub(1).and_then(|place| {
            let (at, data) = &self.bridges[place];
            let start = usize::try_from(from - at).ok()?;
            let length = usize::try_from(to.min(self.limit) - from).ok()?;
            let end = start.saturating_add(length).min(data.len());
            (start < end).then(|| data.slice(start..end))
        });
        piece.ok_or_else(|| io::Error::other("data to be stored is gone from the cache"))
    }
}

/// What is to be done to store a file.
pub(crate) struct Plan {
    pub(crate) base: FetchStatus,
    pub(crate) dirty: Dirty,
    /// Where the file is to be cut before anything is stored.
    cut: Option<u64>,
    ranges: Vec<Range<u64>>,
    /// What lies between written bytes within these ranges, and is not zero.
    bridges: Pieces,
}

impl Plan {
    /// The bytes of a single range, if that is all that a cut would take away: where one call stores them, nobody
    /// sees what was there before beside them.
    fn stored_over_cut(&self) -> Option<u64> {
        let cut = self.cut?;
        let [range] = self.ranges.as_slice() else {
            return None;
        };
        let left = self.base.length.min(self.dirty.length);
        (range.start <= cut && left <= range.end).then_some(range.end - range.start)
    }

    /// Bytes a second, if storing took so long.
    fn pace(&self, time: Duration) -> u64 {
        let bytes: u64 = self
            .ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        bytes.saturating_mul(1_000_000) / micros
    }
}

impl Cache {
    /// Stores what was written to a file, as this user. What fails stays written, to be tried again.
    ///
    /// # Errors
    /// As servers say; the log tells it with server and fid.
    pub(crate) async fn store(&self, user: &User, vnode: &Arc<Vnode>) -> Result<(), Errno> {
        self.store_some(user, vnode, u64::MAX).await
    }

    /// Stores what was written to a file, or the first `most` bytes of it.
    pub(super) async fn store_some(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        most: u64,
    ) -> Result<(), Errno> {
        let work = vnode.work();
        let _one = work.storing.lock().await;
        if vnode.lock().rare.dirty.is_none() {
            return Ok(());
        }
        if most == u64::MAX && self.store_here(user, vnode).await? {
            return Ok(());
        }
        self.in_order(vnode).await;
        // What is merged must belong to the version the server has.
        let base = match self.fresh(user, vnode).await {
            Ok(base) => base,
            Err(error) => {
                self.store_failed(vnode, error);
                if error == Errno::ENOENT {
                    self.drop_removed(vnode);
                } else {
                    self.keep(vnode).await;
                }
                return Err(error);
            }
        };
        if self.drop_overtaken(vnode, &base) {
            return Ok(());
        }
        // From the plan on, what others write is noted apart, in `since`.
        let Some(mut plan) = self.plan(vnode, base, most)? else {
            return Ok(());
        };
        if let Some(bytes) = plan.stored_over_cut()
            && user.client.stores_at_once(&vnode.volume, bytes).await
        {
            plan.cut = None;
        }
        let begun = Instant::now();
        // Until its answer is taken.
        let _calling = Calling::begin(vnode);
        match self.carry_out(user, vnode, &plan).await {
            Ok((status, calls)) => {
                vnode.lock().rare.store_pace = plan.pace(begun.elapsed());
                self.settle(vnode, &plan, status, calls)
            }
            Err(error) => {
                if let Some(dirty) = vnode.lock().dirty_mut() {
                    dirty.since = None;
                    // The plan took this upon itself, and did not carry it out.
                    dirty.unstored |= plan.dirty.unstored;
                }
                // The server may have some of it: its status and what is cached of it are in doubt.
                self.0.breaks.count(vnode.fid);
                vnode.lock().promise = None;
                let (cell, fid) = (vnode.cell(), vnode.fid);
                let bytes = plan.dirty.ranges.bytes();
                let error = user.client.explain_full(&vnode.volume, bytes, error).await;
                if self.0.said.is_news(&error) {
                    tracing::error!(%cell, %fid, %error, "cannot store written data; keeping it");
                } else {
                    tracing::debug!(%cell, %fid, %error, "cannot store written data; keeping it");
                }
                let number = Errno::of(&error);
                self.store_failed(vnode, number);
                self.keep(vnode).await;
                Err(number)
            }
        }
    }

    /// Stores what was written to a file, when there is nobody to be told that it failed: that is
    /// logged, told when the file is closed next, and tried again.
    pub(crate) async fn try_store(&self, vnode: &Arc<Vnode>) {
        if let Err(error) = self.store_unasked(vnode).await {
            tracing::debug!(fid = %vnode.fid, %error, "will store it again later");
        }
    }

    /// Stores what was written to a file as the one who wrote it.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub(crate) async fn store_unasked(&self, vnode: &Arc<Vnode>) -> Result<(), Errno> {
        let writer = vnode.lock().rare.dirty.as_ref().map(|dirty| dirty.writer);
        match writer {
            Some(uid) => self.store(&*self.user(uid).await, vnode).await,
            None => Ok(()),
        }
    }

    /// Has the one who closes the file told.
    fn store_failed(&self, vnode: &Vnode, error: Errno) {
        vnode.lock().store_failed(error);
    }

    pub(crate) fn plan(
        &self,
        vnode: &Vnode,
        base: FetchStatus,
        most: u64,
    ) -> Result<Option<Plan>, Errno> {
        let mut state = vnode.lock();
        let Some(dirty) = state.dirty_mut() else {
            return Ok(None);
        };
        dirty.since = None;
        // By this time a later process knows a store of ours of which the answer was lost.
        dirty.tried = dirty.mtime;
        let mut planned = dirty.clone();
        dirty.since = Some(Since::default());
        if planned.trim(most, &base) {
            planned.unstored = false;
        } else {
            dirty.unstored = false;
        }
        let dirty = planned;
        drop(state);
        let limit = dirty.limit.min(base.length);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let (mut bridges, mut room) = (Pieces::new(), BRIDGES);
        for range in dirty.ranges.iter() {
            if let Some(last) = ranges.last_mut() {
                let gap = last.end..range.start.min(limit).max(last.end);
                let length = gap.end - gap.start;
                if range.start - last.end <= BRIDGE
                    && length <= room
                    && let Some(pieces) = self.bridge(vnode, base.data_version, gap)?
                {
                    bridges.extend(pieces);
                    room -= length;
                    last.end = range.end;
                    continue;
                }
            }
            ranges.push(range);
        }
        // spec: afs-rpc#storing-data
        // Calls make a file longer only as far as their data reaches.
        let reaches = ranges.last().map_or(0, |last| last.end);
        let cut = (dirty.limit < base.length && dirty.limit < dirty.length).then_some(dirty.limit);
        let before = cut.unwrap_or(base.length);
        if ranges.is_empty() || reaches < dirty.length && before < dirty.length {
            ranges.push(dirty.length..dirty.length);
        }
        Ok(Some(Plan {
            base,
            dirty,
            cut,
            ranges,
            bridges,
        }))
    }

    /// What lies between two ranges, if it is at hand.
    fn bridge(
        &self,
        vnode: &Vnode,
        version: DataVersion,
        gap: Range<u64>,
    ) -> Result<Option<Pieces>, Errno> {
        let wanted = gap.end - gap.start;
        if wanted == 0 {
            return Ok(Some(Pieces::new()));
        }
        let there = self.0.storage.read(&vnode.key(), version, gap, Wait::Yes);
        let there = there.map_err(|error| storage_failed(vnode, &error))?;
        let bytes: u64 = there.iter().map(|(_, data)| data.len() as u64).sum();
        Ok((bytes == wanted).then_some(there))
    }

    async fn carry_out(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        plan: &Plan,
    ) -> Result<(FetchStatus, u64), Error> {
        let source = Arc::new(Written {
            storage: Arc::clone(&self.0.storage),
            key: vnode.key(),
            bridges: plan.bridges.clone(),
            limit: plan.dirty.limit.min(plan.base.length),
            length: plan.dirty.length,
        });
        let mut attributes = StoreStatus {
            mask: StoreStatus::SET_MOD_TIME,
            client_mod_time: plan.dirty.mtime,
            ..StoreStatus::default()
        };
        let (volume, fid, client) = (&vnode.volume, vnode.fid, &user.client);
        let (mut status, mut calls) = (plan.base, 0);
        if let Some(cut) = plan.cut {
            let stored = client.store_range(volume, fid, cut..cut, cut, &source, attributes);
            let stored = stored.await?;
            (status, calls) = (stored.status, calls + stored.calls);
        }
        for (number, range) in plan.ranges.iter().enumerate() {
            if let Some(mode) = plan.dirty.mode
                && number + 1 == plan.ranges.len()
            {
                // A mode without the right to write would keep out what comes after it.
                attributes.mask |= StoreStatus::SET_MODE;
                attributes.unix_mode_bits = mode;
            }
            let range = range.clone();
            let length = plan.dirty.length;
            let stored = client.store_range(volume, fid, range, length, &source, attributes);
            let stored = stored.await?;
            (status, calls) = (stored.status, calls + stored.calls);
        }
        Ok((status, calls))
    }

    /// What the plan says is stored.
    pub(crate) fn settle(
        &self,
        vnode: &Arc<Vnode>,
        plan: &Plan,
        status: FetchStatus,
        calls: u64,
    ) -> Result<(), Errno> {
        // What is on its way may be from before.
        self.0.breaks.count(vnode.fid);
        let base = plan.base.data_version;
        // Each call counts on by one. Another number tells that somebody else stored in between.
        // spec: afs-rpc#status
        let alone = status.data_version.0 == base.0 + calls;
        let mut state = vnode.lock();
        let Some(dirty) = state.dirty_mut() else {
            return Ok(());
        };
        let since = dirty.since.take().unwrap_or_default();
        let mut done = plan.dirty.ranges.clone();
        // What was written again meanwhile, the server has an older form of.
        for range in since.ranges.iter() {
            done.remove(range);
        }
        // What was cut off meanwhile is stored, but is no part of the file any more.
        done.remove(since.limit..u64::MAX);
        let limit = plan.dirty.limit.min(plan.base.length);
        let from = alone.then_some((base, limit));
        let settled = self
            .0
            .storage
            .stored(&vnode.key(), &done, from, status.data_version);
        for range in done.iter() {
            dirty.ranges.remove(range);
        }
        if plan.dirty.mode.is_some() && dirty.mode == plan.dirty.mode {
            dirty.mode = None;
        }
        if dirty.ranges.is_empty() && !dirty.unstored && dirty.mode.is_none() {
            state.rare.dirty = None;
        } else {
            // What is left was done to what is stored now.
            dirty.kept = false;
            dirty.resized = dirty.unstored;
            dirty.limit = since.limit.min(status.length);
            dirty.check();
        }
        // What failed before is stored now: there is nothing to tell.
        state.rare.failed = None;
        // What others stored is in it, and is to be asked for.
        if !alone {
            state.promise = None;
        }
        let current = state.status().map(|status| status.data_version);
        if current <= Some(status.data_version) {
            state.take_status(status);
        }
        let clean = state.rare.dirty.is_none();
        drop(state);
        if clean {
            self.drop_dirty(vnode);
        }
        if alone {
            vnode.lock().note_stored(base, status.data_version);
        } else {
            self.data_changed(vnode);
        }
        settled.map_err(|error| storage_failed(vnode, &error))
    }
}
