//! What the server counts, over HTTP for Prometheus: at a Unix socket in the run directory, and at a TCP
//! port if one is configured.
//!
//! Nobody who asks can hold up the servers. So many connections are served at a time; the others wait in
//! the kernel. A connection has one request, of a bounded size, and a bounded time for it and its answer. The
//! text is made at most once a second, on a thread for what blocks, and all who ask meanwhile get
//! the same one. The Unix socket has connections of its own, so that strangers at the TCP port
//! do not keep the administrator out.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
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
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The socket's name in the run directory.
pub(crate) const SOCKET: &str = "metrics.sock";

/// Connections that are served at a time, of each listener.
const CONNECTIONS: usize = 16;
/// How long a client has to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection lasts at most.
const CONNECTION_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a request, and lines of its head. The first is the least that the library takes.
const REQUEST_MAX: usize = 8192;
const HEADERS_MAX: usize = 32;
/// How long a text is good for.
const FRESH: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted: the process may be out of files.
const PAUSE: Duration = Duration::from_millis(200);

/// The version of the text format.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Where clients come from.
pub(crate) trait Listener: Send + Sync + 'static {
    /// A connection of one of them.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let accepted = Self::poll_accept(self, cx);
        accepted.map_ok(|(stream, _)| stream)
    }
}

impl Listener for LocalSocket {
    type Stream = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        let accepted = self.listener.poll_accept(cx);
        accepted.map_ok(|(stream, _)| stream)
    }
}

