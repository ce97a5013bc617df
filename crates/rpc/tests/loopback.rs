//! Client stubs against server traits over two endpoints on loopback.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_net::{AbortCode, CallError, Config, Connection, Endpoint, RxNull, ServiceId};
use afar_rpc::{Caller, Calls, FetchSink, RpcCause, Served, StoreSource, rxafs, vl};
use afar_telemetry::{Registry, render_prometheus};
use afar_types::{Capabilities, FetchStatus, Fid, StoreStatus, UvldbEntry, VolSync, VolumeName};
use afar_xdr::CharArray;
use bytes::Bytes;

/// A file server with one file, whose byte n is n modulo 251.
struct FileServer {
    stored: Arc<AtomicU64>,
    calls: Calls,
}

const LENGTH: u64 = 300_001;

fn status(length: u64) -> FetchStatus {
    FetchStatus {
        interface_version: 1,
        length,
        ..FetchStatus::default()
    }
}

fn contents(position: u64, length: u64) -> Vec<u8> {
    (position..position + length)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect()
}

impl rxafs::Service for FileServer {
    fn served(&self, served: &Served<'_>) {
        assert!(served.caller.peer.ip().is_loopback());
        self.calls.count(served);
    }

    async fn fetch_status(
        &self,
        _: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        if request.fid.volume.0 == 7 {
            let (callback, vol_sync) = Default::default();
            Ok(rxafs::fetch_status::Reply {
                status: status(LENGTH),
                callback,
                vol_sync,
            })
        } else {
            Err(AbortCode(103))
        }
    }

    async fn get_capabilities(
        &self,
        caller: &Caller,
        _: rxafs::get_capabilities::Request,
    ) -> Result<rxafs::get_capabilities::Reply, AbortCode> {
        assert_eq!(caller.service, rxafs::SERVICE);
        assert!(caller.peer.ip().is_loopback());
        Ok(rxafs::get_capabilities::Reply {
            capabilities: Capabilities::new(vec![7]).unwrap(),
        })
    }

    async fn fetch_data64(
        &self,
        _: &Caller,
        request: rxafs::fetch_data64::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
        let position = u64::try_from(request.position).unwrap();
        let length = data.asked().min(LENGTH.saturating_sub(position));
        data.announce(length).await?;
        if request.fid.vnode.0 == 666 {
            return Err(AbortCode(112));
        }
        for piece in contents(position, length).chunks(10_007) {
            data.send(Bytes::copy_from_slice(piece)).await?;
        }
        let (callback, vol_sync) = Default::default();
        Ok(rxafs::fetch_data64::Reply {
            status: status(LENGTH),
            callback,
            vol_sync,
        })
    }

    async fn store_data64(
        &self,
        _: &Caller,
        request: rxafs::store_data64::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::store_data64::Reply, AbortCode> {
        let mut received = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            received.extend_from_slice(&chunk);
        }
        assert_eq!(received, contents(request.position, request.length));
        self.stored.fetch_add(request.length, Ordering::Relaxed);
        let (status, vol_sync) = (status(request.file_length), VolSync::default());
        Ok(rxafs::store_data64::Reply { status, vol_sync })
    }
}

struct Locations;

impl vl::Service for Locations {
    async fn get_entry_by_name_u(
        &self,
        _: &Caller,
        request: vl::get_entry_by_name_u::Request,
    ) -> Result<vl::get_entry_by_name_u::Reply, AbortCode> {
        let name = CharArray::new(request.name.as_bytes()).map_err(|_| AbortCode(363_527))?;
        Ok(vl::get_entry_by_name_u::Reply {
            entry: UvldbEntry {
                name,
                ..UvldbEntry::default()
            },
        })
    }
}

struct Pair {
    client: Endpoint,
    server: Endpoint,
    stored: Arc<AtomicU64>,
    registry: Registry,
}

impl Pair {
    async fn new() -> Self {
        let bind = || Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (client, server) = (bind(), bind());
        let registry = Registry::default();
        let files = FileServer {
            stored: Arc::default(),
            calls: Calls::new(rxafs::INTERFACE, &registry),
        };
        let stored = Arc::clone(&files.stored);
        server.serve(rxafs::SERVICE, "files", rxafs::Server::new(files));
        server.serve(vl::SERVICE, "locations", vl::Server::new(Locations));
        // The answer comes after the services are known to the I/O thread.
        server.stats().await;
        Self {
            client,
            server,
            stored,
            registry,
        }
    }

    fn connect(&self, service: ServiceId) -> Connection {
        self.client
            .connect(self.server.local_addr(), service, Arc::new(RxNull))
    }

