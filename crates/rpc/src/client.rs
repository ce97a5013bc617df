//! The client's side of a call: request out, reply in, data as a stream.

mod stream;

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Instant;

use afar_net::{AbortCode, Call, CallError, Connection};
use afar_xdr::{Decode, DecodeError, Decoder, Encode};
use bytes::{Bytes, BytesMut};
use tracing::Span;

use crate::operation::Length;
use crate::{Asker, Operation, RpcCause, RpcError, Subject, asked};

pub use stream::{Download, Upload};
pub(crate) use stream::{download, upload};

/// Bytes a reply may have beyond its results. OpenAFS ignores such bytes, so servers that send
/// some exist for all we know.
// spec: afs-rpc#encoding
const SLACK: usize = 1024;

/// Opcode and arguments as they go out.
pub(crate) fn encode_request(operation: &Operation, request: &impl Encode) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    operation.opcode.encode(&mut out);
    request.encode(&mut out);
    out.freeze()
}

/// An operation and what its arguments are about.
pub(crate) type About = (&'static Operation, Subject);

/// What the errors of a call are to say, and its span.
struct Made {
    operation: &'static Operation,
    peer: SocketAddr,
    began: Instant,
    /// From the request to the end of the reply. It costs a comparison unless somebody asks for it:
    /// the callers of a client tell of its failures, each at the level that they have for them.
    span: Span,
}

impl Made {
    fn new(connection: &Connection, (operation, subject): About) -> Self {
        let peer = connection.peer();
        let span = tracing::debug_span!(
            "call",
            operation = %format_args!("{}.{}", operation.interface, operation.name),
            %peer,
            fid = subject.fid().map(tracing::field::display),
            volume = subject.volume().map(tracing::field::display),
            transaction = subject.transaction().map(tracing::field::display),
        );
        Self {
            operation,
            peer,
            began: Instant::now(),
            span,
        }
    }

    fn error(&self, cause: RpcCause) -> RpcError {
        let error = RpcError {
            operation: self.operation,
            peer: self.peer,
            cause,
        };
        self.span
            .in_scope(|| tracing::debug!(code = error.code().0, "{}", error.cause));
        asked::failed(&error);
        error
    }

    fn failed(&self, error: CallError) -> RpcError {
        self.error(RpcCause::Call(error))
    }
}

/// A call in progress.
struct Open {
    call: Call,
    made: Made,
}

impl Open {
    /// Waits for a channel and sends opcode and arguments.
    async fn start(
        connection: &Connection,
        about: About,
        request: &impl Encode,
    ) -> Result<Self, RpcError> {
        let made = Made::new(connection, about);
        let failed = |error| made.failed(error);
        let mut call = connection.call().await.map_err(failed)?;
        let mut bytes = BytesMut::from(encode_request(made.operation, request));
        Asker::append(made.operation, &mut bytes);
        call.send(bytes.freeze()).await.map_err(failed)?;
        Ok(Self { call, made })
    }

    fn error(&self, cause: RpcCause) -> RpcError {
        self.made.error(cause)
    }

    fn failed(&self, error: CallError) -> RpcError {
        self.error(RpcCause::Call(error))
    }

    async fn end_request(&mut self) -> Result<(), RpcError> {
        self.call.finish().await.map_err(|error| self.failed(error))
    }

    /// Reads the rest of the reply, of which `head` is here already, and decodes the results. With it went so many
    /// bytes of data.
    async fn results<R: Decode>(mut self, head: Bytes, data: Option<u64>) -> Result<R, RpcError> {
        let limit = R::MAX_LEN.saturating_add(SLACK);
        let Some(room) = limit.checked_sub(head.len()) else {
            return Err(self.failed(CallError::TooLong));
        };
        let rest = self
            .call
            .read_to_end(room)
            .await
            .map_err(|error| self.failed(error))?;
        let results = if head.is_empty() {
            decode(&rest)
        } else {
            decode(&[head, rest].concat())
        };
        let results = results.map_err(|error| self.error(RpcCause::Reply(error)))?;
        asked::succeeded(self.made.operation, self.made.began.elapsed(), data);
        Ok(results)
    }

    /// Tells the server that its reply is of no use, and the caller why.
    fn refuse(self, cause: RpcCause) -> RpcError {
        let error = self.error(cause);
        self.call.abort(AbortCode::RXGEN_CC_UNMARSHAL);
        error
    }
}

/// Decodes results; bytes after them are ignored.
fn decode<R: Decode>(bytes: &[u8]) -> Result<R, DecodeError> {
    R::decode(&mut Decoder::new(bytes))
}

/// An operation without data.
pub(crate) async fn call<R: Decode>(
    connection: &Connection,
    about: About,
    request: &impl Encode,
) -> Result<R, RpcError> {
    let mut open = Open::start(connection, about, request).await?;
    open.end_request().await?;
    open.results(Bytes::new(), None).await
}

/// An operation with data from the server.
pub(crate) async fn fetch<R: Decode, L: Length>(
    connection: &Connection,
    about: About,
    request: &impl Encode,
    asked: L,
) -> Result<Fetch<R>, RpcError> {
    let mut open = Open::start(connection, about, request).await?;
    open.end_request().await?;
    let word = open
        .call
        .read_exact(L::MAX_LEN)
        .await
        .map_err(|error| open.failed(error))?;
    let announced = match decode::<L>(&word) {
        Ok(announced) => announced,
        Err(error) => return Err(open.refuse(RpcCause::Reply(error))),
    };
    // spec: afs-rpc#data-in-a-call
    match (announced.bytes(), asked.bytes().unwrap_or(0)) {
        (Some(length), asked) if length <= asked => Ok(Fetch {
            open,
            length,
            remaining: length,
            tail: Bytes::new(),
            reply: PhantomData,
        }),
        (_, asked) => Err(open.refuse(RpcCause::Length {
            announced: announced.number(),
            asked,
        })),
    }
}

/// An operation with data from the client.
pub(crate) async fn store<R: Decode, L: Length>(
    connection: &Connection,
    about: About,
    request: &impl Encode,
    announced: L,
) -> Result<Store<R>, RpcError> {
    let Some(length) = announced.bytes() else {
        let cause = RpcCause::Data {
            given: announced.number(),
            announced: 0,
        };
        return Err(Made::new(connection, about).error(cause));
    };
    let open = Open::start(connection, about, request).await?;
    Ok(Store {
        open,
        length,
        remaining: length,
        reply: PhantomData,
    })
}

/// Data on its way from the server, then the results of the call. Dropping it cancels the call.
pub struct Fetch<R> {
    open: Open,
    length: u64,
    remaining: u64,
    /// What came in one chunk with the last of the data: results, not aligned to anything.
    tail: Bytes,
    reply: PhantomData<fn() -> R>,
}

impl<R: Decode> Fetch<R> {
    /// Bytes the server announced, at most as many as asked for. Fewer mean the end of the file.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.length
    }

    /// Bytes still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The next bytes in order, of any number but 0; `None` after the last.
    ///
    /// # Errors
    /// When the call fails or ends before all announced data came.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RpcError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let next = self
            .open
            .call
            .recv()
            .await
            .map_err(|error| self.open.failed(error))?;
        let mut chunk = next.ok_or_else(|| self.open.failed(CallError::UnexpectedEnd))?;
        if let Ok(rest) = usize::try_from(self.remaining)
            && rest < chunk.len()
        {
            self.tail = chunk.split_off(rest);
        }
        self.remaining -= chunk.len() as u64;
        Ok(Some(chunk))
    }

    /// The results, after what is left of the data, which is thrown away.
    ///
    /// # Errors
    /// When the call fails or its results cannot be decoded.
    pub async fn finish(mut self) -> Result<R, RpcError> {
        while self.chunk().await?.is_some() {}
        self.open.results(self.tail, Some(self.length)).await
    }
}

