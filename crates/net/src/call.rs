//! One call as the application sees it.

mod state;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use afar_rx::{AbortCode, CallError, Identity, ServiceId};
use bytes::{Bytes, BytesMut};

use crate::connection::Connection;
use crate::mailbox::{Command, Mailbox};

pub(crate) use state::{CallShared, CallState, Interest};

/// Queued bytes from which the I/O thread is told at once; fewer wait for [`Call::finish`] or
/// [`Call::recv`], as they do not fill a packet.
const PACKET: usize = 1412;
/// Bytes read from which the I/O thread is told, so that the peer's window opens.
const CONSUMED: usize = 64 << 10;
/// The same when the application has read all there was, and is about to wait.
const CONSUMED_ALL: usize = 8 << 10;
/// The most bytes that [`Call::recv_after`] waits for: the engine has room for twice as many, however
/// short memory is.
const AFTER_MAX: usize = 32 << 10;

/// One call: an async byte stream each way plus an abort code.
///
/// A client's call comes from [`Connection::call`]: it sends the request, [`finish`](Self::finish)es
/// it and receives the reply until its end. A server's call is handed to its
/// [`Handler`](crate::Handler): it receives the request and sends the reply. Nothing is sent to the
/// server before the first bytes of the request, or its end, are.
///
/// Dropping a call that is not over aborts it with [`AbortCode::RX_USER_ABORT`]. A client's call is
/// over when its reply was received to the end, a server's when it was finished.
pub struct Call {
    shared: Arc<CallShared>,
    mailbox: Arc<Mailbox>,
    /// Of a client's call: keeps the connection open.
    connection: Option<Connection>,
    /// Chunks taken out of the shared state together, to lock it less often.
    inbox: VecDeque<Bytes>,
    /// Whether the I/O thread was ever told of this call.
    known: bool,
    finished: bool,
    ended: bool,
    failed: Option<CallError>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Call {
    pub(crate) fn client(connection: Connection, mailbox: Arc<Mailbox>) -> Self {
        let shared = Arc::new(CallShared::client(connection.shared()));
        Self::new(shared, mailbox, Some(connection))
    }

    pub(crate) fn server(shared: Arc<CallShared>, mailbox: Arc<Mailbox>) -> Self {
        let mut call = Self::new(shared, mailbox, None);
        call.known = true;
        call
    }

    fn new(shared: Arc<CallShared>, mailbox: Arc<Mailbox>, connection: Option<Connection>) -> Self {
        Self {
            shared,
            mailbox,
            connection,
            inbox: VecDeque::new(),
            known: false,
            finished: false,
            ended: false,
            failed: None,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// What it shares with the I/O thread.
    pub(crate) fn shared(&self) -> Arc<CallShared> {
        Arc::clone(&self.shared)
    }

    /// The address of the other side.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// The authenticated identity of an incoming call's client; of an outgoing one nobody in particular.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// The service that is called.
    #[must_use]
    pub fn service(&self) -> ServiceId {
        self.shared.service
    }

    /// Queues bytes of our stream; waits while the send queue is full.
    ///
    /// Bytes that do not fill a packet leave with the next ones, or with [`finish`](Self::finish).
    ///
    /// # Errors
    /// Why the call is over, if it is.
    ///
    /// # Panics
    /// After [`finish`](Self::finish).
    pub async fn send(&mut self, data: Bytes) -> Result<(), CallError> {
        assert!(!self.finished, "nothing can be sent after the last packet");
        if data.is_empty() {
            return self.failed.map_or(Ok(()), Err);
        }
        let length = data.len() as u64;
        let mut data = Some(data);
        poll_fn(|cx| self.poll_send(cx, &mut data)).await?;
        self.sent_bytes += length;
        Ok(())
    }

    /// Bytes of our stream that were queued so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Bytes of the peer's stream that were taken from the engine so far.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Waits until [`send`](Self::send) would not wait, and gives the bytes of an answer to have ready by then:
    /// a reader of something large should have no more in memory. They are few as long as the client has
    /// taken nothing of an answer, and while memory is short.
    ///
    /// # Errors
    /// Why the call is over, if it is.
    pub async fn room(&mut self) -> Result<usize, CallError> {
        poll_fn(|cx| self.poll_room(cx, |state| state.granted)).await
    }

    /// What [`room`](Self::room) gives, now.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.shared.lock().granted
    }

    /// Ends our stream: the bytes queued are followed by the mark of the last packet. Does not wait
    /// until they are sent. Finishing again does nothing.
    ///
    /// # Errors
    /// Why the call is over, if it is.
    pub async fn finish(&mut self) -> Result<(), CallError> {
        if self.finished {
            return Ok(());
        }
        if let Some(error) = self.failed.or_else(|| self.shared.lock().error) {
            return Err(self.fail(error));
        }
        self.finished = true;
        self.announce(|state| state.finish = true)
    }

    /// The next chunk of the peer's stream, as large as it happens to be and never empty; `None`
    /// after its last packet. Before a request is finished there is hardly a reply to it.
    ///
    /// # Errors
    /// Why the call is over, if it ended without success. What arrived before is given first.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, CallError> {
        self.recv_after(1).await
    }

    /// The same once `least` bytes have come that were not received, or no more will: a task that
    /// needs many is not woken for a few. It waits for at most 32 KiB.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_after(&mut self, least: usize) -> Result<Option<Bytes>, CallError> {
        let least = least.clamp(1, AFTER_MAX);
        poll_fn(|cx| self.poll_recv(cx, least)).await
    }

