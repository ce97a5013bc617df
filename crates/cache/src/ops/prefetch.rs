//! What programs are likely to ask for next, asked for before they do.
//!
//! Names that are looked up in a row, directories that are opened and small files that are read one after the other
//! tell what comes next: what follows in the directory, as it is listed or by name, and when a program goes through
//! a tree, what is in the directories that follow.
//!
//! It is asked for, promised and kept as what a program asks for: by the same calls, with the breaks counted
//! before each, so that a break which comes before the answer is seen by it. An error is told to the
//! program that asks for it.

use std::cell::LazyCell;
use std::sync::Arc;

use afar_cell::{Class, Volume};
use afar_dir::Directory;
use afar_types::{FetchStatus, Fid, FileType, READS_MOST, Reads, TREE_DATA_MAX};

use crate::model::order::{Order, Raw};
use crate::model::place::Spot;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::access::parent;
use crate::ops::cache::Cache;
use crate::ops::data::fetch::{LEAST, Landed};
use crate::ops::listing::{STATUSES, entries, is_dots};
use crate::ops::names::known_pages;
use crate::table::following::Told;
use crate::table::prefetched::Kind;
use crate::table::rows::Ahead;
use crate::table::walks::Position;

/// Statuses that one call tells.
// spec: afs-rpc#bulk-status
pub(crate) const BULK: u64 = 50;
/// Bytes of the largest file that is prefetched: a call brings as many, whatever is read.
pub(crate) const SMALL: u64 = LEAST;
/// Directories that one answer brings, where a server tells of whole trees.
const DIRECTORIES: u64 = 8;
/// Bytes of small files that are asked for by one call, at least and at most; between these, what is asked for makes so many
/// calls. No file is believed before the last of a call has come, and a program may wait for the first.
const LISTED_LEAST: u64 = 64 << 10;
const LISTED_MOST: u64 = 512 << 10;
const LISTS: u64 = 4;
/// The mount looks at so many entries for what comes next, besides those of the first directory.
const LOOKED: usize = 4096;

/// A file whose data is to be prefetched, as it was when that was decided.
pub(crate) type Wanted = (Arc<Vnode>, FetchStatus);