    fn files(&self) -> rxafs::Client {
        rxafs::Client::new(self.connect(rxafs::SERVICE))
    }
}

const FILE: Fid = Fid::new(7, 2, 1);

#[tokio::test]
async fn plain_operations_and_refusals() {
    let pair = Pair::new().await;
    let files = pair.files();
    assert_eq!(
        files.get_capabilities().await.unwrap().capabilities[..],
        [7]
    );
    assert_eq!(
        files.fetch_status(FILE).await.unwrap().status.length,
        LENGTH
    );
    let error = files.fetch_status(Fid::new(8, 1, 1)).await.unwrap_err();
    assert_eq!(error.aborted(), Some(AbortCode(103)));
    assert_eq!(
        error.cause.to_string(),
        "VNOVOL: the volume is not on this server (103)"
    );
    let text = format!("RXAFS.fetch_status at {} failed", pair.server.local_addr());
    assert_eq!(error.to_string(), text);
    let locations = vl::Client::new(pair.connect(vl::SERVICE));
    let name = VolumeName::new("root.cell").unwrap();
    let found = locations.get_entry_by_name_u(name).await.unwrap();
    assert_eq!(found.entry.name.as_bytes(), b"root.cell");
}

#[tokio::test]
async fn operations_not_written_answer_rxgen_opcode() {
    let files = Pair::new().await;
    let error = files.files().get_time().await.unwrap_err();
    assert!(error.is_unknown_operation());
    let error = files.files().fetch_data(FILE, 0, 1).await.unwrap_err();
    assert!(error.is_unknown_operation(), "{error:?}");
    // And one that is in no table.
    let mut call = files.connect(rxafs::SERVICE).call().await.unwrap();
    call.send(Bytes::from_static(&[0, 0, 0xff, 0xff]))
        .await
        .unwrap();
    call.finish().await.unwrap();
    let error = call.read_to_end(100).await.unwrap_err();
    assert_eq!(error, CallError::Aborted(AbortCode::RXGEN_OPCODE));
}

