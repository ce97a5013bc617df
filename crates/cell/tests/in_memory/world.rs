//! A cell in memory: a volume location server and a file server on loopback, over real Rx.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use afar_cell::{Client, Config};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_net::{AbortCode, Endpoint, RxNull, ServerSecurity, Service, Udp};
use afar_rpc::{Caller, FetchSink, StoreSource, rxafs, rxafscb, vl};
use afar_types::{
    AfsUuid, CallBack, CallBacks, Capabilities, FetchStatus, Fid, FileName, FileType, NvldbEntry,
    SiteFlags, Statuses, StoreStatus, VldbFlags, VolSync, VolumeId,
};
use afar_xdr::CharArray;
use bytes::Bytes;

use crate::batches::Series;
use crate::oob::Scripted;
use crate::slow::Slow;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EEXIST: i32 = 17;
/// What a call ends with that was not answered: RX_CALL_DEAD.
pub(crate) const SILENT: AbortCode = AbortCode(-1);

/// A file, directory, symlink or mount point.
#[derive(Debug, Clone)]
pub(crate) struct Vnode {
    pub(crate) status: FetchStatus,
    pub(crate) data: Bytes,
    /// What every fetch of it is refused with.
    pub(crate) refusal: Option<i32>,
}

/// What the servers have, and how they behave.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Name, read-write and read-only number.
    pub(crate) volumes: Vec<(String, u32, Option<u32>)>,
    pub(crate) vnodes: BTreeMap<Fid, Vnode>,
    /// The entries of directories.
    pub(crate) entries: BTreeMap<Fid, BTreeMap<String, u32>>,
    /// No FetchData64 and no InlineBulkStatus.
    pub(crate) old_server: bool,
    /// No GetEntryByNameN.
    pub(crate) no_entry_n: bool,
    /// Where all volumes are, if not at 127.0.0.1.
    pub(crate) site: Option<Ipv4Addr>,
    /// More sites of the volumes' read-only members than 127.0.0.1.
    pub(crate) more_sites: Vec<Ipv4Addr>,
    /// No host but the first gets to be known.
    pub(crate) one_host: bool,
    /// How the file server gives data out of band, if it does.
    pub(crate) oob: Option<Arc<Scripted>>,
    /// What it remembers of batches, if it knows such.
    pub(crate) batches: Option<Series>,
}

/// Counts of what was asked.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) fetches: AtomicU64,
    pub(crate) at_a_time: AtomicUsize,
    pub(crate) most_at_a_time: AtomicUsize,
    pub(crate) given_up: AtomicU64,
    /// Refuse so many fetches with VBUSY.
    pub(crate) busy: AtomicU64,
    /// Send half of what so many fetches of files want, and no more.
    pub(crate) stuck: AtomicU64,
    /// After so many fetches the file has the next version; 0 never.
    pub(crate) change_after: AtomicU64,
    pub(crate) introduced: AtomicU64,
    /// Answer no question for a status for now.
    pub(crate) hold: AtomicBool,
    /// Questions for a status that were not answered because of that.
    pub(crate) held: AtomicU64,
    /// Changes done.
    pub(crate) changes: AtomicU64,
    /// Lose the answers to so many changes that are done.
    pub(crate) lost: AtomicU64,
    /// Do not even do so many changes, and do not answer.
    pub(crate) not_done: AtomicU64,
    /// Parts of files stored.
    pub(crate) stores: AtomicU64,
    /// Questions for data out of band.
    pub(crate) offers: AtomicU64,
    /// Batches that came.
    pub(crate) batches: AtomicU64,
    /// Forget all series of batches when an answer is lost.
    pub(crate) forgetful: AtomicBool,
    /// The host that asked first.
    pub(crate) first: OnceLock<SocketAddr>,
    /// What each host asked for.
    pub(crate) hosts: Mutex<BTreeMap<SocketAddr, Host>>,
}

/// What a host asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    pub(crate) statuses: u64,
    pub(crate) fetches: u64,
    /// Times it gave all its promises back.
    pub(crate) gave_back: u64,
    /// The identity it gave when its connection was new.
    pub(crate) uuid: Option<AfsUuid>,
    /// When it was answered what the server can do.
    pub(crate) answered: Vec<Instant>,
    /// When it first read.
    pub(crate) read: Option<Instant>,
}

/// Both services of the cell.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) counts: Arc<Counts>,
    endpoint: Endpoint,
}

/// A cell and a client of it.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) servers: Servers,
    pub(crate) client: Client,
}

