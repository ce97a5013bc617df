//! Where fetched data goes.

use std::collections::BTreeMap;
use std::io;

use afar_types::FetchStatus;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex as AsyncMutex, Notify};

/// Takes the data of one file, whose pieces come in any order.
pub trait Sink: Send + Sync + 'static {
    /// A version of the file with this status comes, from its beginning. It is called again when
    /// the file changed meanwhile: what was written before is void.
    ///
    /// # Errors
    /// When it cannot take the file (again).
    fn begin(&self, status: &FetchStatus) -> io::Result<()>;

    /// All that was wanted is asked for. What is asked for once no more than `left` bytes of it are to come
    /// comes without a pause, after it or beside the last of it.
    fn asked(&self, left: u64) {
        let _ = left;
    }

    /// These bytes belong at this place, one chunk after the other. Each place is written once
    /// after each beginning, but for pieces that failed in their middle, which come again.
    ///
    /// # Errors
    /// The destination's.
    fn write(&self, offset: u64, chunks: Vec<Bytes>)
    -> impl Future<Output = io::Result<()>> + Send;
}

/// Keeps a file in memory.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Vec<u8>>);

impl Memory {
    /// Takes the data out.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Sink for Memory {
    fn begin(&self, status: &FetchStatus) -> io::Result<()> {
        let length = usize::try_from(status.length).map_err(io::Error::other)?;
        let mut data = self.0.lock();
        data.clear();
        data.resize(length, 0);
        Ok(())
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let mut data = self.0.lock();
        let mut at = usize::try_from(offset).map_err(io::Error::other)?;
        for chunk in chunks {
            let place = data.get_mut(at..at + chunk.len());
            let place = place.ok_or_else(|| io::Error::other("data beyond the file's end"))?;
            place.copy_from_slice(&chunk);
            at += chunk.len();
        }
        Ok(())
    }
}

/// Writes to a stream, in order: pieces that come early wait in memory, up to a limit.
#[derive(Debug)]
pub struct Ordered<W> {
    state: AsyncMutex<OrderedState<W>>,
    advanced: Notify,
    limit: u64,
}

#[derive(Debug)]
struct OrderedState<W> {
    out: W,
    next: u64,
    early: BTreeMap<u64, Vec<Bytes>>,
}

impl<W> Ordered<W> {
    /// Writes to `out`; pieces that begin more than `limit` bytes ahead wait to be taken.
    pub fn new(out: W, limit: u64) -> Self {
        Self {
            state: AsyncMutex::new(OrderedState {
                out,
                next: 0,
                early: BTreeMap::new(),
            }),
            advanced: Notify::new(),
            limit,
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Sink for Ordered<W> {
    fn begin(&self, _: &FetchStatus) -> io::Result<()> {
        match self.state.try_lock() {
            Ok(mut state) if state.next == 0 => {
                state.early.clear();
                Ok(())
            }
            _ => Err(io::Error::other(
                "the file changed after a part of it was written; try again",
            )),
        }
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        loop {
            let advanced = self.advanced.notified();
            tokio::pin!(advanced);
            // Before the look at what is next, so that no advance is missed.
            advanced.as_mut().enable();
            let mut guard = self.state.lock().await;
            let state = &mut *guard;
            if offset > state.next.saturating_add(self.limit) {
                drop(guard);
                advanced.await;
                continue;
            }
            state.early.insert(offset, chunks);
            let before = state.next;
            while let Some((mut at, chunks)) = state.early.pop_first() {
                if at > state.next {
                    state.early.insert(at, chunks);
                    break;
                }
                for mut chunk in chunks {
                    let length = chunk.len() as u64;
                    // A piece that failed in its middle comes again from its beginning.
                    let written = state.next.saturating_sub(at).min(length);
                    at += length;
                    let chunk = chunk.split_off(usize::try_from(written).unwrap_or(0));
                    state.out.write_all(&chunk).await?;
                    state.next += chunk.len() as u64;
                }
            }
            if state.next > before {
                // Readers of a pipe have it while more is fetched.
                state.out.flush().await?;
                self.advanced.notify_waiters();
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn pieces_are_put_in_order() {
        let (reader, writer) = tokio::io::duplex(1 << 16);
        let sink = Arc::new(Ordered::new(writer, 100));
        sink.begin(&FetchStatus::default()).unwrap();
        let piece = |text: &'static str| vec![Bytes::from_static(text.as_bytes())];
        sink.write(3, piece("def")).await.unwrap();
        sink.write(6, piece("g")).await.unwrap();
        // Again what came before, and more.
        sink.write(0, piece("abc")).await.unwrap();
        sink.write(
            3,
            vec![Bytes::from_static(b"de"), Bytes::from_static(b"fgh")],
        )
        .await
        .unwrap();
        assert!(sink.begin(&FetchStatus::default()).is_err());
        // Too far ahead: waits until the gap before it is closed.
        let ahead = {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { sink.write(109, vec![Bytes::from_static(b"z")]).await })
        };
        tokio::task::yield_now().await;
        assert!(!ahead.is_finished());
        sink.write(8, vec![Bytes::from(vec![b'-'; 101])])
            .await
            .unwrap();
        ahead.await.unwrap().unwrap();
        drop(sink);
        let mut text = String::new();
        let mut reader = reader;
        tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut text)
            .await
            .unwrap();
        assert_eq!(text, format!("abcdefgh{}z", "-".repeat(101)));
    }

    #[tokio::test]
    async fn memory_refuses_what_lies_beyond() {
        let memory = Memory::default();
        memory
            .begin(&FetchStatus {
                length: 3,
                ..FetchStatus::default()
            })
            .unwrap();
        memory
            .write(1, vec![Bytes::from_static(b"xy")])
            .await
            .unwrap();
        assert!(
            memory
                .write(2, vec![Bytes::from_static(b"zz")])
                .await
                .is_err()
        );
        assert_eq!(memory.take(), [0, b'x', b'y']);
    }
}
