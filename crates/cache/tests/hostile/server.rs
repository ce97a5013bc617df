//! A file server that does what it is told: lies, breaks promises before it has given them, fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use afar_cache::{Cache, CacheConfig, Root};
use afar_cell::{Client, Config};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_net::{AbortCode, Endpoint, RxNull};
use afar_rpc::{Caller, FetchSink, StoreSource, rxafs, rxafscb, vl};
use afar_types::{
    CallBack, CallBackType, CallBacks, FetchStatus, Fid, Fids, FileType, NvldbEntry, Rights,
    SiteFlags, Statuses, VldbFlags, VolSync, VolumeId,
};
use afar_xdr::CharArray;
use bytes::Bytes;

pub(crate) const VOLUME: u32 = 10;
pub(crate) const ROOT: Fid = Fid::root(VolumeId(VOLUME));

pub(crate) fn fid(vnode: u32) -> Fid {
    Fid::new(VOLUME, vnode, 1)
}

/// What the server has, and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) vnodes: BTreeMap<Fid, (FetchStatus, Bytes)>,
    /// Break the promise on this file before the answer that gives it leaves.
    pub(crate) break_first: Option<Fid>,
    /// Octets left out at the end of each fetch of a file.
    pub(crate) short: usize,
    /// What storing ends with, after the data was taken.
    pub(crate) store_fails: Option<AbortCode>,
    /// Octets of the stores that went well.
    pub(crate) stored: Vec<(u64, Vec<u8>)>,
    /// Those of its caches.
    directories: Vec<tempfile::TempDir>,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) statuses: Arc<AtomicU64>,
    endpoint: Endpoint,
}

fn bind() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), afar_net::Config::default()).unwrap()
}

fn promise() -> CallBack {
    CallBack {
        version: 1,
        expires_in: 3600,
        kind: CallBackType::Shared,
    }
}

impl State {
    pub(crate) fn directory(&mut self, fid: Fid, entries: &[(String, u32)]) {
        let own = EntryId::new(fid.vnode.0, fid.uniquifier.0);
        let mut builder = DirectoryBuilder::new(own, own);
        for (name, vnode) in entries {
            builder
                .add(name.as_bytes(), EntryId::new(*vnode, 1))
                .unwrap();
        }
        self.add(fid, FileType::Directory, builder.finish());
    }

    pub(crate) fn file(&mut self, fid: Fid, data: impl Into<Bytes>) {
        self.add(fid, FileType::File, data);
    }

    pub(crate) fn add(&mut self, fid: Fid, file_type: FileType, data: impl Into<Bytes>) {
        let data = data.into();
        let status = FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            file_type,
            link_count: 1,
            length: data.len() as u64,
            data_version: 1.into(),
            caller_access: Rights::ALL,
            unix_mode_bits: 0o644,
            ..FetchStatus::default()
        };
        self.vnodes.insert(fid, (status, data));
    }
}

impl Server {
    fn vnode(&self, fid: Fid) -> Result<(FetchStatus, Bytes), AbortCode> {
        let state = self.state.lock().unwrap();
        state.vnodes.get(&fid).cloned().ok_or(AbortCode(102))
    }

    /// Breaks the promise on a file.
    async fn break_to(&self, peer: std::net::SocketAddr, fid: Fid) {
        let connection = self
            .endpoint
            .connect(peer, rxafscb::SERVICE, Arc::new(RxNull));
        let client = rxafscb::Client::new(connection);
        let fids = Fids::new(vec![fid]).unwrap();
        client.call_back(fids, CallBacks::default()).await.unwrap();
    }
}

/// Starts a server and a cache of it whose root is the directory [`ROOT`].
pub(crate) async fn start(fill: impl FnOnce(&mut State)) -> (Server, Cache) {
    start_with(fill, |_| {}).await
}

/// The same, with a cache of other settings.
pub(crate) async fn start_with(
    fill: impl FnOnce(&mut State),
    adjust: impl FnOnce(&mut CacheConfig),
) -> (Server, Cache) {
    let mut state = State::default();
    state.directory(ROOT, &[]);
    fill(&mut state);
    let endpoint = bind();
    let server = Server {
        state: Arc::new(Mutex::new(state)),
        statuses: Arc::default(),
        endpoint: endpoint.clone(),
    };
    endpoint.serve(rxafs::SERVICE, "files", rxafs::Server::new(server.clone()));
    endpoint.serve(vl::SERVICE, "locations", vl::Server::new(server.clone()));
    endpoint.stats().await;
    let cache = cache_of(&server, adjust).await;
    (server, cache)
}

