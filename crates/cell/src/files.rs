//! Status, directories and symlinks of a volume.

use std::sync::Arc;

use afar_dir::Directory;
use afar_net::{AbortCode, CallError};
use afar_rpc::{RpcCause, RpcError, rxafs};
use afar_types::{CallBack, FetchStatus, Fid, Fids};
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::ended::ended;
use crate::error::Error;
use crate::fetch::Memory;
use crate::promise::Promised;
use crate::volume::{Volume, Way};
use crate::waits::carried;

/// Fids a bulk call takes (AFSCBMAX).
// spec: afs-rpc#bulk-status
const BULK_MOST: usize = 50;
/// Bulk calls at a time.
const BULK_CALLS: usize = 8;
/// Fids whose statuses fit into one packet. An OpenAFS file server begins many a reply with a packet or
/// two and waits for their acknowledgement, so that a reply of several packets takes several round trips.
// spec: rx#how-openafs-sends
const BULK_FAR: usize = 14;
const BULK_CALLS_FAR: usize = 16;
/// What is asked for of a directory at first: of most directories, all.
const DIRECTORY_FIRST: u64 = 86 << 10;
/// Bytes of the largest directory there can be.
// spec: volumes#directory-pages
const DIRECTORY_MOST: u64 = (afar_dir::MAX_PAGES * afar_dir::PAGE_SIZE) as u64;
/// Bytes of the longest symlink (AFS-3 AFSPATHMAX).
// spec: volumes#symbolic-links-and-mount-points
const SYMLINK_MOST: u64 = 1024;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name: not always UTF-8.
    pub name: Vec<u8>,
    /// What it names.
    pub fid: Fid,
}

/// A small object's data and status, which came together.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Contents {
    /// Its status, and the server's promise.
    pub promised: Promised,
    /// Its data.
    pub data: Bytes,
}

impl Client {
    /// The status of a file, directory, symlink or mount point itself.
    ///
    /// # Errors
    /// When no server of the volume gives it.
    pub async fn status(&self, volume: &Arc<Volume>, fid: Fid) -> Result<FetchStatus, Error> {
        Ok(self.promised(volume, fid).await?.status)
    }

