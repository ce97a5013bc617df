//! Reading directories.

use std::sync::Arc;

use afar_cell::Error;
use afar_dir::{Directory, slots_for};
use afar_types::FileType;

use crate::model::error::Errno;
use crate::model::order::Raw;
use crate::model::place::{Referent, Spot};
use crate::model::types::{DirEntry, Entry, Handle, Ino, Kind, Who};
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::Cache;
use crate::ops::names::damaged;
use crate::table::handles::{Open, OpenDirectory};
use crate::table::inodes::number_of_fid;

/// Entries handed out at a time: more than a kernel's buffer takes.
const BATCH: usize = 512;
/// Of those with attributes.
const BATCH_PLUS: usize = 128;
/// Entries whose statuses are asked for at a time: eight calls for fifty.
pub(crate) const STATUSES: usize = 400;

impl Cache {
    /// Opens a directory: its entries as they are now.
    ///
    /// # Errors
    /// As servers say.
    pub async fn opendir(&self, who: Who, ino: Ino) -> Result<Handle, Errno> {
        let user = self.user(who.uid).await;
        let inode = self.visit(&user, ino).await?;
        let open = match &inode.place {
            Referent::Volumes | Referent::Cell(_) => Open::Cells(Arc::default()),
            Referent::Cells => {
                let mut names: Vec<Vec<u8>> = Vec::new();
                for cell in self.0.client.cells() {
                    let name = cell.name.as_str();
                    names.push(name.into());
                    names.push(format!(".{name}").into());
                }
                names.sort_unstable();
                Open::Cells(Arc::new(names))
            }
            Referent::Vnode(spot) => {
                self.may_look(&user, &spot.vnode).await?;
                self.read_to_list(&user, spot).await;
                let pages = self.pages(&user, &spot.vnode).await?;
                let told = self.directory_opened(&user, spot);
                Open::Directory(Arc::new(OpenDirectory {
                    inode: inode.clone(),
                    spot: spot.clone(),
                    pages,
                    opener: who.uid,
                    told,
                }))
            }
        };
        self.0.handles.add(open)
    }

    /// Some of the entries from this offset on, 0 at first; none at the end. With `plus` each comes
    /// as a look-up would answer it, but for mount points and what no server tells.
    ///
    /// # Errors
    /// [`EIO`](Errno::EIO) when the directory is damaged.
    pub async fn readdir(
        &self,
        handle: Handle,
        offset: u64,
        plus: bool,
    ) -> Result<Vec<DirEntry>, Errno> {
        let directory = match self.0.handles.find(handle)? {
            Open::Cells(names) => return Ok(cells(&names, offset)),
            Open::Directory(directory) => directory,
            Open::File(_) => return Err(Errno::EBADF),
        };
        let most = if plus { STATUSES } else { BATCH };
        let spot = &directory.spot;
        let mut raw = entries(&spot.vnode, &directory.pages, offset, most)?;
        if plus {
            // What others looked up in a directory that they read here has come with it.
            if !directory.told {
                let user = self.user(directory.opener).await;
                self.ask_statuses(&user, spot, &raw).await;
            }
            raw.truncate(BATCH_PLUS);
        }
        let entry = |raw: Raw| self.dir_entry(&directory, raw, plus);
        Ok(raw.into_iter().map(entry).collect())
    }

    /// Waits until the server has all changes of a directory, and all others of its volume, on its disk.
    ///
    /// # Errors
    /// As servers say; also of a change that was made here before, and that its server did not make.
    pub async fn fsyncdir(&self, handle: Handle) -> Result<(), Errno> {
        let directory = match self.0.handles.find(handle)? {
            Open::Cells(_) => return Ok(()),
            Open::Directory(directory) => directory,
            Open::File(_) => return Err(Errno::EBADF),
        };
        let vnode = &directory.spot.vnode;
        self.volume_sent(vnode).await?;
        vnode.lock().take_failure()
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        self.0.handles.remove(handle);
    }

