//! Data that ends where the stream ends: dumps, restores and logs over loopback.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::{Arc, Mutex};

use afar_net::{AbortCode, CallError, Config, Endpoint, RxNull};
use afar_rpc::{Caller, DownloadSink, RpcCause, UploadSource, afsvol, bozo};
use afar_types::{BozoText, RestoreCookie, TransactionId, UnixTime};
use bytes::Bytes;

const DUMP: usize = 300_001;

fn contents(length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect()
}

/// A volume server whose transaction 1 has a volume; what is restored is kept.
#[derive(Default)]
struct VolumeServer {
    restored: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl afsvol::Service for VolumeServer {
    async fn dump(
        &self,
        _: &Caller,
        request: afsvol::dump::Request,
        data: &mut DownloadSink<'_>,
    ) -> Result<afsvol::dump::Reply, AbortCode> {
        match request.transaction.0 {
            1 => {
                for piece in contents(DUMP).chunks(10_007) {
                    data.send(Bytes::copy_from_slice(piece)).await?;
                }
                assert_eq!(data.sent(), DUMP as u64);
                Ok(afsvol::dump::Reply {})
            }
            // An empty one.
            2 => Ok(afsvol::dump::Reply {}),
            // One that fails amidst the data.
            3 => {
                data.send(Bytes::from(contents(100_000))).await?;
                Err(AbortCode(112))
            }
            _ => Err(AbortCode(2)),
        }
    }

    async fn restore(
        &self,
        _: &Caller,
        request: afsvol::restore::Request,
        data: &mut UploadSource<'_>,
    ) -> Result<afsvol::restore::Reply, AbortCode> {
        if request.transaction.0 != 1 {
            return Err(AbortCode(2));
        }
        let mut received = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            assert!(!chunk.is_empty());
            received.extend_from_slice(&chunk);
        }
        assert_eq!(data.received(), received.len() as u64);
        self.restored.lock().unwrap().push(received);
        Ok(afsvol::restore::Reply {})
    }
}

struct Overseer;

impl bozo::Service for Overseer {
    async fn get_log(
        &self,
        _: &Caller,
        request: bozo::get_log::Request,
        data: &mut DownloadSink<'_>,
    ) -> Result<bozo::get_log::Reply, AbortCode> {
        let text = format!("{} started\n\0", request.name);
        data.send(Bytes::from(text)).await?;
        Ok(bozo::get_log::Reply {})
    }
}

struct Pair {
    volumes: afsvol::Client,
    overseer: bozo::Client,
    restored: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Kept, as their calls end with them.
    _endpoints: [Endpoint; 2],
}

impl Pair {
    async fn new() -> Self {
        let bind = || Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (client, server) = (bind(), bind());
        let volumes = VolumeServer::default();
        let restored = Arc::clone(&volumes.restored);
        server.serve(afsvol::SERVICE, "volumes", afsvol::Server::new(volumes));
        server.serve(bozo::SERVICE, "overseer", bozo::Server::new(Overseer));
        server.stats().await;
        let connect = |service| client.connect(server.local_addr(), service, Arc::new(RxNull));
        Self {
            volumes: afsvol::Client::new(connect(afsvol::SERVICE)),
            overseer: bozo::Client::new(connect(bozo::SERVICE)),
            restored,
            _endpoints: [client, server],
        }
    }

    async fn dump(&self, transaction: i32) -> Result<Vec<u8>, (usize, RpcCause)> {
        let transaction = TransactionId(transaction);
        let dump = self.volumes.dump(transaction, UnixTime(0)).await;
        let mut dump = dump.map_err(|error| (0, error.cause))?;
        let mut data = Vec::new();
        while let Some(chunk) = dump
            .chunk()
            .await
            .map_err(|error| (data.len(), error.cause))?
        {
            data.extend_from_slice(&chunk);
        }
        // The end stays the end.
        assert_eq!(dump.chunk().await.unwrap(), None);
        Ok(data)
    }

    async fn restore(&self, transaction: i32, data: &[u8]) -> Result<(), RpcCause> {
        let cookie = RestoreCookie::default();
        let restore = self.volumes.restore(TransactionId(transaction), 0, cookie);
        let mut restore = restore.await.map_err(|error| error.cause)?;
        for piece in data.chunks(7001) {
            let sent = restore.send(Bytes::copy_from_slice(piece)).await;
            sent.map_err(|error| error.cause)?;
        }
        restore.finish().await.map_err(|error| error.cause)?;
        Ok(())
    }
}

#[tokio::test]
async fn dumps_end_where_the_server_ends_them() {
    let pair = Pair::new().await;
    assert!(pair.dump(1).await.unwrap() == contents(DUMP));
    assert_eq!(pair.dump(2).await, Ok(Vec::new()));
    let name = BozoText::new("FileLog").unwrap();
    let mut log = pair.overseer.get_log(name).await.unwrap();
    let text = log.chunk().await.unwrap().unwrap();
    assert_eq!(text[..], *b"FileLog started\n\0");
    assert_eq!(log.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn dumps_that_fail_do_not_look_whole() {
    let pair = Pair::new().await;
    let aborted = |code| RpcCause::Call(CallError::Aborted(AbortCode(code)));
    assert_eq!(pair.dump(4).await, Err((0, aborted(2))));
    let (received, cause) = pair.dump(3).await.unwrap_err();
    assert_eq!(cause, aborted(112));
    assert!(received <= 100_000, "{received}");
}

#[tokio::test]
async fn restores_end_where_the_client_ends_them() {
    let pair = Pair::new().await;
    for length in [0, 1, 200_000] {
        pair.restore(1, &contents(length)).await.unwrap();
        assert!(pair.restored.lock().unwrap().pop().unwrap() == contents(length));
    }
    // A refusal reaches the one who sends, at the latest at the end.
    let error = pair.restore(4, &contents(200_000)).await.unwrap_err();
    assert_eq!(error, RpcCause::Call(CallError::Aborted(AbortCode(2))));
}

#[tokio::test]
async fn a_restore_given_up_is_not_taken_for_whole() {
    let pair = Pair::new().await;
    let cookie = RestoreCookie::default();
    let restore = pair.volumes.restore(TransactionId(1), 0, cookie);
    let mut restore = restore.await.unwrap();
    restore.send(Bytes::from(contents(50_000))).await.unwrap();
    drop(restore);
    // The server goes on, with what comes after.
    pair.restore(1, &contents(10)).await.unwrap();
    assert_eq!(*pair.restored.lock().unwrap(), [contents(10)]);
}