impl World {
    /// Adds a volume with an empty root.
    pub(crate) fn volume(&mut self, name: &str, id: u32, read_only: Option<u32>) {
        self.volumes.push((name.to_owned(), id, read_only));
        for id in [Some(id), read_only].into_iter().flatten() {
            self.directory(Fid::root(VolumeId(id)), &[]);
        }
    }

    /// Adds or replaces a directory with these entries besides its own.
    pub(crate) fn directory(&mut self, fid: Fid, entries: &[(&str, u32)]) {
        let own = EntryId::new(fid.vnode.0, fid.uniquifier.0);
        let mut builder = DirectoryBuilder::new(own, own);
        for (name, vnode) in entries {
            builder
                .add(name.as_bytes(), EntryId::new(*vnode, 1))
                .unwrap();
        }
        self.add(fid, FileType::Directory, 0o755, builder.finish());
        let entries = entries.iter();
        let entries = entries.map(|(name, vnode)| ((*name).to_owned(), *vnode));
        self.entries.insert(fid, entries.collect());
    }

    /// Changes the entries of a directory.
    pub(crate) fn change(
        &mut self,
        fid: Fid,
        change: impl FnOnce(&mut BTreeMap<String, u32>) -> Result<(), i32>,
    ) -> Result<(), AbortCode> {
        let mut entries = self.entries.get(&fid).cloned().unwrap_or_default();
        change(&mut entries).map_err(AbortCode)?;
        let list: Vec<_> = entries
            .iter()
            .map(|(name, id)| (name.as_str(), *id))
            .collect();
        self.directory(fid, &list);
        Ok(())
    }

    /// A fid for something new: even vnodes are no directories.
    pub(crate) fn new_fid(&self, volume: VolumeId, directory: bool) -> Fid {
        let used = self.vnodes.keys().map(|fid| fid.vnode.0).max().unwrap_or(1);
        let even = used + 2 - used % 2;
        Fid::new(volume.0, if directory { even + 1 } else { even }, 1)
    }

    pub(crate) fn file(&mut self, fid: Fid, data: impl Into<Bytes>) {
        self.add(fid, FileType::File, 0o644, data);
    }

    pub(crate) fn link(&mut self, fid: Fid, mode: u32, target: &str) {
        self.add(fid, FileType::Symlink, mode, target.to_owned());
    }

    fn add(&mut self, fid: Fid, file_type: FileType, mode: u32, data: impl Into<Bytes>) {
        let data = data.into();
        let status = FetchStatus {
            interface_version: FetchStatus::INTERFACE_VERSION,
            file_type,
            link_count: 1,
            length: data.len() as u64,
            data_version: 1.into(),
            unix_mode_bits: mode,
            ..FetchStatus::default()
        };
        let vnode = Vnode {
            status,
            data,
            refusal: None,
        };
        self.vnodes.insert(fid, vnode);
    }
}

impl Cell {
    /// Starts the servers and a client; `adjust` changes the client's settings.
    pub(crate) fn start(world: World, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::start_secured(
            world,
            vec![Arc::new(RxNull)],
            vec![Arc::new(RxNull)],
            adjust,
        )
    }

    /// The same with servers of files and of locations that offer these classes.
    pub(crate) fn start_secured(
        world: World,
        files: Vec<Arc<dyn ServerSecurity>>,
        locations: Vec<Arc<dyn ServerSecurity>>,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        Self::start_at(bind(), world, files, locations, adjust)
    }

    /// The same with servers that know nothing of afar, at the end of a long way.
    pub(crate) fn start_far(
        world: World,
        delay: Duration,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = afar_net::Config::default();
        config.rx.extension = false;
        let socket = Slow {
            udp: Udp::bind(LOOPBACK, config.receive_buffer, config.send_buffer).unwrap(),
            delay,
            coming: VecDeque::new(),
        };
        let endpoint = Endpoint::with_socket(socket, config).unwrap();
        let open: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(RxNull)];
        Self::start_at(endpoint, world, open.clone(), open, adjust)
    }

    fn start_at(
        endpoint: Endpoint,
        world: World,
        files: Vec<Arc<dyn ServerSecurity>>,
        locations: Vec<Arc<dyn ServerSecurity>>,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let address = endpoint.local_addr();
        let servers = Servers {
            world: Arc::new(Mutex::new(world)),
            counts: Arc::default(),
            endpoint: endpoint.clone(),
        };
        serve_files(&endpoint, files, &servers);
        serve_locations(&endpoint, locations, &servers);
        let mut config = Config {
            cellservdb: Some("/dev/null".into()),
            vl_servers: vec![address],
            dns: false,
            file_port: address.port(),
            ..Config::default()
        };
        adjust(&mut config);
        let client = Client::new(bind(), config).unwrap();
        Self { servers, client }
    }
}

