//! Names moved, removed and added here.

use std::sync::Arc;
use std::time::SystemTime;

use afar_dir::{Directory, EntryId};
use afar_types::{
    BatchCondition, BatchOperation, FetchStatus, Fid, FileName, FileType, Rights, UnixTime,
};

use super::make::is_empty;
use super::{Change, Here, after_change, is_plain, settled};
use crate::model::directory::Edit;
use crate::model::error::Errno;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// What loses its name.
struct Victim {
    status: FetchStatus,
    under: Option<BatchCondition>,
}

impl Cache {
    /// Removes a name here, if its directory is leased to this machine. False: it takes a call.
    ///
    /// # Errors
    /// [`ENOTEMPTY`](Errno::ENOTEMPTY).
    pub(crate) async fn remove_here(
        &self,
        (user, uid): (&User, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        gone: &Arc<Vnode>,
    ) -> Result<bool, Errno> {
        let Some((line, site)) = self.leased_soon(directory).await else {
            return Ok(false);
        };
        line.room().await;
        let left = {
            let here = Here::lock(&line, &site);
            match self.try_remove(here, (user, uid), directory, name, gone)? {
                Some(left) => left,
                None => return Ok(false),
            }
        };
        self.lost_here(gone, left);
        Ok(true)
    }

    /// Returns the status that is left of what had the name, if it has another one.
    fn try_remove(
        &self,
        mut here: Here<'_>,
        (user, uid): (&User, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        gone: &Arc<Vnode>,
    ) -> Result<Option<Option<FetchStatus>>, Errno> {
        let Some((status, under)) = here.directory(user, directory, Rights::DELETE) else {
            return Ok(None);
        };
        if entry_in(directory, name) != Some(gone.fid) {
            return Ok(None);
        }
        let Some(victim) = victim(&here, gone)? else {
            return Ok(None);
        };
        let Ok(file_name) = FileName::new(name) else {
            return Ok(None);
        };
        let is_directory = gone.fid.vnode.is_directory();
        let now = UnixTime::from(SystemTime::now());
        let mut after = after_change(status, now);
        after.link_count = after.link_count.saturating_sub(u32::from(is_directory));
        if !Self::edit_here(directory, after, &[Edit::Remove(name.to_vec())]) {
            return Ok(None);
        }
        let vnode = directory.fid.into();
        let operation = if is_directory {
            BatchOperation::RemoveDir {
                directory: vnode,
                name: file_name,
            }
        } else {
            BatchOperation::RemoveFile {
                directory: vnode,
                name: file_name,
            }
        };
        let last = victim.status.link_count <= 1 || is_directory;
        let noted = self.note_change(
            &mut here,
            Change {
                user: uid,
                operation,
                under: [Some(under), victim.under].into_iter().flatten().collect(),
                touched: vec![Arc::clone(directory), Arc::clone(gone)],
                makes: None,
                removes: last.then_some(gone.fid),
                bytes: name.len(),
                at: now,
            },
        );
        if noted.is_err() {
            self.forget_here(&[directory]);
            return Ok(None);
        }
        Ok(Some((!last).then(|| less_one(victim.status, now))))
    }

    /// Moves a name here, if its directories are leased to this machine. False: it takes a call.
    pub(crate) async fn rename_here(
        &self,
        (user, uid): (&User, u32),
        (from, name): (&Arc<Vnode>, &[u8]),
        (to, new_name): (&Arc<Vnode>, &[u8]),
        moved: &Arc<Vnode>,
        replaced: Option<&Arc<Vnode>>,
    ) -> Result<bool, Errno> {
        let same = Arc::ptr_eq(from, to);
        // The server alone sees whether a directory would be below itself.
        if moved.fid.vnode.is_directory() && (!same || replaced.is_some()) {
            return Ok(false);
        }
        if replaced.is_some_and(|replaced| replaced.fid.vnode.is_directory()) {
            return Ok(false);
        }
        let Some((line, site)) = self.leased_soon(from).await else {
            return Ok(false);
        };
        line.room().await;
        let left = {
            let here = Here::lock(&line, &site);
            let names = ((from, name), (to, new_name));
            match self.try_rename(here, (user, uid), names, moved, replaced)? {
                Some(left) => left,
                None => return Ok(false),
            }
        };
        if let Some(replaced) = replaced {
            self.lost_here(replaced, left);
        }
        Ok(true)
    }

    #[expect(clippy::type_complexity, reason = "made or not, and what is left")]
    fn try_rename(
        &self,
        mut here: Here<'_>,
        (user, uid): (&User, u32),
        ((from, name), (to, new_name)): ((&Arc<Vnode>, &[u8]), (&Arc<Vnode>, &[u8])),
        moved: &Arc<Vnode>,
        replaced: Option<&Arc<Vnode>>,
    ) -> Result<Option<Option<FetchStatus>>, Errno> {
        let same = Arc::ptr_eq(from, to);
        let leaves = here.directory(user, from, Rights::DELETE);
        let comes = here.directory(user, to, Rights::INSERT);
        let (Some((from_status, from_under)), Some((to_status, to_under))) = (leaves, comes) else {
            return Ok(None);
        };
        let right = entry_in(from, name) == Some(moved.fid)
            && entry_in(to, new_name) == replaced.map(|replaced| replaced.fid);
        let (Ok(old_name), Ok(file_name)) = (FileName::new(name), FileName::new(new_name)) else {
            return Ok(None);
        };
        if !right || !is_plain(new_name) {
            return Ok(None);
        }
        let mut under = vec![from_under];
        let mut touched = vec![Arc::clone(from)];
        let mut victim_status = None;
        if !same {
            under.push(to_under);
            touched.push(Arc::clone(to));
            // In a directory of other rights it is another one's, and one of several names stays where it is.
            let status = settled(&moved.lock());
            let Some(status) = status.filter(|status| status.link_count == 1) else {
                return Ok(None);
            };
            under.extend(here.lease(moved, &status));
        }
        touched.push(Arc::clone(moved));
        if let Some(replaced) = replaced {
            let Some(victim) = victim(&here, replaced)? else {
                return Ok(None);
            };
            under.extend(victim.under);
            touched.push(Arc::clone(replaced));
            victim_status = Some(victim.status);
        }
        let now = UnixTime::from(SystemTime::now());
        let (new, id) = (new_name.to_vec(), id(moved.fid));
        let add = match replaced {
            Some(_) => Edit::Replace(new, id),
            None => Edit::Add(new, id),
        };
        let remove = Edit::Remove(name.to_vec());
        let edited = if same {
            Self::edit_here(from, after_change(from_status, now), &[add, remove])
        } else {
            // What is full is found before anything is changed.
            Self::edit_here(to, after_change(to_status, now), &[add])
                && Self::edit_here(from, after_change(from_status, now), &[remove])
        };
        let last = victim_status.is_some_and(|status| status.link_count <= 1);
        let noted = edited
            && self
                .note_change(
                    &mut here,
                    Change {
                        user: uid,
                        operation: BatchOperation::Rename {
                            old_directory: from.fid.into(),
                            old_name,
                            new_directory: to.fid.into(),
                            new_name: file_name,
                        },
                        under,
                        touched,
                        makes: None,
                        removes: replaced.filter(|_| last).map(|replaced| replaced.fid),
                        bytes: name.len() + new_name.len(),
                        at: now,
                    },
                )
                .is_ok();
        if !noted {
            self.forget_here(&[from, to]);
            return Ok(None);
        }
        if !same {
            let mut state = moved.lock();
            if let Some(mut status) = state.status() {
                status.parent_vnode = to.fid.vnode;
                status.parent_uniquifier = to.fid.uniquifier;
                status.server_mod_time = now;
                state.set_status(status);
                // They come from the directory.
                state.clear_rights();
            }
        }
        let left = victim_status.filter(|_| !last);
        Ok(Some(left.map(|status| less_one(status, now))))
    }

    /// Gives a file another name here, if it and its directory are leased to this machine. Returns the file's status
    /// then. None: it takes a call.
    pub(crate) async fn link_here(
        &self,
        (user, uid): (&User, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        file: &Arc<Vnode>,
    ) -> Result<Option<FetchStatus>, Errno> {
        let Some((line, site)) = self.leased_soon(directory).await else {
            return Ok(None);
        };
        line.room().await;
        let here = Here::lock(&line, &site);
        self.try_link(here, (user, uid), directory, name, file)
    }

    fn try_link(
        &self,
        mut here: Here<'_>,
        (user, uid): (&User, u32),
        directory: &Arc<Vnode>,
        name: &[u8],
        file: &Arc<Vnode>,
    ) -> Result<Option<FetchStatus>, Errno> {
        let Some((status, under)) = here.directory(user, directory, Rights::INSERT) else {
            return Ok(None);
        };
        if entry_in(directory, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let known = settled(&file.lock());
        let inside = |status: &FetchStatus| {
            status.file_type == FileType::File
                && status.parent_vnode == directory.fid.vnode
                && status.parent_uniquifier == directory.fid.uniquifier
        };
        let Some(of_file) = known.filter(inside) else {
            return Ok(None);
        };
        let (Some(file_under), Ok(file_name), true) = (
            here.lease(file, &of_file),
            FileName::new(name),
            is_plain(name),
        ) else {
            return Ok(None);
        };
        let now = UnixTime::from(SystemTime::now());
        let edits = [Edit::Add(name.to_vec(), id(file.fid))];
        if !Self::edit_here(directory, after_change(status, now), &edits) {
            return Ok(None);
        }
        let noted = self.note_change(
            &mut here,
            Change {
                user: uid,
                operation: BatchOperation::Link {
                    directory: directory.fid.into(),
                    name: file_name,
                    existing: file.fid.into(),
                },
                under: vec![under, file_under],
                touched: vec![Arc::clone(directory), Arc::clone(file)],
                makes: None,
                removes: None,
                bytes: name.len(),
                at: now,
            },
        );
        if noted.is_err() {
            self.forget_here(&[directory]);
            return Ok(None);
        }
        let after = FetchStatus {
            link_count: of_file.link_count + 1,
            server_mod_time: now,
            ..of_file
        };
        file.lock().set_status(after);
        Ok(Some(after))
    }

    /// Something has lost a name here; this is left of it.
    fn lost_here(&self, vnode: &Arc<Vnode>, left: Option<FetchStatus>) {
        match left {
            Some(status) => vnode.lock().set_status(status),
            None => self.is_gone(vnode),
        }
    }
}

/// What has a name that is to go, if that can be said for sure.
fn victim(here: &Here<'_>, vnode: &Vnode) -> Result<Option<Victim>, Errno> {
    let known = {
        let state = vnode.lock();
        let status = settled(&state);
        let pages = state.rare.pages.as_ref();
        let pages = pages.map(|copy| (copy.version, Arc::clone(&copy.pages)));
        status.map(|status| (status, pages))
    };
    let Some((status, pages)) = known else {
        return Ok(None);
    };
    let under = here.lease(vnode, &status);
    if vnode.fid.vnode.is_directory() {
        // Whether it is empty only the one knows who has it leased.
        let current = pages.filter(|(version, _)| *version == status.data_version);
        let (Some(_), Some((_, pages))) = (&under, current) else {
            return Ok(None);
        };
        if !is_empty(&pages) {
            return Err(Errno::ENOTEMPTY);
        }
    } else if status.link_count > 1 && under.is_none() {
        // What is left of it the server tells.
        return Ok(None);
    }
    Ok(Some(Victim { status, under }))
}

/// A file's status with one name less.
fn less_one(status: FetchStatus, now: UnixTime) -> FetchStatus {
    FetchStatus {
        link_count: status.link_count - 1,
        server_mod_time: now,
        ..status
    }
}

/// What a name stands for in a directory's copy.
pub(super) fn entry_in(directory: &Vnode, name: &[u8]) -> Option<Fid> {
    let pages = {
        let state = directory.lock();
        Arc::clone(&state.rare.pages.as_ref()?.pages)
    };
    let entry = Directory::new(&pages).ok()?.lookup(name).ok()??;
    Some(entry.id.fid(directory.fid.volume))
}

fn id(fid: Fid) -> EntryId {
    EntryId::new(fid.vnode.0, fid.uniquifier.0)
}
