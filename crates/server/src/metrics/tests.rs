use super::*;
use crate::http::LocalSocket;
use crate::view::SOCKET;
use afar_telemetry::Counter;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

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
    let views = Views::new(&registry, "a.example".to_owned(), Vec::new());
    let exporter = Exporter::new(&registry, views);
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
        // What calls are served is for the server's owner.
        ("GET /top/calls HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
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
    let socket = LocalSocket::bind(dir.path(), SOCKET).unwrap();
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

const LOOK: &str = "GET /top/calls HTTP/1.1\r\nHost: a\r\n\r\n";

/// The exporter at a socket in a directory.
async fn private() -> (tempfile::TempDir, PathBuf, JoinSet<()>) {
    let (exporter, _, mut tasks) = exporter().await;
    let dir = tempfile::tempdir().unwrap();
    let socket = LocalSocket::bind(dir.path(), SOCKET).unwrap();
    let path = dir.path().join(SOCKET);
    tasks.spawn(exporter.serve(socket));
    (dir, path, tasks)
}

/// Connects; while more wait than the kernel keeps for a listener, again.
async fn connect(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn what_viewers_are_shown_is_for_the_owner_and_in_json() {
    let (_dir, path, _tasks) = private().await;
    let answer = ask(connect(&path).await, LOOK).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let snapshot: crate::view::Snapshot = serde_json::from_str(body).unwrap();
    assert_eq!(
        (snapshot.cell.as_str(), snapshot.rows.len()),
        ("a.example", 0)
    );
    for path_asked in ["/top/", "/top/mounts", "/top/calls/"] {
        let request = LOOK.replace("/top/calls", path_asked);
        let answer = ask(connect(&path).await, &request).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path_asked}: {answer}");
    }
    let answer = ask(connect(&path).await, &LOOK.replace("GET", "DELETE")).await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_viewers_are_answered() {
    let (_dir, path, _tasks) = private().await;
    let mut viewers = JoinSet::new();
    for _ in 0..1000 {
        let path = path.clone();
        viewers.spawn(async move { ask(connect(&path).await, LOOK).await });
    }
    let answers = timeout(Duration::from_secs(60), viewers.join_all()).await;
    let answers = answers.unwrap();
    assert_eq!(answers.len(), 1000);
    let all_ok = answers
        .iter()
        .all(|answer| answer.starts_with("HTTP/1.1 200"));
    assert!(all_ok);
}

#[tokio::test]
async fn viewers_that_stop_reading_lose_their_place() {
    /// More than a socket takes by itself.
    struct Many;
    impl Collect for Many {
        fn describe(&self) -> Vec<Desc> {
            Vec::new()
        }
        fn collect(&self, _: &mut Cells) {}
        fn activities(&self, list: &mut Vec<afar_telemetry::Activity>) -> usize {
            let now = std::time::Instant::now();
            let one = afar_telemetry::Activity::new(&[("user", &"x".repeat(100))], now, None);
            list.extend(std::iter::repeat_n(one, 20_000));
            0
        }
    }
    let (exporter, _, mut tasks) = exporter().await;
    exporter.registry.collector(Many);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET);
    tasks.spawn(exporter.serve(LocalSocket::bind(dir.path(), SOCKET).unwrap()));
    let mut stopped = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(&path).await;
        stream.write_all(LOOK.as_bytes()).await.unwrap();
        stopped.push(stream);
    }
    let limit = CONNECTION_LIMIT + Duration::from_secs(20);
    let answer = timeout(limit, ask(connect(&path).await, LOOK))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.len() > 1 << 20);
}
