//! Locks: ranges among the programs of this machine, whole files among machines.
//!
//! A file server knows one kind of lock, of a whole file, and not whose it is. So this machine has one
//! of the strongest kind that any of its programs needs, and shares it out.
//!
//! Nor does a server make a lock for reading one for writing: it must be given up between, and another
//! machine may have the file changed before the other one is had. A program that read under the first would
//! write what follows from the old content. So a program whose lock was lost in this way gets no other until
//! it has given up all it had. Not so with a lock of the whole file: that may be one of flock(2), which
//! promises no more, and which is not told from the others.
//!
//! Two machines that both read first and then want to write keep each other from it: a server's lock for
//! writing is had by one only who is alone, and both try again at the same time. So where a lock for
//! reading was to become one for writing lately, the server is asked for one for writing at once, and for
//! one for reading only if that is not free.
//!
//! A program that gets a lock sees all that was stored before the lock was given up, in the kernel too: length and
//! pages of a file that it has kept open are not from before. A lock is given up only when what was written under
//! it is stored.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use afar_cell::{BreakHandler as _, Client, LOCK_TIME, LockType};
use afar_types::{FetchStatus, VolumeType};

use crate::model::error::Errno;
use crate::model::locks::is_whole;
use crate::model::place::Spot;
use crate::model::types::{Handle, Lock, LockKind};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// The first pause before a lock that another machine has is asked for again; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause: servers do not tell who waits.
const PAUSE_MOST: Duration = Duration::from_secs(2);
/// The longest that who gets a lock waits for the kernel to hear what others changed before.
const TELL_MOST: Duration = Duration::from_secs(15);
impl Cache {
    /// The lock that keeps this one from being had, if one of this machine does.
    ///
    /// # Errors
    /// [`EBADF`](Errno::EBADF) for an unknown handle.
    pub async fn getlk(
        &self,
        handle: Handle,
        owner: u64,
        lock: Lock,
    ) -> Result<Option<Lock>, Errno> {
        let open = self.0.handles.file(handle)?;
        let work = open.spot.vnode.work();
        let table = work.locks.lock();
        Ok(table.conflict(owner, &lock))
    }

