//! Statuses, which are used while they are promised and asked for again after that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use afar_cell::{Error, Promised};
use afar_types::{FetchStatus, Fid, FileType, Rights, UnixTime, VolumeType};
use bytes::Bytes;

use crate::model::error::Errno;
use crate::model::place::{Inode, Referent, Spot};
use crate::model::promise::Promise;
use crate::model::types::{Attr, Entry, Ino};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::table::breaks::Mark;
use crate::table::prefetched::Kind;

/// How long names in directories that are made up may be used without asking.
pub(crate) const MADE_UP_VALID: Duration = Duration::from_secs(60);

impl Cache {
    /// The status of a vnode: from memory while it is promised, else a server's. What a server says
    /// is good for the request that asked for it even if it comes without a promise. The rights in it
    /// may be another user's.
    pub(crate) async fn fresh(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
    ) -> Result<FetchStatus, Errno> {
        if let Some(status) = known(vnode)? {
            self.0.prefetched.take(Kind::Status, vnode);
            return Ok(status);
        }
        let work = vnode.work();
        let _one = work.asking.lock().await;
        // Another may have asked while this one waited for its turn.
        if let Some(status) = known(vnode)? {
            return Ok(status);
        }
        let sites = vnode.volume.sites();
        if sites.iter().all(|site| site.is_down())
            && let Some(status) = self.last_known(vnode, Errno::ETIMEDOUT)
        {
            // Nobody waits again for what was silent a moment ago.
            return Ok(status);
        }
        match self.ask(user, vnode).await {
            Err(number) => self.last_known(vnode, number).ok_or(number),
            status => status,
        }
    }

    /// The status of a vnode after a change of ours, with which a server told it: that is good for the request that
    /// made the change, if nothing is promised. Without it a server is asked.
    pub(crate) async fn after_change(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        told: Option<FetchStatus>,
    ) -> Result<FetchStatus, Errno> {
        if let Some(status) = known(vnode)? {
            return Ok(status);
        }
        match told.filter(|status| fits(vnode, status)) {
            Some(status) => Ok(status),
            None => self.fresh(user, vnode).await,
        }
    }

    /// Asks a server for a status, whatever is known.
    pub(crate) async fn ask(&self, user: &User, vnode: &Arc<Vnode>) -> Result<FetchStatus, Errno> {
        let fid = vnode.fid;
        self.0.owners.ready(vnode.cell()).await;
        self.in_order(vnode).await;
        let mark = self.0.breaks.mark();
        match user.client.promised(&vnode.volume, fid).await {
            Ok(promised) => {
                let status = self.accept(user, vnode, &promised, mark)?;
                // Somebody who asked later may have been answered first.
                let newer = vnode.lock().promised();
                let newer = newer.filter(|known| known.data_version > status.data_version);
                Ok(newer.unwrap_or(status))
            }
            Err(error) => Err(self.failed(vnode, "asking for a status", &error)),
        }
    }

    /// The status as it was when the servers could be reached last, if it may be used when they
    /// cannot. One of which the server said that it has changed may not.
    fn last_known(&self, vnode: &Vnode, failed: Errno) -> Option<FetchStatus> {
        let state = vnode.lock();
        let usable = self.0.config.disconnected && failed == Errno::ETIMEDOUT;
        // A promise that was broken is not there any more; one that has ended is.
        state
            .status()
            .filter(|_| usable && state.promise.is_some() && !state.rare.gone)
    }

    /// Keeps what a server said, if it is to be believed: something else than was looked for is
    /// nobody's status.
    pub(crate) fn accept(
        &self,
        user: &User,
        vnode: &Arc<Vnode>,
        promised: &Promised,
        mark: Mark,
    ) -> Result<FetchStatus, Errno> {
        let (status, fid) = (promised.status, vnode.fid);
        if !fits(vnode, &status) {
            tracing::warn!(server = %promised.server, %fid, "a status of a wrong type");
            return Err(Errno::EIO);
        }
        self.note_volume(vnode, promised.volume_made);
        let above = self.above(user.id, vnode, &status);
        let promise = promised.until.and_then(|until| {
            let server = self.0.breaks.number_of(promised.server);
            Promise::new(server, until)
        });
        let mut state = vnode.lock();
        if state.rare.unsent > 0
            && let Some(known) = state.status()
        {
            // It is from before what was changed here.
            return Ok(FetchStatus {
                caller_access: status.caller_access,
                ..known
            });
        }
        let is_current = self.0.breaks.is_current(fid, mark);
        if !is_current
            && let Some(known) = state.status()
            && known.data_version > status.data_version
        {
            // It was overtaken, whether or not what overtook it is promised. If the kernel were told of this as of a
            // change, it would not take what it is being told of the newer one.
            return Ok(status);
        }
        let old = state.status().map(|old| old.data_version);
        let changed = old.is_some_and(|old| old != status.data_version);
        // Versions were counted here, under a lease, that the server has not: what it will have of these may be another's.
        let counted_on = old.is_some_and(|old| old > status.data_version);
        // The kernel takes no attributes that were asked for before it was told to drop some. So it is not told
        // again: this may be on its way to it, and the old length would stay.
        let dropped = vnode.dropped.swap(false, Ordering::Relaxed);
        if !state.holds() {
            state.clear_rights();
        }
        if is_current {
            state.note_rights(user.id, &status, above);
            state.take_status(status);
            state.promise = promise;
        } else if !state.holds()
            && state
                .status()
                .is_none_or(|old| old.data_version <= status.data_version)
        {
            // What was broken or changed meanwhile may be newer than this, so nothing is promised. What
            // is newer than this, or promised, stays.
            state.take_status(status);
        }
        drop(state);
        if counted_on {
            self.0.storage.drop_clean(&vnode.key());
        }
        if changed && !dropped {
            self.0.breaks.invalidate(vnode);
        }
        Ok(status)
    }

