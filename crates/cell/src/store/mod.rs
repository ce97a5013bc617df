//! Storing a file's data by calls, each for a part of the file, which say how long the whole file is to
//! be.
//!
//! File servers lock a file while they store into it, so large calls for one file wait for each other.
//! An OpenAFS server that is near gets one call after the other, each as large as costs little to send
//! again. An afar server gets two at a time: the second begins when the data of the first is on its
//! way, and comes while the first is put on the disk. A long way to an OpenAFS server is filled by
//! [small calls](spread).
//!
//! **Out of band.** A large part goes over TCP where that works. One whose answer does not come goes by a call then,
//! all of it.

mod oob;
mod part;
mod source;
mod spread;

use std::ops::Range;
use std::sync::Arc;

use afar_oob::frame::Store;
use afar_types::{FetchStatus, Fid, StoreStatus};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Notify;

use crate::client::Client;
use crate::error::Error;
use crate::oob::{Counted, Storing};
use crate::promise::checked;
use crate::server::FileServer;
use crate::volume::{Volume, Way};
use part::{Outcome, Part};

use source::Kept;
pub use source::Source;
use spread::{FAR_PART, Task};

/// Bytes stored by one call. A server that sends no more than its window at a time keeps readers
/// out for as long as a call takes.
const PART: u64 = 16 << 20;
/// The same for an afar server.
const AFAR_PART: u64 = 64 << 20;
/// The last of several is this large: nothing is on its way while the last is put on the disk.
const AFAR_LAST: u64 = 8 << 20;
/// Calls an afar server gets at a time.
const AFAR_CALLS: usize = 2;
/// Bytes of a stream that are kept in memory until they are stored.
const STREAM_PART: usize = 4 << 20;

/// How a store went.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Stored {
    /// The file's status after it.
    pub status: FetchStatus,
    /// Bytes stored.
    pub bytes: u64,
    /// Calls it took, at least.
    pub calls: u64,
}

impl Client {
    /// Replaces a file's data by a source's (RXAFS StoreData64, or StoreData where that is not
    /// known), and sets attributes with its last byte. While it is under way, others see the file
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

