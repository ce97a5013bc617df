//! Messages on a stream.

use std::io;

use afar_xdr::{Decode, Encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::wire::{self, FRAME_MAX, WireError};

/// Why a message did not come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The stream broke, or ended before the message did.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is longer than any message.
    #[error("a message of {0} bytes is announced; the maximum is {FRAME_MAX}")]
    TooLong(u32),
    /// It cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Sends a message.
pub(crate) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Encode,
) -> io::Result<()> {
    let body = wire::encode(message);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    // Messages of servers have secrets in them.
    let mut frame = Zeroizing::new(Vec::with_capacity(4 + body.len()));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Receives a message. Memory is taken for the bytes that have come, not for those announced.
pub(crate) async fn receive<T: Decode>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<T, FrameError> {
    let length = stream.read_u32().await?;
    if length as usize > FRAME_MAX {
        return Err(FrameError::TooLong(length));
    }
    let mut body = Zeroizing::new(Vec::new());
    let mut rest = stream.take(length.into());
    rest.read_to_end(&mut body).await?;
    if body.len() < length as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(wire::decode(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reason;

    #[tokio::test]
    async fn a_message_arrives_and_a_longer_or_shorter_one_does_not() {
        let mut sent = Vec::new();
        send(&mut sent, &Reason::Cell).await.unwrap();
        assert_eq!(sent, b"\0\0\0\x08\0\0\0\x01\0\0\0\x03");
        let mut stream = &sent[..];
        assert_eq!(receive::<Reason>(&mut stream).await.unwrap(), Reason::Cell);
        let short = receive::<Reason>(&mut &sent[..11]).await;
        assert!(matches!(short, Err(FrameError::Io(_))), "{short:?}");
        let long = receive::<Reason>(&mut &b"\0\0\x40\x01rest"[..]).await;
        assert!(matches!(long, Err(FrameError::TooLong(0x4001))), "{long:?}");
    }
}