/// Another cache of the same server.
pub(crate) async fn beside(server: &Server) -> Cache {
    cache_of(server, |_| {}).await
}

async fn cache_of(server: &Server, adjust: impl FnOnce(&mut CacheConfig)) -> Cache {
    let address = server.endpoint.local_addr();
    let config = Config {
        cellservdb: Some("/dev/null".into()),
        vl_servers: vec![address],
        dns: false,
        file_port: address.port(),
        ..Config::default()
    };
    let client = Client::new(bind(), config).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = CacheConfig::new(directory.path());
    config.root = Root::Volume("test.example".parse().unwrap(), "root.cell".to_owned());
    adjust(&mut config);
    let cache = Cache::open(client, config).await.unwrap();
    server.state.lock().unwrap().directories.push(directory);
    cache
}

impl vl::Service for Server {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        _: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let mut entry = NvldbEntry {
            name: CharArray::new("root.cell").unwrap(),
            n_servers: 1,
            volume_id: [VolumeId(VOLUME), VolumeId(0), VolumeId(0)],
            flags: VldbFlags(0x1000),
            ..NvldbEntry::default()
        };
        entry.server_number[0] = u32::from_be_bytes([127, 0, 0, 1]);
        entry.server_flags[0] = SiteFlags(4);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

impl rxafs::Service for Server {
    async fn fetch_status(
        &self,
        caller: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        let (status, _) = self.vnode(request.fid)?;
        let first = self.state.lock().unwrap().break_first;
        if first == Some(request.fid) {
            self.break_to(caller.peer, request.fid).await;
        }
        Ok(rxafs::fetch_status::Reply {
            status,
            callback: promise(),
            vol_sync: VolSync::default(),
        })
    }

    async fn inline_bulk_status(
        &self,
        _: &Caller,
        request: rxafs::inline_bulk_status::Request,
    ) -> Result<rxafs::inline_bulk_status::Reply, AbortCode> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        let status = |fid: &Fid| match self.vnode(*fid) {
            Ok((status, _)) => status,
            Err(AbortCode(error_code)) => FetchStatus {
                interface_version: 1,
                error_code,
                ..FetchStatus::default()
            },
        };
        let statuses: Vec<_> = request.fids.iter().map(status).collect();
        Ok(rxafs::inline_bulk_status::Reply {
            callbacks: CallBacks::new(vec![promise(); statuses.len()]).unwrap(),
            statuses: Statuses::new(statuses).unwrap(),
            vol_sync: VolSync::default(),
        })
    }

    async fn fetch_data64(
        &self,
        _: &Caller,
        request: rxafs::fetch_data64::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
        let (status, all) = self.vnode(request.fid)?;
        let from = usize::try_from(request.position).unwrap().min(all.len());
        let mut length = usize::try_from(data.asked()).unwrap().min(all.len() - from);
        if status.file_type == FileType::File {
            length = length.saturating_sub(self.state.lock().unwrap().short);
        }
        data.announce(length as u64).await?;
        data.send(all.slice(from..from + length)).await?;
        Ok(rxafs::fetch_data64::Reply {
            status,
            callback: promise(),
            vol_sync: VolSync::default(),
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
        let mut state = self.state.lock().unwrap();
        if let Some(code) = state.store_fails {
            return Err(code);
        }
        let (position, length) = (request.position, request.file_length);
        let (status, all) = state.vnodes.get_mut(&request.fid).ok_or(AbortCode(102))?;
        let place = usize::try_from(position).unwrap();
        let mut new = all.to_vec();
        new.truncate(usize::try_from(length).unwrap());
        new.resize(new.len().max(place + received.len()), 0);
        new[place..place + received.len()].copy_from_slice(&received);
        status.length = new.len() as u64;
        status.data_version.0 += 1;
        *all = new.into();
        let status = *status;
        state.stored.push((position, received));
        Ok(rxafs::store_data64::Reply {
            status,
            vol_sync: VolSync::default(),
        })
    }
}
