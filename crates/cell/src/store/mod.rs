//! Storing a file's data by calls, each for a part of the file, which say how long the whole file is to
//! be.
//!
//! File servers lock a file while they store into it, so several large calls for one file would wait
//! for each other. An afar server, which takes much at a time, gets one call after the other, each as
//! large as costs little to send again; so does one that is near. A long way to an OpenAFS server is
//! filled by [small calls](spread).

mod part;
mod source;
mod spread;

use std::ops::Range;
use std::sync::Arc;

use afar_types::{FetchStatus, Fid, StoreStatus};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::client::Client;
use crate::error::Error;
use crate::files::checked;
use crate::server::NEAR;
use crate::volume::Volume;
use part::{Outcome, Part};

use source::Kept;
pub use source::Source;
use spread::{FAR_PART, Task};

/// Octets stored by one call. A server that sends no more than its window at a time keeps readers
/// out for as long as a call takes.
const PART: u64 = 16 << 20;
/// The same for an afar server.
const AFAR_PART: u64 = 64 << 20;
/// Octets of a stream that are kept in memory until they are stored.
const STREAM_PART: usize = 4 << 20;

/// How a store went.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Stored {
    /// The file's status after it.
    pub status: FetchStatus,
    /// Octets stored.
    pub bytes: u64,
    /// Calls it took, at least.
    pub calls: u64,
}

impl Client {
    /// Replaces a file's data by a source's (RXAFS StoreData64, or StoreData where that is not
    /// known), and sets attributes with its last octet. While it is under way, others see the file
    /// grow.
    ///
    /// A part of which the answer is lost is stored again: who else writes the file at the same time
    /// may lose.
    ///
    /// # Errors
    /// When the source cannot be read or is shorter than it says, the file is too long for the
    /// server, or the server refuses. What was stored then stays.
    pub async fn store<S: Source>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        source: &Arc<S>,
        attributes: StoreStatus,
    ) -> Result<Stored, Error> {
        let total = source.length();
        self.store_range(volume, fid, 0..total, total, source, attributes)
            .await
    }

    /// Replaces a part of a file's data by the octets a source has there, and sets the file's length
    /// and attributes. An empty range sets the length only. The data version grows by one for each
    /// call made.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub async fn store_range<S: Source>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        range: Range<u64>,
        file_length: u64,
        source: &Arc<S>,
        attributes: StoreStatus,
    ) -> Result<Stored, Error> {
        volume.check_writable()?;
        let most = self.part_size(volume).await;
        let total = range.end.saturating_sub(range.start);
        let many =
            most == FAR_PART || self.config().piece.is_some() && self.config().calls.is_some();
        if many && total > most {
            let task = Task {
                part: most,
                fid,
                range,
                file_length,
                attributes,
            };
            return self.store_spread(volume, &task, source).await;
        }
        let mut stored = Stored {
            status: FetchStatus::default(),
            bytes: 0,
            calls: 0,
        };
        loop {
            let length = most.min(total - stored.bytes);
            let part = Part {
                fid,
                attributes: at_end(attributes, stored.bytes + length == total),
                position: range.start + stored.bytes,
                length,
                file_length,
            };
            stored.status = self.store_part(volume, part, source).await?;
            stored.bytes += length;
            stored.calls += 1;
            if stored.bytes == total {
                return Ok(stored);
            }
        }
    }

    /// As [`store`](Self::store) with data from a stream, whose length nobody knows before its end. Up to 4 MiB are
    /// kept in memory.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub async fn store_stream<R: AsyncRead + Unpin>(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        stream: &mut R,
        attributes: StoreStatus,
    ) -> Result<Stored, Error> {
        volume.check_writable()?;
        let mut stored = Stored {
            status: FetchStatus::default(),
            bytes: 0,
            calls: 0,
        };
        loop {
            let mut data = Vec::new();
            let mut limited = stream.take(STREAM_PART as u64);
            let read = limited.read_to_end(&mut data).await;
            read.map_err(|error| Error::Source(error.to_string()))?;
            let (length, last) = (data.len() as u64, data.len() < STREAM_PART);
            let part = Part {
                fid,
                attributes: at_end(attributes, last),
                position: stored.bytes,
                length,
                file_length: stored.bytes + length,
            };
            let kept = Arc::new(Kept::new(stored.bytes, Bytes::from(data)));
            stored.status = self.store_part(volume, part, &kept).await?;
            stored.bytes += length;
            stored.calls += 1;
            if last {
                return Ok(stored);
            }
        }
    }

    async fn store_part<S: Source>(
        &self,
        volume: &Arc<Volume>,
        part: Part,
        source: &Arc<S>,
    ) -> Result<FetchStatus, Error> {
        let outcome = self
            .on_volume(volume, |server| {
                let (client, source) = (self.clone(), Arc::clone(source));
                let volume = Arc::clone(volume);
                async move {
                    let peer = server.connection().peer();
                    let known = client.server_at(volume.cell_name(), peer);
                    let old = known.as_ref().is_some_and(|known| known.is_old());
                    match part::store(&server, old, part, &*source).await {
                        Err(error) if !old && error.is_unknown_operation() => {
                            if let Some(known) = known {
                                known.set_old();
                            }
                            part::store(&server, true, part, &*source).await
                        }
                        other => other,
                    }
                }
            })
            .await?;
        match outcome {
            Outcome::Done(status) => checked(status),
            Outcome::Source(error) => Err(Error::Source(error.to_string())),
        }
    }

    async fn part_size(&self, volume: &Arc<Volume>) -> u64 {
        if let Some(size) = self.config().piece {
            return size.max(1);
        }
        let path = match volume.sites().first() {
            Some(site) => site.path().await,
            None => None,
        };
        match path {
            Some(path) if path.afar => AFAR_PART,
            Some(path) if path.rtt_min.is_some_and(|rtt| rtt >= NEAR) => FAR_PART,
            _ => PART,
        }
    }
}

/// Attributes for a part: before the last, only the time. A mode without `w` would keep the next
/// part out.
fn at_end(attributes: StoreStatus, last: bool) -> StoreStatus {
    if last {
        return attributes;
    }
    StoreStatus {
        mask: attributes.mask & StoreStatus::SET_MOD_TIME,
        ..attributes
    }
}