    /// Replaces a part of a file's data by the bytes a source has there, and sets the file's length
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
        let parts = self.parts(volume).await;
        let total = range.end.saturating_sub(range.start);
        // What one call takes needs no other beside it.
        if total > parts.size {
            let task = Task {
                parts,
                fid,
                range,
                file_length,
                attributes,
            };
            return self.store_spread(volume, &task, source).await;
        }
        let part = Part {
            fid,
            attributes,
            position: range.start,
            length: total,
            file_length,
        };
        let mut stored = Stored::default();
        let all_sent = Arc::default();
        let status = self.store_part(volume, part, source, &all_sent).await?;
        stored.take(status, total);
        Ok(stored)
    }

    /// Whether one call stores so many bytes.
    pub async fn stores_at_once(&self, volume: &Arc<Volume>, bytes: u64) -> bool {
        bytes <= self.parts(volume).await.size
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
        let mut stored = Stored::default();
        loop {
            let mut data = Vec::new();
            let mut limited = stream.take(STREAM_PART as u64);
            let read = limited.read_to_end(&mut data).await;
            read.map_err(|error| Error::Source(error.to_string()))?;
            // Where the stream ends with a part, an empty one follows, which carries the attributes.
            let (length, last) = (data.len() as u64, data.len() < STREAM_PART);
            let part = Part {
                fid,
                attributes: at_end(attributes, last),
                position: stored.bytes,
                length,
                file_length: stored.bytes + length,
            };
            let kept = Arc::new(Kept::new(stored.bytes, Bytes::from(data)));
            let all_sent = Arc::default();
            let status = self.store_part(volume, part, &kept, &all_sent).await?;
            stored.take(status, length);
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
        all_sent: &Arc<Notify>,
    ) -> Result<FetchStatus, Error> {
        let outcome = self
            .on_volume(volume, |server| {
                let (client, source) = (self.clone(), Arc::clone(source));
                let (volume, all_sent) = (Arc::clone(volume), Arc::clone(all_sent));
                async move {
                    let peer = server.connection().peer();
                    let known = client.server_at(volume.cell_name(), peer);
                    let old = known.as_ref().is_some_and(|known| known.is_old());
                    let beside = known
                        .as_ref()
                        .and_then(|it| client.out_of_band_store(it, part));
                    if let Some((storing, counted)) = beside
                        && let Some(stored) =
                            oob::store(storing, counted, peer, part, &*source, &all_sent).await
                    {
                        return stored;
                    }
                    // What calls take is measured where TCP might.
                    let called = known.as_ref().filter(|_| client.is_large(part.length));
                    let called = called.map(|known| known.call_store());
                    let called = called.as_ref();
                    match part::store(&server, old, part, &*source, &all_sent, called).await {
                        // spec: afs-rpc#unknown-operations
                        Err(error) if !old && error.is_unknown_operation() => {
                            if let Some(known) = known {
                                known.set_old();
                            }
                            part::store(&server, true, part, &*source, &all_sent, called).await
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

    /// A transfer for a part where there may be a connection out of band; `None` if there is none for it.
    fn out_of_band_store(
        &self,
        server: &Arc<FileServer>,
        part: Part,
    ) -> Option<(Storing, Counted)> {
        if !self.is_large(part.length) {
            return None;
        }
        let connection = self.own(server).out_of_band()?;
        let storing = connection.store(Store {
            id: 0,
            fid: part.fid,
            attributes: part.attributes,
            offset: part.position,
            length: part.length,
            file_length: part.file_length,
        })?;
        Some((storing, server.count_store()))
    }

    /// How to divide what is stored in a volume.
    async fn parts(&self, volume: &Arc<Volume>) -> Parts {
        if let Some(size) = self.config().piece {
            return Parts {
                size: size.max(1),
                calls: Some(self.config().calls.unwrap_or(1)),
                last: None,
            };
        }
        let (size, calls, last) = match volume.way().await {
            Way::Afar => (AFAR_PART, Some(AFAR_CALLS), Some(AFAR_LAST)),
            Way::Far => (FAR_PART, self.config().calls, None),
            Way::Near => (PART, Some(1), None),
        };
        Parts { size, calls, last }
    }
}

impl Stored {
    /// Counts a part that is stored. Parts may be done in another order than their answers come in.
    fn take(&mut self, status: FetchStatus, length: u64) {
        if self.calls == 0 || status.data_version >= self.status.data_version {
            self.status = status;
        }
        self.bytes += length;
        self.calls += 1;
    }
}

/// How what is stored is divided.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// Bytes for each call.
    size: u64,
    /// Calls at a time; found by what they bring if nothing is set.
    calls: Option<usize>,
    /// Bytes of the last, where parts go in turn and it is to be smaller than the others.
    last: Option<u64>,
}

impl Parts {
    /// Whether one begins only when the data of those before it is on its way.
    fn in_turn(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the next part is the last, of so many bytes that are left.
    fn is_last(&self, left: u64) -> bool {
        self.next(left) == left
    }

    /// Bytes of the next part, of so many that are left.
    fn next(&self, left: u64) -> u64 {
        let next = match self.last {
            Some(last) if left <= self.size && left > 2 * last => left - last,
            _ => self.size.min(left),
        };
        debug_assert!(left == 0 || (1..=left).contains(&next), "{next} of {left}");
        next
    }
}

/// Attributes for a part: before the last, only the time. A mode without `w` would keep the next
/// part out.
// spec: afs-rpc#rights
fn at_end(attributes: StoreStatus, last: bool) -> StoreStatus {
    if last {
        return attributes;
    }
    StoreStatus {
        mask: attributes.mask & StoreStatus::SET_MOD_TIME,
        ..attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_large_parts_is_small() {
        let parts = |last| Parts {
            size: 64,
            calls: None,
            last,
        };
        let divided = |last, mut left| {
            let mut found = Vec::new();
            while left > 0 {
                found.push(parts(last).next(left));
                left -= found.last().unwrap();
            }
            found
        };
        assert_eq!(divided(Some(8), 200), [64, 64, 64, 8]);
        assert_eq!(divided(Some(8), 192), [64, 64, 56, 8]);
        assert_eq!(divided(Some(8), 150), [64, 64, 14, 8]);
        assert_eq!(divided(Some(8), 140), [64, 64, 12]);
        assert_eq!(divided(None, 150), [64, 64, 22]);
    }
}