    /// Exactly `n` bytes of the peer's stream. The caller bounds `n`: it is what may be buffered.
    ///
    /// # Errors
    /// [`CallError::UnexpectedEnd`] if the stream ends first, or why the call is over.
    pub async fn read_exact(&mut self, n: usize) -> Result<Bytes, CallError> {
        let mut whole = BytesMut::new();
        while whole.len() < n {
            let mut chunk = self.recv().await?.ok_or(CallError::UnexpectedEnd)?;
            let wanted = n - whole.len();
            if chunk.len() > wanted {
                self.inbox.push_front(chunk.split_off(wanted));
            }
            if chunk.len() == n {
                return Ok(chunk);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// The rest of the peer's stream, at most `limit` bytes.
    ///
    /// # Errors
    /// [`CallError::TooLong`] if there is more, or why the call is over.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Bytes, CallError> {
        let Some(first) = self.recv().await? else {
            return Ok(Bytes::new());
        };
        if first.len() > limit {
            return Err(CallError::TooLong);
        }
        let Some(second) = self.recv().await? else {
            return Ok(first);
        };
        let mut whole = BytesMut::from(first);
        let mut chunk = Some(second);
        while let Some(next) = chunk {
            if next.len() > limit - whole.len() {
                return Err(CallError::TooLong);
            }
            whole.extend_from_slice(&next);
            chunk = self.recv().await?;
        }
        Ok(whole.freeze())
    }

    /// Gives the call up and tells the peer that code.
    pub fn abort(mut self, code: AbortCode) {
        self.give_up(code);
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Option<Bytes>,
    ) -> Poll<Result<(), CallError>> {
        let full = ready!(self.poll_room(cx, |state| {
            if let Some(data) = data.take() {
                state.unannounced += data.len();
                state.outgoing_bytes += data.len();
                state.outgoing.push_back(data);
            }
            state.unannounced >= PACKET
        }))?;
        Poll::Ready(if full { self.announce(|_| {}) } else { Ok(()) })
    }

    /// Waits until the task may send more, and then looks at the state or changes it.
    fn poll_room<T>(
        &mut self,
        cx: &Context<'_>,
        then: impl FnOnce(&mut CallState) -> T,
    ) -> Poll<Result<T, CallError>> {
        let mut state = self.shared.lock();
        if let Some(error) = self.failed.or(state.error) {
            drop(state);
            return Poll::Ready(Err(self.fail(error)));
        }
        if state.is_full() {
            state.wait(Interest::Write, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(then(&mut state)))
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        least: usize,
    ) -> Poll<Result<Option<Bytes>, CallError>> {
        if let Some(chunk) = self.inbox.pop_front() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = self.failed {
            return Poll::Ready(Err(error));
        }
        let mut state = self.shared.lock();
        if !state.is_readable(least) {
            state.wait(Interest::Read { least }, cx);
            let tell = state.consumed >= CONSUMED_ALL || state.has_unannounced();
            drop(state);
            if tell && let Err(error) = self.announce(|_| {}) {
                return Poll::Ready(Err(self.fail(error)));
            }
            return Poll::Pending;
        }
        // Emptied by the loop above or never filled; its allocation is handed over for reuse.
        std::mem::swap(&mut state.incoming, &mut self.inbox);
        if let Some(chunk) = self.inbox.pop_front() {
            // The engine counts these bytes until they are consumed; the next lock does that.
            let taken = std::mem::take(&mut state.incoming_bytes);
            state.consumed += taken;
            self.received_bytes += taken as u64;
            let tell = !state.end && state.consumed >= CONSUMED;
            drop(state);
            if tell && let Err(error) = self.announce(|_| {}) {
                return Poll::Ready(Err(self.fail(error)));
            }
            return Poll::Ready(Ok(Some(chunk)));
        }
        if state.end {
            drop(state);
            self.ended = true;
            return Poll::Ready(Ok(None));
        }
        let error = state
            .error
            .expect("without bytes, what is readable is an end");
        drop(state);
        Poll::Ready(Err(self.fail(error)))
    }

    /// Changes the shared state and has the I/O thread look at it.
    fn announce(&mut self, change: impl FnOnce(&mut CallState)) -> Result<(), CallError> {
        let mut state = self.shared.lock();
        change(&mut state);
        state.unannounced = 0;
        if std::mem::replace(&mut state.announced, true) {
            return Ok(());
        }
        drop(state);
        self.known = true;
        self.mailbox.push(Command::Call(Arc::clone(&self.shared)))
    }

    fn fail(&mut self, error: CallError) -> CallError {
        *self.failed.get_or_insert(error)
    }

    fn give_up(&mut self, code: AbortCode) {
        let over = if self.connection.is_some() {
            self.ended
        } else {
            self.finished
        };
        if over || self.failed.is_some() {
            return;
        }
        self.failed = Some(CallError::Cancelled(code));
        if self.known {
            // An endpoint that has ended has given the call up already.
            let _ended = self.announce(|state| state.abort = Some(code));
        } else if let Some(connection) = &self.connection {
            connection.shared().release_channel();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A reply whose end has arrived was received, even if its reader did not look.
        if self.connection.is_some() && self.known && self.shared.lock().end {
            self.ended = true;
        }
        self.give_up(AbortCode::RX_USER_ABORT);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("peer", &self.shared.peer)
            .field("service", &self.shared.service)
            .field("finished", &self.finished)
            .field("ended", &self.ended)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
