//! A client that behaves, and takes the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::CallbackService;
use afar_net::{Config, Endpoint, RxNull};
use afar_rpc::{RpcError, rxafs};
use afar_types::{Fid, FileName, StoreStatus};
use bytes::Bytes;

/// Longer than anything a client waits for on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) files: rxafs::Client,
    pub(crate) endpoint: Endpoint,
    _callbacks: CallbackService,
}

impl Client {
    pub(crate) async fn new(server: SocketAddr) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(address, Config::default()).unwrap();
        let callbacks = CallbackService::start(&endpoint);
        endpoint.stats().await;
        let connection = endpoint.connect(server, rxafs::SERVICE, Arc::new(RxNull));
        Self {
            files: rxafs::Client::new(connection),
            endpoint,
            _callbacks: callbacks,
        }
    }

    pub(crate) async fn create(&self, directory: Fid, file: &str) -> Result<Fid, RpcError> {
        let mode = StoreStatus {
            mask: StoreStatus::SET_MODE,
            unix_mode_bits: 0o666,
            ..StoreStatus::default()
        };
        let made = self.files.create_file(directory, name(file), mode).await?;
        Ok(made.fid)
    }

    /// Makes a directory.
    pub(crate) async fn directory(&self, parent: Fid, file: &str) -> Fid {
        let plain = StoreStatus::default();
        let made = self.files.make_dir(parent, name(file), plain).await;
        made.unwrap().fid
    }

    pub(crate) async fn store(&self, fid: Fid, data: Bytes) -> Result<(), RpcError> {
        let length = data.len() as u64;
        let plain = StoreStatus::default();
        let mut store = self
            .files
            .store_data64(fid, plain, 0, length, length)
            .await?;
        let mut rest = data;
        while !rest.is_empty() {
            store.send(rest.split_to(rest.len().min(100_000))).await?;
        }
        store.finish().await.map(drop)
    }

    pub(crate) async fn fetch(&self, fid: Fid) -> Result<Vec<u8>, RpcError> {
        let mut fetch = self.files.fetch_data64(fid, 0, 1 << 30).await?;
        let mut data = Vec::new();
        while let Some(chunk) = fetch.chunk().await? {
            data.extend_from_slice(&chunk);
        }
        fetch.finish().await?;
        Ok(data)
    }

    /// Makes, writes, reads and removes a file; returns how long that took.
    pub(crate) async fn turn(&self, directory: Fid) -> Duration {
        let begun = Instant::now();
        let work = async {
            let data = Bytes::from(vec![7; 20_000]);
            let fid = self.create(directory, "turn").await.unwrap();
            self.store(fid, data.clone()).await.unwrap();
            assert_eq!(self.fetch(fid).await.unwrap(), data);
            let removed = self.files.remove_file(directory, name("turn"));
            removed.await.unwrap();
        };
        let done = tokio::time::timeout(PATIENCE, work).await;
        assert!(done.is_ok(), "hangs");
        begun.elapsed()
    }

    /// The longest of some turns.
    pub(crate) async fn slowest_turn(&self, directory: Fid, turns: u32) -> Duration {
        let mut slowest = Duration::ZERO;
        for _ in 0..turns {
            slowest = slowest.max(self.turn(directory).await);
        }
        slowest
    }
}

pub(crate) fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}