#[tokio::test]
async fn a_call_is_counted_when_its_answer_is_there() {
    let pair = Pair::new().await;
    let files = pair.files();
    let counts = |operation: &str, wanted: &[(&str, u64)]| {
        let text = render_prometheus(&pair.registry);
        for (what, count) in wanted {
            let labels = format!("{{interface=\"RXAFS\",operation=\"{operation}\"}}");
            let line = format!("\nafar_rpc_{what}{labels} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    };
    for calls in 1..=20 {
        files.get_capabilities().await.unwrap();
        counts(
            "get_capabilities",
            &[("duration_seconds_count", calls), ("errors_total", 0)],
        );
        files.fetch_status(Fid::new(8, 1, 1)).await.unwrap_err();
        counts(
            "fetch_status",
            &[("duration_seconds_count", 0), ("errors_total", calls)],
        );
    }
    let data = files.fetch_data64(FILE, 0, 1 << 20).await.unwrap();
    data.finish().await.unwrap();
    // The words are opcode, fid, position and length; length in front of the data, and what follows it.
    let reply = 8 + LENGTH + 120;
    counts(
        "fetch_data64",
        &[("received_bytes_total", 32), ("sent_bytes_total", reply)],
    );
    let mut call = pair.connect(rxafs::SERVICE).call().await.unwrap();
    call.send(Bytes::from_static(&[0, 0, 0xff, 0xff]))
        .await
        .unwrap();
    call.finish().await.unwrap();
    call.read_to_end(100).await.unwrap_err();
    counts("(unknown)", &[("errors_total", 1)]);
}

#[tokio::test]
async fn requests_that_end_early_answer_ss_unmarshal() {
    let pair = Pair::new().await;
    for request in [&[0, 0, 0, 132, 0, 0][..], &[0, 1, 0, 2, 0], &[0, 0]] {
        let mut call = pair.connect(rxafs::SERVICE).call().await.unwrap();
        call.send(Bytes::copy_from_slice(request)).await.unwrap();
        call.finish().await.unwrap();
        let error = call.read_to_end(100).await.unwrap_err();
        assert_eq!(
            error,
            CallError::Aborted(AbortCode::RXGEN_SS_UNMARSHAL),
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn data_of_any_length_is_followed_by_the_results() {
    let pair = Pair::new().await;
    let files = pair.files();
    for (position, length) in [(0, 0), (0, 1), (5, 4095), (0, LENGTH), (299_000, 5000)] {
        let asked = i64::try_from(length).unwrap();
        let mut fetch = files
            .fetch_data64(FILE, i64::try_from(position).unwrap(), asked)
            .await
            .unwrap();
        let expected = length.min(LENGTH - position);
        assert_eq!(fetch.announced(), expected);
        let mut data = Vec::new();
        while let Some(chunk) = fetch.chunk().await.unwrap() {
            assert!(!chunk.is_empty());
            data.extend_from_slice(&chunk);
        }
        assert!(data == contents(position, expected), "{position} {length}");
        assert_eq!(fetch.finish().await.unwrap().status.length, LENGTH);
    }
    // Results come also to one who does not want the data.
    let fetch = files.fetch_data64(FILE, 0, 1 << 20).await.unwrap();
    assert_eq!(fetch.finish().await.unwrap().status, status(LENGTH));
}

#[tokio::test]
async fn an_abort_after_the_length_reaches_the_reader() {
    let pair = Pair::new().await;
    let fid = Fid::new(7, 666, 1);
    // The abort may overtake the length.
    let error = match pair.files().fetch_data64(fid, 0, 1000).await {
        Ok(mut fetch) => fetch.chunk().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.aborted(), Some(AbortCode(112)));
}

#[tokio::test]
async fn stored_data_arrives_whole() {
    let pair = Pair::new().await;
    let files = pair.files();
    for (position, length) in [(0, 0), (3, 1), (1, 200_000)] {
        let end = position + length;
        let attributes = StoreStatus::default();
        let mut store = files
            .store_data64(FILE, attributes, position, length, end)
            .await
            .unwrap();
        for piece in contents(position, length).chunks(7001) {
            store.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        assert_eq!(store.finish().await.unwrap().status.length, end);
    }
    assert_eq!(pair.stored.load(Ordering::Relaxed), 200_001);
}

#[tokio::test]
async fn other_amounts_than_announced_are_refused_here() {
    let pair = Pair::new().await;
    let files = pair.files();
    let attributes = StoreStatus::default();
    let mut store = files
        .store_data64(FILE, attributes, 0, 10, 10)
        .await
        .unwrap();
    let error = store.send(Bytes::from_static(&[0; 11])).await.unwrap_err();
    assert_eq!(
        error.cause,
        RpcCause::Data {
            given: 11,
            announced: 10
        }
    );
    let error = store.finish().await.unwrap_err();
    assert_eq!(
        error.cause,
        RpcCause::Data {
            given: 0,
            announced: 10
        }
    );
    assert_eq!(pair.stored.load(Ordering::Relaxed), 0);
}

/// Answers every call with the same bytes.
struct Fixed(Vec<u8>);

impl afar_net::Handler for Fixed {
    async fn handle(&self, call: &mut afar_net::Call) -> Result<(), AbortCode> {
        call.read_to_end(1000).await.map_err(|error| error.code())?;
        call.send(Bytes::from(self.0.clone()))
            .await
            .map_err(|error| error.code())
    }
}

async fn fetch_from(reply: Vec<u8>) -> Result<FetchStatus, RpcCause> {
    let bind = || Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    let (client, server) = (bind(), bind());
    server.serve(rxafs::SERVICE, "files", Fixed(reply));
    server.stats().await;
    let connection = client.connect(server.local_addr(), rxafs::SERVICE, Arc::new(RxNull));
    let files = rxafs::Client::new(connection);
    let fetch = files
        .fetch_data64(FILE, 0, 5)
        .await
        .map_err(|error| error.cause)?;
    let reply = fetch.finish().await.map_err(|error| error.cause)?;
    Ok(reply.status)
}

#[tokio::test]
async fn replies_that_lie() {
    let more = [&6i64.to_be_bytes()[..], &[0; 126]].concat();
    let less = (-1i64).to_be_bytes().to_vec();
    let length = |announced, asked| Err(RpcCause::Length { announced, asked });
    assert_eq!(fetch_from(more).await, length(6, 5));
    assert_eq!(fetch_from(less).await, length(-1, 5));
    // The stream ends in the data, and in the results.
    let cut = [&5i64.to_be_bytes()[..], &[0; 3]].concat();
    assert_eq!(
        fetch_from(cut).await,
        Err(RpcCause::Call(CallError::UnexpectedEnd))
    );
    let cut = [&5i64.to_be_bytes()[..], &[0; 124]].concat();
    assert!(matches!(fetch_from(cut).await, Err(RpcCause::Reply(error)) if error.is_truncated()));
    // Three bytes of data, then results that start at no word's border.
    let whole = [&3i64.to_be_bytes()[..], b"abc", &[0; 120]].concat();
    assert_eq!(fetch_from(whole).await, Ok(FetchStatus::default()));
}
