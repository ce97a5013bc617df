use super::*;
use crate::http::LocalSocket;
use afar_telemetry::{Cells, Collect, Desc, Unit};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const QUICK: Limits = Limits {
    viewers: 2,
    interval: Duration::from_millis(5),
    stalled: Duration::from_millis(300),
    lasts: Duration::from_secs(60),
};

/// Clients and volumes whose names are hostile, so many of each.
struct Hostile(usize);

const CALLS: Desc = Desc::counter("afar_client_calls_total", Unit::None, "Calls.");
const ERRORS: Desc = Desc::counter("afar_volume_errors_total", Unit::None, "Errors.");
const HOSTS: Desc = Desc::gauge("afar_hosts", Unit::None, "Hosts.");
const NAME: &str = "</script><img src=x onerror=alert(1)>\n\ndata: {}\u{202e}";

impl Collect for Hostile {
    fn describe(&self) -> Vec<Desc> {
        vec![CALLS, ERRORS, HOSTS]
    }

    fn collect(&self, cells: &mut Cells) {
        for number in 0..self.0 {
            let name = &format!("{number} {NAME}");
            let labels = [("address", name.as_str()), ("user", NAME)];
            for (operation, count) in [("fetch_status", 5), ("fetch_data64", number as u64)] {
                let labels = [labels[0], labels[1], ("operation", operation)];
                cells.count(&CALLS, &labels, count);
            }
            let labels = [("volume", "1"), ("name", name), ("partition", "/vicepa")];
            cells.count(&ERRORS, &labels, 7);
        }
        cells.level(&HOSTS, &[], 3.0);
    }
}

fn web(limits: Limits, hostile: usize) -> (Arc<Web>, JoinSet<()>) {
    let registry = Registry::default();
    registry.collector(Hostile(hostile));
    let about = About {
        cell: "example.org".to_owned(),
        server: "192.0.2.1".to_owned(),
        version: "1",
        roles: vec!["fileserver"],
    };
    let web = Web::with_limits(&registry, about, limits);
    let mut tasks = JoinSet::new();
    tasks.spawn(web.sample(None));
    (web, tasks)
}

async fn at_port(limits: Limits, hostile: usize, door: Door) -> (SocketAddr, JoinSet<()>) {
    let (web, mut tasks) = web(limits, hostile);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(web.serve(listener, door));
    (address, tasks)
}

