//! Changes made here, under leases: a program goes on before the server has them.
//!
//! A change that was made by a call is followed by a wish for a lease of what it changed. While this machine has one,
//! the next changes are made in what is cached: what is known of each vnode is then what the server will have when it
//! has made all that is in the volume's line before. Whatever a lease or what is cached does not suffice for is a call,
//! which is made when the server has all that the line has of its vnodes.
//!
//! - `keep`: leases asked for, kept, given back and lost
//! - `make`, `names`, `attributes`, `store`: changes made here
//! - `send`, `answer`: the line sent to the server, and what comes of it; `late`: what is sent after its lease is over
//! - `left`: what an earlier process has not sent

mod answer;
mod attributes;
mod keep;
mod late;
pub(crate) mod left;
pub(crate) mod make;
mod names;
mod send;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_lease::Holder;
use afar_types::{BatchChange, BatchCondition, BatchOperation, FetchStatus, Fid, Rights, UnixTime};
use afar_xdr::{List, XdrString};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use crate::model::boot;
use crate::model::directory::Edit;
use crate::model::error::Errno;
use crate::model::pending::Pending;
use crate::model::rights::rights;
use crate::model::user::User;
use crate::model::vnode::{Vnode, VnodeState};
use crate::ops::cache::Cache;
use crate::storage::journal::Made;
use crate::table::leases::Site;
use crate::table::unsent::{Line, Queue};

/// How long a call waits for the changes before it, where sending them fails. What it sees then is what its server has.
const IN_ORDER: std::time::Duration = std::time::Duration::from_secs(20);

/// How long a change waits at most for a lease that is on its way.
const LEASED: std::time::Duration = std::time::Duration::from_secs(1);

/// A volume's line and its server's leases, locked: while this is there nobody else changes anything in the volume here.
struct Here<'a> {
    line: &'a Arc<Line>,
    queue: MutexGuard<'a, Queue>,
    holder: MutexGuard<'a, Holder>,
    now: std::time::Duration,
}

/// What a change is made of.
struct Change {
    user: u32,
    operation: BatchOperation,
    under: Vec<BatchCondition>,
    touched: Vec<Arc<Vnode>>,
    makes: Option<Arc<Vnode>>,
    removes: Option<Fid>,
    bytes: usize,
    /// Programs see this time here before the server has it, and there afterwards.
    at: UnixTime,
}

impl<'a> Here<'a> {
    fn lock(line: &'a Arc<Line>, site: &'a Site) -> Self {
        let queue = line.lock();
        let holder = site.lock();
        Self {
            line,
            queue,
            holder,
            now: boot::now(),
        }
    }

    /// The lease of a vnode of which this is known, if it may be changed here.
    fn lease(&self, vnode: &Vnode, status: &FetchStatus) -> Option<BatchCondition> {
        let lease = self.holder.lease(self.now, vnode.fid)?;
        Some(BatchCondition {
            vnode: vnode.fid.into(),
            lease,
            version: status.data_version.0,
        })
    }

    /// The leased directory as it is, in which this user may do this.
    fn directory(
        &self,
        user: &User,
        vnode: &Vnode,
        needed: Rights,
    ) -> Option<(FetchStatus, BatchCondition)> {
        let status = {
            let state = vnode.lock();
            let status = with_rights(&state, user, settled(&state)?)?;
            let copy = state.rare.pages.as_ref()?;
            (copy.version == status.data_version).then_some(status)?
        };
        let under = self.lease(vnode, &status)?;
        rights(&status).contains(needed).then_some((status, under))
    }
}

impl Cache {
    /// The line and the leases of something that is leased to this machine. None if it is not, or changes of it are
    /// under way in another way.
    fn leased(&self, vnode: &Vnode) -> Option<(Arc<Line>, Arc<Site>)> {
        if self.0.config.write_through {
            return None;
        }
        let key = || (vnode.cell().clone(), vnode.volume.id());
        let left = self.0.left.lock();
        // What an earlier process has left comes first.
        if !left.is_empty() && left.contains_key(&key()) {
            return None;
        }
        drop(left);
        let site = self.0.leases.known(&vnode.volume)?;
        site.lock().lease(boot::now(), vnode.fid)?;
        Some((self.0.unsent.of(&vnode.volume), site))
    }

    /// The same, once a lease is here that is on its way: a call would take as long.
    async fn leased_soon(&self, vnode: &Vnode) -> Option<(Arc<Line>, Arc<Site>)> {
        if vnode.lock().rare.wishing {
            let work = vnode.work();
            let leased = work.leased.notified();
            tokio::pin!(leased);
            // Before the look: what comes after it is heard of.
            leased.as_mut().enable();
            if vnode.lock().rare.wishing {
                drop(tokio::time::timeout(LEASED, leased).await);
            }
        }
        self.leased(vnode)
    }

