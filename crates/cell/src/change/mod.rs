//! Names made, moved and removed.
//!
//! A lost answer leaves it open whether the server has done what it was asked for, and none of these
//! operations may be done twice: a name just made exists, one just removed may belong to another
//! file by now. So before one is tried again, the directory is read to see whether it is done.

mod doubt;

use std::sync::Arc;
use std::time::SystemTime;

use afar_rpc::{RpcError, rxafs};
use afar_types::{CallBack, FetchStatus, Fid, FileName, FileType, StoreStatus, UnixTime};
use afar_xdr::{LengthError, XdrString};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::files::DirEntry;
use crate::mountpoint::MountPoint;
use crate::promise::{Promised, checked};
use crate::volume::Volume;

/// Mode of a mount point: a symlink that nobody may execute.
// spec: volumes#symbolic-links-and-mount-points
const MOUNT_POINT_MODE: u32 = 0o644;
/// Mode of an ordinary symlink, as OpenAFS's clients make them.
const SYMLINK_MODE: u32 = 0o755;

/// Something new.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Made {
    /// Its name in the volume.
    pub fid: Fid,
    /// Its status.
    pub status: FetchStatus,
    /// The status again as the server's answer told it, with its promise if it gave one; none if the answer was lost.
    pub promised: Option<Promised>,
    /// The status of the directory it is in, if the server told it.
    pub directory: Option<FetchStatus>,
}

impl Made {
    /// As the server's answer tells it.
    fn told(fid: Fid, promised: Promised, directory: FetchStatus) -> Self {
        Self {
            fid,
            status: promised.status,
            promised: Some(promised),
            directory: Some(directory),
        }
    }

    /// As the directory and its status tell it, after the server's answer was lost.
    fn found(fid: Fid, status: FetchStatus) -> Self {
        Self {
            fid,
            status,
            promised: None,
            directory: None,
        }
    }

    fn checked(self) -> Result<Self, Error> {
        checked(self.status).map(|_| self)
    }
}

/// What a change has made of what it changed: as the server told it, which it does unless its answer
/// is lost.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Changed {
    /// The status of the directory.
    pub directory: Option<FetchStatus>,
    /// The status of the other one: a move's new directory, or the file that got another name.
    pub other: Option<FetchStatus>,
}

impl Client {
    /// Makes an empty file (RXAFS CreateFile). Without a time in `attributes` it gets that of now.
    ///
    /// # Errors
    /// When the name is taken or impossible, or the server refuses.
    pub async fn create_file(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        attributes: StoreStatus,
    ) -> Result<Made, Error> {
        self.make(
            volume,
            directory,
            (name, attributes),
            |server, name, attributes| async move {
                let (begin, peer) = (Instant::now(), server.connection().peer());
                let reply = server.create_file(directory, name, attributes).await?;
                let (status, callback) = (reply.status, reply.callback);
                let promised = Promised::new(peer, begin, status, callback, reply.vol_sync);
                Ok(Made::told(reply.fid, promised, reply.directory_status))
            },
            |status| status.file_type == FileType::File && status.length == 0,
        )
        .await
    }

    /// Makes an empty directory (RXAFS MakeDir), with the access control list of the one it is in.
    /// Without a time in `attributes` it gets that of now.
    ///
    /// # Errors
    /// When the name is taken or impossible, or the server refuses.
    pub async fn make_dir(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        attributes: StoreStatus,
    ) -> Result<Made, Error> {
        self.make(
            volume,
            directory,
            (name, attributes),
            |server, name, attributes| async move {
                let (begin, peer) = (Instant::now(), server.connection().peer());
                let reply = server.make_dir(directory, name, attributes).await?;
                let (status, callback) = (reply.status, reply.callback);
                let promised = Promised::new(peer, begin, status, callback, reply.vol_sync);
                Ok(Made::told(reply.fid, promised, reply.directory_status))
            },
            |status| status.file_type == FileType::Directory,
        )
        .await
    }

