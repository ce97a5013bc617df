//! Trees in AFS and their end.

mod batched;

use std::fmt;
use std::sync::Arc;

use afar_cell::{Client, DirEntry, Volume, ended};
use afar_types::Fid;
use tokio::task::JoinSet;

use crate::error::{Context, Error, bail};

/// Names removed at a time: the server takes those of one directory one after the other, but need
/// not wait for us in between.
const AT_A_TIME: usize = 16;

/// Removes trees of one volume.
pub struct Tree<'a> {
    /// Through which the servers are asked.
    pub client: &'a Client,
    /// What the trees are in.
    pub volume: &'a Arc<Volume>,
    /// What stays, by its path.
    pub stays: &'a (dyn Fn(&[u8], Fid) -> bool + Sync),
    /// Nothing is removed; it is counted only.
    pub pretend: bool,
    /// Names removed so far.
    pub removed: u64,
    /// Told why something could not be removed.
    pub note: &'a mut (dyn FnMut(Error) + Send),
}

impl fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("volume", &self.volume)
            .field("pretend", &self.pretend)
            .field("removed", &self.removed)
            .finish_non_exhaustive()
    }
}

impl Tree<'_> {
    /// Removes a directory with all below it; returns whether it is gone.
    pub async fn remove(&mut self, parent: Fid, entry: DirEntry, path: Vec<u8>) -> bool {
        if !self.pretend
            && let Some(batches) = self.client.batches(self.volume).await
        {
            return self.remove_by_batches(batches, parent, entry, path).await;
        }
        self.remove_singly(parent, entry, path).await
    }

    /// The same by a call for each name.
    async fn remove_singly(&mut self, parent: Fid, entry: DirEntry, path: Vec<u8>) -> bool {
        let list = match self.client.list(self.volume, entry.fid).await {
            Ok(list) => list,
            Err(error) => {
                self.failed(error, &path);
                return false;
            }
        };
        let all = list.len();
        let path_of = |name: &[u8]| [&path, b"/".as_slice(), name].concat();
        let list = list
            .into_iter()
            .filter(|entry| !(self.stays)(&path_of(&entry.name), entry.fid));
        let (directories, others): (Vec<_>, Vec<_>) =
            list.partition(|entry| entry.fid.vnode.is_directory());
        let mut empty = directories.len() + others.len() == all;
        empty &= self.remove_files(entry.fid, others, &path).await;
        for below in directories {
            let below_path = path_of(&below.name);
            empty &= Box::pin(self.remove_singly(entry.fid, below, below_path)).await;
        }
        if !empty {
            // That something could not be removed was said.
            return false;
        }
        if !self.pretend {
            let removed = self.client.remove_dir(self.volume, parent, &entry).await;
            if let Err(error) = removed {
                self.failed(error, &path);
                return false;
            }
        }
        self.removed += 1;
        true
    }

    fn failed(&mut self, error: afar_cell::Error, path: &[u8]) {
        let path = String::from_utf8_lossy(path).into_owned();
        (self.note)(Error::from(error).context(path));
    }

    /// Removes entries of a directory that are no directories; returns whether all are gone.
    async fn remove_files(&mut self, directory: Fid, entries: Vec<DirEntry>, path: &[u8]) -> bool {
        let fids: Vec<_> = entries.iter().map(|entry| entry.fid).collect();
        let statuses = self.client.statuses(self.volume, &fids).await;
        let path = String::from_utf8_lossy(path);
        let mut waiting = entries.into_iter().zip(statuses);
        let (mut running, mut all_gone) = (JoinSet::new(), true);
        loop {
            while running.len() < AT_A_TIME
                && let Some((entry, status)) = waiting.next()
            {
                let (client, volume) = (self.client.clone(), Arc::clone(self.volume));
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                let pretend = self.pretend;
                running.spawn(async move {
                    if status.is_ok_and(|status| status.is_mount_point()) {
                        bail!(RemoveMountPoint => "{path}: is a mount point");
                    }
                    if pretend {
                        return Ok(());
                    }
                    let removed = client.remove_file(&volume, directory, &entry).await;
                    removed.map(drop).with_context(|| path)
                });
            }
            match running.join_next().await {
                None => return all_gone,
                Some(Ok(Ok(()))) => self.removed += 1,
                Some(Ok(Err(error))) => {
                    all_gone = false;
                    (self.note)(error);
                }
                Some(Err(error)) => ended(error).await,
            }
        }
    }
}