    /// Notices that a volume was released or restored.
    fn note_volume(&self, vnode: &Vnode, made: UnixTime) {
        // OpenAFS tells it in some of its replies only.
        // spec: afs-rpc#the-time-of-a-copy
        if made.0 == 0 {
            return;
        }
        let (cell, volume) = (vnode.cell(), vnode.fid.volume);
        let before = {
            let mut volumes = self.0.lock_volumes();
            volumes.insert((volume, cell.clone()), made)
        };
        // A release counts versions on; what was restored may count the same ones again.
        if before != Some(made) && vnode.volume.kind() == VolumeType::ReadWrite {
            self.0.storage.instance(cell, volume, made);
        }
        if before.is_some_and(|before| before != made) {
            tracing::info!(%cell, %volume, "the volume is another one now");
            self.0.breaks.break_volume(volume);
        }
    }

    /// The data of a symlink or mount point.
    pub(crate) async fn link_text(&self, user: &User, vnode: &Arc<Vnode>) -> Result<Bytes, Errno> {
        let status = self.fresh(user, vnode).await?;
        let known = vnode.lock().rare.link.clone();
        if let Some((version, text)) = known
            && version == status.data_version
        {
            return Ok(text);
        }
        let fid = vnode.fid;
        self.in_order(vnode).await;
        let mark = self.0.breaks.mark();
        let contents = user.client.link_contents(&vnode.volume, fid).await;
        let contents =
            contents.map_err(|error| self.failed(vnode, "reading a symbolic link", &error))?;
        self.accept(user, vnode, &contents.promised, mark)?;
        // Not the status that is known: the link may have been changed here meanwhile.
        let told = contents.promised.status;
        if contents.data.len() as u64 != told.length {
            tracing::warn!(%fid, "a symbolic link of a wrong length");
            return Err(Errno::EIO);
        }
        vnode.lock().rare.link = Some((told.data_version, contents.data.clone()));
        Ok(contents.data)
    }

    /// What a program is told of an error, which the log tells in full unless it is of the ordinary
    /// kind.
    pub(crate) fn failed(&self, vnode: &Arc<Vnode>, doing: &str, error: &Error) -> Errno {
        let number = Errno::of(error);
        let (cell, fid) = (vnode.cell(), vnode.fid);
        match number {
            Errno::ENOENT | Errno::EACCES | Errno::EPERM | Errno::EEXIST | Errno::EAGAIN => {
                tracing::debug!(%cell, %fid, %error, "{doing}");
            }
            _ if !self.0.said.is_news(error) => tracing::debug!(%cell, %fid, %error, "{doing}"),
            _ => tracing::warn!(%cell, %fid, %error, "{doing}"),
        }
        // The break of what was removed may still be on its way.
        if matches!(error, Error::Gone) {
            vnode.lock().promise = None;
        }
        number
    }

    /// The attributes of a vnode under a number.
    pub(crate) fn attr(&self, ino: Ino, vnode: &Vnode, status: &FetchStatus) -> Attr {
        let state = vnode.lock();
        let mut attr = state.attr(ino, status);
        self.0.owners.show(vnode.cell(), status.owner, &mut attr);
        // Programs that go through a tree know by it that they are in this volume already.
        if vnode.fid == Fid::root(vnode.fid.volume) {
            attr.file = state.numbers().next().unwrap_or(ino);
        }
        attr
    }

    /// The answer to a look-up of something with this status, which counts. `parent` is the directory
    /// with that name.
    pub(crate) fn entry(
        &self,
        parent: &Inode,
        name: &[u8],
        spot: &Spot,
        status: &FetchStatus,
    ) -> Entry {
        // Noted before it is seen whether the promise holds: a break finds it, or is seen.
        parent.note_name(name);
        let ino = self.0.inodes.give(spot);
        let attr = self.attr(ino, &spot.vnode, status);
        let holds = match &parent.place {
            Referent::Cells | Referent::Volumes | Referent::Cell(_) => MADE_UP_VALID,
            Referent::Vnode(directory) => self.names_valid(&directory.vnode),
        };
        Entry {
            attr,
            generation: 0,
            valid: if parent.has_room() {
                holds
            } else {
                Duration::ZERO
            },
        }
    }
}

impl Cache {
    /// How long the kernel may use names of a directory without asking. It asks nobody's rights then,
    /// so where users have different ones it keeps the names that everybody may see.
    fn names_valid(&self, directory: &Vnode) -> Duration {
        let state = directory.lock();
        let public = state
            .status()
            .is_some_and(|status| status.anonymous_access.contains(Rights::LOOKUP));
        if self.0.config.users.is_none() || public {
            state.valid()
        } else {
            Duration::ZERO
        }
    }
}

/// Whether a status can be that of a vnode.
// spec: volumes#vnodes
fn fits(vnode: &Vnode, status: &FetchStatus) -> bool {
    let is_directory = status.file_type == FileType::Directory;
    let others = matches!(status.file_type, FileType::File | FileType::Symlink);
    (is_directory || others) && is_directory == vnode.fid.vnode.is_directory()
}

/// The status if it is known for sure.
fn known(vnode: &Vnode) -> Result<Option<FetchStatus>, Errno> {
    let state = vnode.lock();
    if state.rare.gone {
        return Err(Errno::ENOENT);
    }
    Ok(state.promised())
}