async fn ask(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(address: SocketAddr, path: &str, more: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    ask(
        stream,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"),
    )
    .await
}

/// A viewer that has sent its request for events.
async fn viewer(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until there are so many events, and returns them as JSON.
async fn events(stream: &mut TcpStream, count: usize) -> Vec<Value> {
    let (mut text, mut piece) = (String::new(), [0; 65536]);
    loop {
        let length = timeout(SOON, stream.read(&mut piece))
            .await
            .unwrap()
            .unwrap();
        assert!(length > 0, "the stream ends: {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        let whole = text[..end].lines();
        let whole: Vec<_> = whole
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        if whole.len() >= count {
            let read = |text: &&str| serde_json::from_str(text).unwrap();
            return whole.iter().map(read).collect();
        }
    }
}

#[tokio::test]
async fn the_page_and_its_files_are_served_with_a_strict_policy() {
    let (address, _tasks) = at_port(QUICK, 1, Door::Local).await;
    for (path, kind, text) in FILES {
        let answer = get(address, path, "").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        assert!(
            head.contains(&format!("content-type: {kind}\r\n")),
            "{head}"
        );
        assert_eq!(body, text);
    }
    for path in ["/", "/nothing", EVENTS] {
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = ask(TcpStream::connect(address).await.unwrap(), &request).await;
        let policy = head.split("content-security-policy: ").nth(1).unwrap();
        let policy = policy.lines().next().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
        assert!(!policy.contains("unsafe") && !policy.contains('*'));
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    }
}

#[test]
fn the_page_has_no_code_in_its_text_and_makes_none() {
    let [(_, _, html), _, (_, _, script), (_, _, icon)] = FILES;
    for text in [html, icon] {
        assert!(!text.contains(" on"), "{text}");
        assert!(!text.contains("style=") && !text.contains("javascript:"));
        assert!(!text.contains("<style"));
    }
    assert_eq!(html.matches("<script").count(), 1);
    for way in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ] {
        assert!(!script.contains(way), "{way}");
    }
}

#[tokio::test]
async fn other_requests_are_refused() {
    let (address, _tasks) = at_port(QUICK, 1, Door::Local).await;
    let long = "x".repeat(REQUEST_MAX);
    for (request, status) in [
        ("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /../page.js HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        (
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\n\r\n", "421"),
        ("nonsense\r\n\r\n", "400"),
        (&format!("GET / HTTP/1.1\r\nHost: {long}\r\n\r\n"), "431"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A refusal of what was not read to its end may be lost.
        let _lost = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _cut = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let expected = answer.starts_with(&format!("HTTP/1.1 {status}"));
        assert!(
            expected || (status == "431" && answer.is_empty()),
            "{request}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_viewer_needs_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let door = Door::open(Some(&file)).unwrap();
    // The pause after a wrong token is longer than the others may be silent.
    let limits = Limits {
        stalled: SOON,
        ..QUICK
    };
    let (address, _tasks) = at_port(limits, 1, door).await;
    for path in ["/", EVENTS, "/page.js"] {
        for more in ["", "Authorization: Bearer 0123456789abcdeX\r\n"] {
            let answer = get(address, path, more).await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
            assert!(
                answer.contains("www-authenticate: Basic realm="),
                "{answer}"
            );
        }
    }
    let answer = get(address, "/", "Authorization: Bearer 0123456789abcdef\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn events_have_what_the_server_counts_and_are_bounded() {
    let (address, _tasks) = at_port(QUICK, 3000, Door::Local).await;
    let mut stream = viewer(address).await;
    let seen = events(&mut stream, 2).await;
    assert_eq!(
        (seen[0]["span"].as_f64(), &seen[0]["cell"]),
        (Some(0.0), &"example.org".into())
    );
    assert!(seen[1]["span"].as_f64().unwrap() > 0.0);
    assert_eq!(seen[1]["hosts"]["known"], 3.0);
    let clients = seen[1]["clients"].as_array().unwrap();
    assert_eq!(
        (clients.len(), seen[1]["volumes"].as_array().unwrap().len()),
        (25, 25)
    );
    // Of idle ones, those that were used most.
    assert_eq!(clients[0]["total"], 3004);
    assert_eq!(clients[0]["mostly"], "fetch_data64");
    let user = clients[0]["user"].as_str().unwrap();
    assert!(
        user.contains("<img src=x") && user.ends_with("\\u{202e}"),
        "{user}"
    );
    assert!(!user.contains('\n'), "{user}");
}

#[tokio::test]
async fn there_are_so_many_viewers_at_a_time() {
    let limits = Limits {
        stalled: SOON,
        ..QUICK
    };
    let (address, _tasks) = at_port(limits, 1, Door::Local).await;
    let mut viewers = Vec::new();
    for _ in 0..limits.viewers {
        let mut stream = viewer(address).await;
        events(&mut stream, 1).await;
        viewers.push(stream);
    }
    let answer = get(address, EVENTS, "").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(get(address, "/", "").await.starts_with("HTTP/1.1 200"));
    viewers.pop();
    timeout(SOON, async {
        loop {
            let mut stream = viewer(address).await;
            let mut start = [0; 12];
            stream.read_exact(&mut start).await.unwrap();
            if start == *b"HTTP/1.1 200" {
                return;
            }
            sleep(limits.interval).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_viewer_that_stops_reading_loses_its_place() {
    let limits = Limits {
        viewers: 1,
        ..QUICK
    };
    let (web, mut tasks) = web(limits, 3000);
    let dir = tempfile::tempdir().unwrap();
    let listener = LocalSocket::bind(dir.path(), SOCKET).unwrap();
    let places = Arc::clone(&web.viewers);
    tasks.spawn(web.serve(listener, Door::Local));
    let mut stalled = UnixStream::connect(dir.path().join(SOCKET)).await.unwrap();
    let request = format!("GET {EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stalled.write_all(request.as_bytes()).await.unwrap();
    timeout(SOON, async {
        while places.available_permits() > 0 {
            sleep(limits.interval).await;
        }
        while places.available_permits() == 0 {
            sleep(limits.interval).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn clients_that_say_nothing_do_not_keep_viewers_out() {
    let (address, _tasks) = at_port(QUICK, 1, Door::Local).await;
    let mut silent = Vec::new();
    for _ in 0..QUICK.viewers + CONNECTIONS_BESIDE {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let answer = timeout(SOON, get(address, "/", "")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
