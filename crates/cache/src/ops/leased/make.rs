//! Files, directories and symlinks made here.

use std::sync::Arc;
use std::time::SystemTime;

use afar_dir::{Directory, DirectoryBuilder, EntryId};
use afar_types::{
    BatchMake, BatchOperation, BatchVnode, DataVersion, FetchStatus, Fid, FileName, FileType,
    Rights, StoreStatus, UnixTime,
};
use afar_xdr::XdrString;

use super::{Change, Here, after_change, is_plain};
use crate::model::directory::{DirectoryCopy, Edit};
use crate::model::error::Errno;
use crate::model::place::Spot;
use crate::model::rights::Above;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;

/// Bytes of quota that the server takes for each: a page or more.
const TAKES: u64 = 4096;
/// Times fids are asked for.
const TRIES: u32 = 2;
/// The permission bits of a symlink, as calls make them.
const SYMLINK_MODE: u32 = 0o755;

/// What is to be made.
#[derive(Clone, Copy)]
pub(crate) enum New<'a> {
    /// A file with these permission bits.
    File(u32),
    /// A directory with these.
    Directory(u32),
    /// A symlink that leads there.
    Symlink(&'a [u8]),
}

impl New<'_> {
    fn mode(self) -> u32 {
        match self {
            Self::File(mode) | Self::Directory(mode) => mode & 0o7777,
            Self::Symlink(_) => SYMLINK_MODE,
        }
    }
}

/// What came of a try.
enum Tried {
    Made(Arc<Vnode>, FetchStatus),
    /// No fids are left in reserve.
    Refill,
    /// It takes a call.
    Call,
}

impl Cache {
    /// Makes something here, if its directory is leased to this machine. None: it takes a call.
    ///
    /// # Errors
    /// [`EEXIST`](Errno::EEXIST).
    pub(crate) async fn make_here(
        &self,
        (user, uid): (&Arc<User>, u32),
        directory: &Spot,
        name: &[u8],
        new: New<'_>,
    ) -> Result<Option<(Spot, FetchStatus)>, Errno> {
        for _ in 0..TRIES {
            let Some((line, site)) = self.leased_soon(&directory.vnode).await else {
                return Ok(None);
            };
            line.room().await;
            let tried = {
                let here = Here::lock(&line, &site);
                self.try_make(here, (user, uid), &directory.vnode, (name, new))?
            };
            match tried {
                Tried::Call => return Ok(None),
                // Whatever came of it, the next try tells.
                Tried::Refill => drop(self.refill(user, &site, &directory.vnode.volume).await),
                Tried::Made(vnode, status) => {
                    self.refill_ahead(user, &site, &directory.vnode.volume);
                    let mount = Arc::clone(&directory.mount);
                    return Ok(Some((Spot { mount, vnode }, status)));
                }
            }
        }
        Ok(None)
    }

