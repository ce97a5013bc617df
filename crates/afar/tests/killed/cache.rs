//! Clients that remember: what they were promised and what they have seen.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Config, Endpoint, RxNull};
use afar_rpc::{Caller, RpcError, rxafs, rxafscb};
use afar_types::{
    AfsUuid, CAPABILITY_ERROR_TRANSLATION, CallBack, CallBackType, Capabilities, DataVersion,
    FetchStatus, Fid, FileName, InterfaceAddr, StoreStatus,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Larger than any file or directory here.
const ENOUGH: i64 = 64 << 20;

/// What a client remembers of the promises it has.
#[derive(Default)]
struct Promises {
    /// Files with an unbroken promise, and the version it is about.
    standing: HashMap<Fid, DataVersion>,
    /// Counts what was heard, so that a promise that was broken before its reply was read is not
    /// taken for one.
    heard: u64,
    /// When each file's promise was broken last.
    broken: HashMap<Fid, u64>,
    /// When all of them were.
    reset: u64,
}

/// The service that file servers call.
#[derive(Clone)]
struct Service {
    host: InterfaceAddr,
    promises: Arc<Mutex<Promises>>,
    /// How many times the server said that all promises are over.
    resets: Arc<watch::Sender<u64>>,
}

/// A cache manager, as a file server knows them.
pub(crate) struct CacheManager {
    pub(crate) files: rxafs::Client,
    endpoint: Endpoint,
    service: Service,
}

impl rxafscb::Service for Service {
    async fn call_back(
        &self,
        _: &Caller,
        request: rxafscb::call_back::Request,
    ) -> Result<rxafscb::call_back::Reply, AbortCode> {
        let promises = &mut *self.promises.lock();
        promises.heard += 1;
        for fid in request.fids.iter() {
            promises.broken.insert(*fid, promises.heard);
            promises.standing.remove(fid);
        }
        Ok(rxafscb::call_back::Reply {})
    }

    async fn init_call_back_state3(
        &self,
        _: &Caller,
        _: rxafscb::init_call_back_state3::Request,
    ) -> Result<rxafscb::init_call_back_state3::Reply, AbortCode> {
        let promises = &mut *self.promises.lock();
        promises.heard += 1;
        promises.reset = promises.heard;
        promises.standing.clear();
        self.resets.send_modify(|resets| *resets += 1);
        Ok(rxafscb::init_call_back_state3::Reply {})
    }

    async fn probe(
        &self,
        _: &Caller,
        _: rxafscb::probe::Request,
    ) -> Result<rxafscb::probe::Reply, AbortCode> {
        Ok(rxafscb::probe::Reply {})
    }

    async fn probe_uuid(
        &self,
        _: &Caller,
        request: rxafscb::probe_uuid::Request,
    ) -> Result<rxafscb::probe_uuid::Reply, AbortCode> {
        if request.client == self.host.uuid {
            Ok(rxafscb::probe_uuid::Reply {})
        } else {
            Err(AbortCode(1))
        }
    }

    async fn tell_me_about_yourself(
        &self,
        _: &Caller,
        _: rxafscb::tell_me_about_yourself::Request,
    ) -> Result<rxafscb::tell_me_about_yourself::Reply, AbortCode> {
        Ok(rxafscb::tell_me_about_yourself::Reply {
            host: self.host.clone(),
            capabilities: Capabilities::new(vec![CAPABILITY_ERROR_TRANSLATION]).unwrap(),
        })
    }
}

impl CacheManager {
    /// A client of this server, whether or not that runs.
    pub(crate) async fn new(server: SocketAddr) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(address, Config::default()).unwrap();
        let uuid = AfsUuid::from_random(fastrand::u128(..).to_be_bytes());
        let service = Service {
            host: InterfaceAddr::new(uuid, &["127.0.0.1".parse().unwrap()]),
            promises: Arc::default(),
            resets: Arc::new(watch::Sender::new(0)),
        };
        let callbacks = rxafscb::Server::new(service.clone());
        endpoint.serve(rxafscb::SERVICE, rxafscb::NAME, callbacks);
        endpoint.stats().await;
        let connection = endpoint.connect(server, rxafs::SERVICE, Arc::new(RxNull));
        Self {
            files: rxafs::Client::new(connection),
            endpoint,
            service,
        }
    }

    /// Calls over a new connection from now on, as after a server that was away.
    pub(crate) fn reconnect(&mut self, server: SocketAddr) {
        let connection = self
            .endpoint
            .connect(server, rxafs::SERVICE, Arc::new(RxNull));
        self.files = rxafs::Client::new(connection);
    }

    /// How many times it was told that all promises are over.
    pub(crate) fn resets(&self) -> u64 {
        *self.service.resets.borrow()
    }

    /// Waits until it was told so more than `known` times.
    pub(crate) async fn reset_after(&self, known: u64) {
        let mut resets = self.service.resets.subscribe();
        let told = resets.wait_for(|resets| *resets > known);
        let told = tokio::time::timeout(Duration::from_secs(30), told).await;
        assert!(told.is_ok(), "nobody said that promises are over");
    }

    /// The version of a file that an unbroken promise is about.
    pub(crate) fn promised(&self, fid: Fid) -> Option<DataVersion> {
        self.service.promises.lock().standing.get(&fid).copied()
    }

    /// All files with an unbroken promise.
    pub(crate) fn all_promised(&self) -> Vec<(Fid, DataVersion)> {
        let promises = self.service.promises.lock();
        let standing = promises.standing.iter();
        let mut all: Vec<_> = standing.map(|(fid, version)| (*fid, *version)).collect();
        all.sort();
        all
    }

    /// Reads all of a file, directory or symlink, and keeps what is promised with it.
    pub(crate) async fn fetch(&self, fid: Fid) -> Result<(Vec<u8>, FetchStatus), RpcError> {
        let begun = self.service.promises.lock().heard;
        let mut fetch = self.files.fetch_data64(fid, 0, ENOUGH).await?;
        let mut data = Vec::new();
        while let Some(chunk) = fetch.chunk().await? {
            data.extend_from_slice(&chunk);
        }
        let reply = fetch.finish().await?;
        self.keep(fid, reply.status.data_version, &reply.callback, begun);
        assert_eq!(data.len() as u64, reply.status.length, "{fid:?} came whole");
        Ok((data, reply.status))
    }

    fn keep(&self, fid: Fid, version: DataVersion, callback: &CallBack, begun: u64) {
        let promises = &mut *self.service.promises.lock();
        let broken = promises.broken.get(&fid).copied().unwrap_or_default();
        let given = callback.expires_in > 0 && callback.kind == CallBackType::Shared;
        if given && broken.max(promises.reset) <= begun {
            promises.standing.insert(fid, version);
        } else {
            promises.standing.remove(&fid);
        }
    }

    /// Stores data.
    pub(crate) async fn store(
        &self,
        fid: Fid,
        position: u64,
        data: Bytes,
        file_length: u64,
    ) -> Result<FetchStatus, RpcError> {
        let (plain, length) = (StoreStatus::default(), data.len() as u64);
        let store = self
            .files
            .store_data64(fid, plain, position, length, file_length);
        let mut store = store.await?;
        let mut rest = data;
        while !rest.is_empty() {
            store.send(rest.split_to(rest.len().min(100_000))).await?;
        }
        Ok(store.finish().await?.status)
    }
}

pub(crate) fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

/// The attributes of what is new.
pub(crate) fn mode(bits: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE,
        unix_mode_bits: bits,
        ..StoreStatus::default()
    }
}
