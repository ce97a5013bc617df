//! What programs are likely to ask for next, asked for before they do.
//!
//! Names that are looked up in a row, directories that are opened and small files that are read one after the other
//! tell what comes next: what follows in the directory, as it is listed or by name, and when a program goes through
//! a tree, what is in the directories that follow.
//!
//! It is asked for, promised and kept as what a program asks for: by the same calls, with the breaks counted
//! before each, so that a break which comes before the answer is seen by it. An error is told to the
//! program that asks for it.

use std::sync::Arc;

use afar_cell::{Class, Volume};
use afar_dir::Directory;
use afar_types::{FetchStatus, Fid, FileType};

use crate::model::order::{Order, Raw};
use crate::model::place::Spot;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::access::parent;
use crate::ops::cache::Cache;
use crate::ops::data::fetch::LEAST;
use crate::ops::listing::{STATUSES, entries, is_dots};
use crate::table::following::Told;
use crate::table::prefetched::Kind;
use crate::table::walks::Position;

/// Statuses that one call tells.
// spec: afs-rpc#bulk-status
const BULK: u64 = 50;
/// Bytes of the largest file that is prefetched: a call brings as many, whatever is read.
const SMALL: u64 = LEAST;
/// Directories that one answer brings, where a server tells of whole trees.
const DIRECTORIES: u64 = 8;
/// The mount looks at so many entries for what comes next, besides those of the first directory.
const LOOKED: usize = 4096;

impl Cache {
    /// A name with this fid is looked up. If its status must be asked for, and that was so of another name in this
    /// directory before, the statuses of those that come next are asked for with it.
    pub(crate) async fn ask_around(&self, user: &User, directory: &Spot, fid: Fid) {
        let own = self.beside(directory, fid).vnode;
        if own.lock().promised().is_some() {
            return;
        }
        let before = self.0.asked_names.note(&directory.vnode, fid);
        let Some(before) = before.filter(|_| self.may_prefetch(&own.volume)) else {
            return;
        };
        let room = self.0.prefetched.room(Kind::Status).min(BULK - 1);
        let known = (room > 0).then(|| known_entries(&directory.vnode));
        let Some(all) = known.flatten() else {
            return;
        };
        let order = Order::of(&all, before, fid).unwrap_or_default();
        let own = all.iter().find(|entry| entry.fid == fid);
        let mut asked: Vec<_> = own.cloned().into_iter().collect();
        let next = order.after(all, Some(fid), true);
        for entry in next.into_iter().take(STATUSES) {
            if asked.len() as u64 > room {
                break;
            }
            let vnode = self.beside(directory, entry.fid).vnode;
            let is_known = {
                let state = vnode.lock();
                state.promised().is_some() || state.rare.gone
            };
            if !is_known && self.0.prefetched.ask(Kind::Status, &vnode, 1).is_some() {
                asked.push(entry);
            }
        }
        self.ask_statuses(user, directory, &asked).await;
    }

    /// A directory is opened, and its pages are known. If that was so of another in the same one before, or of the
    /// one it is in, the program goes through the tree, and what comes next is read. Returns whether a server told that it
    /// would be opened.
    pub(crate) fn directory_opened(&self, user: &Arc<User>, spot: &Spot) -> bool {
        let vnode = &spot.vnode;
        let hit = self.0.prefetched.take(Kind::Directory, vnode);
        match self.come_to(user, vnode, false) {
            Told::Nothing => self.directory_walked(user, spot, hit),
            // Where others read says nothing of a walk through the tree.
            Told::Others => {}
            Told::This => return true,
        }
        false
    }

    fn directory_walked(&self, user: &Arc<User>, spot: &Spot, hit: bool) {
        let vnode = &spot.vnode;
        let Some(above) = self.directory_above(vnode) else {
            return;
        };
        let walks = &self.0.walks;
        let before = walks.opened.note(&above, vnode.fid);
        if !hit && before.is_none() && !walks.opened.is_last(&above) {
            return;
        }
        walks.come(Position {
            mount: Arc::clone(&spot.mount),
            directory: Arc::downgrade(vnode),
            now: None,
            order: self.order(&above, before, vnode.fid),
        });
        self.read_on(user);
    }

    /// Reads directories that the program which goes through a tree will open next.
    fn read_on(&self, user: &Arc<User>) {
        let Some(position) = self.0.walks.position() else {
            return;
        };
        let all = self.0.prefetched.room(Kind::Directory);
        let volume = &position.mount.volume;
        if all == 0 || !self.may_prefetch(volume) {
            return;
        }
        // Each answer may bring as many as there are below it.
        let answers = match volume.may_have_trees() {
            true => all.div_ceil(DIRECTORIES),
            false => all,
        };
        let mut room = answers;
        let mut next = Vec::new();
        self.tour(&position, true, |vnode| {
            if vnode.fid.vnode.is_directory()
                && let Some(cost) = self.0.prefetched.ask(Kind::Directory, vnode, 1)
            {
                room -= cost;
                next.push(Arc::clone(vnode));
            }
            room > 0
        });
        let each = all / answers;
        for vnode in next {
            let (cache, user) = (self.clone(), Arc::clone(user));
            let mount = Arc::clone(&position.mount);
            tokio::spawn(async move {
                let spot = Spot { mount, vnode };
                if let Err(error) = cache.read_below(&user, &spot, each).await {
                    tracing::debug!(%error, "cannot prefetch a directory");
                }
                // Now those in it are known.
                cache.read_on(&user);
            });
        }
    }

