//! A tree in one answer, of afar's servers.
// spec: trees#when-to-use-it

use std::net::SocketAddr;
use std::sync::Arc;

use afar_rpc::{Download, RpcError, rxafs};
use afar_types::{Fid, TREE_DATA_MAX, TreeItem, VolumeId};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::promise::Promised;
use crate::server::Answers;
use crate::volume::{Volume, Way};

/// Bytes of an item besides its data, at most; and of what stands for an entry.
const ITEM: usize = 256;

/// What is wanted of a tree.
#[derive(Debug, Clone, Copy)]
pub struct TreeWanted {
    /// Levels of directories below the first.
    pub depth: u32,
    /// Statuses, at most.
    pub entries: u32,
    /// Bytes of data, pages of directories included, at most.
    pub bytes: u32,
    /// Bytes of the largest file whose data comes; 0 for statuses only.
    pub largest: u32,
}

/// A part of a tree. All are as the server had them when it was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TreePart {
    /// A directory and its pages.
    Directory(Fid, Promised, Bytes),
    /// The status of anything.
    Status(Fid, Promised),
    /// A file or symlink and all of its data.
    File(Fid, Promised, Bytes),
    /// A directory that did not fit: it is to be asked for by itself.
    Left(Fid),
}

impl Client {
    /// A directory of a volume, and as much of what is below it as is wanted, with the server's promises. What the user
    /// may not see, or was removed meanwhile, is left out. `None` if the server is not known to have such answers.
    ///
    /// # Errors
    /// When the directory itself cannot be read.
    pub async fn tree(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        wanted: TreeWanted,
    ) -> Result<Option<Vec<TreePart>>, Error> {
        let TreeWanted {
            depth,
            entries,
            bytes,
            largest,
        } = wanted;
        let ask = |server: rxafs::Client| async move {
            server.fetch_tree(fid, depth, entries, bytes, largest).await
        };
        self.many(volume, Answers::Tree, most(entries, bytes), ask)
            .await
    }

    /// An answer of at most so many bytes that tells of many things in a volume. `None` if the server is not known to have
    /// such answers.
    pub(crate) async fn many<Q, F>(
        &self,
        volume: &Arc<Volume>,
        answers: Answers,
        most: usize,
        ask: Q,
    ) -> Result<Option<Vec<TreePart>>, Error>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<Download, RpcError>> + Send,
    {
        let site = volume.sites().into_iter().next();
        // This looks what kind of server it is.
        if volume.way().await != Way::Afar || !volume.may_have(answers) {
            return Ok(None);
        }
        let answer = self
            .on_volume(volume, |server| {
                let (begin, peer) = (Instant::now(), server.connection().peer());
                let asked = ask(server);
                async move {
                    let data = all_of(asked.await?, most).await?;
                    Ok(Answer { begin, peer, data })
                }
            })
            .await;
        match answer {
            // spec: afs-rpc#unknown-operations
            Err(Error::Refused(error)) if error.is_unknown_operation() => {
                if let Some(site) = site {
                    site.set_without(answers);
                }
                Ok(None)
            }
            answer => answer?.parts(volume.id(), most).map(Some),
        }
    }
}

/// An answer as it came.
struct Answer {
    /// When it was asked for.
    begin: Instant,
    /// The server.
    peer: SocketAddr,
    data: BytesMut,
}

/// Bytes of an answer of so many entries and bytes of data, at most.
pub(crate) fn most(entries: u32, bytes: u32) -> usize {
    (bytes as usize)
        .saturating_add(TREE_DATA_MAX)
        .saturating_add((entries as usize + 1).saturating_mul(2 * ITEM))
}

/// All of an answer, or more than so many bytes.
async fn all_of(mut coming: Download, most: usize) -> Result<BytesMut, RpcError> {
    let mut data = BytesMut::new();
    while let Some(chunk) = coming.chunk().await? {
        data.extend_from_slice(&chunk);
        if data.len() > most {
            break;
        }
    }
    Ok(data)
}

impl Answer {
    /// What it tells of a volume.
    ///
    /// # Errors
    /// When it is longer than this, damaged, or tells of another volume.
    fn parts(self, volume: VolumeId, most: usize) -> Result<Vec<TreePart>, Error> {
        let Self { begin, peer, data } = self;
        if data.len() > most {
            return Err(Error::Nonsense("more of a tree than was asked for"));
        }
        let (items, vol_sync) =
            TreeItem::all(&data).map_err(|_| Error::Nonsense("a tree that cannot be read"))?;
        let part = |item| {
            let promised =
                |status, callback| Promised::new(peer, begin, status, callback, vol_sync).checked();
            Ok(match item {
                TreeItem::Directory(node) => TreePart::Directory(
                    node.fid,
                    promised(node.status, node.callback)?,
                    whole(&node.status, node.data.into_bytes())?,
                ),
                TreeItem::File(node) => TreePart::File(
                    node.fid,
                    promised(node.status, node.callback)?,
                    whole(&node.status, node.data.into_bytes())?,
                ),
                TreeItem::Status {
                    fid,
                    status,
                    callback,
                } => TreePart::Status(fid, promised(status, callback)?),
                TreeItem::Left { fid } => TreePart::Left(fid),
                TreeItem::End { .. } => return Err(Error::Nonsense("a tree with two ends")),
            })
        };
        let parts: Result<Vec<_>, Error> = items.into_iter().map(part).collect();
        let parts = parts?;
        let is_here = |part: &TreePart| part.fid().volume == volume;
        if parts.iter().all(is_here) {
            Ok(parts)
        } else {
            Err(Error::Nonsense("a tree of another volume"))
        }
    }
}

impl Volume {
    /// Whether its server is one that may tell of whole trees.
    #[must_use]
    pub fn may_have_trees(&self) -> bool {
        self.may_have(Answers::Tree)
    }

    /// Whether its server is one that may tell what others read next.
    #[must_use]
    pub fn may_tell_what_follows(&self) -> bool {
        self.may_have(Answers::Following)
    }

    /// Whether its server is one that may have many small files in one answer.
    #[must_use]
    pub fn may_have_listed(&self) -> bool {
        self.may_have(Answers::Listed)
    }

    fn may_have(&self, answers: Answers) -> bool {
        let sites = self.sites();
        sites.first().is_some_and(|site| site.may_have(answers))
    }
}

impl TreePart {
    /// What it is about.
    #[must_use]
    pub fn fid(&self) -> Fid {
        match self {
            Self::Directory(fid, ..)
            | Self::Status(fid, _)
            | Self::File(fid, ..)
            | Self::Left(fid) => *fid,
        }
    }
}

/// The data, if it is as long as the status says.
fn whole(status: &afar_types::FetchStatus, data: Vec<u8>) -> Result<Bytes, Error> {
    if data.len() as u64 == status.length {
        Ok(data.into())
    } else {
        Err(Error::Nonsense(
            "data of another length than its status says",
        ))
    }
}
