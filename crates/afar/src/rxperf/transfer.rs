//! One call, from the client's side and from the server's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use afar_net::{Call, CallError};
use afar_rx::AbortCode;

use super::wire::{self, Exchange, HEADER_LEN, Header, Next, ReplyCheck, Request, WireError};

/// What has moved so far; read by others while calls go on. Alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    /// Payload sent, in bytes; counted when handed to Rx.
    pub(crate) sent: AtomicU64,
    /// Payload received, in bytes.
    pub(crate) received: AtomicU64,
    /// Calls ended well.
    pub(crate) calls: AtomicU64,
    /// Calls ended otherwise.
    pub(crate) failed: AtomicU64,
}

impl Progress {
    /// Payload moved in both directions, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sent.load(Relaxed) + self.received.load(Relaxed)
    }

    /// Calls ended well.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Adds what another call, now over, has moved.
    pub(crate) fn add(&self, other: &Self) {
        self.sent.fetch_add(other.sent.load(Relaxed), Relaxed);
        self.received
            .fetch_add(other.received.load(Relaxed), Relaxed);
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Rx failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The peer does not keep to rxperf's protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Failure {
    /// What a server aborts the call with.
    pub(crate) fn code(&self) -> AbortCode {
        match self {
            Self::Call(CallError::UnexpectedEnd) => AbortCode::RXGEN_SS_UNMARSHAL,
            Self::Call(error) => error.code(),
            Self::Wire(WireError::Operation(_)) => AbortCode::RXGEN_OPCODE,
            Self::Wire(_) => AbortCode::RXGEN_SS_UNMARSHAL,
        }
    }
}

/// Makes one request and reads the reply to its end.
///
/// # Errors
/// Rx failed, or the reply is not what was asked for.
pub(crate) async fn request(
    call: &mut Call,
    request: &Request,
    write_size: u64,
    progress: &Progress,
) -> Result<(), Failure> {
    call.send(request.head.clone()).await?;
    progress
        .sent
        .fetch_add(request.exchange.request - request.rest, Relaxed);
    send_zeros(call, request.rest, write_size, progress).await?;
    call.finish().await?;
    let mut check = ReplyCheck::new(request.exchange);
    while let Some(piece) = call.recv().await? {
        progress.received.fetch_add(check.take(&piece)?, Relaxed);
    }
    Ok(check.end()?)
}

/// Serves one request. The request is read to its end before the reply begins, since in Rx a
/// reply's first packet says that the request has arrived.
///
/// # Errors
/// Rx failed, or the request is malformed.
pub(crate) async fn respond(call: &mut Call, progress: &Progress) -> Result<(), Failure> {
    let (header, exchange) = read_header(call).await?;
    let mut got = 0;
    while let Some(piece) = call.recv().await? {
        got += piece.len() as u64;
        progress.received.fetch_add(piece.len() as u64, Relaxed);
        if got > exchange.request {
            break;
        }
    }
    if got != exchange.request {
        return Err(WireError::Length {
            expected: exchange.request,
            got,
        }
        .into());
    }
    let write_size = header.write_size as u64;
    let (whole, end) = match wire::tail(exchange.reply, exchange.cookie) {
        Some(end) => (0, end),
        None => (
            exchange.reply,
            wire::tail(0, exchange.cookie).unwrap_or_default(),
        ),
    };
    send_zeros(call, whole, write_size, progress).await?;
    if !end.is_empty() {
        call.send(end).await?;
        progress.sent.fetch_add(exchange.reply - whole, Relaxed);
    }
    call.finish().await?;
    Ok(())
}

async fn read_header(call: &mut Call) -> Result<(Header, Exchange), Failure> {
    let bytes = call.read_exact(HEADER_LEN).await?;
    let header = bytes.first_chunk().ok_or(CallError::UnexpectedEnd)?;
    let header = Header::decode(header)?;
    let exchange = match header.next {
        Next::Payload(exchange) => exchange,
        Next::ReplyBytes { request } => {
            let word = call.read_exact(4).await?;
            let word = word.first_chunk().ok_or(CallError::UnexpectedEnd)?;
            let reply = wire::decode_amount(u32::from_be_bytes(*word))?;
            Exchange {
                request,
                reply,
                cookie: true,
            }
        }
        Next::Entries(0) => Exchange::decode_entries(&[])?,
        Next::Entries(count) => Exchange::decode_entries(&call.read_exact(count * 4).await?)?,
    };
    Ok((header, exchange))
}

async fn send_zeros(
    call: &mut Call,
    mut left: u64,
    write_size: u64,
    progress: &Progress,
) -> Result<(), CallError> {
    while left > 0 {
        let piece = wire::zeros(left.min(write_size));
        let len = piece.len() as u64;
        call.send(piece).await?;
        progress.sent.fetch_add(len, Relaxed);
        left -= len;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