    fn try_make(
        &self,
        mut here: Here<'_>,
        (user, uid): (&User, u32),
        directory: &Arc<Vnode>,
        (name, new): (&[u8], New<'_>),
    ) -> Result<Tried, Errno> {
        let Some((status, under)) = here.directory(user, directory, Rights::INSERT) else {
            return Ok(Tried::Call);
        };
        if is_there(directory, name) {
            return Err(Errno::EEXIST);
        }
        let is_directory = matches!(new, New::Directory(_));
        // What else there is in a mode is for administrators, and no server tells who is one.
        let Some(owner) = user
            .number(directory.cell())
            .filter(|_| new.mode() <= 0o777)
        else {
            return Ok(Tried::Call);
        };
        let target = match new {
            New::Symlink(target) => XdrString::new(target).ok(),
            _ => Some(XdrString::default()),
        };
        let (Ok(file_name), Some(target), true) = (FileName::new(name), target, is_plain(name))
        else {
            return Ok(Tried::Call);
        };
        if !here.holder.has_reserve(directory.fid.volume, is_directory) {
            return Ok(Tried::Refill);
        }
        if !here.holder.spend(directory.fid.volume, TAKES) {
            return Ok(Tried::Call);
        }
        let born = here.holder.born(here.now, directory.fid, is_directory);
        let Some(fid) = born else {
            return Ok(Tried::Call);
        };
        let now = UnixTime::from(SystemTime::now());
        let mut after = after_change(status, now);
        after.author = owner;
        after.link_count += u32::from(is_directory);
        let edits = [Edit::Add(name.to_vec(), id(fid))];
        if !Self::edit_here(directory, after, &edits) {
            here.holder.forget(fid);
            here.holder.settled(fid);
            return Ok(Tried::Call);
        }
        let make = BatchMake {
            directory: directory.fid.into(),
            name: file_name,
            attributes: StoreStatus {
                mask: StoreStatus::SET_MODE | StoreStatus::SET_MOD_TIME,
                unix_mode_bits: new.mode(),
                client_mod_time: now,
                ..StoreStatus::default()
            },
            wanted: BatchVnode::from(fid),
        };
        let made = FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            link_count: 1,
            data_version: DataVersion(0),
            length: 0,
            author: owner,
            owner,
            parent_vnode: directory.fid.vnode,
            parent_uniquifier: directory.fid.uniquifier,
            unix_mode_bits: new.mode(),
            client_mod_time: now,
            server_mod_time: now,
            lock_count: 0,
            ..status
        };
        let (operation, made) = match new {
            New::File(_) => (
                BatchOperation::Create(make),
                FetchStatus {
                    file_type: FileType::File,
                    // spec: afs-rpc#changing-directories
                    caller_access: status.caller_access | Rights::ADMINISTER,
                    ..made
                },
            ),
            New::Directory(_) => (
                BatchOperation::MakeDir(make),
                FetchStatus {
                    link_count: 2,
                    length: afar_dir::PAGE_SIZE as u64,
                    // spec: afs-rpc#status
                    parent_vnode: fid.vnode,
                    parent_uniquifier: fid.uniquifier,
                    ..made
                },
            ),
            New::Symlink(to) => (
                BatchOperation::Symlink(make, target),
                FetchStatus {
                    file_type: FileType::Symlink,
                    length: to.len() as u64,
                    ..made
                },
            ),
        };
        let vnode = self.0.vnodes.of(&directory.volume, fid);
        let noted = self.note_change(
            &mut here,
            Change {
                user: uid,
                operation,
                under: vec![under],
                touched: vec![Arc::clone(directory)],
                makes: Some(Arc::clone(&vnode)),
                removes: None,
                bytes: name.len(),
                at: now,
            },
        );
        if noted.is_err() {
            here.holder.forget(fid);
            here.holder.settled(fid);
            self.forget_here(&[directory]);
            return Ok(Tried::Call);
        }
        let promise = directory.lock().promise;
        let above = Above {
            own: Some(status.caller_access),
            anybody: Some(status.anonymous_access),
        };
        let pages = is_directory
            .then(|| DirectoryBuilder::new(id(fid), id(directory.fid)).finish())
            .map(Arc::new);
        {
            let mut state = vnode.lock();
            state.clear_rights();
            state.note_rights(user.id, &made, above);
            state.set_status(made);
            state.promise = promise;
            if let Some(pages) = &pages {
                let pages = Arc::clone(pages);
                state.rare.pages = Some(DirectoryCopy::new(made.data_version, pages));
            }
        }
        if let Some(pages) = pages {
            self.0.pages.note(&vnode, pages.len());
        }
        Ok(Tried::Made(vnode, made))
    }
}

/// Whether a directory's copy has a name.
fn is_there(directory: &Vnode, name: &[u8]) -> bool {
    super::names::entry_in(directory, name).is_some()
}

fn id(fid: Fid) -> EntryId {
    EntryId::new(fid.vnode.0, fid.uniquifier.0)
}

/// Whether a directory's pages have nothing but the dots.
pub(super) fn is_empty(pages: &[u8]) -> bool {
    Directory::new(pages).is_ok_and(|pages| pages.entries().count() <= 2)
}