    /// A file or symlink is read from its beginning. If that was so of another in its directory before, or it had
    /// been prefetched, the data of those that come next is fetched.
    pub(crate) fn file_read(
        &self,
        user: &Arc<User>,
        spot: &Spot,
        status: &FetchStatus,
        class: Class,
    ) {
        let vnode = &spot.vnode;
        let hit = self.0.prefetched.take(Kind::Data, vnode);
        // A program that reads again what it read before does not wait, and tells nothing of what comes next.
        let is_here = self.is_here(vnode, status);
        let told = self.come_to(user, vnode, !is_here);
        if !hit && is_here {
            return;
        }
        let Some(directory) = self.directory_above(vnode) else {
            return;
        };
        let before = self.0.read_files.note(&directory, vnode.fid);
        // What others read next comes by itself, and is seldom what is beside it.
        let alone = !hit && before.is_none();
        if told != Told::Nothing || alone || !self.may_prefetch_data(&vnode.volume) {
            return;
        }
        self.0.walks.reads();
        let mut room = self.0.prefetched.room(Kind::Data);
        if room == 0 {
            return;
        }
        let position = Position {
            mount: Arc::clone(&spot.mount),
            directory: Arc::downgrade(&directory),
            now: Some(vnode.fid),
            order: self.order(&directory, before, vnode.fid),
        };
        let mut next = Vec::new();
        let walks = self.0.walks.position().is_some();
        self.tour(&position, walks, |vnode| {
            if let Some(status) = self.wanted(vnode)
                && let Some(cost) = self.0.prefetched.ask(Kind::Data, vnode, status.length)
            {
                room = room.saturating_sub(cost);
                next.push((Arc::clone(vnode), status));
            }
            room > 0
        });
        // Nobody waits for it yet, so nobody is to wait behind it.
        let class = match class {
            Class::First => Class::BestEffort,
            class => class,
        };
        if !next.is_empty() {
            tokio::spawn(self.clone().fetch_files(Arc::clone(user), next, class));
        }
    }

    /// Fetches the data of files, some at a time.
    pub(crate) async fn fetch_files(
        self,
        user: Arc<User>,
        files: Vec<(Arc<Vnode>, FetchStatus)>,
        class: Class,
    ) {
        for (vnode, status) in files {
            let permits = Arc::clone(&self.0.prefetching);
            // It is never closed.
            let Ok(permit) = permits.acquire_owned().await else {
                return;
            };
            let (cache, user) = (self.clone(), Arc::clone(&user));
            tokio::spawn(async move {
                cache.fetch_file(&user, &vnode, &status, class).await;
                drop(permit);
            });
        }
    }

    /// Fetches the data of a file, unless it was asked for meanwhile. What fails does so again for the program that
    /// asks for it, which is told.
    async fn fetch_file(
        &self,
        user: &Arc<User>,
        vnode: &Arc<Vnode>,
        status: &FetchStatus,
        class: Class,
    ) {
        let promised = vnode.lock().promised();
        let is_same = promised.is_some_and(|now| now.data_version == status.data_version);
        if !is_same || !self.0.prefetched.has(Kind::Data, vnode) {
            return;
        }
        let fid = vnode.fid;
        if status.file_type == FileType::Symlink {
            if let Err(error) = self.link_text(user, vnode).await {
                tracing::debug!(%fid, %error, "cannot prefetch a symbolic link");
            }
        } else {
            let all = 0..status.length;
            if self.fetched(user, vnode, status, all, class).await.is_err() {
                tracing::debug!(%fid, "cannot prefetch a file");
            }
        }
    }

    /// The status of a small file or symlink that can be prefetched.
    pub(crate) fn wanted(&self, vnode: &Vnode) -> Option<FetchStatus> {
        self.wanted_of(vnode, SMALL)
    }

    /// The same of one that has at most so many bytes.
    pub(crate) fn wanted_of(&self, vnode: &Vnode, most: u64) -> Option<FetchStatus> {
        let status = {
            let state = vnode.lock();
            let is_used = state.rare.dirty.is_some() || !state.rare.flights.is_empty();
            state.promised().filter(|_| !is_used)?
        };
        let is_small = status.length <= most && !status.is_mount_point();
        let is_wanted = status.file_type != FileType::Directory && is_small;
        (is_wanted && !self.is_here(vnode, &status)).then_some(status)
    }

