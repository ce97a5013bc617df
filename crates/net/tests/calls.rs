//! Calls between two endpoints over the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Call, CallError, Config, Endpoint, Handler, ServiceId, has_own_thread};
use bytes::Bytes;
use common::{ABORT, ECHO, PATIENCE, SINK, SOURCE, ask, connect, endpoint, pattern, server};
use tokio::sync::{Barrier, Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_comes_back() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), ECHO);
    for size in [1, 7, 1411, 1412, 1413, 5000, 100_000] {
        let request = pattern().slice(..size);
        assert_eq!(
            timeout(PATIENCE, ask(&connection, request.clone()))
                .await
                .unwrap(),
            request
        );
    }
    let stats = client.stats().await;
    assert_eq!(stats.engine.calls_started, 7);
    assert!(stats.packets_per_send() >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_request_octets_has_a_reply() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), SINK);
    let mut call = connection.call().await.unwrap();
    call.finish().await.unwrap();
    let reply = timeout(PATIENCE, call.read_to_end(100))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply, common::Checksum::default().finish());
    assert_eq!(call.recv().await, Ok(None), "the end stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_run_at_a_time() {
    let (server, client) = (server(), endpoint());
    let mut tasks = JoinSet::new();
    for task in 0..64_u32 {
        // Four calls to a connection.
        let connection = connect(&client, server.local_addr(), ECHO);
        tasks.spawn(async move {
            for round in 0..50_u32 {
                let request = Bytes::from([task.to_be_bytes(), round.to_be_bytes()].concat());
                assert_eq!(ask(&connection, request.clone()).await, request);
            }
        });
    }
    timeout(PATIENCE, tasks.join_all()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_one_of_four_channels() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connection.call().await.unwrap());
    }
    let mut fifth = tokio::spawn({
        let connection = connection.clone();
        async move { ask(&connection, Bytes::from_static(b"five")).await }
    });
    assert!(
        timeout(PATIENCE / 600, &mut fifth).await.is_err(),
        "all channels are busy"
    );
    // One that never began and one that did free their channels alike.
    drop(held.pop());
    assert_eq!(timeout(PATIENCE, fifth).await.unwrap().unwrap(), "five");
    let mut call = held.pop().unwrap();
    call.send(pattern().slice(..5000)).await.unwrap();
    drop(call);
    for _ in 0..8 {
        let reply = timeout(PATIENCE, ask(&connection, Bytes::from_static(b"six"))).await;
        assert_eq!(reply.unwrap(), "six");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_arrives_whole_at_the_server() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), SINK);
    let mut call = connection.call().await.unwrap();
    let (block, mut sum) = (pattern(), common::Checksum::default());
    for _ in 0..64 {
        sum.add(&block);
        timeout(PATIENCE, call.send(block.clone()))
            .await
            .unwrap()
            .unwrap();
    }
    call.finish().await.unwrap();
    let reply = timeout(PATIENCE, call.read_to_end(100))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply, sum.finish());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_arrives_whole_at_the_client() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), SOURCE);
    let mut call = connection.call().await.unwrap();
    let octets = 64_u64 << 20;
    call.send(Bytes::copy_from_slice(&octets.to_be_bytes()))
        .await
        .unwrap();
    call.finish().await.unwrap();
    let (block, mut expected, mut sum) = (
        pattern(),
        common::Checksum::default(),
        common::Checksum::default(),
    );
    (0..64).for_each(|_| expected.add(&block));
    while let Some(chunk) = timeout(PATIENCE, call.recv()).await.unwrap().unwrap() {
        assert!(!chunk.is_empty());
        sum.add(&chunk);
    }
    assert_eq!(sum.finish(), expected.finish());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_slows_the_writer_and_bounds_memory() {
    const WINDOW: u64 = 1 << 20;
    let mut config = Config::default();
    config.rx.receive_window_max = WINDOW;
    config.rx.send_buffer = 1 << 20;
    let server = Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let go = Arc::new(Notify::new());
    server.serve(SINK, "late", LateReader(Arc::clone(&go)));
    let client = endpoint();
    let connection = connect(&client, server.local_addr(), SINK);
    let mut call = connection.call().await.unwrap();
    let (block, mut sent) = (pattern().slice(..1 << 16), 0_u64);
    // The writer stops by itself while nobody reads, well before this.
    while sent < 256 << 20 {
        match timeout(PATIENCE / 120, call.send(block.clone())).await {
            Ok(result) => result.unwrap(),
            Err(_) => break,
        }
        sent += block.len() as u64;
    }
    assert!(
        sent < 32 << 20,
        "{sent} bytes were taken though nobody reads"
    );
    let held = server.stats().await.engine.receive_memory;
    assert!(held <= 2 * WINDOW, "the server holds {held} bytes");
    go.notify_one();
    call.send(block.clone()).await.unwrap();
    sent += block.len() as u64;
    call.finish().await.unwrap();
    let reply = timeout(PATIENCE, call.read_to_end(100))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply[..], sent.to_be_bytes());
}

