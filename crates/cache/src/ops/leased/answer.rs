//! What comes of changes that were sent.

use std::sync::Arc;

use afar_cell::{Error, Outcome, Promised, Ran};
use afar_types::{BatchOperation, CellName, Fid};

use super::count;
use super::send::{Batch, Sender};
use crate::model::error::Errno;
use crate::model::key::FileKey;
use crate::model::pending::Pending;
use crate::model::promise::Promise;
use crate::model::types::Invalidation;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::table::breaks::Mark;
use crate::table::leases::Site;
use crate::table::unsent::Line;

impl Cache {
    /// A server has run a batch.
    pub(super) fn answered(
        &self,
        line: &Arc<Line>,
        sender: &mut Sender,
        user: &User,
        site: Option<&Site>,
        batch: &Batch,
        ran: Ran,
    ) {
        count(&self.0.unsent.counts.batches);
        let mut done = Vec::with_capacity(batch.numbers.len());
        let sent = batch.numbers.iter().zip(&batch.late);
        for ((number, late), outcome) in sent.zip(ran.outcomes) {
            if self.came_of(line, sender, site, (*number, *late), outcome) {
                done.push(*number);
            }
        }
        self.are_sent(line, &done);
        for (fid, promised) in ran.statuses {
            if let Some((vnode, mark)) = batch.vnodes.get(&fid) {
                self.took(user, vnode, &promised, *mark);
            }
        }
        // Only now: a program that waits for it may give a lock up, and what the kernel is told then may be too late.
        self.done(line, &done);
    }

    /// Whether a change is done with.
    fn came_of(
        &self,
        line: &Arc<Line>,
        sender: &mut Sender,
        site: Option<&Site>,
        (number, was_late): (u64, bool),
        outcome: Outcome,
    ) -> bool {
        match outcome {
            Ok(made) => {
                let mut queue = line.lock();
                let Some(pending) = find(&mut queue.waiting, number) else {
                    return true;
                };
                let (removes, makes) = (pending.removes, pending.makes.clone());
                drop(queue);
                if let Some(mut holder) = site.map(Site::lock) {
                    if let Some(removed) = removes {
                        holder.forget(removed);
                    }
                    if let Some(vnode) = &makes {
                        holder.settled(vnode.fid);
                    }
                }
                if let (Some(vnode), Some(fid)) = (makes, made)
                    && vnode.fid != fid
                {
                    sender.reborn.made(vnode.fid, fid);
                    self.is_another(site, &vnode);
                }
                true
            }
            Err(error) => {
                // A lease was over, and what followed from it was not made either: all of it is late.
                let number_of = Errno::of(&error);
                let may_do_late = matches!(number_of, Errno::ESTALE | Errno::ECANCELED);
                if may_do_late
                    && !was_late
                    && let Some(pending) = find(&mut line.lock().waiting, number)
                {
                    pending.late = true;
                    return false;
                }
                self.was_refused(line, site, number, &error);
                true
            }
        }
    }

    /// What was made here has another fid now: its directory is read again, to find it.
    fn is_another(&self, site: Option<&Site>, vnode: &Arc<Vnode>) {
        if let Some(mut holder) = site.map(Site::lock) {
            holder.forget(vnode.fid);
        }
        self.0.breaks.count(vnode.fid);
        let directory = {
            let mut state = vnode.lock();
            state.rare.gone = true;
            state.promise = None;
            state.status().filter(|_| !vnode.fid.vnode.is_directory())
        };
        self.0.breaks.invalidate(vnode);
        if let Some(status) = directory {
            let fid = Fid {
                volume: vnode.fid.volume,
                vnode: status.parent_vnode,
                uniquifier: status.parent_uniquifier,
            };
            for above in self.0.vnodes.of_fid(fid) {
                self.in_doubt(&above);
            }
        }
    }

    /// Nothing is known of this any more.
    fn in_doubt(&self, vnode: &Arc<Vnode>) {
        self.0.breaks.count(vnode.fid);
        vnode.lock().promise = None;
        self.forget_copies(vnode);
        self.0.breaks.invalidate(vnode);
    }

    /// What is cached was made here, and counted as versions that the server has not: what it will have of these may be
    /// another's.
    fn forget_copies(&self, vnode: &Arc<Vnode>) {
        if let Some(rare) = vnode.lock().rare.if_any() {
            (rare.pages, rare.link) = (None, None);
        }
        self.0.storage.drop_clean(&vnode.key());
    }

    /// A change was not made, and will not be: the log and the record of conflicts tell it, what was written goes to where
    /// a user finds it, and the next `fsync` fails.
    pub(super) fn was_refused(
        &self,
        line: &Arc<Line>,
        site: Option<&Site>,
        number: u64,
        error: &Error,
    ) {
        let volume = &line.volume;
        let (touched, makes) = {
            let mut queue = line.lock();
            let Some(place) = place_of(&queue.waiting, number) else {
                return;
            };
            let Some(pending) = queue.waiting.get(place) else {
                return;
            };
            count(&self.0.unsent.counts.refused);
            self.tell_refused(volume.cell_name(), pending, error);
            let told = (pending.touched.clone(), pending.makes.clone());
            queue.not_made(number, volume.id());
            told
        };
        if let Some(vnode) = &makes {
            if let Some(mut holder) = site.map(Site::lock) {
                holder.forget(vnode.fid);
                holder.settled(vnode.fid);
            }
            vnode.lock().rare.gone = true;
        }
        for vnode in touched.iter().chain(&makes) {
            vnode.lock().rare.failed = Some(Errno::of(error));
            self.in_doubt(vnode);
        }
    }