fn bind() -> Endpoint {
    Endpoint::bind(LOOPBACK, afar_net::Config::default()).unwrap()
}

fn serve_locations(endpoint: &Endpoint, security: Vec<Arc<dyn ServerSecurity>>, servers: &Servers) {
    let service = Service::new(vl::SERVICE, "locations");
    endpoint.serve_secured(service, security, vl::Server::new(servers.clone()));
}

fn serve_files(endpoint: &Endpoint, security: Vec<Arc<dyn ServerSecurity>>, servers: &Servers) {
    let service = Service::new(rxafs::SERVICE, "files");
    endpoint.serve_secured(service, security, rxafs::Server::new(servers.clone()));
}

impl Servers {
    /// The same files at another address of this machine. Counts are its own.
    pub(crate) fn also_at(&self, address: Ipv4Addr) -> Self {
        let port = self.endpoint.local_addr().port();
        let endpoint = Endpoint::bind((address, port).into(), afar_net::Config::default()).unwrap();
        let other = Self {
            world: Arc::clone(&self.world),
            counts: Arc::default(),
            endpoint: endpoint.clone(),
        };
        serve_files(&endpoint, vec![Arc::new(RxNull)], &other);
        other
    }

    /// They end, as when their process does.
    pub(crate) async fn stop(&self) {
        self.endpoint.shutdown().await;
    }

    /// They are started again where they were, and know no client.
    pub(crate) fn start_again(&self) -> Self {
        let endpoint = Endpoint::bind(self.address(), afar_net::Config::default()).unwrap();
        let again = Self {
            world: Arc::clone(&self.world),
            counts: Arc::default(),
            endpoint: endpoint.clone(),
        };
        serve_files(&endpoint, vec![Arc::new(RxNull)], &again);
        serve_locations(&endpoint, vec![Arc::new(RxNull)], &again);
        again
    }

    /// Where the location server answers.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    fn vnode(&self, fid: Fid) -> Result<Vnode, AbortCode> {
        let world = self.world.lock().unwrap();
        let known = world
            .volumes
            .iter()
            .any(|(_, id, read_only)| fid.volume.0 == *id || Some(fid.volume.0) == *read_only);
        if !known {
            return Err(AbortCode(103));
        }
        world.vnodes.get(&fid).cloned().ok_or(AbortCode(102))
    }

    /// What a real server does when it meets a client: asks who it is before it answers.
    async fn meet(&self, caller: &Caller) {
        self.counts.first.get_or_init(|| caller.peer);
        if self.counts.introduced.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let connection = self
            .endpoint
            .connect(caller.peer, rxafscb::SERVICE, Arc::new(RxNull));
        let back = rxafscb::Client::new(connection);
        let told = back.tell_me_about_yourself().await.unwrap();
        assert_eq!(told.capabilities[..], [1]);
        let uuid = told.host.uuid;
        back.probe_uuid(uuid).await.unwrap();
        back.init_call_back_state3(uuid).await.unwrap();
        assert_eq!(back.who_are_you().await.unwrap().host.uuid, uuid);
        back.probe().await.unwrap();
    }

    /// Counts what a host asks for.
    fn count(&self, caller: &Caller, count: impl FnOnce(&mut Host)) {
        let mut hosts = self.counts.hosts.lock().unwrap();
        count(hosts.entry(caller.peer).or_default());
    }

    async fn send(
        &self,
        fid: Fid,
        position: u64,
        data: &mut FetchSink<'_>,
    ) -> Result<FetchStatus, AbortCode> {
        let mut vnode = self.vnode(fid)?;
        if let Some(code) = vnode.refusal {
            return Err(AbortCode(code));
        }
        let counts = &self.counts;
        let busy = counts
            .busy
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if busy.is_ok() && vnode.status.file_type == FileType::File {
            return Err(AbortCode::VBUSY);
        }
        let fetches = counts.fetches.fetch_add(1, Ordering::SeqCst) + 1;
        let change_after = counts.change_after.load(Ordering::SeqCst);
        if vnode.status.file_type == FileType::File && change_after > 0 && fetches > change_after {
            vnode.status.data_version = 2.into();
            vnode.data = vnode.data.iter().rev().copied().collect();
        }
        let now = counts.at_a_time.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most_at_a_time.fetch_max(now, Ordering::SeqCst);
        // As long as a short link's round trip.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let all = vnode.data.len();
        let from = usize::try_from(position).unwrap().min(all);
        let length = usize::try_from(data.asked()).unwrap().min(all - from);
        let is_stuck = vnode.status.file_type == FileType::File && take(&counts.stuck);
        let sent = async {
            data.announce(length as u64).await?;
            if is_stuck {
                data.send(vnode.data.slice(from..from + length / 2)).await?;
                std::future::pending::<()>().await;
            }
            data.send(vnode.data.slice(from..from + length)).await
        };
        let sent = sent.await;
        counts.at_a_time.fetch_sub(1, Ordering::SeqCst);
        sent.map(|()| vnode.status)
    }
}