    /// Reads a directory, and of its entries what a first listing of it takes.
    pub(crate) async fn read_all(&self, user: &User, spot: &Spot) -> Result<(), Errno> {
        let pages = self.pages(user, &spot.vnode).await?;
        let raw = entries(&spot.vnode, &pages, 0, STATUSES)?;
        self.ask_statuses(user, spot, &raw).await;
        Ok(())
    }

    /// Asks for the statuses of entries that are not promised, fifty to a call. Errors are told when the
    /// entry itself is looked up.
    pub(crate) async fn ask_statuses(&self, user: &User, directory: &Spot, raw: &[Raw]) {
        let volume = &directory.mount.volume;
        // Before the question: a break that comes before the answer is seen by it.
        let mark = self.0.breaks.mark();
        let entries = raw.iter().filter(|entry| !is_dots(&entry.name));
        let vnodes = entries.map(|entry| self.0.vnodes.of(volume, entry.fid));
        let is_unknown = |vnode: &Arc<Vnode>| vnode.lock().promised().is_none();
        let unknown: Vec<_> = vnodes.filter(is_unknown).collect();
        let fids: Vec<_> = unknown.iter().map(|vnode| vnode.fid).collect();
        let answers = user.client.promised_many(volume, &fids).await;
        for (vnode, answer) in unknown.iter().zip(answers) {
            match answer {
                // A wrong one was logged.
                Ok(promised) => drop(self.accept(user, vnode, &promised, mark)),
                Err(Error::Gone) => {}
                Err(error) => drop(self.failed(vnode, "asking for a status", &error)),
            }
        }
    }

    fn dir_entry(&self, directory: &OpenDirectory, raw: Raw, plus: bool) -> DirEntry {
        let spot = self.beside(&directory.spot, raw.fid);
        let status = spot.vnode.lock().status();
        let kind = match status.map(|status| (status.file_type, status.is_mount_point())) {
            // spec: volumes#vnodes
            _ if raw.fid.vnode.is_directory() => Some(Kind::Dir),
            Some((FileType::Symlink, false)) => Some(Kind::Symlink),
            // Programs see what it leads to, and would not descend into a link.
            Some((FileType::Symlink, true)) => Some(Kind::Dir),
            Some((FileType::File, _)) => Some(Kind::File),
            _ => None,
        };
        // What is not looked up has the number that it will most likely get.
        let mut ino = number_of_fid(spot.vnode.cell(), raw.fid);
        let mut entry: Option<Entry> = None;
        // The kernel counts no look-up of the dots, and would never take one back.
        if let Some(status) = status.filter(|status| plus && !status.is_mount_point())
            && !is_dots(&raw.name)
        {
            let answer = self.entry(&directory.inode, &raw.name, &spot, &status);
            ino = answer.attr.ino;
            entry = Some(answer);
        } else if let Some(known) = self.0.inodes.number_of(&spot) {
            ino = known;
        }
        DirEntry {
            ino,
            kind,
            name: raw.name,
            offset: raw.next,
            entry,
        }
    }
}

/// Some entries of a directory, from this offset on.
pub(crate) fn entries(
    vnode: &Vnode,
    pages: &[u8],
    offset: u64,
    most: usize,
) -> Result<Vec<Raw>, Errno> {
    let pages = Directory::new(pages).map_err(|error| damaged(vnode, &error))?;
    let position = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let mut raw = Vec::new();
    for entry in pages.entries_from(position).take(most) {
        let entry = entry.map_err(|error| damaged(vnode, &error))?;
        raw.push(Raw {
            name: entry.name.to_vec(),
            fid: entry.id.fid(vnode.fid.volume),
            next: (entry.position + slots_for(entry.name.len())) as u64,
        });
    }
    Ok(raw)
}

pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The list of cells from this offset on.
fn cells(names: &[Vec<u8>], offset: u64) -> Vec<DirEntry> {
    let dots = [b".".to_vec(), b"..".to_vec()];
    let all = dots.iter().chain(names).zip(1_u64..);
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let entries = all.skip(from).take(BATCH).map(|(name, number)| DirEntry {
        ino: if number <= 2 {
            Ino::ROOT
        } else {
            Ino(u64::MAX - number)
        },
        kind: Some(Kind::Dir),
        name: name.clone(),
        offset: number,
        entry: None,
    });
    entries.collect()
}