    /// Makes something by a request, and knows it again by its status.
    async fn make<Q, F>(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        (name, attributes): (&[u8], StoreStatus),
        request: Q,
        is_such: impl Fn(&FetchStatus) -> bool + Sync,
    ) -> Result<Made, Error>
    where
        Q: Fn(rxafs::Client, FileName, StoreStatus) -> F + Sync,
        F: Future<Output = Result<Made, RpcError>> + Send,
    {
        let (name, attributes) = (file_name(name)?, timed(attributes));
        let made = self
            .change(
                volume,
                &[directory],
                |server| request(server, name.clone(), attributes),
                || async {
                    let found = self.find_made(volume, directory, &name, attributes);
                    let found = found.await?.filter(|(_, status)| is_such(status));
                    Ok(found.map(|(fid, status)| Made::found(fid, status)))
                },
            )
            .await;
        made?.checked()
    }

    /// Makes a symlink (RXAFS Symlink).
    ///
    /// # Errors
    /// When the name is taken or impossible, the target longer than 1,024 bytes, or the server
    /// refuses.
    pub async fn symlink(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        target: &[u8],
    ) -> Result<Made, Error> {
        self.link_with_mode(volume, directory, name, target, SYMLINK_MODE)
            .await
    }

    /// Makes a mount point: a symlink without execute bits. The right `a` is needed.
    ///
    /// # Errors
    /// When the name is taken or impossible, or the server refuses.
    pub async fn make_mount(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        mount: &MountPoint,
    ) -> Result<Made, Error> {
        let text = mount.to_string();
        self.link_with_mode(volume, directory, name, text.as_bytes(), MOUNT_POINT_MODE)
            .await
    }

    async fn link_with_mode(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        target: &[u8],
        mode: u32,
    ) -> Result<Made, Error> {
        let name = file_name(name)?;
        let text = XdrString::<1024>::new(target)
            .map_err(|problem| text_error("the target", target, problem))?;
        let attributes = timed(StoreStatus {
            mask: StoreStatus::SET_MODE,
            unix_mode_bits: mode,
            ..StoreStatus::default()
        });
        let made = self
            .change(
                volume,
                &[directory],
                |server| {
                    let (name, text) = (name.clone(), text.clone());
                    async move {
                        let (begin, peer) = (Instant::now(), server.connection().peer());
                        let reply = server.symlink(directory, name, text, attributes).await?;
                        // RXAFS Symlink's reply has no promise.
                        let none = CallBack::default();
                        let status = reply.status;
                        let promised = Promised::new(peer, begin, status, none, reply.vol_sync);
                        Ok(Made::told(reply.fid, promised, reply.directory_status))
                    }
                },
                || async {
                    let found = self.find_made(volume, directory, &name, attributes);
                    let Some((fid, status)) = found.await? else {
                        return Ok(None);
                    };
                    let same = status.file_type == FileType::Symlink
                        && self.read_link(volume, fid).await? == target;
                    Ok(same.then(|| Made::found(fid, status)))
                },
            )
            .await;
        made?.checked()
    }

    /// Gives a file another name in the directory it is in (RXAFS Link); AFS has hard links in one
    /// directory only.
    ///
    /// # Errors
    /// When the name is taken or impossible, the file is in another directory, or the server
    /// refuses.
    pub async fn link(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
        existing: Fid,
    ) -> Result<Changed, Error> {
        let name = file_name(name)?;
        self.change(
            volume,
            &[directory],
            |server| {
                let name = name.clone();
                async move {
                    // spec: afs-rpc#changing-directories
                    let reply = server.link(directory, name, existing).await?;
                    Ok(Changed {
                        directory: Some(reply.directory_status),
                        other: Some(reply.status),
                    })
                }
            },
            || async {
                let found = self.lookup(volume, directory, name.as_bytes()).await?;
                Ok((found == Some(existing)).then(Changed::default))
            },
        )
        .await
    }

