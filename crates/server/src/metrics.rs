//! What the server counts, over HTTP for Prometheus: at a Unix socket in the run directory, and at a TCP
//! port if one is configured. At the Unix socket there is also what viewers are shown ([`Views`]).
//!
//! Nobody who asks can hold up the servers. So many connections are served at a time; the others wait in
//! the kernel. A connection has one request, of a bounded size, and a bounded time for it and its answer. The
//! text is made at most once a second, on a thread for what blocks, and all who ask meanwhile get
//! the same one; what viewers are shown is made at most twice a second. The Unix socket has connections of
//! its own, so that strangers at the TCP port do not keep the administrator out.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_telemetry::{Cells, Collect, Desc, Registry, Unit, render_prometheus};
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::http::{self, HEADERS_MAX, Listener, REQUEST_LIMIT, REQUEST_MAX};
use crate::view::View;
use crate::views::Views;

/// Connections that are served at a time, of each listener.
const CONNECTIONS: usize = 16;
/// How long a connection lasts at most.
const CONNECTION_LIMIT: Duration = Duration::from_secs(20);
/// How long a text is good for, and what a viewer is shown.
const FRESH: Duration = Duration::from_secs(1);
const FRESH_VIEW: Duration = Duration::from_millis(500);

/// The version of the text format.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers those who ask for metrics.
#[derive(Debug)]
pub(crate) struct Exporter {
    registry: Registry,
    views: Views,
    /// The last text of each page, and when it was made. Locked while the next one is made, for which
    /// all wait that want it.
    last: [Mutex<Option<(Instant, Bytes)>>; 1 + View::SERVER.len()],
}

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Metrics,
    View(View),
}

impl Page {
    /// At this path, for those who may look at everything or not.
    fn at(path: &str, is_private: bool) -> Option<Self> {
        if path == "/metrics" {
            return Some(Self::Metrics);
        }
        let mut views = View::SERVER.into_iter().filter(|_| is_private);
        views.find(|view| view.path() == path).map(Self::View)
    }

    const fn number(self) -> usize {
        match self {
            Self::Metrics => 0,
            Self::View(view) => 1 + view as usize,
        }
    }

    fn format(self) -> HeaderValue {
        match self {
            Self::Metrics => FORMAT,
            Self::View(_) => JSON,
        }
    }

    const fn fresh(self) -> Duration {
        match self {
            Self::Metrics => FRESH,
            Self::View(_) => FRESH_VIEW,
        }
    }
}

impl Exporter {
    /// Of a registry, to which it adds what is known of the program.
    pub(crate) fn new(registry: &Registry, views: Views) -> Arc<Self> {
        registry.collector(Program {
            started: SystemTime::now(),
        });
        Arc::new(Self {
            registry: registry.clone(),
            views,
            last: Default::default(),
        })
    }

    /// Serves at a listener until this is dropped.
    pub(crate) async fn serve<L: Listener>(self: Arc<Self>, listener: L) {
        http::serve(listener, CONNECTIONS, |stream| {
            Arc::clone(&self).connection(stream, L::IS_PRIVATE)
        })
        .await;
    }

    fn connection<S>(self: Arc<Self>, stream: S, private: bool) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request: Request<Incoming>| {
            let exporter = Arc::clone(&self);
            async move {
                let uri = request.uri();
                let page = Page::at(uri.path(), private);
                let query = uri.query().unwrap_or_default();
                Ok::<_, Infallible>(exporter.answer(request.method(), page, query).await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_LIMIT)
            .keep_alive(false)
            .max_buf_size(REQUEST_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        async move {
            match timeout(CONNECTION_LIMIT, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a client of the metrics failed"),
                Err(_) => tracing::debug!("a client of the metrics was too slow"),
            }
        }
    }

    async fn answer(
        &self,
        method: &Method,
        page: Option<Page>,
        query: &str,
    ) -> Response<Full<Bytes>> {
        let Some(page) = page else {
            return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        };
        if method != Method::GET && method != Method::HEAD {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            return refusal;
        }
        if let Page::View(view) = page {
            self.views.looks(view, query);
        }
        match self.text(page).await {
            Some(text) => respond(StatusCode::OK, page.format(), text),
            None => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics could not be read\n",
            ),
        }
    }

    /// A table for a viewer, who will look again within so many seconds.
    pub(crate) async fn snapshot(&self, view: View, seconds: u32) -> Option<Bytes> {
        self.views.looks(view, &format!("lease={seconds}"));
        self.text(Page::View(view)).await
    }

    /// A page as it is now, or was a moment ago.
    async fn text(&self, page: Page) -> Option<Bytes> {
        let mut last = self.last.get(page.number())?.lock().await;
        if let Some((made, text)) = &*last
            && made.elapsed() < page.fresh()
        {
            return Some(text.clone());
        }
        let text = match page {
            Page::Metrics => self.metrics().await.map(Bytes::from),
            Page::View(view) => self.views.json(view).await.map(Bytes::from),
        }?;
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }

    async fn metrics(&self) -> Option<String> {
        let registry = self.registry.clone();
        let made = tokio::task::spawn_blocking(move || render_prometheus(&registry)).await;
        match made {
            Ok(text) => Some(text),
            Err(error) => {
                tracing::error!(%error, "the metrics could not be read");
                None
            }
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, FORMAT, Bytes::from_static(text.as_bytes()))
}

fn respond(status: StatusCode, format: HeaderValue, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

/// A TCP listener, with an error that says what to do.
pub(crate) async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot open TCP port {address} for metrics; does another program have it? \
             (metrics.listen = \"…\" names another)"
        )
    })
}

/// Tells of the program.
struct Program {
    started: SystemTime,
}

const BUILD: Desc = Desc::gauge(
    "afar_build_info",
    Unit::None,
    "1, with the server's version.",
);
const STARTED: Desc = Desc::gauge(
    "afar_start_time_seconds",
    Unit::Seconds,
    "When the server started, in seconds since 1970.",
);

impl Collect for Program {
    fn describe(&self) -> Vec<Desc> {
        vec![BUILD, STARTED]
    }

    fn collect(&self, cells: &mut Cells) {
        cells.level(&BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        cells.level(&STARTED, &[], started.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
