//! The cache as its users see it.

use afar_cell::Client;
use bytes::Bytes;
use tokio::sync::broadcast;

use crate::config::CacheConfig;
use crate::error::{CacheError, Errno};
use crate::types::*;

/// A cache manager. Cheap to clone; used from within a tokio runtime. End it with
/// [`close`](Self::close).
///
/// Every request but those of open handles says who makes it. Failures are told as an [`Errno`], and
/// logged with the server and the fid when they are not the asker's doing.
#[derive(Debug, Clone)]
pub struct Cache(());

impl Cache {
    /// Opens the cache in its directory for files this client reaches.
    ///
    /// # Errors
    /// When the directory cannot be used, or the volume at the root cannot be found.
    pub async fn open(client: Client, config: CacheConfig) -> Result<Self, CacheError> {
        let _ = (client, config);
        Ok(Self(()))
    }

    /// Stores what is not stored yet and gives all promises back. Later requests fail.
    pub async fn close(&self) {}

    /// What was handed out with a time it holds, and no longer does. A receiver that lags must take
    /// everything for invalid.
    #[must_use]
    pub fn invalidations(&self) -> broadcast::Receiver<Invalidation> {
        broadcast::Sender::new(1).subscribe()
    }

    /// What a name in a directory stands for. It counts until it is [forgotten](Self::forget).
    ///
    /// # Errors
    /// [`ENOENT`](Errno::ENOENT) when there is no such name; others as servers say.
    pub async fn lookup(&self, who: Who, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let _ = (who, parent, name);
        Err(Errno::ENOSYS)
    }

    /// Takes so many answers with this number back.
    pub fn forget(&self, ino: Ino, count: u64) {
        let _ = (ino, count);
    }

    /// The attributes of something.
    ///
    /// # Errors
    /// As servers say.
    pub async fn getattr(&self, who: Who, ino: Ino) -> Result<Attr, Errno> {
        let _ = (who, ino);
        Err(Errno::ENOSYS)
    }

