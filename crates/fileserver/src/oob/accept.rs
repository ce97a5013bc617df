//! Admission: which clients may connect, and how many. Nothing that strangers do costs more than a few handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_oob::frame::{self, ClientFrame, Incoming};
use afar_oob::{EXPORTER, FrameError, Grant, GrantError, Refusal, ServerFrame, Service};
use afar_tls::{Connections, Gate, GateLimits, Pass};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;

use super::session::Session;
use super::transfer::Serving;

/// Connections of which no grant was checked yet.
const STRANGERS: GateLimits = GateLimits {
    all: 256,
    each: 32,
    kept: 0,
    burst: 128,
    pause: Duration::from_millis(10),
};
/// Connections whose grants were checked. Many clients may share an address.
const CLIENTS: GateLimits = GateLimits {
    all: 4096,
    each: 1024,
    kept: 0,
    burst: 1,
    pause: Duration::ZERO,
};
/// How long a client may take until its grant has come.
const OPENING_MAX: Duration = Duration::from_secs(10);

/// All that connections share.
pub(super) struct Door {
    serving: Arc<Serving>,
    strangers: Arc<Gate>,
    clients: Arc<Gate>,
}

/// A client is not let in.
#[derive(Debug, thiserror::Error)]
enum Shut {
    #[error("the client said nothing in time")]
    Late,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the first message shows no grant")]
    First,
    #[error("{0}")]
    Grant(GrantError),
    #[error("another client is at the address that the offer was made to")]
    Client,
    #[error("there are too many connections")]
    Full,
}

impl Shut {
    /// What the client is told, if it can be.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Late | Self::Io(_) | Self::Tls(_) => None,
            Self::Frame(_) | Self::First => Some(Refusal::Message),
            Self::Grant(_) | Self::Client => Some(Refusal::Grant),
            Self::Full => Some(Refusal::Full),
        }
    }
}

impl Door {
    pub(super) fn new(serving: Serving) -> Self {
        Self {
            serving: Arc::new(serving),
            strangers: Arc::new(Gate::new(STRANGERS)),
            clients: Arc::new(Gate::new(CLIENTS)),
        }
    }

    /// Does TLS's handshake, and reads the first message.
    async fn open(&self, stream: TcpStream) -> Result<Opened, Shut> {
        stream.set_nodelay(true)?;
        let acceptor = TlsAcceptor::from(self.serving.offers.tls.config());
        let mut stream = acceptor.accept(stream).await?;
        let mut incoming = Incoming::default();
        let first = loop {
            match incoming.frame() {
                Ok(None) => {}
                read => break read,
            }
            if stream.read_buf(incoming.room()).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        };
        let checked = self.check(&stream, first).await;
        Ok(Opened {
            stream,
            incoming,
            checked,
        })
    }

    /// Whose grant the first message shows.
    async fn check(
        &self,
        stream: &TlsStream<TcpStream>,
        first: Result<Option<ClientFrame>, FrameError>,
    ) -> Result<Grant, Shut> {
        let session = stream.get_ref().1;
        let Some(ClientFrame::Hello(hello)) = first? else {
            return Err(Shut::First);
        };
        if session.alpn_protocol() != Some(afar_oob::PROTOCOL) {
            return Err(Shut::First);
        }
        let exported = session.export_keying_material([0; 32], EXPORTER, None)?;
        let offers = &self.serving.offers;
        let grant = offers.check(&hello, &exported).map_err(Shut::Grant)?;
        // Promises are given to the host that is there now; volumes come without.
        if grant.service == Service::Files {
            let host = self.serving.files.host(grant.peer).await;
            if !host.is_ok_and(|host| host.uuid() == grant.uuid) {
                return Err(Shut::Client);
            }
        }
        Ok(grant)
    }

    /// Serves a connection to its end, or tells the client why not.
    async fn connected(self: Arc<Self>, opened: Opened, peer: SocketAddr) {
        let Opened {
            mut stream,
            incoming,
            checked,
        } = opened;
        let entered = checked.and_then(|grant| {
            let pass = self.clients.enter(peer.ip(), Instant::now(), || true);
            pass.map(|pass| (grant, pass)).ok_or(Shut::Full)
        });
        let counts = &self.serving.counts;
        match entered {
            Ok((grant, _pass)) => {
                tracing::debug!(%peer, client = %grant.peer, "out-of-band transfers begin");
                counts.connections.add(1);
                let session = Session::new(Arc::clone(&self.serving), &grant, peer);
                // It also ends when the server does, in the middle of anything.
                let _connected = Connected(&self);
                let ended = session.serve(stream, incoming.change()).await;
                tracing::debug!(%peer, ?ended, "out-of-band transfers end");
            }
            Err(error) => {
                match error {
                    Shut::Full => counts.full.inc(),
                    Shut::Grant(_) | Shut::Client => counts.grant.inc(),
                    _ => counts.handshake.inc(),
                }
                tracing::info!(%peer, %error, "a connection for out-of-band transfers is refused");
                if let Some(refusal) = error.refusal() {
                    let frame = frame::encode(&ServerFrame::Close(refusal));
                    let telling = async {
                        stream.write_all(&frame).await?;
                        stream.shutdown().await
                    };
                    // A client that does not listen need not know.
                    let _told = tokio::time::timeout(OPENING_MAX, telling).await;
                }
            }
        }
    }
}

impl Connections for Door {
    const PURPOSE: &'static str = "out-of-band transfers";

    fn gate(&self) -> &Arc<Gate> {
        &self.strangers
    }

    fn turned_away(&self) {
        self.serving.counts.full.inc();
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, stranger: Pass) {
        let opened = tokio::time::timeout(OPENING_MAX, self.open(stream)).await;
        drop(stranger);
        match opened.unwrap_or(Err(Shut::Late)) {
            Ok(opened) => self.connected(opened, peer).await,
            Err(error) => {
                self.serving.counts.handshake.inc();
                tracing::debug!(%peer, %error, "no connection for out-of-band transfers");
            }
        }
    }
}

/// Counts a connection until it is dropped.
struct Connected<'a>(&'a Door);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.serving.counts.connections.add(-1);
    }
}

/// A connection after TLS's handshake.
struct Opened {
    stream: TlsStream<TcpStream>,
    /// What has come behind the first message.
    incoming: Incoming<ClientFrame>,
    checked: Result<Grant, Shut>,
}
