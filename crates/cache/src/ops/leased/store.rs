//! What was written to small files, stored here.

use std::sync::Arc;

use afar_types::{BatchOperation, DataVersion, FetchStatus, StoreStatus};
use afar_xdr::Opaque;

use super::{Change, Here, settled, with_rights};
use crate::model::error::Errno;
use crate::model::ranges::RangeSet;
use crate::model::rights::may_write;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::data::store::Plan;
use crate::storage::Wait;

/// Bytes of the longest file that is stored here. Longer ones are stored at the speed of the link by calls, too, and do
/// not hold up what is behind them in the line.
pub(super) const MOST: u64 = 1 << 20;

impl Cache {
    /// Stores what was written to a file here, if the file is small, all of it is at hand and it is leased to this
    /// machine. False: it takes a call. The caller has the turn to store.
    ///
    /// # Errors
    /// When the cache's storage fails.
    pub(crate) async fn store_here(&self, user: &User, vnode: &Arc<Vnode>) -> Result<bool, Errno> {
        let Some((line, site)) = self.leased_soon(vnode).await else {
            return Ok(false);
        };
        line.room().await;
        let base = {
            let state = vnode.lock();
            let fits = |length: u64| length <= MOST;
            let dirty = state.rare.dirty.as_ref();
            let small = dirty.is_some_and(|dirty| fits(dirty.length));
            let known = settled(&state).and_then(|status| with_rights(&state, user, status));
            match known.filter(|status| small && may_write(status)) {
                Some(base) => base,
                None => return Ok(false),
            }
        };
        let Some(plan) = self.plan(vnode, base, u64::MAX)? else {
            return Ok(true);
        };
        let stored = match self.whole(vnode, &plan) {
            Some(data) => {
                let here = Here::lock(&line, &site);
                self.try_store_here(here, user, vnode, &plan, data)?
            }
            None => false,
        };
        if !stored && let Some(dirty) = vnode.lock().dirty_mut() {
            dirty.since = None;
            // The plan took this upon itself, and did not carry it out.
            dirty.unstored |= plan.dirty.unstored;
        }
        Ok(stored)
    }

    /// All data that the file will have, if it is at hand.
    fn whole(&self, vnode: &Vnode, plan: &Plan) -> Option<Vec<u8>> {
        let (storage, key) = (&self.0.storage, vnode.key());
        let length = plan.dirty.length;
        let mut data = vec![0; usize::try_from(length).ok()?];
        let mut there = RangeSet::default();
        let mut take = |at: u64, piece: &[u8]| {
            let start = usize::try_from(at).ok()?;
            data.get_mut(start..start + piece.len())?
                .copy_from_slice(piece);
            there.insert(at..at + piece.len() as u64);
            Some(())
        };
        let limit = plan.dirty.limit.min(plan.base.length).min(length);
        for gap in plan.dirty.ranges.gaps(0..limit) {
            let pieces = storage.read(&key, plan.base.data_version, gap, Wait::Yes);
            for (at, piece) in pieces.ok()? {
                take(at, &piece)?;
            }
        }
        for range in plan.dirty.ranges.iter() {
            for (at, piece) in storage.read_dirty(&key, range).ok()? {
                take(at, &piece)?;
            }
        }
        // Behind the limit, what was not written is zero.
        let written = plan.dirty.ranges.iter();
        let missing = !there.gaps(0..limit).is_empty()
            || written
                .into_iter()
                .any(|range| !there.gaps(range).is_empty());
        (!missing).then_some(data)
    }

    fn try_store_here(
        &self,
        mut here: Here<'_>,
        user: &User,
        vnode: &Arc<Vnode>,
        plan: &Plan,
        data: Vec<u8>,
    ) -> Result<bool, Errno> {
        let same = {
            let state = vnode.lock();
            settled(&state).is_some_and(|status| status.data_version == plan.base.data_version)
        };
        let Some(under) = here.lease(vnode, &plan.base).filter(|_| same) else {
            return Ok(false);
        };
        let length = data.len() as u64;
        // As the server counts it.
        let takes = length.div_ceil(1024).max(1) * 1024;
        if !here.holder.spend(vnode.fid.volume, takes) {
            return Ok(false);
        }
        let mut attributes = StoreStatus {
            mask: StoreStatus::SET_MOD_TIME,
            client_mod_time: plan.dirty.mtime,
            ..StoreStatus::default()
        };
        if let Some(mode) = plan.dirty.mode {
            attributes.mask |= StoreStatus::SET_MODE;
            attributes.unix_mode_bits = mode;
        }
        // As programs saw it while the file was open: closing it changes nothing.
        let changed = plan.dirty.mtime.max(plan.base.server_mod_time);
        let bytes = data.len();
        let data = Opaque::new(data).map_err(|_| Errno::EFBIG)?;
        let noted = self.note_change(
            &mut here,
            Change {
                user: plan.dirty.writer,
                operation: BatchOperation::StoreData {
                    target: vnode.fid.into(),
                    attributes,
                    data,
                },
                under: vec![under],
                touched: vec![Arc::clone(vnode)],
                makes: None,
                removes: None,
                bytes,
                at: changed,
            },
        );
        if noted.is_err() {
            return Ok(false);
        }
        let status = FetchStatus {
            data_version: DataVersion(plan.base.data_version.0 + 1),
            length,
            author: user.number(vnode.cell()).unwrap_or(plan.base.author),
            unix_mode_bits: plan.dirty.mode.unwrap_or(plan.base.unix_mode_bits),
            client_mod_time: plan.dirty.mtime,
            server_mod_time: changed,
            ..plan.base
        };
        // While nobody else changes it here: the next change is made to this version.
        self.settle(vnode, plan, status, 1)?;
        Ok(true)
    }
}