    /// Notes a change in the journal and has it sent. When this returns it survives this process.
    fn note_change(&self, here: &mut Here<'_>, change: Change) -> Result<(), Errno> {
        let volume = &here.line.volume;
        let number = self.0.journal.next_number();
        let under = List::new(change.under).map_err(|_| Errno::EINVAL)?;
        let cell = XdrString::new(volume.cell_name().as_str()).map_err(|_| Errno::EINVAL)?;
        let made = Made {
            number,
            cell,
            volume: volume.id(),
            user: change.user,
            change: BatchChange {
                operation: change.operation,
                under,
                made: change.at,
            },
        };
        if let Err(error) = self.0.journal.made(&made) {
            let dir = self.0.config.dir.display();
            tracing::error!(%dir, %error, "the journal of the cache cannot be written; making changes by calls");
            return Err(Errno::of_storage(&error));
        }
        for vnode in change.touched.iter().chain(&change.makes) {
            // What is on its way about it is from before this change.
            self.0.breaks.count(vnode.fid);
            vnode.lock().rare.unsent = number;
        }
        count(&self.0.unsent.counts.made);
        here.queue.push(Pending {
            number,
            user: change.user,
            change: made.change,
            touched: change.touched,
            makes: change.makes,
            removes: change.removes,
            bytes: change.bytes,
            made: Instant::now(),
            late: false,
        });
        self.begin_sending(here.line, &mut here.queue);
        Ok(())
    }

    /// Changes a directory's copy and status. False if that does not work: then nothing is known of it any more.
    fn edit_here(directory: &Vnode, after: FetchStatus, edits: &[Edit]) -> bool {
        let mut state = directory.lock();
        let Some(mut copy) = state.rare.pages.take() else {
            return false;
        };
        if !copy.edit(edits) {
            state.promise = None;
            return false;
        }
        copy.version = after.data_version;
        let length = copy.pages.len() as u64;
        state.set_status(FetchStatus { length, ..after });
        state.rare.pages = Some(copy);
        true
    }

    /// A change could not be noted, after what is cached was changed: nothing is known of these any more.
    fn forget_here(&self, vnodes: &[&Arc<Vnode>]) {
        for vnode in vnodes {
            self.0.breaks.count(vnode.fid);
            let mut state = vnode.lock();
            state.promise = None;
            state.rare.pages = None;
        }
    }

    /// Waits until the server has what was changed here of something, before it is asked about it: it would tell how
    /// it was before. What is sent in vain is not waited for long.
    pub(crate) async fn in_order(&self, vnode: &Vnode) {
        let unsent = vnode.lock().rare.unsent;
        if unsent == 0 {
            return;
        }
        let line = self.0.unsent.of(&vnode.volume);
        match tokio::time::timeout(IN_ORDER, line.sent(unsent)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(fid = %vnode.fid, %error, "asked before all is sent"),
            Err(_) => {
                tracing::warn!(fid = %vnode.fid, "a server is asked before it has all changes")
            }
        }
    }

    /// Waits until the server has what was changed here of something.
    ///
    /// # Errors
    /// As sending failed; it is tried again.
    pub(crate) async fn all_sent(&self, vnode: &Vnode) -> Result<(), Errno> {
        let unsent = vnode.lock().rare.unsent;
        match unsent {
            0 => Ok(()),
            number => self.0.unsent.of(&vnode.volume).sent(number).await,
        }
    }
    /// Waits until the server has all that was changed here in the volume of something.
    ///
    /// # Errors
    /// As sending failed; it is tried again.
    pub(crate) async fn volume_sent(&self, vnode: &Vnode) -> Result<(), Errno> {
        if self.0.config.write_through {
            return Ok(());
        }
        let line = self.0.unsent.of(&vnode.volume);
        let last = line.last();
        line.sent(last).await
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The status of something of which no change by a call is under way, if it is known for sure.
fn settled(state: &VnodeState) -> Option<FetchStatus> {
    let rare = &state.rare;
    let quiet = rare.changing == 0 && rare.calls == 0 && rare.early.is_empty();
    state.promised().filter(|_| quiet && !rare.gone)
}

/// A status with what this user may do, if that is known.
fn with_rights(state: &VnodeState, user: &User, status: FetchStatus) -> Option<FetchStatus> {
    let own = state.rights_of(user.id)?;
    Some(FetchStatus {
        caller_access: own.rights.rights(),
        ..status
    })
}

/// A directory's status after one more change.
fn after_change(status: FetchStatus, now: UnixTime) -> FetchStatus {
    FetchStatus {
        data_version: afar_types::DataVersion(status.data_version.0 + 1),
        client_mod_time: now,
        server_mod_time: now,
        ..status
    }
}

/// Whether a server takes this for a new name. Others are for it to refuse.
// spec: afs-rpc#changing-directories
fn is_plain(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= afar_dir::MAX_NAME
        && !name.contains(&b'/')
        && !name.ends_with(b"@sys")
}
