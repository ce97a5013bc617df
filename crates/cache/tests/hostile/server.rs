//! A file server that does what it is told: lies, breaks promises before it has given them, fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cache::{Cache, CacheConfig, Root};
use afar_cell::{Client, Config};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_net::{AbortCode, Endpoint, RxNull};
use afar_rpc::{Caller, FetchSink, StoreSource, rxafs, rxafscb, vl};
use afar_types::{
    CallBack, CallBackType, CallBacks, FetchStatus, Fid, Fids, FileType, NvldbEntry, Rights,
    SiteFlags, Statuses, UnixTime, VldbFlags, VolSync, VolumeId,
};
use afar_xdr::CharArray;
use bytes::Bytes;
use tokio::sync::Notify;

pub(crate) const VOLUME: u32 = 10;
pub(crate) const ROOT: Fid = Fid::root(VolumeId(VOLUME));

pub(crate) fn fid(vnode: u32) -> Fid {
    Fid::new(VOLUME, vnode, 1)
}

/// When a store ends in failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before any data is taken.
    Begin,
    /// When some of it was.
    Middle,
    /// When all of it was.
    End,
    /// When it is done, but for the answer.
    Answer,
}

/// What the server has, and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) vnodes: BTreeMap<Fid, (FetchStatus, Bytes)>,
    /// Break the promise on this file before the answer that gives it leaves.
    pub(crate) break_first: Option<Fid>,
    /// The next answer to a question for this file's status that waits on its way.
    pub(crate) delayed: Option<(Fid, Arc<Delay>)>,
    /// Bytes left out at the end of each fetch of a file.
    pub(crate) short: usize,
    /// Whether the volume is a read-only one, with sites at 127.0.0.1 and 127.0.0.2.
    pub(crate) read_only: bool,
    /// When the volume was made, as replies say.
    pub(crate) made: UnixTime,
    /// Seconds that promises are given for, if not an hour.
    pub(crate) promises_for: Option<u32>,
    /// What everything is refused with.
    pub(crate) refuses: Option<AbortCode>,
    /// What storing ends with, and when.
    pub(crate) store_fails: Option<(Phase, AbortCode)>,
    /// Bytes of the stores that went well.
    pub(crate) stored: Vec<(u64, Vec<u8>)>,
    /// Those of its caches.
    pub(crate) directories: Vec<tempfile::TempDir>,
}

/// An answer on its way.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// Told when the server has made it.
    pub(crate) made: Notify,
    /// Told when it may go on.
    pub(crate) ended: Notify,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) statuses: Arc<AtomicU64>,
    /// Fetches of data.
    pub(crate) fetches: Arc<AtomicU64>,
    /// The client that asked for a status last.
    pub(crate) peer: Arc<Mutex<Option<std::net::SocketAddr>>>,
    endpoint: Endpoint,
}

fn bind() -> Endpoint {
    let mut config = afar_net::Config::default();
    config.rx.dead_time = DEAD_TIME;
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// How long a peer may be silent.
const DEAD_TIME: Duration = Duration::from_secs(1);

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
    fn promise(&self) -> CallBack {
        CallBack {
            version: 1,
            expires_in: self.state.lock().unwrap().promises_for.unwrap_or(3600),
            kind: CallBackType::Shared,
        }
    }

    /// The same at another address, at the same port.
    pub(crate) async fn elsewhere(&self, address: &str) -> Self {
        let port = self.endpoint.local_addr().port();
        let address = format!("{address}:{port}").parse().unwrap();
        let endpoint = Endpoint::bind(address, afar_net::Config::default()).unwrap();
        let other = Self {
            statuses: Arc::default(),
            fetches: Arc::default(),
            endpoint: endpoint.clone(),
            ..self.clone()
        };
        endpoint.serve(rxafs::SERVICE, "files", rxafs::Server::new(other.clone()));
        endpoint.stats().await;
        other
    }

    fn sync(&self) -> VolSync {
        VolSync {
            creation_date: self.state.lock().unwrap().made,
            ..VolSync::default()
        }
    }

    /// Is there no more.
    pub(crate) async fn end(&self) {
        self.endpoint.shutdown().await;
    }

    fn vnode(&self, fid: Fid) -> Result<(FetchStatus, Bytes), AbortCode> {
        let state = self.state.lock().unwrap();
        if let Some(code) = state.refuses {
            return Err(code);
        }
        state.vnodes.get(&fid).cloned().ok_or(AbortCode(102))
    }

    /// Whether a store is to fail now.
    fn check(&self, phase: Phase) -> Result<(), AbortCode> {
        let fails = self.state.lock().unwrap().store_fails;
        match fails.filter(|(at, _)| *at == phase) {
            Some((_, code)) => Err(code),
            None => Ok(()),
        }
    }

    /// Tells a client that promises are broken: those on these files, or all.
    pub(crate) async fn tell(&self, client: std::net::SocketAddr, broken: Option<Vec<Fid>>) {
        let connection = self
            .endpoint
            .connect(client, rxafscb::SERVICE, Arc::new(RxNull));
        let client = rxafscb::Client::new(connection);
        match broken {
            Some(fids) => {
                let fids = Fids::new(fids).unwrap();
                client.call_back(fids, CallBacks::default()).await.unwrap();
            }
            None => {
                client.init_call_back_state().await.unwrap();
            }
        }
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
        fetches: Arc::default(),
        peer: Arc::default(),
        endpoint: endpoint.clone(),
    };
    endpoint.serve(rxafs::SERVICE, "files", rxafs::Server::new(server.clone()));
    endpoint.serve(vl::SERVICE, "locations", vl::Server::new(server.clone()));
    endpoint.stats().await;
    let cache = beside_with(&server, adjust).await;
    (server, cache)
}