    /// Whether the data of a file is in the cache, as far as a first read goes.
    fn is_here(&self, vnode: &Vnode, status: &FetchStatus) -> bool {
        if status.file_type == FileType::Symlink {
            return vnode.lock().rare.link.is_some();
        }
        let all = 0..status.length.min(SMALL);
        let storage = &self.0.storage;
        let present = storage.present(&vnode.key(), status.data_version, all.clone());
        present.is_ok_and(|present| present.gaps(all).is_empty())
    }

    /// Whether anything is to be prefetched from this volume: not while nobody answers, as programs that ask would
    /// wait behind it.
    fn may_prefetch(&self, volume: &Volume) -> bool {
        !self.is_waiting() && volume.sites().iter().any(|site| !site.is_down())
    }

    /// The same of data: not where what is not stored leaves little room for what can be fetched again.
    pub(crate) fn may_prefetch_data(&self, volume: &Volume) -> bool {
        let usage = self.0.storage.usage();
        usage.written <= usage.limit / 2 && self.may_prefetch(volume)
    }

    /// The order in which a program goes through a directory that used this entry before, and this one now.
    fn order(&self, directory: &Vnode, before: Option<Fid>, now: Fid) -> Order {
        let told = before.and_then(|before| {
            let all = known_entries(directory)?;
            Order::of(&all, before, now)
        });
        let walk = || self.0.walks.position().map(|position| position.order);
        told.or_else(walk).unwrap_or_default()
    }

    /// Shows what comes after a place, as far as it is known, until `look` has seen enough: what follows in the
    /// directory, and if the `whole` tree is gone through, what is in the directories there, and what follows above.
    fn tour(&self, at: &Position, whole: bool, mut look: impl FnMut(&Arc<Vnode>) -> bool) {
        let Some(mut directory) = at.directory.upgrade() else {
            return;
        };
        let Some(all) = known_entries(&directory) else {
            return;
        };
        let mut next = at.order.after(all.clone(), at.now, false);
        if whole && at.now.is_some() {
            // Some programs go into directories only after they have read all files beside them.
            let before = at.order.after(all, at.now, true).split_off(next.len());
            next.extend(before.into_iter().filter(|entry| {
                let vnode = self.0.vnodes.of(&at.mount.volume, entry.fid);
                self.0.prefetched.has(Kind::Directory, &vnode)
            }));
        }
        let mut frames = vec![next.into_iter()];
        let mut left = LOOKED;
        while let Some(frame) = frames.last_mut() {
            let Some(entry) = frame.next() else {
                frames.pop();
                if whole
                    && frames.is_empty()
                    && let Some(above) = self.directory_above(&directory)
                    && let Some(all) = known_entries(&above)
                    && all.len() <= left
                {
                    left -= all.len();
                    let next = at.order.after(all, Some(directory.fid), false);
                    frames.push(next.into_iter());
                    directory = above;
                }
                continue;
            };
            let vnode = self.0.vnodes.of(&at.mount.volume, entry.fid);
            let known = (whole && entry.fid.vnode.is_directory()).then(|| known_entries(&vnode));
            if let Some(all) = known.flatten() {
                if all.len() > left {
                    return;
                }
                left -= all.len();
                frames.push(at.order.after(all, None, false).into_iter());
            } else if !look(&vnode) {
                return;
            }
        }
    }

    /// The directory that something is in, unless it is the root of its volume.
    pub(crate) fn directory_above(&self, vnode: &Vnode) -> Option<Arc<Vnode>> {
        let above = if vnode.fid.vnode.is_directory() {
            // Its status does not tell.
            // spec: afs-rpc#rights
            let pages = known_pages(vnode)?;
            let pages = Directory::new(&pages).ok()?;
            let above = pages.lookup(b"..").ok()??;
            above.id.fid(vnode.fid.volume)
        } else {
            let status = vnode.lock().status()?;
            parent(vnode, &status)?
        };
        let is_other = above != vnode.fid && above.vnode.is_directory();
        is_other.then(|| self.0.vnodes.of(&vnode.volume, above))
    }
}

/// The pages of a directory, if they are in memory and promised.
fn known_pages(vnode: &Vnode) -> Option<Arc<Vec<u8>>> {
    let state = vnode.lock();
    let version = state.promised()?.data_version;
    let copy = state.rare.pages.as_ref()?;
    (copy.version == version).then(|| Arc::clone(&copy.pages))
}

/// The entries of such a directory.
pub(crate) fn known_entries(vnode: &Vnode) -> Option<Vec<Raw>> {
    let pages = known_pages(vnode)?;
    let mut all = entries(vnode, &pages, 0, usize::MAX).ok()?;
    all.retain(|entry| !is_dots(&entry.name));
    Some(all)
}