/// Answers those who ask for metrics.
#[derive(Debug)]
pub(crate) struct Exporter {
    registry: Registry,
    /// The last text, and when it was made. Locked while the next one is made, for which all wait
    /// who want it.
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Exporter {
    /// Of a registry, to which it adds what is known of the program.
    pub(crate) fn new(registry: &Registry) -> Arc<Self> {
        registry.collector(Program {
            started: SystemTime::now(),
        });
        Arc::new(Self {
            registry: registry.clone(),
            last: Mutex::default(),
        })
    }

    /// Serves at a listener until it is dropped.
    pub(crate) async fn serve(self: Arc<Self>, listener: impl Listener) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        // They end with this.
        let mut connections = JoinSet::new();
        loop {
            // It is never closed.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            while connections.try_join_next().is_some() {}
            match poll_fn(|cx| listener.poll_accept(cx)).await {
                Ok(stream) => {
                    let served = Arc::clone(&self).connection(stream);
                    connections.spawn(async move {
                        served.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection for metrics could not be accepted");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn connection<S>(self: Arc<Self>, stream: S) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request: Request<Incoming>| {
            let exporter = Arc::clone(&self);
            async move {
                Ok::<_, Infallible>(
                    exporter
                        .answer(request.method(), request.uri().path())
                        .await,
                )
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

    async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if path != "/metrics" {
            return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        }
        if method != Method::GET && method != Method::HEAD {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            return refusal;
        }
        match self.text().await {
            Some(text) => respond(StatusCode::OK, text),
            None => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics could not be read\n",
            ),
        }
    }

    /// The metrics of this second.
    async fn text(&self) -> Option<Bytes> {
        let mut last = self.last.lock().await;
        if let Some((made, text)) = &*last
            && made.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let registry = self.registry.clone();
        let made = tokio::task::spawn_blocking(move || render_prometheus(&registry)).await;
        match made {
            Ok(text) => {
                let text = Bytes::from(text);
                *last = Some((Instant::now(), text.clone()));
                Some(text)
            }
            Err(error) => {
                tracing::error!(%error, "the metrics could not be read");
                None
            }
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, Bytes::from_static(text.as_bytes()))
}

fn respond(status: StatusCode, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, FORMAT);
    response
}

/// A Unix socket that only its owner may use, and that goes with this.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// In a run directory, which is ours alone: what is left there of an earlier server goes.
    pub(crate) fn bind(run: &Path) -> io::Result<Self> {
        let path = run.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // It may have been removed with its directory.
        let _gone = std::fs::remove_file(&self.path);
    }
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
mod tests {
    use super::*;
    use afar_telemetry::Counter;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const SCRAPES: Desc = Desc::counter("scrapes_total", Unit::None, "Texts made.");
    const GET: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Counts how often it is asked.
    struct Asked(AtomicU32);

    impl Collect for Asked {
        fn describe(&self) -> Vec<Desc> {
            vec![SCRAPES]
        }

        fn collect(&self, cells: &mut Cells) {
            let asked = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            cells.count(&SCRAPES, &[], asked.into());
        }
    }

    async fn exporter() -> (Arc<Exporter>, SocketAddr, JoinSet<()>) {
        let registry = Registry::default();
        registry.collector(Asked(AtomicU32::new(0)));
        let exporter = Exporter::new(&registry);
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&exporter).serve(listener));
        (exporter, address, tasks)
    }

    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
        // A server that has refused already may not take all of it.
        let _lost = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _cut = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn ask_at(address: SocketAddr, request: &str) -> String {
        ask(TcpStream::connect(address).await.unwrap(), request).await
    }

    #[tokio::test]
    async fn metrics_are_served() {
        let (_, address, _tasks) = exporter().await;
        let answer = ask_at(address, GET).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(body.contains("\nscrapes_total 1\n"), "{body}");
        assert!(body.contains("afar_build_info{version="), "{body}");
        let head = ask_at(address, &GET.replace("GET", "HEAD")).await;
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"));
    }

    #[tokio::test]
    async fn all_who_ask_within_a_second_get_the_same_text() {
        let (_, address, _tasks) = exporter().await;
        let began = Instant::now();
        let mut asking = JoinSet::new();
        (0..50).for_each(|_| {
            asking.spawn(ask_at(address, GET));
        });
        let answers = asking.join_all().await;
        let made = answers.iter().filter_map(|answer| {
            let (_, count) = answer.split_once("\nscrapes_total ")?;
            count.lines().next()?.parse::<u64>().ok()
        });
        assert!(made.max().unwrap() <= 2 + began.elapsed().as_secs());
        assert!(
            answers
                .iter()
                .all(|answer| answer.starts_with("HTTP/1.1 200"))
        );
    }

    #[tokio::test]
    async fn other_requests_are_refused() {
        let (_, address, _tasks) = exporter().await;
        let long = "x".repeat(REQUEST_MAX);
        let many: String = (0..=HEADERS_MAX).map(|n| format!("a{n}: b\r\n")).collect();
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
            ("GET /metrics/../x HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
            (
                "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
                "405",
            ),
            ("nonsense\r\n\r\n", "400"),
            (
                &format!("GET /metrics HTTP/1.1\r\nHost: {long}\r\n\r\n"),
                "431",
            ),
            (&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"), "431"),
        ] {
            let answer = ask_at(address, request).await;
            // A refusal of what was not read to its end may be lost.
            let expected = answer.starts_with(&format!("HTTP/1.1 {status}"));
            assert!(
                expected || (status == "431" && answer.is_empty()),
                "{request}: {answer}"
            );
        }
        let answer = ask_at(address, GET).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test]
    async fn clients_that_say_nothing_lose_their_place() {
        let (_, address, _tasks) = exporter().await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /met").await.unwrap();
            silent.push(stream);
        }
        let began = Instant::now();
        let answer = timeout(4 * REQUEST_LIMIT, ask_at(address, GET))
            .await
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(began.elapsed() >= REQUEST_LIMIT / 2);
    }

    #[tokio::test]
    async fn a_unix_socket_is_for_its_owner_and_has_places_of_its_own() {
        let (exporter, address, mut tasks) = exporter().await;
        let dir = tempfile::tempdir().unwrap();
        // One that a killed server has left.
        drop(std::os::unix::net::UnixListener::bind(dir.path().join(SOCKET)).unwrap());
        let socket = LocalSocket::bind(dir.path()).unwrap();
        let path = dir.path().join(SOCKET);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        tasks.spawn(exporter.serve(socket));
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let asked = ask(UnixStream::connect(&path).await.unwrap(), GET);
        let answer = timeout(Duration::from_secs(4), asked).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        tasks.shutdown().await;
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn counters_go_on_while_metrics_are_read() {
        let (exporter, address, _tasks) = exporter().await;
        let counter: Counter = exporter
            .registry
            .counter(&Desc::counter("a_total", Unit::None, "A."), &[]);
        counter.add(7);
        assert!(ask_at(address, GET).await.contains("\na_total 7\n"));
    }
}