    /// Takes or gives up a lock; with `wait`, as soon as it is free. AFS locks whole files, so between
    /// machines any two locks of one file conflict, unless both are for reading.
    ///
    /// # Errors
    /// [`EAGAIN`](Errno::EAGAIN) when it is not free; [`EDEADLK`](Errno::EDEADLK) instead of waiting for
    /// what is not available before others are given up; others as servers say. A lock that is given up is given up
    /// even if what was written under it cannot be stored, which is the error then.
    pub async fn setlk(
        &self,
        handle: Handle,
        owner: u64,
        lock: Lock,
        wait: bool,
    ) -> Result<(), Errno> {
        let open = self.0.handles.file(handle)?;
        let (spot, vnode) = (&open.spot, &open.spot.vnode);
        let user = self.user(open.opener).await;
        if lock.start > lock.end {
            return Err(Errno::EINVAL);
        }
        if lock.kind == LockKind::Unlock {
            return self.unlock(spot, owner, lock).await;
        }
        open.note_locker(owner);
        let mut pause = PAUSE;
        let work = vnode.work();
        loop {
            // Made before the try: a lock that is given up during it is heard.
            let freed = work.locks.freed.notified();
            let refused = match self.try_lock(&user, spot, owner, lock).await {
                Err(Errno::EAGAIN) => true,
                Err(Errno::EDEADLK) if !wait => true,
                other => return other,
            };
            debug_assert!(refused, "everything else returns");
            if !wait {
                return Err(Errno::EAGAIN);
            }
            // If it is another machine that has it, nobody tells when it is free.
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(pause) => pause = (2 * pause).min(PAUSE_MOST),
            }
        }
    }

    async fn try_lock(
        &self,
        user: &Arc<User>,
        spot: &Spot,
        owner: u64,
        lock: Lock,
    ) -> Result<(), Errno> {
        let work = spot.vnode.work();
        let locks = &work.locks;
        let _one = locks.serial.lock().await;
        let (has, foresees) = {
            let table = locks.lock();
            if table.is_full() {
                return Err(Errno(afar_types::error::errno::ENOLCK));
            }
            if table.conflict(owner, &lock).is_some() {
                return Err(Errno::EAGAIN);
            }
            if table.is_refused(owner, &lock) {
                return Err(Errno::EDEADLK);
            }
            (table.server, table.foresees_writing())
        };
        let writes = lock.kind == LockKind::Write;
        let wanted = if writes {
            LockType::Write
        } else {
            LockType::Read
        };
        match (has, wanted) {
            // A server keeps no lock of what nobody can change.
            // spec: afs-rpc#locks
            _ if spot.mount.volume.kind() != VolumeType::ReadWrite => {}
            (Some(LockType::Write), _) | (Some(LockType::Read), LockType::Read) => {}
            (None, LockType::Read) if foresees => {
                let alone = self.take(user, &spot.vnode, LockType::Write).await;
                if alone.is_err() {
                    self.take(user, &spot.vnode, LockType::Read).await?;
                }
            }
            (None, _) => drop(self.take(user, &spot.vnode, wanted).await?),
            (Some(LockType::Read), LockType::Write) => {
                self.strengthen(user, &spot.vnode, is_whole(&lock)).await?;
            }
        }
        locks.lock().set(owner, lock);
        Ok(())
    }

    /// Gets a lock for writing in place of one for reading.
    async fn strengthen(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        whole: bool,
    ) -> Result<(), Errno> {
        vnode.work().locks.lock().strengthened = Some(Instant::now());
        // Others may have the file while the lock is changed, and must find what was written here.
        self.store_unasked(vnode).await?;
        let before = self.ask(user, vnode).await?;
        // One of the readers it counts is this machine.
        // spec: afs-rpc#status
        if before.lock_count > 1 && !whole {
            // It is not available while others read, so what there is need not be given up.
            return Err(Errno::EAGAIN);
        }
        self.give_back(vnode).await;
        let taken = self.take(user, vnode, LockType::Write).await;
        let after = match taken {
            Ok(status) => Ok(status),
            Err(_) => self.take(user, vnode, LockType::Read).await,
        };
        let taken = taken.map(drop);
        if after.is_ok_and(|after| after.data_version == before.data_version) {
            return taken;
        }
        tracing::info!(fid = %vnode.fid, "lost a read lock to another machine");
        vnode.work().locks.lock().lose();
        if whole { taken } else { Err(Errno::EDEADLK) }
    }

    /// Gives up all locks of an owner.
    ///
    /// # Errors
    /// When what was written under them cannot be stored.
    pub(crate) async fn unlock_all(&self, spot: &Spot, owner: u64) -> Result<(), Errno> {
        let has = {
            let work = spot.vnode.work();
            let table = work.locks.lock();
            table.has(owner)
        };
        if !has {
            return Ok(());
        }
        let all = Lock {
            kind: LockKind::Unlock,
            start: 0,
            end: u64::MAX,
            pid: 0,
        };
        self.unlock(spot, owner, all).await
    }

    async fn unlock(&self, spot: &Spot, owner: u64, lock: Lock) -> Result<(), Errno> {
        let work = spot.vnode.work();
        let locks = &work.locks;
        let _one = locks.serial.lock().await;
        let last = {
            let mut table = locks.lock();
            if table.is_full() && table.splits(owner, &lock) {
                return Err(Errno(afar_types::error::errno::ENOLCK));
            }
            table.set(owner, lock);
            table.server.is_some() && table.needed().is_none()
        };
        let mut stored = Ok(());
        if last {
            // The program that gets the lock next must see what was written under it.
            stored = self.store_unasked(&spot.vnode).await;
            if stored.is_ok() {
                stored = self.all_sent(&spot.vnode).await;
            }
            self.give_back(&spot.vnode).await;
        }
        locks.freed.notify_waiters();
        stored
    }

    /// Takes a lock from the server. Returns the status of the file under it.
    async fn take(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        kind: LockType,
    ) -> Result<FetchStatus, Errno> {
        // The server asks for the lease of it back, and for what was changed under that.
        self.all_sent(vnode).await?;
        let client = &user.client;
        let taken = client.set_lock(&vnode.volume, vnode.fid, kind).await;
        taken.map_err(|error| self.failed(vnode, "locking a file", &error))?;
        let given = {
            let work = vnode.work();
            let mut table = work.locks.lock();
            debug_assert!(table.server.is_none(), "the server gives one at a time");
            table.server = Some(kind);
            table.given += 1;
            table.taker = Some(Arc::clone(user));
            table.given
        };
        tokio::spawn(extend(client.clone(), Arc::downgrade(vnode), given));
        let known = self.catch_up(user, vnode).await;
        // A program that does not see what was stored before must not believe that it has the file to itself.
        if known.is_err() {
            self.give_back(vnode).await;
        }
        known
    }

    /// Has this machine, and its kernel, know all that was stored before now.
    async fn catch_up(&self, user: &User, vnode: &Arc<Vnode>) -> Result<FetchStatus, Errno> {
        // A promise does not count here: a server that breaks it does not wait for long until that is heard.
        let status = self.ask(user, vnode).await?;
        // If the kernel were told later, it would be so while the program asks for the length, and the kernel
        // takes no attributes that were asked for before it was told: the old length would stay.
        let told = tokio::time::timeout(TELL_MOST, self.0.breaks.carried_out());
        if told.await.is_err() {
            let (cell, fid) = (vnode.cell(), vnode.fid);
            tracing::warn!(%cell, %fid, "locked, but the kernel may still show old content");
        }
        Ok(status)
    }

    async fn give_back(&self, vnode: &Arc<Vnode>) {
        let taker = {
            let work = vnode.work();
            let mut table = work.locks.lock();
            table.server = None;
            table.taker.take()
        };
        let client = &taker.as_ref().unwrap_or_else(|| self.0.users.base()).client;
        if let Err(error) = client.release_lock(&vnode.volume, vnode.fid).await {
            // It expires.
            self.failed(vnode, "unlocking a file", &error);
        }
    }
}

/// Has a lock extended for as long as it is held.
// spec: afs-rpc#locks
async fn extend(client: Client, vnode: Weak<Vnode>, given: u64) {
    loop {
        tokio::time::sleep(LOCK_TIME / 2).await;
        let Some(vnode) = vnode.upgrade() else {
            return;
        };
        let still = {
            let work = vnode.work();
            let table = work.locks.lock();
            table.given == given && table.server.is_some()
        };
        if !still {
            return;
        }
        let fid = vnode.fid;
        if let Err(error) = client.extend_lock(&vnode.volume, fid).await {
            tracing::warn!(%fid, %error, "cannot extend a lock; it may be lost");
        }
    }
}
