//! How endpoints end, and what calls see of it.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Call, CallError, Config, Endpoint, Handler, RxNull, ServiceId};
use bytes::Bytes;
use common::{ECHO, PATIENCE, ask, connect, endpoint, server};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Answers when told to, and tells that it was called.
#[derive(Clone, Default)]
struct Slow {
    called: Arc<Notify>,
    go: Arc<Notify>,
}

impl Handler for Slow {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        self.called.notify_one();
        self.go.notified().await;
        call.send(Bytes::from_static(b"done"))
            .await
            .map_err(|error| error.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_finishes_its_calls_before_it_ends() {
    let (server, client) = (endpoint(), endpoint());
    let slow = Slow::default();
    server.serve(ECHO, "slow", slow.clone());
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut call = connection.call().await.unwrap();
    call.finish().await.unwrap();
    timeout(PATIENCE, slow.called.notified()).await.unwrap();
    let mut shutdown = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown().await }
    });
    assert!(
        timeout(PATIENCE / 600, &mut shutdown).await.is_err(),
        "a call is running"
    );
    let mut late = connection.call().await.unwrap();
    late.finish().await.unwrap();
    let refused = timeout(PATIENCE, late.recv()).await.unwrap();
    assert_eq!(refused, Err(CallError::Aborted(AbortCode::RX_RESTARTING)));
    slow.go.notify_one();
    assert_eq!(
        timeout(PATIENCE, call.read_to_end(100))
            .await
            .unwrap()
            .unwrap(),
        "done"
    );
    timeout(PATIENCE, shutdown).await.unwrap().unwrap();
    UdpSocket::bind(server.local_addr()).expect("the port is free again");
    timeout(PATIENCE, server.shutdown())
        .await
        .expect("ending twice is ending once");
    assert!(
        server.stats().await.engine.calls_received >= 1,
        "the last counters stay"
    );
}

/// Serves by asking another, once it is told to.
struct Asking {
    slow: Slow,
    endpoint: Endpoint,
    other: std::net::SocketAddr,
}

