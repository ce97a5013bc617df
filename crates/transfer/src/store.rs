//! Storing a file in AFS, from the local disk or from AFS.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use afar_cell::{Client, Node, Stored, Volume};
use afar_types::{FetchStatus, Fid, StoreStatus};

use crate::error::{Context, Result, bail};
use crate::facts::{Facts, Kind};
use crate::local::{LocalFile, Spool};
use crate::progress::Meter;

/// Bytes of a file from which on it is asked first whether there is room for it: with shorter ones the
/// question would take longer than the refusal.
const LARGE: u64 = 1 << 20;

/// Where a file is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storing<'a> {
    pub(crate) client: &'a Client,
    pub(crate) progress: &'a Arc<Meter>,
    pub(crate) volume: &'a Arc<Volume>,
    pub(crate) fid: Fid,
}

impl Storing<'_> {
    /// Stores a local file, or what comes out of a pipe.
    pub(crate) async fn local(
        &self,
        file: File,
        facts: &Facts,
        attributes: StoreStatus,
    ) -> Result<Stored> {
        // Files of the kernel's own say that they are empty.
        if let Kind::File(length @ 1..) = facts.kind {
            return self.whole(file, length, attributes).await;
        }
        let mut stream = tokio::fs::File::from_std(file);
        let stored = self
            .client
            .store_stream(self.volume, self.fid, &mut stream, attributes)
            .await;
        // Nobody knows how much was still to come.
        let stored = self.or_no_room(stored, 0).await?;
        self.progress.expect(stored.bytes);
        self.progress.advance(stored.bytes);
        Ok(stored)
    }

    /// Stores a file of AFS.
    pub(crate) async fn remote(&self, node: &Node, attributes: StoreStatus) -> Result<Stored> {
        if node.fid == self.fid && node.volume.cell_name() == self.volume.cell_name() {
            bail!("is the same file");
        }
        let (file, status) = spooled(self.client, node).await?;
        self.whole(file, status.length, attributes).await
    }

    /// Stores a file of a known length.
    pub(crate) async fn whole(
        &self,
        file: File,
        length: u64,
        attributes: StoreStatus,
    ) -> Result<Stored> {
        self.progress.expect(length);
        let source = self.source(file, length);
        let stored = self
            .client
            .store(self.volume, self.fid, &source, attributes)
            .await;
        self.or_no_room(stored, length).await
    }

    /// Stores a part of a file; it is as long as the part's end then.
    pub(crate) async fn part(
        &self,
        source: &Arc<LocalFile>,
        part: Range<u64>,
        attributes: StoreStatus,
    ) -> Result<Stored> {
        let (end, length) = (part.end, part.end - part.start);
        let stored = self
            .client
            .store_range(self.volume, self.fid, part, end, source, attributes)
            .await;
        self.or_no_room(stored, length).await
    }

    /// What was stored, or why it was not: where there is no room, with what was needed and what there
    /// is.
    async fn or_no_room(
        &self,
        stored: Result<Stored, afar_cell::Error>,
        needed: u64,
    ) -> Result<Stored> {
        match stored {
            Ok(stored) => Ok(stored),
            Err(error) => {
                let explained = self.client.explain_full(self.volume, needed, error);
                Err(explained.await.into())
            }
        }
    }

    /// A local file to store.
    pub(crate) fn source(&self, file: File, length: u64) -> Arc<LocalFile> {
        Arc::new(LocalFile::new(file, length, Arc::clone(self.progress)))
    }
}

/// Finds out whether a volume has room for a new file, before it is made and much of it is sent.
///
/// # Errors
/// There is none.
pub(crate) async fn room_for(
    client: &Client,
    volume: &Arc<Volume>,
    kind: Kind,
) -> Result<(), afar_cell::Error> {
    match kind {
        Kind::File(length @ LARGE..) => client.check_room(volume, length).await,
        _ => Ok(()),
    }
}

/// A temporary file with what a file in AFS has, and its status. A fetch that waited for a store would
/// keep its calls, and both may need the same server's.
pub(crate) async fn spooled(client: &Client, node: &Node) -> Result<(File, FetchStatus)> {
    let file = tempfile::tempfile().context("cannot make a temporary file for the copy")?;
    let spool = Arc::new(Spool(file.try_clone()?));
    let fetched = client
        .fetch(&node.volume, node.fid, node.status, &spool)
        .await?;
    Ok((file, fetched.status))
}