    fn tell_refused(&self, cell: &CellName, pending: &Pending, error: &Error) {
        let what = pending.makes.as_ref().or_else(|| pending.touched.first());
        let Some(fid) = what.map(|vnode| vnode.fid) else {
            return;
        };
        let (verb, name) = (pending.verb(), String::from_utf8_lossy(pending.name()));
        let about = (cell, pending.about(fid.volume));
        let note = |kept| {
            let what = (verb, pending.name());
            self.note_conflict(about, what, &error.to_string(), kept);
        };
        let BatchOperation::StoreData { data, .. } = &pending.change.operation else {
            tracing::error!(
                %cell, %fid, %name, %error,
                "{verb} was done here, but its server did not do it"
            );
            note(None);
            return;
        };
        let key = FileKey {
            fid,
            cell: cell.clone(),
        };
        let saved = self.0.storage.save(&key, data);
        match &saved {
            Ok(Some(path)) => tracing::error!(
                %cell, %fid, path = %path.display(), %error,
                "data written to a file could not be stored; kept here"
            ),
            Ok(None) => tracing::error!(
                %cell, %fid, bytes = data.len(), %error,
                "dropped data written to a file, because too much is in lost+found"
            ),
            Err(failed) => tracing::error!(
                %cell, %fid, bytes = data.len(), %error, %failed,
                "dropped data written to a file, because it cannot be kept elsewhere"
            ),
        }
        note(saved.ok().flatten());
    }

    /// A server has these: what it tells of their vnodes is not from before them.
    pub(super) fn are_sent(&self, line: &Arc<Line>, numbers: &[u64]) {
        let vnodes: Vec<(Arc<Vnode>, u64)> = {
            let queue = line.lock();
            let pendings = numbers.iter().filter_map(|number| {
                let place = place_of(&queue.waiting, *number)?;
                queue.waiting.get(place)
            });
            let vnodes = pendings.flat_map(|pending| {
                let vnodes = pending.touched.iter().chain(&pending.makes);
                vnodes.map(|vnode| (Arc::clone(vnode), pending.number))
            });
            vnodes.collect()
        };
        for (vnode, number) in vnodes {
            // Before the look at `unsent` finds nothing any more.
            self.0.breaks.note_sent(vnode.fid);
            let mut state = vnode.lock();
            if state.rare.unsent <= number {
                if let Some(rare) = state.rare.if_any() {
                    rare.unsent = 0;
                }
                state.rare.tidy();
            }
        }
    }

    /// Changes are done with.
    pub(super) fn done(&self, line: &Arc<Line>, numbers: &[u64]) {
        if let Err(error) = self.0.journal.done(numbers) {
            // The next process would send them again, and the server would not make them again.
            let dir = self.0.config.dir.display();
            tracing::error!(%dir, %error, "the journal of the cache cannot be written");
        }
        let done = line.lock().remove(numbers);
        // What a vnode holds may be the last of another: it is dropped behind all locks.
        drop(done);
    }

    /// What a server has told of something that a batch changed.
    fn took(&self, user: &User, vnode: &Arc<Vnode>, promised: &Promised, mark: Mark) {
        let status = promised.status;
        let above = self.above(user.id, vnode, &status);
        let promise = promised.until.and_then(|until| {
            let server = self.0.breaks.number_of(promised.server);
            Promise::new(server, until)
        });
        let mut state = vnode.lock();
        // What was changed here since is not as it tells.
        if state.rare.unsent > 0 {
            return;
        }
        let is_unbroken = self.0.breaks.is_unbroken(vnode.fid, mark);
        let known = state.status();
        let known = known.filter(|known| known.data_version == status.data_version);
        let Some(known) = known else {
            drop(state);
            tracing::debug!(fid = %vnode.fid, "its server has another version than was made here");
            match is_unbroken {
                true => self.in_doubt(vnode),
                // The kernel was told already, and would take no answer that it is waiting for now.
                false => self.forget_copies(vnode),
            }
            return;
        };
        if !is_unbroken {
            return;
        }
        let same = |one: afar_types::FetchStatus| {
            (
                one.client_mod_time,
                one.unix_mode_bits,
                one.owner,
                one.link_count,
                one.length,
            )
        };
        let changed = same(known) != same(status);
        state.note_rights(user.id, &status, above);
        state.take_status(status);
        state.promise = promise;
        let numbers: Vec<_> = state.numbers().collect();
        drop(state);
        if changed {
            for ino in numbers {
                self.0.breaks.tell(Invalidation::Inode { ino, data: false });
            }
        }
    }
}

fn place_of(waiting: &std::collections::VecDeque<Pending>, number: u64) -> Option<usize> {
    waiting
        .binary_search_by_key(&number, |pending| pending.number)
        .ok()
}

fn find(waiting: &mut std::collections::VecDeque<Pending>, number: u64) -> Option<&mut Pending> {
    let place = place_of(waiting, number)?;
    waiting.get_mut(place)
}
