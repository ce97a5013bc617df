//! Networks that lose, and sockets that are too small.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use afar_net::{Config, Endpoint, Ready, Received, Socket, SocketStats, Udp};
use afar_rx::Transmit;
use bytes::Bytes;
use common::{Checksum, ECHO, Echo, PATIENCE, SINK, Sink, ask, connect, pattern};
use tokio::time::timeout;

/// A socket that loses every so many-th datagram that arrives.
struct Lossy {
    udp: Udp,
    every: u64,
    arrived: u64,
}

impl Socket for Lossy {
    fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    fn receive(&mut self, mut sink: impl FnMut(Received)) -> io::Result<bool> {
        let Self {
            udp,
            every,
            arrived,
        } = self;
        udp.receive(|datagram| {
            *arrived += 1;
            if !arrived.is_multiple_of(*every) {
                sink(datagram);
            }
        })
    }

    fn send(&mut self, transmit: &Transmit, data: &[u8]) -> io::Result<()> {
        self.udp.send(transmit, data)
    }

    fn refusals(&mut self, sink: impl FnMut(SocketAddr, io::ErrorKind)) {
        self.udp.refusals(sink);
    }

    fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        writable: bool,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.udp.wait(wake, writable, timeout)
    }

    fn stats(&self) -> SocketStats {
        self.udp.stats()
    }
}

fn lossy(every: u64) -> Endpoint {
    let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), 1 << 20, 1 << 20).unwrap();
    let socket = Lossy {
        udp,
        every,
        arrived: 0,
    };
    Endpoint::with_socket(socket, Config::default()).unwrap()
}

/// Sends so many MiB to a server's [`SINK`] and compares what arrived.
async fn transfer(client: &Endpoint, server: &Endpoint, mebibytes: usize) {
    let connection = connect(client, server.local_addr(), SINK);
    let mut call = connection.call().await.unwrap();
    let (block, mut sum) = (pattern(), Checksum::default());
    for _ in 0..mebibytes {
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
async fn what_is_lost_is_sent_again() {
    let (server, client) = (lossy(20), lossy(50));
    server.serve(ECHO, "echo", Echo);
    server.serve(SINK, "sink", Sink);
    transfer(&client, &server, 8).await;
    let connection = connect(&client, server.local_addr(), ECHO);
    for n in 0..100_u32 {
        let request = Bytes::copy_from_slice(&n.to_be_bytes());
        assert_eq!(
            timeout(PATIENCE, ask(&connection, request.clone()))
                .await
                .unwrap(),
            request
        );
    }
    let stats = client.stats().await;
    assert!(
        stats.engine.data_resent > 0,
        "the network lost nothing: {stats:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_socket_buffers_only_cost_time() {
    let mut config = Config {
        receive_buffer: 32 << 10,
        send_buffer: 8 << 10,
        ..Config::default()
    };
    config.rx.mtu_discovery = false;
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Endpoint::bind(any, config.clone()).unwrap();
    server.serve(SINK, "sink", Sink);
    let client = Endpoint::bind(any, config).unwrap();
    transfer(&client, &server, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_endpoint_sleeps() {
    let (server, client) = (common::server(), common::endpoint());
    let connection = connect(&client, server.local_addr(), ECHO);
    assert_eq!(
        timeout(PATIENCE, ask(&connection, "hello".into()))
            .await
            .unwrap(),
        "hello"
    );
    let before = client.stats().await.turns;
    tokio::time::sleep(PATIENCE / 120).await;
    let turns = client.stats().await.turns - before;
    assert!(
        turns < 1000,
        "{turns} turns in half a second without traffic"
    );
}