impl Cache {
    /// A name with this fid is looked up. If its status must be asked for, and that was so of another name in this
    /// directory before, the statuses of those that come next are asked for with it.
    pub(crate) async fn ask_around(&self, user: &User, directory: &Spot, fid: Fid) {
        let own = self.beside(directory, fid).vnode;
        if own.lock().promised().is_some() {
            return;
        }
        let ahead = self.0.asked_names.note(&directory.vnode, fid);
        let Some(before) = ahead.last.filter(|_| self.may_prefetch(&own.volume)) else {
            return;
        };
        let Some(all) = known_entries(&directory.vnode) else {
            return;
        };
        let mut room = self.0.prefetched.room(Kind::Status).min(BULK - 1);
        // However much was for nothing elsewhere, one that goes through all names is not to wait for each.
        if room < BULK - 1 && self.goes_through(directory, &all, ahead, fid) {
            room = BULK - 1;
        }
        if room == 0 {
            return;
        }
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

    /// Whether names are looked up in the order of their directory, as far as their statuses were not known.
    fn goes_through(&self, directory: &Spot, all: &[Raw], ahead: Ahead, now: Fid) -> bool {
        if ahead.before.is_none() {
            return false;
        }
        let used = ahead.up_to(now);
        let is_unknown = |entry: &&Raw| {
            let vnode = self.beside(directory, entry.fid).vnode;
            used.contains(&entry.fid) || vnode.lock().promised().is_none()
        };
        let unknown: Vec<_> = all.iter().filter(is_unknown).cloned().collect();
        Order::is_kept(&unknown, &used)
    }

    /// A directory is opened, and its pages are known. If that was so of another in the same one before, or of the
    /// one it is in, the program goes through the tree, and what comes next is read. Returns whether a server told that it
    /// would be opened.
    pub(crate) fn directory_opened(&self, user: &Arc<User>, spot: &Spot) -> bool {
        let vnode = &spot.vnode;
        let hit = self.0.prefetched.take(Kind::Directory, vnode);
        let told = self.come_to(user, vnode, false);
        let is_told = told == Told::This;
        let Some(above) = self.directory_above(vnode) else {
            return is_told;
        };
        let walks = &self.0.walks;
        let ahead = walks.opened.note(&above, vnode.fid);
        let before = ahead.last;
        // Where others read says nothing of a walk through the tree, which goes on in the order of its directories.
        if told != Told::Nothing && !in_order(&above, ahead, vnode.fid) {
            return is_told;
        }
        if hit || before.is_some() || walks.opened.is_last(&above) {
            walks.come(Position {
                mount: Arc::clone(&spot.mount),
                directory: Arc::downgrade(vnode),
                now: None,
                order: self.order(&above, before, vnode.fid),
            });
            self.read_on(user);
        }
        false
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
        if !hit && is_here {
            self.come_to(user, vnode, false);
            return;
        }
        let directory = self.directory_above(vnode);
        let ahead = directory.as_ref().map(|directory| {
            let ahead = self.0.read_files.note(directory, vnode.fid);
            (directory, ahead)
        });
        // What follows in the order of a directory is asked for by that, and no server need be told of it.
        let goes_on = LazyCell::new(|| {
            ahead.is_some_and(|(directory, ahead)| {
                ahead.before.is_some() && in_order(directory, ahead, vnode.fid)
            })
        });
        let waited = !is_here;
        let told = self.come_to(user, vnode, waited && !*goes_on);
        let Some((directory, ahead)) = ahead else {
            return;
        };
        // What others read next comes by itself, and is seldom what is beside it.
        let is_others = told != Told::Nothing && !*goes_on;
        let before = ahead.last;
        let goes_through = self.reads_through(directory);
        let alone = !hit && before.is_none() && !goes_through;
        if is_others || alone || !self.may_prefetch_data(&vnode.volume) {
            return;
        }
        self.0.walks.reads();
        let mut room = self.0.prefetched.room(Kind::Data);
        // However much was for nothing elsewhere.
        if waited && room == 0 && *goes_on {
            room = LISTED_LEAST;
        }
        if room == 0 {
            return;
        }
        let position = Position {
            mount: Arc::clone(&spot.mount),
            directory: Arc::downgrade(directory),
            now: Some(vnode.fid),
            order: self.order(directory, before, vnode.fid),
        };
        if goes_through {
            self.0.walks.come(position.clone());
        }
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

    /// Whether a program reads files in one directory after the other, in their order. It need not open these: git knows what
    /// is in them.
    fn reads_through(&self, directory: &Arc<Vnode>) -> bool {
        let Some(above) = self.directory_above(directory) else {
            return false;
        };
        let ahead = self.0.walks.read_in.note(&above, directory.fid);
        ahead.before.is_some() && in_order(&above, ahead, directory.fid)
    }

    /// Fetches the data of files of one volume, some at a time.
    pub(crate) async fn fetch_files(self, user: Arc<User>, files: Vec<Wanted>, class: Class) {
        for files in shared_out(files) {
            let permits = Arc::clone(&self.0.prefetching);
            // It is never closed.
            let Ok(permit) = permits.acquire_owned().await else {
                return;
            };
            let (cache, user) = (self.clone(), Arc::clone(&user));
            tokio::spawn(async move {
                if !cache.fetch_listed(&user, &files, class).await {
                    for (vnode, status) in files {
                        cache.fetch_file(&user, &vnode, &status, class).await;
                    }
                }
                drop(permit);
            });
        }
    }

    /// Fetches the data of small files by one call, if there is more than one and their server has such answers. What fails
    /// does so again for the program that asks for it, which is told.
    // spec: trees#many-files
    async fn fetch_listed(&self, user: &User, files: &[Wanted], class: Class) -> bool {
        let [(first, _), _, ..] = files else {
            return false;
        };
        let volume = &first.volume;
        // A program may have come to some meanwhile.
        let is_wanted = |wanted: &&Wanted| self.0.prefetched.has(Kind::Data, &wanted.0);
        let wanted: Vec<_> = files.iter().filter(is_wanted).collect();
        let fids: Vec<_> = wanted.iter().map(|(vnode, _)| vnode.fid).collect();
        let Ok(fids) = Reads::new(fids) else {
            return false;
        };
        if fids.is_empty() {
            return true;
        }
        let bytes = wanted.iter().map(|(_, status)| status.length).sum::<u64>();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let is_file = |wanted: &&&Wanted| wanted.1.file_type == FileType::File;
        // Programs that come to these wait for them, and for what this waits for.
        let waits = Arc::default();
        let coming = wanted.iter().filter(is_file);
        let coming: Vec<_> = coming
            .map(|(vnode, status)| Landed::of_many(vnode, status, (user, class, &waits)))
            .collect();
        // Nobody knows beforehand what has changed.
        let before = self.0.breaks.mark();
        let client = user.client.in_class(class);
        let largest = u32::try_from(TREE_DATA_MAX).unwrap_or(u32::MAX);
        let asked = client.listed(volume, fids, bytes, largest);
        let told = waits.during(asked).await;
        let is_told = !matches!(told, Ok(None));
        match told {
            Ok(parts) => {
                let parts = parts.unwrap_or_default();
                self.take_parts(user, volume, parts, before, |_, _| false);
            }
            Err(error) => tracing::debug!(fid = %first.fid, %error, "cannot prefetch files"),
        }
        // Behind what came: those who wait look for it at once.
        coming.into_iter().for_each(Landed::landed);
        is_told
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
        let comes = !vnode.lock().rare.flights.is_empty();
        self.lacking(vnode, most).filter(|_| !comes)
    }

    /// The same of one whose data may be on its way.
    pub(crate) fn lacking(&self, vnode: &Vnode, most: u64) -> Option<FetchStatus> {
        let status = {
            let state = vnode.lock();
            let is_dirty = state.rare.dirty.is_some();
            state.promised().filter(|_| !is_dirty)?
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

/// Files in the groups that are fetched by a call each.
fn shared_out(files: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let all = files.iter().map(|(_, status)| status.length).sum::<u64>();
    let most = (all / LISTS).clamp(LISTED_LEAST, LISTED_MOST);
    let mut groups: Vec<Vec<Wanted>> = Vec::new();
    let mut room = 0;
    for (vnode, status) in files {
        let is_listed = status.length <= TREE_DATA_MAX as u64 && vnode.volume.may_have_listed();
        let length = status.length;
        match groups.last_mut() {
            Some(last) if is_listed && length <= room && last.len() < READS_MOST => {
                room -= length;
                last.push((vnode, status));
            }
            _ => {
                room = if is_listed { most - length } else { 0 };
                groups.push(vec![(vnode, status)]);
            }
        }
    }
    groups
}

/// Whether a program that used these entries of a directory, and uses this one now, goes through it in its order.
fn in_order(directory: &Vnode, ahead: Ahead, now: Fid) -> bool {
    let used = ahead.up_to(now);
    used.len() > 1 && known_entries(directory).is_some_and(|all| Order::is_kept(&all, &used))
}

/// The entries of such a directory.
pub(crate) fn known_entries(vnode: &Vnode) -> Option<Vec<Raw>> {
    let pages = known_pages(vnode)?;
    let mut all = entries(vnode, &pages, 0, usize::MAX).ok()?;
    all.retain(|entry| !is_dots(&entry.name));
    Some(all)
}