struct LateReader(Arc<Notify>);

impl Handler for LateReader {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        self.0.notified().await;
        let mut octets = 0_u64;
        while let Some(chunk) = call.recv().await.map_err(|error| error.code())? {
            octets += chunk.len() as u64;
        }
        call.send(Bytes::copy_from_slice(&octets.to_be_bytes()))
            .await
            .map_err(|error| error.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_abort_code_reaches_the_client() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), ABORT);
    for code in [1, 110, -455, i32::MIN, i32::MAX] {
        let mut call = connection.call().await.unwrap();
        call.send(Bytes::copy_from_slice(&code.to_be_bytes()))
            .await
            .unwrap();
        call.finish().await.unwrap();
        let error = timeout(PATIENCE, call.recv()).await.unwrap().unwrap_err();
        assert_eq!(error, CallError::Aborted(AbortCode(code)));
        assert_eq!(error.code(), AbortCode(code));
        assert_eq!(call.recv().await, Err(error), "the error stays");
    }
}

/// Tells how each call ended for its handler.
struct Watch(mpsc::UnboundedSender<Result<usize, CallError>>);

impl Handler for Watch {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let mut octets = 0;
        let end = loop {
            match call.recv().await {
                Ok(Some(chunk)) => octets += chunk.len(),
                Ok(None) => break Ok(octets),
                Err(error) => break Err(error),
            }
        };
        self.0.send(end).unwrap();
        end.map(|_| ()).map_err(|error| error.code())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_abort_code_reaches_the_server() {
    let (server, client) = (endpoint(), endpoint());
    let (tell, mut told) = mpsc::unbounded_channel();
    server.serve(ECHO, "watch", Watch(tell));
    let connection = connect(&client, server.local_addr(), ECHO);
    for (call_number, code) in [(1, Some(AbortCode(42))), (2, None)] {
        let mut call = connection.call().await.unwrap();
        call.send(pattern().slice(..10_000)).await.unwrap();
        // A call given up before the server heard of it never was.
        while server.stats().await.engine.calls_received < call_number {
            tokio::task::yield_now().await;
        }
        match code {
            Some(code) => call.abort(code),
            None => drop(call),
        }
    }
    let mut ends = Vec::new();
    while ends.len() < 2 {
        ends.push(timeout(PATIENCE, told.recv()).await.unwrap().unwrap());
    }
    assert!(
        ends.contains(&Err(CallError::Aborted(AbortCode(42)))),
        "{ends:?}"
    );
    assert!(
        ends.contains(&Err(CallError::Aborted(AbortCode::RX_USER_ABORT))),
        "{ends:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_aborts_its_call() {
    struct Panics;
    impl Handler for Panics {
        async fn handle(&self, _: &mut Call) -> Result<(), AbortCode> {
            panic!("on purpose");
        }
    }
    let (server, client) = (endpoint(), endpoint());
    server.serve(ECHO, "panics", Panics);
    let mut call = connect(&client, server.local_addr(), ECHO)
        .call()
        .await
        .unwrap();
    call.finish().await.unwrap();
    let end = timeout(PATIENCE, call.recv()).await.unwrap();
    assert_eq!(end, Err(CallError::Aborted(AbortCode::RX_USER_ABORT)));
}

/// Receives after 10,000 bytes, and tells how many chunks that were; before, that fewer do not do.
struct Patient(mpsc::UnboundedSender<Option<usize>>);

impl Handler for Patient {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        let failed = |error: CallError| error.code();
        let early = timeout(Duration::from_millis(200), call.recv_after(10_000)).await;
        let chunk = early.ok().transpose().map_err(failed)?.flatten();
        self.0.send(chunk.map(|chunk| chunk.len())).unwrap();
        while let Some(chunk) = call.recv_after(10_000).await.map_err(failed)? {
            self.0.send(Some(chunk.len())).unwrap();
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_many_octets_is_not_given_few() {
    let (server, client) = (endpoint(), endpoint());
    let (tell, mut told) = mpsc::unbounded_channel();
    server.serve(ECHO, "patient", Patient(tell));
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut call = connection.call().await.unwrap();
    call.send(pattern().slice(..4_000)).await.unwrap();
    let early = timeout(PATIENCE, told.recv()).await.unwrap();
    assert_eq!(early, Some(None), "4,000 are not enough");
    call.send(pattern().slice(..8_000)).await.unwrap();
    let mut received = 0;
    while received < 10_000 {
        let chunk = timeout(PATIENCE, told.recv()).await.unwrap();
        received += chunk.flatten().unwrap();
    }
    // The end comes, however little is before it.
    call.send(pattern().slice(..5)).await.unwrap();
    call.finish().await.unwrap();
    while let Some(chunk) = timeout(PATIENCE, told.recv()).await.unwrap() {
        received += chunk.unwrap();
        if received == 12_005 {
            break;
        }
    }
    assert_eq!(received, 12_005);
    assert_eq!(timeout(PATIENCE, call.recv()).await.unwrap(), Ok(None));
}

/// Serves calls together only, and tells of each whether it has a thread of its own.
struct Together {
    all: Barrier,
    tell: mpsc::UnboundedSender<bool>,
}

impl Handler for Together {
    const BLOCKS: bool = true;

    async fn handle(&self, _: &mut Call) -> Result<(), AbortCode> {
        let own = has_own_thread();
        self.all.wait().await;
        assert_eq!(own, has_own_thread(), "it stays where it is");
        self.tell.send(own).unwrap();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_calls_have_threads_and_the_others_do_not_wait_for_them() {
    let threads = std::thread::available_parallelism().unwrap().get();
    let calls = threads + 3;
    let (server, client) = (endpoint(), endpoint());
    let (tell, mut told) = mpsc::unbounded_channel();
    let all = Barrier::new(calls);
    server.serve(ECHO, "together", Together { all, tell });
    // The second time shows that threads are given back, which is a moment after the reply.
    let mut full = 0;
    for _ in 0..100 {
        let mut running = Vec::new();
        let connections: Vec<_> = (0..calls)
            .map(|_| connect(&client, server.local_addr(), ECHO))
            .collect();
        for connection in &connections {
            let mut call = connection.call().await.unwrap();
            call.finish().await.unwrap();
            running.push(call);
        }
        let mut own = 0;
        for mut call in running {
            assert_eq!(timeout(PATIENCE, call.recv()).await.unwrap(), Ok(None));
            own += usize::from(told.recv().await.unwrap());
        }
        assert!(own <= threads, "{own} of {threads}");
        full += usize::from(own == threads);
        if full == 2 {
            return;
        }
    }
    panic!("threads are not given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_service_is_refused() {
    let (server, client) = (server(), endpoint());
    let mut call = connect(&client, server.local_addr(), ServiceId(99))
        .call()
        .await
        .unwrap();
    call.finish().await.unwrap();
    let error = timeout(PATIENCE, call.recv()).await.unwrap().unwrap_err();
    assert_eq!(error.code(), AbortCode::RX_INVALID_OPERATION);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_can_be_cut_as_the_reader_likes() {
    let (server, client) = (server(), endpoint());
    let connection = connect(&client, server.local_addr(), ECHO);
    let mut call = connection.call().await.unwrap();
    let data = pattern().slice(..20_000);
    call.send(data.clone()).await.unwrap();
    call.finish().await.unwrap();
    assert_eq!(call.read_exact(0).await.unwrap(), "");
    assert_eq!(
        timeout(PATIENCE, call.read_exact(3))
            .await
            .unwrap()
            .unwrap(),
        data[..3]
    );
    assert_eq!(
        timeout(PATIENCE, call.read_exact(9000))
            .await
            .unwrap()
            .unwrap(),
        data[3..9003]
    );
    assert_eq!(
        timeout(PATIENCE, call.read_to_end(10_997))
            .await
            .unwrap()
            .unwrap(),
        data[9003..]
    );
    assert_eq!(call.read_exact(1).await, Err(CallError::UnexpectedEnd));

    let mut call = connection.call().await.unwrap();
    call.send(data).await.unwrap();
    call.finish().await.unwrap();
    assert_eq!(
        timeout(PATIENCE, call.read_to_end(19_999)).await.unwrap(),
        Err(CallError::TooLong)
    );
}
