//! Bridges between the store, which reads and writes dumps in a thread, and calls, which carry
//! them in pieces. Each side waits for the other; between them are a few pieces.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use afar_net::AbortCode;
use afar_rpc::spawn_blocking;
use afar_store::{DumpOptions, DumpSummary, StoreError, Volume};
use bytes::{Buf, Bytes};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use super::codes;

/// Pieces that wait between thread and call.
const DEPTH: usize = 4;
/// Bytes that are gathered for the thread, so that it is not woken for every packet.
pub(super) const PIECE: usize = 256 << 10;

/// A dump that is being made.
pub(super) struct Dump {
    pieces: mpsc::Receiver<Bytes>,
    thread: JoinHandle<Result<DumpSummary, StoreError>>,
}

impl Dump {
    /// Begins to dump a volume as it is now. The permit is given back when the thread is done, also
    /// if nobody waits for it any more.
    pub(super) fn start(
        volume: Volume,
        options: DumpOptions,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (to, pieces) = mpsc::channel(DEPTH);
        let thread = spawn_blocking(move || {
            let _permit = permit;
            volume.dump(PieceWriter(to), &options)
        });
        Self { pieces, thread }
    }

    /// The next piece; `None` after the last, whether or not it was the last that was wanted: see
    /// [`finish`](Self::finish).
    pub(super) async fn piece(&mut self) -> Option<Bytes> {
        self.pieces.recv().await
    }

    /// Whether the dump is whole.
    pub(super) async fn finish(self) -> Result<DumpSummary, StoreError> {
        // A thread that still writes finds nobody who reads, and ends.
        drop(self.pieces);
        match self.thread.await {
            Ok(result) => result,
            Err(stopped) => Err(io_error("the thread that dumps", io::Error::other(stopped))),
        }
    }
}

fn io_error(what: &str, source: io::Error) -> StoreError {
    StoreError::Io {
        what: what.to_owned(),
        source: source.into(),
    }
}

/// Gives what is written to a call. Fails once the call wants no more.
struct PieceWriter(mpsc::Sender<Bytes>);

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        match self.0.blocking_send(piece) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the receiver of the dump has gone",
            )),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What goes from a call to the thread that restores.
enum Piece {
    Data(Vec<Bytes>),
    /// The client has ended its request: the dump is whole, as far as it knows.
    End,
}

/// The call's end of a dump that is being restored.
pub(super) struct Feed {
    to: mpsc::Sender<Piece>,
    gathered: Vec<Bytes>,
    bytes: usize,
}

/// The thread's end: reads what the call brings. Ends only where the client ended its request;
/// everything else is an error, so that half a dump is never taken for a whole one.
pub(super) struct FeedReader {
    from: mpsc::Receiver<Piece>,
    left: VecDeque<Bytes>,
    ended: bool,
}

/// The thread reads no more: it has failed and says why.
#[derive(Debug)]
pub(super) struct Refused;

/// Both ends of a dump that comes from a call.
pub(super) fn feed() -> (Feed, FeedReader) {
    let (to, from) = mpsc::channel(DEPTH);
    let feed = Feed {
        to,
        gathered: Vec::new(),
        bytes: 0,
    };
    let reader = FeedReader {
        from,
        left: VecDeque::new(),
        ended: false,
    };
    (feed, reader)
}

impl Feed {
    /// Gives on what has come; waits while enough is waiting already.
    pub(super) async fn push(&mut self, chunk: Bytes) -> Result<(), Refused> {
        self.bytes += chunk.len();
        self.gathered.push(chunk);
        if self.bytes < PIECE {
            return Ok(());
        }
        self.flush().await
    }

    /// Gives on the rest, and that it was all.
    pub(super) async fn end(mut self) -> Result<(), Refused> {
        self.flush().await?;
        self.to.send(Piece::End).await.map_err(|_| Refused)
    }

    async fn flush(&mut self) -> Result<(), Refused> {
        let gathered = self.gathered.iter().map(Bytes::len).sum::<usize>();
        debug_assert_eq!(self.bytes, gathered, "what is gathered is counted");
        self.bytes = 0;
        let gathered = std::mem::take(&mut self.gathered);
        let sent = self.to.send(Piece::Data(gathered)).await;
        sent.map_err(|_| Refused)
    }
}

impl FeedReader {
    /// Up to `bytes` of the dump's beginning, which are read again afterwards.
    pub(super) fn peek(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match self.read(&mut head[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        head.truncate(filled);
        self.left.push_front(Bytes::copy_from_slice(&head));
        Ok(head)
    }
}

impl Read for FeedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(first) = self.left.front_mut() {
                let length = first.len().min(into.len());
                into[..length].copy_from_slice(&first[..length]);
                first.advance(length);
                if first.is_empty() {
                    self.left.pop_front();
                }
                if length > 0 {
                    return Ok(length);
                }
                continue;
            }
            if self.ended {
                return Ok(0);
            }
            match self.from.blocking_recv() {
                Some(Piece::Data(chunks)) => self.left.extend(chunks),
                Some(Piece::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the sender of the dump gave up",
                    ));
                }
            }
        }
    }
}

/// Does something with the store in a thread where waiting for the disk is allowed.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AbortCode> + Send + 'static,
) -> Result<T, AbortCode> {
    // A panic in there is told by the panic's own message.
    spawn_blocking(work).await.unwrap_or(Err(codes::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dump_arrives_as_it_was_sent() {
        let (mut feed, mut reader) = feed();
        let thread = spawn_blocking(move || {
            let head = reader.peek(10).unwrap();
            let mut whole = Vec::new();
            reader.read_to_end(&mut whole).unwrap();
            (head, whole)
        });
        let mut sent = Vec::new();
        for number in 0..3000_u32 {
            let chunk = Bytes::from(vec![u8::try_from(number % 251).unwrap(); 1000]);
            sent.extend_from_slice(&chunk);
            feed.push(chunk).await.unwrap();
        }
        feed.end().await.unwrap();
        let (head, whole) = thread.await.unwrap();
        assert_eq!(head, sent[..10]);
        assert!(whole == sent);
    }

    #[tokio::test]
    async fn a_sender_that_vanishes_is_no_end() {
        let (mut feed, mut reader) = feed();
        let thread = spawn_blocking(move || reader.read_to_end(&mut Vec::new()));
        feed.push(Bytes::from(vec![1; PIECE])).await.unwrap();
        drop(feed);
        let error = thread.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn a_short_dump_can_be_looked_into() {
        let (mut feed, mut reader) = feed();
        feed.push(Bytes::from_static(b"abc")).await.unwrap();
        feed.end().await.unwrap();
        let thread = spawn_blocking(move || {
            let mut whole = Vec::new();
            let head = reader.peek(100)?;
            reader.read_to_end(&mut whole)?;
            Ok::<_, io::Error>((head, whole))
        });
        let (head, whole) = thread.await.unwrap().unwrap();
        assert_eq!((&head[..], &whole[..]), (&b"abc"[..], &b"abc"[..]));
    }

    #[tokio::test]
    async fn nobody_reads_any_more() {
        let (mut feed, reader) = feed();
        drop(reader);
        let pushed = feed.push(Bytes::from(vec![0; PIECE])).await;
        assert!(pushed.is_err());
        assert!(feed.end().await.is_err());
    }
}