impl<R> fmt::Debug for Fetch<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch")
            .field("operation", &self.open.made.operation.name)
            .field("peer", &self.open.made.peer)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

/// Data on its way to the server. Dropping it cancels the call; what the server then keeps of the
/// data is up to it.
pub struct Store<R> {
    open: Open,
    length: u64,
    remaining: u64,
    reply: PhantomData<fn() -> R>,
}

impl<R: Decode> Store<R> {
    /// Bytes still to be sent.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Sends the next bytes; waits while the call's send queue is full.
    ///
    /// # Errors
    /// When the call fails, or these bytes are more than were announced; they are then not sent.
    pub async fn send(&mut self, data: Bytes) -> Result<(), RpcError> {
        let Some(remaining) = self.remaining.checked_sub(data.len() as u64) else {
            return Err(self.wrong_amount(data.len() as u64));
        };
        self.open
            .call
            .send(data)
            .await
            .map_err(|error| self.open.failed(error))?;
        self.remaining = remaining;
        Ok(())
    }

    /// Ends the data and waits for the results.
    ///
    /// # Errors
    /// When the call fails, less data was sent than announced, or the results cannot be decoded.
    pub async fn finish(mut self) -> Result<R, RpcError> {
        if self.remaining != 0 {
            return Err(self.wrong_amount(0));
        }
        self.open.end_request().await?;
        self.open.results(Bytes::new(), Some(self.length)).await
    }

    fn wrong_amount(&self, more: u64) -> RpcError {
        let given = i128::from(self.length - self.remaining) + i128::from(more);
        self.open.error(RpcCause::Data {
            given,
            announced: self.length,
        })
    }
}

impl<R> fmt::Debug for Store<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("operation", &self.open.made.operation.name)
            .field("peer", &self.open.made.peer)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
