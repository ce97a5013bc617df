//! What passes on a connection: the handshake, and what is sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_oob::frame::{self, ClientFrame, FromServer, Incoming};
use afar_oob::{EXPORTER, FrameError, Hello, PROTOCOL, Refusal, ServerFrame, VERSION};
use afar_xdr::FixedOpaque;
use bytes::{Buf, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use super::offer::Known;

/// Bytes that the kernel takes before it can send them. What is behind them gets there soon, and whether something is
/// sent shows that the path lets it.
const UNSENT: u32 = 128 << 10;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no answer in time")]
    Late,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the server does not speak the protocol")]
    Protocol,
    #[error("the server refuses: {0:?}")]
    Refused(Refusal),
}

pub(super) type Stream = TlsStream<TcpStream>;

/// Connects and shows the grant.
// spec: oob#connection
pub(super) async fn handshake(
    server: SocketAddr,
    known: &Known,
) -> Result<(Stream, Incoming<FromServer>, u32), Failure> {
    let offer = &known.offer;
    let port = u16::try_from(offer.port).map_err(|_| Failure::Protocol)?;
    let stream = TcpStream::connect((server.ip(), port)).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
    let config = afar_tls::client(PROTOCOL, Some(offer.fingerprint.0.into()))?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(server.ip().into(), stream).await?;
    let session = stream.get_ref().1;
    if session.alpn_protocol() != Some(PROTOCOL) {
        return Err(Failure::Protocol);
    }
    let exported: [u8; 32] = session.export_keying_material([0; 32], EXPORTER, None)?;
    let hello = ClientFrame::Hello(Hello {
        version: VERSION,
        grant: offer.grant.clone(),
        proof: FixedOpaque(known.secret.proof(&exported)),
        parts: afar_oob::no_parts(),
    });
    stream.write_all(&frame::encode(&hello)).await?;
    stream.flush().await?;
    let mut incoming = Incoming::default();
    loop {
        match incoming.frame()? {
            None => {}
            Some(FromServer::Frame(ServerFrame::Welcome(welcome))) => {
                return Ok((stream, incoming, welcome.transfers));
            }
            Some(FromServer::Frame(ServerFrame::Close(refusal))) => {
                return Err(Failure::Refused(refusal));
            }
            Some(_) => return Err(Failure::Protocol),
        }
        if stream.read_buf(incoming.room()).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Sends what is queued, frames before records. Tells how many bytes of records are sent.
pub(super) async fn write(
    mut stream: WriteHalf<Stream>,
    mut frames: mpsc::Receiver<Bytes>,
    mut records: mpsc::Receiver<(Bytes, Bytes)>,
    sent: &AtomicU64,
) -> io::Result<()> {
    loop {
        tokio::select! {
            biased;
            Some(frame) = frames.recv() => write_all(&mut stream, frame, None).await?,
            Some((head, record)) = records.recv() => {
                write_all(&mut stream, head.chain(record), Some(sent)).await?;
            }
            else => return Ok(()),
        }
        if frames.is_empty() && records.is_empty() {
            stream.flush().await?;
        }
    }
}

async fn write_all(
    stream: &mut WriteHalf<Stream>,
    mut bytes: impl Buf,
    count: Option<&AtomicU64>,
) -> io::Result<()> {
    while bytes.has_remaining() {
        let written = stream.write_buf(&mut bytes).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if let Some(count) = count {
            count.fetch_add(written as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}