/// Another cache of the same server.
pub(crate) async fn beside(server: &Server) -> Cache {
    beside_with(server, |_| {}).await
}

/// One with other settings.
pub(crate) async fn beside_with(server: &Server, adjust: impl FnOnce(&mut CacheConfig)) -> Cache {
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
        if self.state.lock().unwrap().read_only {
            let entry = read_only_entry();
            return Ok(vl::get_entry_by_name_n::Reply { entry });
        }
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

/// The volume as a read-only one of another, at two sites.
fn read_only_entry() -> NvldbEntry {
    let mut entry = NvldbEntry {
        name: CharArray::new("root.cell").unwrap(),
        n_servers: 2,
        volume_id: [VolumeId(VOLUME - 1), VolumeId(VOLUME), VolumeId(0)],
        flags: VldbFlags(0x2000),
        ..NvldbEntry::default()
    };
    for (place, last) in [1, 2].into_iter().enumerate() {
        entry.server_number[place] = u32::from_be_bytes([127, 0, 0, last]);
        entry.server_flags[place] = SiteFlags(2);
    }
    entry
}

impl rxafs::Service for Server {
    async fn fetch_status(
        &self,
        caller: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        *self.peer.lock().unwrap() = Some(caller.peer);
        let (status, _) = self.vnode(request.fid)?;
        let delayed = {
            let mut state = self.state.lock().unwrap();
            state.delayed.take_if(|(fid, _)| *fid == request.fid)
        };
        if let Some((_, delay)) = delayed {
            delay.made.notify_one();
            delay.ended.notified().await;
        }
        let first = self.state.lock().unwrap().break_first;
        if first == Some(request.fid) {
            self.tell(caller.peer, Some(vec![request.fid])).await;
        }
        Ok(rxafs::fetch_status::Reply {
            status,
            callback: self.promise(),
            vol_sync: self.sync(),
        })
    }

    async fn set_lock(
        &self,
        _: &Caller,
        _: rxafs::set_lock::Request,
    ) -> Result<rxafs::set_lock::Reply, AbortCode> {
        let vol_sync = self.sync();
        Ok(rxafs::set_lock::Reply { vol_sync })
    }

    async fn release_lock(
        &self,
        _: &Caller,
        _: rxafs::release_lock::Request,
    ) -> Result<rxafs::release_lock::Reply, AbortCode> {
        let vol_sync = self.sync();
        Ok(rxafs::release_lock::Reply { vol_sync })
    }

    async fn inline_bulk_status(
        &self,
        caller: &Caller,
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
        let first = self.state.lock().unwrap().break_first;
        if let Some(first) = first.filter(|first| request.fids.contains(first)) {
            self.tell(caller.peer, Some(vec![first])).await;
        }
        Ok(rxafs::inline_bulk_status::Reply {
            callbacks: CallBacks::new(vec![self.promise(); statuses.len()]).unwrap(),
            statuses: Statuses::new(statuses).unwrap(),
            vol_sync: self.sync(),
        })
    }

    async fn fetch_data64(
        &self,
        _: &Caller,
        request: rxafs::fetch_data64::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
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
            callback: self.promise(),
            vol_sync: self.sync(),
        })
    }

    async fn store_data64(
        &self,
        _: &Caller,
        request: rxafs::store_data64::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::store_data64::Reply, AbortCode> {
        self.check(Phase::Begin)?;
        let mut received = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            received.extend_from_slice(&chunk);
            self.check(Phase::Middle)?;
        }
        self.check(Phase::End)?;
        let mut state = self.state.lock().unwrap();
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
        drop(state);
        self.check(Phase::Answer)?;
        Ok(rxafs::store_data64::Reply {
            status,
            vol_sync: self.sync(),
        })
    }
}
