//! A cell in memory: a volume location server and a file server on loopback, over real Rx.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cell::{Client, Config};
use afar_dir::{DirectoryBuilder, EntryId};
use afar_net::{AbortCode, Endpoint, RxNull};
use afar_rpc::{Caller, FetchSink, rxafs, rxafscb, vl};
use afar_types::{
    CallBack, CallBacks, FetchStatus, Fid, FileType, NvldbEntry, SiteFlags, Statuses, VldbFlags,
    VolSync, VolumeId,
};
use afar_xdr::CharArray;
use bytes::Bytes;

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
    /// No FetchData64 and no InlineBulkStatus.
    pub(crate) old_server: bool,
    /// No GetEntryByNameN.
    pub(crate) no_entry_n: bool,
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
    /// After so many fetches the file has the next version; 0 never.
    pub(crate) change_after: AtomicU64,
    pub(crate) introduced: AtomicU64,
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
        let bind = || {
            let loopback = "127.0.0.1:0".parse().unwrap();
            Endpoint::bind(loopback, afar_net::Config::default()).unwrap()
        };
        let endpoint = bind();
        let address = endpoint.local_addr();
        let servers = Servers {
            world: Arc::new(Mutex::new(world)),
            counts: Arc::default(),
            endpoint: endpoint.clone(),
        };
        endpoint.serve(rxafs::SERVICE, "files", rxafs::Server::new(servers.clone()));
        endpoint.serve(vl::SERVICE, "locations", vl::Server::new(servers.clone()));
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

impl Servers {
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
        let sent = async {
            data.announce(length as u64).await?;
            data.send(vnode.data.slice(from..from + length)).await
        };
        let sent = sent.await;
        counts.at_a_time.fetch_sub(1, Ordering::SeqCst);
        sent.map(|()| vnode.status)
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
        entry.server_number[0] = u32::from_be_bytes([127, 0, 0, 1]);
        let (flags, exists) = if read_only.is_some() {
            (0x6, 0x3000)
        } else {
            (0x4, 0x1000)
        };
        entry.server_flags[0] = SiteFlags(flags);
        entry.flags = VldbFlags(exists);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

impl rxafs::Service for Servers {
    async fn fetch_status(
        &self,
        caller: &Caller,
        request: rxafs::fetch_status::Request,
    ) -> Result<rxafs::fetch_status::Reply, AbortCode> {
        self.meet(caller).await;
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

    async fn give_up_all_call_backs(
        &self,
        _: &Caller,
        _: rxafs::give_up_all_call_backs::Request,
    ) -> Result<rxafs::give_up_all_call_backs::Reply, AbortCode> {
        self.counts.given_up.fetch_add(1, Ordering::SeqCst);
        Ok(rxafs::give_up_all_call_backs::Reply {})
    }
}