    /// The same, with the server's promise to tell when it changes.
    ///
    /// # Errors
    /// When no server of the volume gives it.
    pub async fn promised(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Promised, Error> {
        let promised = self
            .on_volume(volume, |server| async move {
                let begin = Instant::now();
                // spec: afs-rpc#promises
                let reply = server.fetch_status(fid).await?;
                let peer = server.connection().peer();
                let (status, callback) = (reply.status, reply.callback);
                Ok(Promised::new(peer, begin, status, callback, reply.vol_sync))
            })
            .await?;
        promised.checked()
    }

    /// The status of each of these, in their order: up to fifty to a call, several calls at a time.
    ///
    /// An error is that of one fid only; if no server answers, all have it.
    pub async fn statuses(
        &self,
        volume: &Arc<Volume>,
        fids: &[Fid],
    ) -> Vec<Result<FetchStatus, Error>> {
        let promised = self.promised_many(volume, fids).await.into_iter();
        let statuses = promised.map(|result| result.map(|promised| promised.status));
        statuses.collect()
    }

    /// The same, with the server's promises.
    pub async fn promised_many(
        &self,
        volume: &Arc<Volume>,
        fids: &[Fid],
    ) -> Vec<Result<Promised, Error>> {
        let (size, calls) = match volume.way().await {
            Way::Far => (BULK_FAR, BULK_CALLS_FAR),
            Way::Afar | Way::Near => (BULK_MOST, BULK_CALLS),
        };
        let mut results: Vec<Vec<_>> = vec![Vec::new(); fids.len().div_ceil(size)];
        let mut groups = fids.chunks(size).map(<[Fid]>::to_vec).enumerate();
        let mut running = JoinSet::new();
        loop {
            while running.len() < calls
                && let Some((place, group)) = groups.next()
            {
                let (client, volume) = (self.clone(), Arc::clone(volume));
                let ask = async move { (place, client.bulk(&volume, &group).await) };
                running.spawn(carried(ask));
            }
            match running.join_next().await {
                Some(Ok((place, group))) => results[place] = group,
                // A group without results would be misread.
                Some(Err(error)) => ended(error).await,
                None => return results.into_iter().flatten().collect(),
            }
        }
    }

    /// One bulk call, or single ones where the server knows no bulk call.
    async fn bulk(&self, volume: &Arc<Volume>, group: &[Fid]) -> Vec<Result<Promised, Error>> {
        if let [fid] = group {
            return vec![self.promised(volume, *fid).await];
        }
        let Ok(fids) = Fids::new(group) else {
            return vec![Err(Error::Nonsense("more than 50 fids")); group.len()];
        };
        let reply = self
            .on_volume(volume, |server| {
                let fids = fids.clone();
                async move {
                    let peer = server.connection().peer();
                    let begin = Instant::now();
                    let reply = server.inline_bulk_status(fids).await?;
                    Ok((peer, begin, reply))
                }
            })
            .await;
        match reply {
            Ok((peer, begin, reply))
                if reply.statuses.len() == group.len() && reply.callbacks.len() == group.len() =>
            {
                let statuses = reply.statuses.iter().zip(reply.callbacks.iter());
                let one = |(&status, &callback): (&FetchStatus, &CallBack)| match status.error_code
                {
                    0 => Promised::new(peer, begin, status, callback, reply.vol_sync).checked(),
                    code => {
                        let error = RpcError {
                            operation: rxafs::inline_bulk_status::OPERATION,
                            peer,
                            cause: RpcCause::Call(CallError::Aborted(AbortCode(code))),
                        };
                        Err(Error::refused(error, self.who(volume)))
                    }
                };
                statuses.map(one).collect()
            }
            // Lists of another length do not tell which status is whose.
            // spec: afs-rpc#bulk-status
            Ok(_) => self.one_by_one(volume, group).await,
            // spec: afs-rpc#unknown-operations
            Err(Error::Refused(error)) if error.is_unknown_operation() => {
                self.one_by_one(volume, group).await
            }
            Err(error) => vec![Err(error); group.len()],
        }
    }

    async fn one_by_one(
        &self,
        volume: &Arc<Volume>,
        group: &[Fid],
    ) -> Vec<Result<Promised, Error>> {
        let mut results = Vec::with_capacity(group.len());
        for &fid in group {
            results.push(self.promised(volume, fid).await);
        }
        results
    }

    /// A directory's pages; kept for the next time.
    pub(crate) async fn directory(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Bytes, Error> {
        if let Some(data) = volume.directory(fid) {
            return Ok(data);
        }
        let contents = self.contents(volume, fid, DIRECTORY_MOST).await?;
        Directory::new(&contents.data)?;
        volume.keep_directory(fid, contents.data.clone());
        Ok(contents.data)
    }

    /// The entries of a directory but `.` and `..`, in their order. A damaged entry ends the list
    /// with an error.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn list(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Vec<DirEntry>, Error> {
        let data = self.directory(volume, fid).await?;
        let mut list = Vec::new();
        for entry in Directory::new(&data)?.entries() {
            let entry = entry?;
            if entry.name != b"." && entry.name != b".." {
                list.push(DirEntry {
                    name: entry.name.to_vec(),
                    fid: entry.id.fid(volume.id()),
                });
            }
        }
        Ok(list)
    }

    /// What a directory has under this name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn lookup(
        &self,
        volume: &Arc<Volume>,
        directory: Fid,
        name: &[u8],
    ) -> Result<Option<Fid>, Error> {
        let data = self.directory(volume, directory).await?;
        let entry = Directory::new(&data)?.lookup(name)?;
        Ok(entry.map(|entry| entry.id.fid(volume.id())))
    }

    /// Where a symlink leads, or a mount point's text.
    ///
    /// # Errors
    /// When it cannot be read, or is longer than AFS allows.
    pub async fn read_link(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Bytes, Error> {
        Ok(self.link_contents(volume, fid).await?.data)
    }

    /// A symlink's target or a mount point's text, with its status and the server's promise.
    ///
    /// # Errors
    /// As [`read_link`](Self::read_link).
    pub async fn link_contents(&self, volume: &Arc<Volume>, fid: Fid) -> Result<Contents, Error> {
        let contents = self.contents(volume, fid, SYMLINK_MOST).await?;
        if contents.promised.status.length > SYMLINK_MOST {
            return Err(Error::Nonsense("a symbolic link of more than 1024 bytes"));
        }
        Ok(contents)
    }

    /// A directory's pages as they are now, checked as far as their headers go, with its status and
    /// the server's promise. They are not kept for the next time.
    ///
    /// # Errors
    /// When it cannot be read, or is longer than a directory can be.
    pub async fn directory_contents(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
    ) -> Result<Contents, Error> {
        let contents = self.contents(volume, fid, DIRECTORY_MOST).await?;
        Directory::new(&contents.data)?;
        Ok(contents)
    }

    /// Data and status of an object whose size is not known yet: in one call if it is small.
    async fn contents(&self, volume: &Arc<Volume>, fid: Fid, most: u64) -> Result<Contents, Error> {
        let first = most.min(DIRECTORY_FIRST);
        let (mut promised, data) = self.fetch_head(volume, fid, first).await?;
        if promised.status.length <= first || promised.status.length > most {
            return Ok(Contents { promised, data });
        }
        let memory = Arc::new(Memory::default());
        let fetched = self.fetch(volume, fid, promised.status, &memory).await?;
        let data = Bytes::from(memory.take());
        if fetched.restarts > 0 {
            // The promise was given for a version that is gone.
            promised.status = fetched.status;
            promised.until = None;
        }
        Ok(Contents { promised, data })
    }
}