    /// Sets attributes. A length set is stored at once, unless the file is open for writing.
    ///
    /// # Errors
    /// As servers say.
    pub async fn setattr(
        &self,
        who: Who,
        ino: Ino,
        set: SetAttr,
        handle: Option<Handle>,
    ) -> Result<Attr, Errno> {
        let _ = (who, ino, set, handle);
        Err(Errno::ENOSYS)
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// [`EINVAL`](Errno::EINVAL) when it is none; others as servers say.
    pub async fn readlink(&self, who: Who, ino: Ino) -> Result<Bytes, Errno> {
        let _ = (who, ino);
        Err(Errno::ENOSYS)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As servers say.
    pub async fn mkdir(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Entry, Errno> {
        let _ = (who, parent, name, mode);
        Err(Errno::ENOSYS)
    }

    /// Makes a file, unless it exists and need not be new, and opens it.
    ///
    /// # Errors
    /// As servers say.
    pub async fn create(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Handle), Errno> {
        let _ = (who, parent, name, mode, flags);
        Err(Errno::ENOSYS)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// As servers say.
    pub async fn symlink(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let _ = (who, parent, name, target);
        Err(Errno::ENOSYS)
    }

    /// Gives a file another name, in the directory it is in.
    ///
    /// # Errors
    /// [`EXDEV`](Errno::EXDEV) for another directory; others as servers say.
    pub async fn link(&self, who: Who, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, Errno> {
        let _ = (who, ino, parent, name);
        Err(Errno::ENOSYS)
    }

    /// Removes a name of a file or symlink. Its data stays as long as it is open.
    ///
    /// # Errors
    /// As servers say.
    pub async fn unlink(&self, who: Who, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let _ = (who, parent, name);
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As servers say.
    pub async fn rmdir(&self, who: Who, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let _ = (who, parent, name);
        Err(Errno::ENOSYS)
    }

    /// Moves a name within a volume.
    ///
    /// # Errors
    /// [`EXDEV`](Errno::EXDEV) to another volume, [`EINVAL`](Errno::EINVAL) for flags AFS cannot
    /// follow; others as servers say.
    pub async fn rename(
        &self,
        who: Who,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let _ = (who, parent, name, new_parent, new_name, flags);
        Err(Errno::ENOSYS)
    }

    /// Opens a directory: its entries as they are now.
    ///
    /// # Errors
    /// As servers say.
    pub async fn opendir(&self, who: Who, ino: Ino) -> Result<Handle, Errno> {
        let _ = (who, ino);
        Err(Errno::ENOSYS)
    }

    /// Some of the entries from this offset on, 0 at first; none at the end. With `plus` each comes
    /// as a look-up would answer it, where that is known or a server tells.
    ///
    /// # Errors
    /// [`EIO`](Errno::EIO) when the directory is damaged.
    pub async fn readdir(
        &self,
        handle: Handle,
        offset: u64,
        plus: bool,
    ) -> Result<Vec<DirEntry>, Errno> {
        let _ = (handle, offset, plus);
        Err(Errno::ENOSYS)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: Handle) {
        let _ = handle;
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As servers say.
    pub async fn open_file(
        &self,
        who: Who,
        ino: Ino,
        flags: OpenFlags,
    ) -> Result<(Handle, KeepCache), Errno> {
        let _ = (who, ino, flags);
        Err(Errno::ENOSYS)
    }

    /// Reads octets; fewer than asked for at the end only.
    ///
    /// # Errors
    /// As servers say.
    pub async fn read(&self, handle: Handle, offset: u64, size: u32) -> Result<Bytes, Errno> {
        let _ = (handle, offset, size);
        Err(Errno::ENOSYS)
    }

    /// Writes octets. They are stored when the file is closed, or earlier.
    ///
    /// # Errors
    /// When there is no room in the cache, or an earlier write could not be stored.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let _ = (handle, offset, data);
        Err(Errno::ENOSYS)
    }

    /// Stores what was written, as a descriptor is closed by this owner of locks, whose POSIX locks
    /// end with it.
    ///
    /// # Errors
    /// As servers say; what could not be stored is kept and tried again.
    pub async fn flush(&self, handle: Handle, owner: u64) -> Result<(), Errno> {
        let _ = (handle, owner);
        Err(Errno::ENOSYS)
    }

    /// Stores what was written, on the server's disk.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        let _ = handle;
        Err(Errno::ENOSYS)
    }

    /// Closes a file. `owner` is that of flock locks to give up, if there may be any.
    pub async fn release(&self, handle: Handle, owner: Option<u64>) {
        let _ = (handle, owner);
    }

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
        let _ = (handle, owner, lock);
        Err(Errno::ENOSYS)
    }

    /// Takes or gives up a lock; with `wait`, as soon as it is free. AFS locks whole files, so between
    /// machines any two locks of one file conflict, unless both are for reading.
    ///
    /// # Errors
    /// [`EAGAIN`](Errno::EAGAIN) when it is not free; others as servers say.
    pub async fn setlk(
        &self,
        handle: Handle,
        owner: u64,
        lock: Lock,
        wait: bool,
    ) -> Result<(), Errno> {
        let _ = (handle, owner, lock, wait);
        Err(Errno::ENOSYS)
    }

    /// Space of the volume something is in.
    ///
    /// # Errors
    /// As servers say.
    pub async fn statfs(&self, ino: Ino) -> Result<StatFs, Errno> {
        let _ = ino;
        Err(Errno::ENOSYS)
    }

    /// An extended attribute: `afs.fid`, `afs.cell`, `afs.volume`, `afs.acl`, `afs.mountpoint`,
    /// `afs.data_version`, `afs.access`, `afs.servers`.
    ///
    /// # Errors
    /// [`ENODATA`](Errno::ENODATA) when there is none of this name; others as servers say.
    pub async fn getxattr(&self, who: Who, ino: Ino, name: &[u8]) -> Result<Bytes, Errno> {
        let _ = (who, ino, name);
        Err(Errno::ENOSYS)
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// As servers say.
    pub async fn listxattr(&self, who: Who, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        let _ = (who, ino);
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute: `afs.acl`.
    ///
    /// # Errors
    /// [`EOPNOTSUPP`](Errno::EOPNOTSUPP) for others; [`EINVAL`](Errno::EINVAL) for text that is no
    /// access control list; others as servers say.
    pub async fn setxattr(
        &self,
        who: Who,
        ino: Ino,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Errno> {
        let _ = (who, ino, name, value);
        Err(Errno::ENOSYS)
    }

    /// Whether something may be read (4), written (2) and executed or entered (1), by the rights the
    /// server gives.
    ///
    /// # Errors
    /// [`EACCES`](Errno::EACCES) when it may not; others as servers say.
    pub async fn access(&self, who: Who, ino: Ino, mask: u32) -> Result<(), Errno> {
        let _ = (who, ino, mask);
        Err(Errno::ENOSYS)
    }
}
