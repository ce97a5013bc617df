//! Rx over Unix sockets: calls, large data, who may, and servers that are not there.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Call, Config, Endpoint, Handler, Local, RxNull, ServiceId};
use bytes::Bytes;

const SERVICE: ServiceId = ServiceId(9);

/// Answers with what it got, twice.
struct Twice;

impl Handler for Twice {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let data = call.read_to_end(64 << 20).await.map_err(|e| e.code())?;
        assert!(call.peer().ip().is_loopback());
        call.send(data.clone()).await.map_err(|e| e.code())?;
        call.send(data).await.map_err(|e| e.code())
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.rx.dead_time = Duration::from_secs(3);
    config
}

async fn ask(endpoint: &Endpoint, address: &str, data: Bytes) -> Result<Bytes, i32> {
    let connection = endpoint.connect(address.parse().unwrap(), SERVICE, Arc::new(RxNull));
    let mut call = connection.call().await.map_err(|e| e.code().0)?;
    call.send(data).await.map_err(|e| e.code().0)?;
    call.finish().await.map_err(|e| e.code().0)?;
    call.read_to_end(64 << 20).await.map_err(|e| e.code().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_through_whatever_the_host_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Local::serve(dir.path(), "0.0.0.0:7003".parse().unwrap()).unwrap();
    let server = Endpoint::with_socket(socket, config()).unwrap();
    server.serve(SERVICE, "twice", Twice);
    server.stats().await;
    assert!(Local::is_served(dir.path(), 7003));
    assert!(!Local::is_served(dir.path(), 7000));

    let client = Endpoint::with_socket(Local::client(dir.path()).unwrap(), config()).unwrap();
    let large: Bytes = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let reply = ask(&client, "192.0.2.1:7003", large.clone()).await.unwrap();
    assert!(reply[..large.len()] == large && reply[large.len()..] == large);

    let other = Endpoint::with_socket(Local::client(dir.path()).unwrap(), config()).unwrap();
    let small = Bytes::from_static(b"x");
    assert_eq!(
        ask(&other, "127.0.0.1:7003", small).await.unwrap(),
        b"xx".as_slice()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let client = Endpoint::with_socket(Local::client(dir.path()).unwrap(), config()).unwrap();
    let begun = std::time::Instant::now();
    assert!(
        ask(&client, "127.0.0.1:7003", Bytes::from_static(b"x"))
            .await
            .is_err()
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn only_the_owner_may_use_a_servers_socket() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let socket = Local::serve(dir.path(), "0.0.0.0:7000".parse().unwrap()).unwrap();
    let path = dir.path().join("7000.sock");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second server takes the place of one that died without tidying up.
    std::mem::forget(socket);
    std::fs::write(dir.path().join("client-1-00000000.sock"), "").unwrap();
    let client = Local::client(dir.path()).unwrap();
    Local::sweep(dir.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    drop(client);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let _again = Local::serve(dir.path(), "0.0.0.0:7000".parse().unwrap()).unwrap();
}
