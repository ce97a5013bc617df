//! A page that shows a server at a glance, over HTTP: at a Unix socket in the run directory, and at a TCP port
//! if one is configured. It shows and changes nothing.
//!
//! The page is three files, built into the program, and a stream of events, each of which has all that is
//! shown. The server makes an event every two seconds, one for all viewers, while there is any. Viewers are bounded in
//! number, and one that stops reading loses its place.
//!
//! - `glance`: what is shown, from samples (`sample`); `sampler`: when it is made; `servers`: the other servers of the cell
//! - `events`: the stream to a viewer
//! - `door`: which requests are answered
//! - `page`: the files, as browsers get them

mod door;
mod events;
mod glance;
mod sample;
mod sampler;
mod servers;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_telemetry::Registry;
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Config;
use crate::http::{self, HEADERS_MAX, Listener, REQUEST_LIMIT, REQUEST_MAX};
use events::{Events, Progress};
use glance::About;
use sampler::Sampler;

pub(crate) use door::Door;
pub(crate) use servers::Cell;

/// The socket's name in the run directory.
pub(crate) const SOCKET: &str = "web.sock";

/// Connections of viewers that are not yet told that there are too many, of each listener.
const CONNECTIONS_BESIDE: usize = 16;
/// Bytes that the kernel keeps for a viewer.
const SEND_BUFFER: u32 = 64 << 10;
/// Connections that wait in the kernel.
const BACKLOG: u32 = 64;
/// The pause after a wrong token.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// What viewers may take of a server.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Viewers at a time, of all listeners.
    viewers: usize,
    /// The time from an event to the next.
    interval: Duration,
    /// How long a connection may take nothing.
    stalled: Duration,
    /// How long a stream of events lasts. The browser asks for the next one.
    lasts: Duration,
}

const LIMITS: Limits = Limits {
    viewers: 16,
    interval: Duration::from_secs(2),
    stalled: Duration::from_secs(20),
    lasts: Duration::from_secs(3600),
};

/// A file of the page: its path, its kind, itself.
type File = (&'static str, &'static str, &'static str);

const FILES: [File; 4] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("web/page/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("web/page/page.css"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("web/page/page.js"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("web/page/icon.svg"),
    ),
];
/// The path of the stream of events.
const EVENTS: &str = "/events";

/// With every answer: nothing but the page's own files is loaded, nothing frames it, nothing keeps it.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

type Answer = Response<Either<Full<Bytes>, Events>>;

/// Shows the page.
#[derive(Debug)]
pub(crate) struct Web {
    sampler: Arc<Sampler>,
    viewers: Arc<Semaphore>,
    limits: Limits,
}

impl Web {
    /// Of the server with this address, with what is in its registry.
    pub(crate) fn new(registry: &Registry, config: &Config, address: IpAddr) -> Arc<Self> {
        let about = About {
            cell: config.cell.clone(),
            server: named(address),
            version: env!("CARGO_PKG_VERSION"),
            roles: config.roles.0.iter().map(|role| role.program()).collect(),
        };
        Self::with_limits(registry, about, LIMITS)
    }

    fn with_limits(registry: &Registry, about: About, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            sampler: Arc::new(Sampler::new(registry, about, limits.interval)),
            viewers: Arc::new(Semaphore::new(limits.viewers)),
            limits,
        })
    }

    /// Makes what viewers at all listeners are shown of this server and the cell, for ever.
    pub(crate) fn sample(&self, cell: Option<Cell>) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.sampler).run(cell)
    }

    /// Serves at a listener until this is dropped.
    pub(crate) async fn serve(self: Arc<Self>, listener: impl Listener, door: Door) {
        let door = Arc::new(door);
        let connections = self.limits.viewers + CONNECTIONS_BESIDE;
        http::serve(listener, connections, |stream| {
            Arc::clone(&self).connection(stream, Arc::clone(&door))
        })
        .await;
    }

    fn connection<S>(self: Arc<Self>, stream: S, door: Arc<Door>) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (progress, stalled) = (Progress::new(), self.limits.stalled);
        let watched = progress.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (web, door, progress) = (Arc::clone(&self), Arc::clone(&door), progress.clone());
            async move { Ok::<_, Infallible>(web.answer(&request, &door, progress).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_LIMIT)
            .keep_alive(false)
            .max_buf_size(REQUEST_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        async move {
            let stopped = async {
                loop {
                    let due = watched.due(stalled);
                    if due <= Instant::now() {
                        return;
                    }
                    sleep_until(due).await;
                }
            };
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a viewer of the page is gone");
                    }
                }
                () = stopped => tracing::debug!("a viewer of the page was too slow"),
            }
        }
    }

    async fn answer(&self, request: &Request<Incoming>, door: &Door, progress: Progress) -> Answer {
        if let Err(status) = door.admit(request.headers()) {
            return refuse(status).await;
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return refuse(StatusCode::METHOD_NOT_ALLOWED).await;
        }
        let path = request.uri().path();
        if path == EVENTS {
            return self.events(progress).await;
        }
        match FILES.iter().find(|(name, ..)| *name == path) {
            Some((_, kind, text)) => respond(StatusCode::OK, kind, file(text)),
            None => refuse(StatusCode::NOT_FOUND).await,
        }
    }

    async fn events(&self, progress: Progress) -> Answer {
        let Ok(place) = Arc::clone(&self.viewers).try_acquire_owned() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE).await;
        };
        let events = Events::new(self.sampler.look(), self.limits.lasts, progress, place);
        respond(StatusCode::OK, "text/event-stream", Either::Right(events))
    }
}

/// The name of this machine, if it has one, and an address.
fn named(address: IpAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" | "(none)" => address.to_string(),
        name => format!("{name} ({address})"),
    }
}

fn file(text: &'static str) -> Either<Full<Bytes>, Events> {
    Either::Left(Full::new(Bytes::from_static(text.as_bytes())))
}

fn respond(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, Events>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.extend(HEADERS);
    response
}

/// Answers with a status and what to do about it.
async fn refuse(status: StatusCode) -> Answer {
    let (text, more) = match status {
        StatusCode::UNAUTHORIZED => {
            sleep(REFUSED_PAUSE).await;
            let scheme = "Basic realm=\"afar: the token is the password\", charset=\"UTF-8\"";
            (
                "the page needs the token of web.token, as the password of any user\n",
                Some((header::WWW_AUTHENTICATE, scheme)),
            )
        }
        StatusCode::METHOD_NOT_ALLOWED => ("use GET\n", Some((header::ALLOW, "GET, HEAD"))),
        StatusCode::SERVICE_UNAVAILABLE => (
            "there are as many viewers as the server takes\n",
            Some((header::RETRY_AFTER, "10")),
        ),
        StatusCode::MISDIRECTED_REQUEST => (
            "this listener answers to localhost only; web.token admits other names\n",
            None,
        ),
        _ => ("the page is at /\n", None),
    };
    let mut response = respond(status, "text/plain; charset=utf-8", file(text));
    if let Some((name, value)) = more {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A TCP listener, with an error that says what to do.
pub(crate) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let open = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // Connections inherit it. A viewer that stops reading is noticed when it is full.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().with_context(|| {
        format!(
            "cannot open TCP port {address} for the page; does another program have it? \
             (web.listen = \"…\" names another)"
        )
    })
}

#[cfg(test)]
mod tests;