pub(crate) fn text(name: &FileName) -> String {
    String::from_utf8(name.as_bytes().to_vec()).unwrap()
}

fn take(counter: &AtomicU64) -> bool {
    let left = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    left.is_ok()
}

impl Servers {
    /// Does a change, or loses it or its answer.
    pub(crate) fn changing<T>(
        &self,
        change: impl FnOnce(&mut World) -> Result<T, AbortCode>,
    ) -> Result<T, AbortCode> {
        if take(&self.counts.not_done) {
            return Err(SILENT);
        }
        let done = change(&mut self.world.lock().unwrap())?;
        self.counts.changes.fetch_add(1, Ordering::SeqCst);
        if take(&self.counts.lost) {
            return Err(SILENT);
        }
        Ok(done)
    }

    /// Makes something with a name.
    fn make(
        &self,
        directory: Fid,
        name: &FileName,
        kind: FileType,
        attributes: StoreStatus,
        data: &[u8],
    ) -> Result<(Fid, FetchStatus), AbortCode> {
        self.changing(|world| {
            let fid = world.new_fid(directory.volume, kind == FileType::Directory);
            world.change(directory, |entries| {
                match entries.insert(text(name), fid.vnode.0) {
                    None => Ok(()),
                    Some(_) => Err(EEXIST),
                }
            })?;
            match kind {
                FileType::Directory => world.directory(fid, &[]),
                _ => world.add(fid, kind, attributes.unix_mode_bits, data.to_vec()),
            }
            let vnode = world.vnodes.get_mut(&fid).unwrap();
            vnode.status.client_mod_time = attributes.client_mod_time;
            Ok((fid, vnode.status))
        })
    }

    fn unlink(&self, directory: Fid, name: &FileName) -> Result<(), AbortCode> {
        self.changing(|world| {
            world.change(directory, |entries| {
                entries.remove(&text(name)).map(drop).ok_or(ENOENT)
            })
        })
    }

    async fn take_data(
        &self,
        fid: Fid,
        attributes: StoreStatus,
        place: u64,
        file_length: u64,
        data: &mut StoreSource<'_>,
    ) -> Result<FetchStatus, AbortCode> {
        let mut received = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            received.extend_from_slice(&chunk);
        }
        self.counts.stores.fetch_add(1, Ordering::SeqCst);
        if take(&self.counts.busy) {
            return Err(AbortCode::VBUSY);
        }
        let mut world = self.world.lock().unwrap();
        let vnode = world.vnodes.get_mut(&fid).ok_or(AbortCode(102))?;
        let place = usize::try_from(place).unwrap();
        let mut all = vnode.data.to_vec();
        all.truncate(usize::try_from(file_length).unwrap());
        all.resize(all.len().max(place + received.len()), 0);
        all[place..place + received.len()].copy_from_slice(&received);
        vnode.status.length = all.len() as u64;
        vnode.status.data_version.0 += 1;
        if attributes.mask & StoreStatus::SET_MODE != 0 {
            vnode.status.unix_mode_bits = attributes.unix_mode_bits;
        }
        vnode.data = all.into();
        Ok(vnode.status)
    }
}