    /// Removes a name of a file, symlink or mount point, and the file with its last name (RXAFS
    /// RemoveFile).
    ///
    /// # Errors
    /// When there is no such name, it is a directory's, or the server refuses.
    pub async fn remove_file(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        entry: &DirEntry,
    ) -> Result<Changed, Error> {
        self.remove(
            volume,
            directory,
            entry,
            &[directory],
            |server, name| async move {
                let reply = server.remove_file(directory, name).await?;
                Ok(reply.directory_status)
            },
        )
        .await
    }

    /// Removes an empty directory (RXAFS RemoveDir).
    ///
    /// # Errors
    /// When there is no such directory, something is in it, or the server refuses.
    pub async fn remove_dir(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        entry: &DirEntry,
    ) -> Result<Changed, Error> {
        self.remove(
            volume,
            directory,
            entry,
            &[directory, entry.fid],
            |server, name| async move {
                let reply = server.remove_dir(directory, name).await?;
                Ok(reply.directory_status)
            },
        )
        .await
    }

    /// Removes a name by a request that changes these directories.
    async fn remove<Q, F>(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        entry: &DirEntry,
        changed: &[Fid],
        request: Q,
    ) -> Result<Changed, Error>
    where
        Q: Fn(rxafs::Client, FileName) -> F + Sync,
        F: Future<Output = Result<FetchStatus, RpcError>> + Send,
    {
        let name = file_name(&entry.name)?;
        let directory = self
            .change(
                volume,
                changed,
                |server| {
                    let removed = request(server, name.clone());
                    async move { removed.await.map(Some) }
                },
                || async {
                    let gone = self.is_gone(volume, directory, entry).await?;
                    Ok(gone.map(|()| None))
                },
            )
            .await?;
        Ok(Changed {
            directory,
            other: None,
        })
    }

    /// Moves a name within a volume (RXAFS Rename). What had the new name is replaced, if that is a
    /// file and so is the other, or an empty directory and so is the other.
    ///
    /// # Errors
    /// When there is no such name, or the server refuses.
    pub async fn rename(
        &self,
        volume: &Arc<Volume>,
        old_directory: Fid,
        entry: &DirEntry,
        new_directory: Fid,
        new_name: &[u8],
    ) -> Result<Changed, Error> {
        let (old, new) = (file_name(&entry.name)?, file_name(new_name)?);
        self.change(
            volume,
            // A directory that moves gets another `..`.
            &[old_directory, new_directory, entry.fid],
            |server| {
                let (old, new) = (old.clone(), new.clone());
                async move {
                    let renamed = server.rename(old_directory, old, new_directory, new);
                    let reply = renamed.await?;
                    Ok(Changed {
                        directory: Some(reply.old_directory_status),
                        other: Some(reply.new_directory_status),
                    })
                }
            },
            || async {
                let moved = self.lookup(volume, new_directory, new.as_bytes()).await?;
                Ok((moved == Some(entry.fid)).then(Changed::default))
            },
        )
        .await
    }

    /// Sets attributes (RXAFS StoreStatus): those whose bits are in the mask. It is tried again, as
    /// setting the same twice does no harm.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn set_attributes(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        attributes: StoreStatus,
    ) -> Result<FetchStatus, Error> {
        volume.check_writable()?;
        let reply = self
            .on_volume(volume, |server| async move {
                server.store_status(fid, attributes).await
            })
            .await?;
        checked(reply.status)
    }
}

/// With the time of now, unless there is another: by its time something new is known again.
fn timed(mut attributes: StoreStatus) -> StoreStatus {
    if attributes.mask & StoreStatus::SET_MOD_TIME == 0 {
        attributes.mask |= StoreStatus::SET_MOD_TIME;
        attributes.client_mod_time = UnixTime::from(SystemTime::now());
    }
    attributes
}

/// A name as requests carry it.
fn file_name(name: &[u8]) -> Result<FileName, Error> {
    FileName::new(name).map_err(|problem| text_error("the name", name, problem))
}

pub(crate) fn text_error(what: &'static str, text: &[u8], problem: LengthError) -> Error {
    Error::Text {
        what,
        text: String::from_utf8_lossy(text).into_owned(),
        problem,
    }
}