impl Handler for Asking {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        self.slow.called.notify_one();
        self.slow.go.notified().await;
        let mut asked = connect(&self.endpoint, self.other, ECHO)
            .call()
            .await
            .map_err(|error| error.code())?;
        asked.finish().await.map_err(|error| error.code())?;
        let answer = asked.read_to_end(100).await;
        call.send(answer.map_err(|error| error.code())?)
            .await
            .map_err(|error| error.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_let_finish_may_make_others() {
    let (server, client, other) = (endpoint(), endpoint(), endpoint());
    let (slow, answers) = (Slow::default(), Slow::default());
    answers.go.notify_one();
    other.serve(ECHO, "answers", answers);
    let asking = Asking {
        slow: slow.clone(),
        endpoint: server.clone(),
        other: other.local_addr(),
    };
    server.serve(ECHO, "asking", asking);
    let mut call = connect(&client, server.local_addr(), ECHO)
        .call()
        .await
        .unwrap();
    call.finish().await.unwrap();
    timeout(PATIENCE, slow.called.notified()).await.unwrap();
    let mut shutdown = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown().await }
    });
    assert!(timeout(PATIENCE / 600, &mut shutdown).await.is_err());
    slow.go.notify_one();
    let answer = timeout(PATIENCE, call.read_to_end(100)).await.unwrap();
    assert_eq!(answer.unwrap(), "done");
    timeout(PATIENCE, shutdown).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_finishes_its_calls_before_it_ends() {
    let (server, client) = (endpoint(), endpoint());
    let slow = Slow::default();
    server.serve(ECHO, "slow", slow.clone());
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut call = connection.call().await.unwrap();
    call.finish().await.unwrap();
    timeout(PATIENCE, slow.called.notified()).await.unwrap();
    let shutdown = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    slow.go.notify_one();
    assert_eq!(
        timeout(PATIENCE, call.read_to_end(100))
            .await
            .unwrap()
            .unwrap(),
        "done"
    );
    timeout(PATIENCE, shutdown).await.unwrap().unwrap();
    assert_eq!(connection.call().await.unwrap_err(), CallError::Closed);
    let after = connect(&client, server.local_addr(), ECHO);
    assert_eq!(after.call().await.unwrap_err(), CallError::Closed);
    assert_eq!(client.peer_stats(server.local_addr()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_does_not_wait_longer_than_its_limit() {
    let config = Config {
        shutdown_limit: PATIENCE / 600,
        ..Config::default()
    };
    let server = Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let slow = Slow::default();
    server.serve(ECHO, "slow", slow.clone());
    let client = endpoint();
    let mut call = connect(&client, server.local_addr(), ECHO)
        .call()
        .await
        .unwrap();
    call.finish().await.unwrap();
    timeout(PATIENCE, slow.called.notified()).await.unwrap();
    timeout(PATIENCE, server.shutdown()).await.unwrap();
    let end = timeout(PATIENCE, call.recv()).await.unwrap();
    assert_eq!(end, Err(CallError::Aborted(AbortCode::RX_RESTARTING)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_endpoint_fails_its_calls() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut running = connection.call().await.unwrap();
    running.send(common::pattern().slice(..5000)).await.unwrap();
    let mut fresh = connection.call().await.unwrap();
    let clone = client.clone();
    drop(client);
    assert_eq!(
        ask(&connection, Bytes::from_static(b"a clone keeps it")).await,
        "a clone keeps it"
    );
    drop(clone);
    assert_eq!(
        timeout(PATIENCE, running.recv()).await.unwrap(),
        Err(CallError::Closed)
    );
    // The thread may not have ended when this begins, but it has soon.
    let error = match fresh.finish().await {
        Ok(()) => timeout(PATIENCE, fresh.recv()).await.unwrap().unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error, CallError::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_port_fails_the_call_at_once() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = closed.local_addr().unwrap();
    drop(closed);
    let client = endpoint();
    let mut call = connect(&client, peer, ECHO).call().await.unwrap();
    call.finish().await.unwrap();
    // Without the ICMP error this takes the dead time, longer than our patience.
    let error = timeout(PATIENCE / 6, call.recv())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        CallError::Unreachable(std::io::ErrorKind::ConnectionRefused)
    );
    assert_eq!(error.code(), AbortCode::RX_CALL_DEAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_closed_port_does_not_disturb_other_calls() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = closed.local_addr().unwrap();
    drop(closed);
    let (server, client) = (server(), endpoint());
    let good = connect(&client, server.local_addr(), ECHO);
    let bad = connect(&client, peer, ECHO);
    for round in 0..100_u32 {
        let mut failing = bad.call().await.unwrap();
        failing.finish().await.unwrap();
        let request = Bytes::copy_from_slice(&round.to_be_bytes());
        assert_eq!(
            timeout(PATIENCE, ask(&good, request.clone()))
                .await
                .unwrap(),
            request
        );
        let error = timeout(PATIENCE, failing.recv())
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error,
            CallError::Unreachable(std::io::ErrorKind::ConnectionRefused)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipv6_and_mapped_ipv4_work() {
    let any = Endpoint::bind("[::]:0".parse().unwrap(), Config::default()).unwrap();
    any.serve(ECHO, "echo", common::Echo);
    let port = any.local_addr().port();
    let v4 = endpoint();
    let over_v4 = connect(&v4, ([127, 0, 0, 1], port).into(), ECHO);
    assert_eq!(
        timeout(PATIENCE, ask(&over_v4, "four".into()))
            .await
            .unwrap(),
        "four"
    );
    let v6 = Endpoint::bind("[::1]:0".parse().unwrap(), Config::default()).unwrap();
    let over_v6 = connect(&v6, format!("[::1]:{port}").parse().unwrap(), ECHO);
    assert_eq!(
        timeout(PATIENCE, ask(&over_v6, "six".into()))
            .await
            .unwrap(),
        "six"
    );
    // The other way round: an endpoint of IPv6 calls one of IPv4.
    v4.serve(ECHO, "echo", common::Echo);
    let mapped = connect(&any, v4.local_addr(), ECHO);
    assert_eq!(
        timeout(PATIENCE, ask(&mapped, "back".into()))
            .await
            .unwrap(),
        "back"
    );
}

/// Calls that come before all services are there are answered all the same if the endpoint was told to hold.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_before_the_services_waits_for_them() {
    let config = Config {
        hold: true,
        ..Config::default()
    };
    let server = Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let client = Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let connection = client.connect(server.local_addr(), ServiceId(9), Arc::new(RxNull));
    let asked = tokio::spawn(async move {
        let mut call = connection.call().await?;
        call.finish().await?;
        call.read_to_end(10).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished());
    // Another service is no reason to refuse what is asked of one that comes later.
    server.serve(ECHO, "echo", common::Echo);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished());
    server.serve(ServiceId(9), "late", Late);
    server.listen();
    assert_eq!(asked.await.unwrap().unwrap(), b"late".as_slice());
}

struct Late;

impl Handler for Late {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        call.send(b"late".as_slice().into())
            .await
            .map_err(|e| e.code())
    }
}

/// A client takes replies only from the address it called, and a server may have several: from each it answers what
/// was asked there, also when it has more to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_several_addresses_answers_from_the_one_that_was_asked() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let server = Endpoint::bind(any.parse().unwrap(), Config::default()).unwrap();
        server.serve(ECHO, "echo", common::Echo);
        let port = server.local_addr().port();
        for last in [1, 2, 77] {
            let client = endpoint();
            let connection = connect(&client, ([127, 0, 0, last], port).into(), ECHO);
            for request in ["short".into(), common::pattern()] {
                let asked = ask(&connection, Bytes::clone(&request));
                let reply = timeout(PATIENCE, asked).await.unwrap();
                assert!(reply == request, "{any} {last}");
            }
            assert_eq!(client.stats().await.engine.elsewhere, 0, "{any} {last}");
        }
    }
}