impl vl::Service for Servers {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        request: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let world = self.world.lock().unwrap();
        if world.no_entry_n {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let asked = String::from_utf8(request.name.as_bytes().to_vec()).unwrap();
        let number = asked.parse::<u32>().ok();
        let found = world.volumes.iter().find(|(name, id, read_only)| {
            *name == asked || number.is_some_and(|n| n == *id || Some(n) == *read_only)
        });
        let (name, id, read_only) = found.ok_or(AbortCode(363_524))?;
        let mut entry = NvldbEntry {
            name: CharArray::new(name).unwrap(),
            n_servers: 1,
            volume_id: [VolumeId(*id), VolumeId(read_only.unwrap_or(0)), VolumeId(0)],
            ..NvldbEntry::default()
        };
        let site = world.site.unwrap_or(Ipv4Addr::LOCALHOST);
        entry.server_number[0] = u32::from_be_bytes(site.octets());
        let (flags, exists) = if read_only.is_some() {
            (0x6, 0x3000)
        } else {
            (0x4, 0x1000)
        };
        entry.server_flags[0] = SiteFlags(flags);
        entry.flags = VldbFlags(exists);
        if read_only.is_some() {
            for (place, site) in (1..).zip(&world.more_sites) {
                entry.server_number[place] = u32::from_be_bytes(site.octets());
                entry.server_flags[place] = SiteFlags(0x2);
                entry.n_servers += 1;
            }
        }
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

impl rxafs::Service for Servers {
    async fn batch(
        &self,
        _: &Caller,
        request: rxafs::batch::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::batch::Reply, AbortCode> {
        self.run_batch(request, data).await
    }

    async fn oob_offer(
        &self,
        _: &Caller,
        request: rxafs::oob_offer::Request,
    ) -> Result<rxafs::oob_offer::Reply, AbortCode> {
        self.counts.offers.fetch_add(1, Ordering::SeqCst);
        let oob = self.world.lock().unwrap().oob.clone();
        let oob = oob.ok_or(AbortCode::RXGEN_OPCODE)?;
        oob.offer(&request.question)
    }

    async fn fetch_status(
        &self,
        caller: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        self.meet(caller).await;
        self.count(caller, |host| host.statuses += 1);
        let hold = || self.counts.hold.load(Ordering::SeqCst);
        self.counts
            .held
            .fetch_add(u64::from(hold()), Ordering::SeqCst);
        while hold() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(rxafs::fetch_status::Reply {
            status: self.vnode(request.fid)?.status,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        })
    }

    async fn inline_bulk_status(
        &self,
        caller: &Caller,
        request: rxafs::inline_bulk_status::Request,
    ) -> Result<rxafs::inline_bulk_status::Reply, AbortCode> {
        self.meet(caller).await;
        if self.world.lock().unwrap().old_server {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let status = |fid: &Fid| match self.vnode(*fid) {
            Ok(Vnode {
                refusal: Some(code),
                ..
            })
            | Err(AbortCode(code)) => FetchStatus {
                interface_version: 1,
                error_code: code,
                ..FetchStatus::default()
            },
            Ok(vnode) => vnode.status,
        };
        let statuses: Vec<_> = request.fids.iter().map(status).collect();
        Ok(rxafs::inline_bulk_status::Reply {
            callbacks: CallBacks::new(vec![CallBack::default(); statuses.len()]).unwrap(),
            statuses: Statuses::new(statuses).unwrap(),
            vol_sync: VolSync::default(),
        })
    }

    async fn fetch_data64(
        &self,
        caller: &Caller,
        request: rxafs::fetch_data64::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data64::Reply, AbortCode> {
        self.meet(caller).await;
        self.count(caller, |host| {
            host.fetches += 1;
            host.read.get_or_insert_with(Instant::now);
        });
        if self.world.lock().unwrap().old_server {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let position = u64::try_from(request.position).unwrap();
        Ok(rxafs::fetch_data64::Reply {
            status: self.send(request.fid, position, data).await?,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        })
    }

    async fn fetch_data(
        &self,
        caller: &Caller,
        request: rxafs::fetch_data::Request,
        data: &mut FetchSink<'_>,
    ) -> Result<rxafs::fetch_data::Reply, AbortCode> {
        self.meet(caller).await;
        let position = u64::try_from(request.position).unwrap();
        Ok(rxafs::fetch_data::Reply {
            status: self.send(request.fid, position, data).await?,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        })
    }

    async fn store_data64(
        &self,
        caller: &Caller,
        request: rxafs::store_data64::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::store_data64::Reply, AbortCode> {
        self.meet(caller).await;
        if self.world.lock().unwrap().old_server {
            return Err(AbortCode::RXGEN_OPCODE);
        }
        let (position, length) = (request.position, request.file_length);
        let stored = self.take_data(request.fid, request.attributes, position, length, data);
        Ok(rxafs::store_data64::Reply {
            status: stored.await?,
            vol_sync: VolSync::default(),
        })
    }

    async fn store_data(
        &self,
        caller: &Caller,
        request: rxafs::store_data::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::store_data::Reply, AbortCode> {
        self.meet(caller).await;
        let (position, length) = (request.position.into(), request.file_length.into());
        let stored = self.take_data(request.fid, request.attributes, position, length, data);
        Ok(rxafs::store_data::Reply {
            status: stored.await?,
            vol_sync: VolSync::default(),
        })
    }

    async fn create_file(
        &self,
        _: &Caller,
        request: rxafs::create_file::Request,
    ) -> Result<rxafs::create_file::Reply, AbortCode> {
        let directory = request.directory;
        let kind = FileType::File;
        let (fid, status) = self.make(directory, &request.name, kind, request.attributes, b"")?;
        Ok(rxafs::create_file::Reply {
            fid,
            status,
            directory_status: self.vnode(directory)?.status,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        })
    }

    async fn make_dir(
        &self,
        _: &Caller,
        request: rxafs::make_dir::Request,
    ) -> Result<rxafs::make_dir::Reply, AbortCode> {
        let directory = request.directory;
        let kind = FileType::Directory;
        let (fid, status) = self.make(directory, &request.name, kind, request.attributes, b"")?;
        Ok(rxafs::make_dir::Reply {
            fid,
            status,
            directory_status: self.vnode(directory)?.status,
            callback: CallBack::default(),
            vol_sync: VolSync::default(),
        })
    }

    async fn symlink(
        &self,
        _: &Caller,
        request: rxafs::symlink::Request,
    ) -> Result<rxafs::symlink::Reply, AbortCode> {
        let (directory, target) = (request.directory, request.target.as_bytes());
        let kind = FileType::Symlink;
        let made = self.make(directory, &request.name, kind, request.attributes, target);
        let (fid, status) = made?;
        Ok(rxafs::symlink::Reply {
            fid,
            status,
            directory_status: self.vnode(directory)?.status,
            vol_sync: VolSync::default(),
        })
    }

    async fn remove_file(
        &self,
        _: &Caller,
        request: rxafs::remove_file::Request,
    ) -> Result<rxafs::remove_file::Reply, AbortCode> {
        self.unlink(request.directory, &request.name)?;
        Ok(rxafs::remove_file::Reply {
            directory_status: self.vnode(request.directory)?.status,
            vol_sync: VolSync::default(),
        })
    }

    async fn rename(
        &self,
        _: &Caller,
        request: rxafs::rename::Request,
    ) -> Result<rxafs::rename::Reply, AbortCode> {
        let (from, to) = (request.old_directory, request.new_directory);
        self.changing(|world| {
            let old = text(&request.old_name);
            let vnode = world.entries.get(&from).and_then(|all| all.get(&old));
            let vnode = *vnode.ok_or(AbortCode(ENOENT))?;
            world.change(from, |entries| {
                entries.remove(&old);
                Ok(())
            })?;
            world.change(to, |entries| {
                entries.insert(text(&request.new_name), vnode);
                Ok(())
            })
        })?;
        Ok(rxafs::rename::Reply {
            old_directory_status: self.vnode(from)?.status,
            new_directory_status: self.vnode(to)?.status,
            vol_sync: VolSync::default(),
        })
    }

    async fn get_capabilities(
        &self,
        caller: &Caller,
        _: rxafs::get_capabilities::Request,
    ) -> Result<rxafs::get_capabilities::Reply, AbortCode> {
        self.meet(caller).await;
        let is_first = self.counts.first.get() == Some(&caller.peer);
        if self.world.lock().unwrap().one_host && !is_first {
            std::future::pending::<()>().await;
        }
        let connection = self
            .endpoint
            .connect(caller.peer, rxafscb::SERVICE, Arc::new(RxNull));
        let told = rxafscb::Client::new(connection)
            .tell_me_about_yourself()
            .await
            .unwrap();
        self.count(caller, |host| {
            host.uuid = Some(told.host.uuid);
            host.answered.push(Instant::now());
        });
        Ok(rxafs::get_capabilities::Reply {
            capabilities: Capabilities::new(vec![]).unwrap(),
        })
    }

    async fn give_up_all_call_backs(
        &self,
        caller: &Caller,
        _: rxafs::give_up_all_call_backs::Request,
    ) -> Result<rxafs::give_up_all_call_backs::Reply, AbortCode> {
        self.count(caller, |host| host.gave_back += 1);
        self.counts.given_up.fetch_add(1, Ordering::SeqCst);
        Ok(rxafs::give_up_all_call_backs::Reply {})
    }
}
