use std::net::SocketAddr;
use std::sync::Arc;

use afar_net::{Config, Connection, Endpoint, Handler};
use afar_rx::{RxNull, ServiceId};
use bytes::Bytes;

use super::super::wire::Operation;
use super::*;

/// Serves rxperf as the server does.
struct Honest;

impl Handler for Honest {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        respond(call, &Progress::default())
            .await
            .map_err(|failure| failure.code())
    }
}

/// Answers anything with the same bytes.
struct Parrot(&'static [u8]);

impl Handler for Parrot {
    async fn handle(&self, call: &mut Call) -> Result<(), AbortCode> {
        while call.recv().await.map_err(|error| error.code())?.is_some() {}
        call.send(Bytes::from_static(self.0))
            .await
            .map_err(|error| error.code())
    }
}

/// A client and a server on loopback, and a connection between them.
fn pair(handler: impl Handler) -> (Endpoint, Endpoint, Connection) {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = Endpoint::bind(any, Config::default()).unwrap();
    let service = ServiceId(wire::SERVICE);
    server.serve(service, "rxperf", handler);
    let client = Endpoint::bind(any, Config::default()).unwrap();
    let connection = client.connect(server.local_addr(), service, Arc::new(RxNull));
    (client, server, connection)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[tokio::test]
async fn malformed_requests_are_aborted_with_rxgen_codes() {
    let (_client, _server, connection) = pair(Honest);
    let cases = [
        (words(&[2, 0, 1, 1, 0]), AbortCode::RXGEN_SS_UNMARSHAL),
        (words(&[3, 2, 1, 1, 0]), AbortCode::RXGEN_OPCODE),
        (words(&[3, 0, 1 << 20, 1, 0]), AbortCode::RXGEN_SS_UNMARSHAL),
        (words(&[3, 0, 1]), AbortCode::RXGEN_SS_UNMARSHAL),
        (words(&[3, 0, 1, 1, 1]), AbortCode::RXGEN_SS_UNMARSHAL),
        (words(&[3, 0, 1, 1, 3, 0]), AbortCode::RXGEN_SS_UNMARSHAL),
        (
            words(&[3, 3, 1, 1, 0, u32::MAX]),
            AbortCode::RXGEN_SS_UNMARSHAL,
        ),
        (words(&[3, 4, 1, 1, 2, 0]), AbortCode::RXGEN_SS_UNMARSHAL),
        (
            words(&[3, 4, 1, 1, u32::MAX, 0]),
            AbortCode::RXGEN_SS_UNMARSHAL,
        ),
        (
            words(&[3, 4, 1, 1, 4, 0, 1, 0, 1]),
            AbortCode::RXGEN_SS_UNMARSHAL,
        ),
    ];
    for (request, code) in cases {
        let mut call = connection.call().await.unwrap();
        call.send(request.clone().into()).await.unwrap();
        call.finish().await.unwrap();
        let error = call.recv().await.unwrap_err();
        assert_eq!(error, CallError::Aborted(code), "{request:?}");
    }
    // The connection is as good as before.
    let mut call = connection.call().await.unwrap();
    let good = Request::encode(
        &Operation::Rpc {
            request: 3,
            reply: 30,
        },
        1,
        1,
    )
    .unwrap();
    request(&mut call, &good, 1, &Progress::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn progress_counts_payload_only() {
    let (_client, _server, connection) = pair(Honest);
    let operations = [
        (
            Operation::Rpc {
                request: 100_000,
                reply: 70_000,
            },
            100_000,
            70_000,
        ),
        (Operation::File(vec![1, 0, 2]), 4, 8),
        (Operation::Send(0), 0, 0),
    ];
    for (operation, sent, received) in operations {
        let encoded = Request::encode(&operation, 1, 10_000).unwrap();
        let progress = Progress::default();
        let mut call = connection.call().await.unwrap();
        request(&mut call, &encoded, 10_000, &progress)
            .await
            .unwrap();
        assert_eq!(progress.sent.load(Relaxed), sent, "{operation:?}");
        assert_eq!(progress.received.load(Relaxed), received, "{operation:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_no_rxperf_is_found_out() {
    let cases: [(&'static [u8], WireError); 3] = [
        (&[0, 0, 0, 0, 1], WireError::Cookie(1)),
        (
            &[0, 0, 0x47],
            WireError::Length {
                expected: 5,
                got: 3,
            },
        ),
        (
            &[0; 6],
            WireError::Length {
                expected: 5,
                got: 6,
            },
        ),
    ];
    for (reply, error) in cases {
        let (_client, _server, connection) = pair(Parrot(reply));
        let encoded = Request::encode(&Operation::Recv(1), 1, 1).unwrap();
        let mut call = connection.call().await.unwrap();
        let failure = request(&mut call, &encoded, 1, &Progress::default())
            .await
            .unwrap_err();
        assert_eq!(failure, Failure::Wire(error));
    }
}
