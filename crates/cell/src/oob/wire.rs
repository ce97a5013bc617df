//! What passes on a connection: the handshake, what comes, and what is sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_oob::frame::{self, ClientFrame, FromServer, Incoming};
use afar_oob::{EXPORTER, FrameError, Hello, PROTOCOL, Refusal, ServerFrame, VERSION};
use afar_xdr::FixedOpaque;
use bytes::{Buf, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;

use super::connection::Shared;
use super::offer::Known;

/// When nothing came for so long while transfers are under way, the server is asked whether it is there.
// spec: oob#liveness
const QUIET: Duration = Duration::from_secs(2);
/// After so many times of that without a sign of life the connection is dead.
// spec: oob#liveness
const QUIET_MOST: u32 = 3;
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

type Stream = TlsStream<TcpStream>;

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

/// Takes in what comes, until the connection ends or nobody needs it.
// spec: oob#liveness
pub(super) async fn read(
    shared: &Shared,
    mut stream: ReadHalf<Stream>,
    mut incoming: Incoming<FromServer>,
) -> Result<(), Failure> {
    let (mut quiet, mut sent) = (0, 0);
    let mut told = Instant::now();
    loop {
        while let Some(frame) = incoming.frame()? {
            shared.take(frame)?;
        }
        if shared.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        match timeout(QUIET, stream.read_buf(incoming.room())).await {
            Ok(read) => match read? {
                0 => return Ok(()),
                // A server that hears nothing of a store gives it up, whatever it sends meanwhile.
                _ if told.elapsed() >= QUIET && shared.has_stores() => {
                    told = Instant::now();
                    shared.ping(0);
                    quiet = 0;
                }
                _ => quiet = 0,
            },
            Err(_) if shared.transfers.lock().is_empty() => {
                if shared.left.load(Ordering::Acquire) {
                    return Ok(());
                }
                quiet = 0;
            }
            Err(_) => {
                // On a slow path, an answer comes when what is before its question has passed.
                let before = std::mem::replace(&mut sent, shared.sent.load(Ordering::Relaxed));
                quiet = if sent == before { quiet + 1 } else { 1 };
                if quiet >= QUIET_MOST {
                    return Err(Failure::Late);
                }
                told = Instant::now();
                shared.ping(quiet);
            }
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
