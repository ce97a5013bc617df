//! A cell in memory: a location server and two volume servers on loopback, over real Rx.
//!
//! The volume servers keep the rules that `vos` depends on: one transaction a volume, volumes that
//! are doomed until somebody says otherwise, VNOVOL for what is not there. Any one of their calls
//! can be made to fail.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use afar_admin::vos::{Event, ServerPartition, Vos, Watch};
use afar_admin::{Security, Servers};
use afar_net::{AbortCode, Config, Endpoint};
use afar_rpc::{Caller, DownloadSink, UploadSource, afsvol, vl};
use afar_types::{
    NvldbEntry, PartitionId, TransactionFlags, TransactionId, UnixTime, VldbFlags, VolintInfo,
    VolserStatus, VolumeId,
};
use afar_xdr::{CharArray, List, XdrString};

pub(crate) const VNOVOL: i32 = 103;
pub(crate) const VL_NOENT: i32 = 363_524;
pub(crate) const VL_ENTRYLOCKED: i32 = 363_541;
pub(crate) const VL_RERELEASE: i32 = 363_544;
pub(crate) const VOLSERVOLBUSY: i32 = 1_492_325_133;
/// What a call that is made to fail fails with.
pub(crate) const BROKEN: i32 = 1_492_325_131;
const ENOENT: i32 = 2;
const ENODEV: i32 = 19;
const OPERATIONS: u32 = 0x1f0;

/// A volume on a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) parent: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) created: u32,
    pub(crate) updated: u32,
    pub(crate) flags: u32,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now: u32,
    pub(crate) volumes: BTreeMap<(Ipv4Addr, u32, u32), Volume>,
    pub(crate) entries: Vec<NvldbEntry>,
    /// Entries of which a release was not finished.
    pub(crate) unfinished: Vec<u32>,
    pub(crate) max_id: u32,
    transactions: BTreeMap<i32, (Ipv4Addr, u32, u32)>,
    next_transaction: i32,
    /// Calls to volume servers so far, by name.
    pub(crate) calls: Vec<(&'static str, Ipv4Addr)>,
    /// The call that fails.
    pub(crate) broken: Option<usize>,
    /// Servers that refuse to be sent dumps.
    pub(crate) full: Vec<Ipv4Addr>,
}

pub(crate) type Shared = Arc<Mutex<World>>;
type Answer<T> = Result<T, AbortCode>;

fn code<T>(code: i32) -> Answer<T> {
    Err(AbortCode(code))
}

impl World {
    pub(crate) fn open(&self) -> usize {
        self.transactions.len()
    }

    fn entry(&mut self, id: u32) -> Answer<&mut NvldbEntry> {
        let fits = |entry: &&mut NvldbEntry| entry.volume_id.contains(&VolumeId(id));
        self.entries
            .iter_mut()
            .find(fits)
            .ok_or(AbortCode(VL_NOENT))
    }

    fn at(&self, transaction: TransactionId) -> Answer<(Ipv4Addr, u32, u32)> {
        let known = self.transactions.get(&transaction.0);
        known.copied().ok_or(AbortCode(ENOENT))
    }

    fn volume(&mut self, transaction: TransactionId) -> Answer<&mut Volume> {
        let at = self.at(transaction)?;
        self.volumes.get_mut(&at).ok_or(AbortCode(VNOVOL))
    }

    fn begin(&mut self, at: (Ipv4Addr, u32, u32)) -> Answer<TransactionId> {
        if self.transactions.values().any(|held| *held == at) {
            return code(VOLSERVOLBUSY);
        }
        self.next_transaction += 1;
        self.transactions.insert(self.next_transaction, at);
        Ok(TransactionId(self.next_transaction))
    }
}

#[derive(Clone)]
struct Locations(Shared);

impl vl::Service for Locations {
    async fn get_entry_by_id_n(
        &self,
        _: &Caller,
        request: vl::get_entry_by_id_n::Request,
    ) -> Answer<vl::get_entry_by_id_n::Reply> {
        let entry = self.0.lock().unwrap().entry(request.volume.0)?.clone();
        Ok(vl::get_entry_by_id_n::Reply { entry })
    }

    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        request: vl::get_entry_by_name_n::Request,
    ) -> Answer<vl::get_entry_by_name_n::Reply> {
        let world = self.0.lock().unwrap();
        let mut entries = world.entries.iter();
        let entry = entries.find(|entry| entry.name.as_bytes() == request.name.as_bytes());
        let entry = entry.ok_or(AbortCode(VL_NOENT))?.clone();
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }

    async fn get_new_volume_id(
        &self,
        _: &Caller,
        request: vl::get_new_volume_id::Request,
    ) -> Answer<vl::get_new_volume_id::Reply> {
        let mut world = self.0.lock().unwrap();
        let first = VolumeId(world.max_id);
        world.max_id += request.count;
        Ok(vl::get_new_volume_id::Reply { first })
    }

    async fn set_lock(
        &self,
        _: &Caller,
        request: vl::set_lock::Request,
    ) -> Answer<vl::set_lock::Reply> {
        let mut world = self.0.lock().unwrap();
        let entry = world.entry(request.volume.0)?;
        if entry.flags.0 & OPERATIONS != 0 {
            return code(VL_ENTRYLOCKED);
        }
        entry.flags.0 |= request.operation.cast_unsigned();
        let id = entry.volume_id[0].0;
        if world.unfinished.contains(&id) {
            return code(VL_RERELEASE);
        }
        Ok(vl::set_lock::Reply {})
    }

    async fn release_lock(
        &self,
        _: &Caller,
        request: vl::release_lock::Request,
    ) -> Answer<vl::release_lock::Reply> {
        let mut world = self.0.lock().unwrap();
        world.entry(request.volume.0)?.flags.0 &= !OPERATIONS;
        Ok(vl::release_lock::Reply {})
    }

    async fn create_entry_n(
        &self,
        _: &Caller,
        request: vl::create_entry_n::Request,
    ) -> Answer<vl::create_entry_n::Reply> {
        self.0.lock().unwrap().entries.push(request.entry);
        Ok(vl::create_entry_n::Reply {})
    }

    async fn delete_entry(
        &self,
        _: &Caller,
        request: vl::delete_entry::Request,
    ) -> Answer<vl::delete_entry::Reply> {
        let mut world = self.0.lock().unwrap();
        world
            .entries
            .retain(|entry| !entry.volume_id.contains(&request.volume));
        Ok(vl::delete_entry::Reply {})
    }

    async fn replace_entry_n(
        &self,
        _: &Caller,
        request: vl::replace_entry_n::Request,
    ) -> Answer<vl::replace_entry_n::Reply> {
        let mut world = self.0.lock().unwrap();
        let entry = world.entry(request.volume.0)?;
        let held = entry.flags.0 & OPERATIONS;
        *entry = request.entry;
        entry.flags.0 &= !OPERATIONS;
        let id = entry.volume_id[0].0;
        match request.release {
            0 => entry.flags.0 |= held,
            7 => world.unfinished.retain(|other| *other != id),
            // Only the time: the operation is seen to be unfinished by the next one.
            _ => world.unfinished.push(id),
        }
        Ok(vl::replace_entry_n::Reply {})
    }
}

#[derive(Clone)]
struct Volumes {
    world: Shared,
    address: Ipv4Addr,
}

impl Volumes {
    /// Counts a call, which may be the one that fails.
    fn call(&self, name: &'static str) -> Answer<std::sync::MutexGuard<'_, World>> {
        let mut world = self.world.lock().unwrap();
        world.calls.push((name, self.address));
        world.now += 1;
        if world.broken == Some(world.calls.len() - 1) {
            return code(BROKEN);
        }
        Ok(world)
    }
}

impl afsvol::Service for Volumes {
    async fn create_volume(
        &self,
        _: &Caller,
        request: afsvol::create_volume::Request,
    ) -> Answer<afsvol::create_volume::Reply> {
        let mut world = self.call("create_volume")?;
        let at = (self.address, request.partition.0, request.volume.0);
        assert!(!world.volumes.contains_key(&at), "{at:?} exists");
        let volume = Volume {
            name: request.name.to_string(),
            kind: request.kind,
            parent: request.parent.0,
            created: world.now,
            flags: 3,
            ..Volume::default()
        };
        world.volumes.insert(at, volume);
        let transaction = world.begin(at)?;
        Ok(afsvol::create_volume::Reply {
            volume: request.volume,
            transaction,
        })
    }

    async fn delete_volume(
        &self,
        _: &Caller,
        request: afsvol::delete_volume::Request,
    ) -> Answer<afsvol::delete_volume::Reply> {
        let mut world = self.call("delete_volume")?;
        let at = world.at(request.transaction)?;
        world.volumes.remove(&at);
        Ok(afsvol::delete_volume::Reply {})
    }

    async fn trans_create(
        &self,
        _: &Caller,
        request: afsvol::trans_create::Request,
    ) -> Answer<afsvol::trans_create::Reply> {
        let mut world = self.call("trans_create")?;
        let at = (self.address, request.partition.0, request.volume.0);
        if !world.volumes.contains_key(&at) {
            return code(VNOVOL);
        }
        let transaction = world.begin(at)?;
        Ok(afsvol::trans_create::Reply { transaction })
    }

    async fn end_trans(
        &self,
        _: &Caller,
        request: afsvol::end_trans::Request,
    ) -> Answer<afsvol::end_trans::Reply> {
        let failed = self.call("end_trans").map(|_| ());
        let mut world = self.world.lock().unwrap();
        let ended = world.transactions.remove(&request.transaction.0);
        // Only the answer is lost.
        failed?;
        ended.ok_or(AbortCode(ENOENT))?;
        Ok(afsvol::end_trans::Reply { return_code: 0 })
    }

    async fn set_flags(
        &self,
        _: &Caller,
        request: afsvol::set_flags::Request,
    ) -> Answer<afsvol::set_flags::Reply> {
        let mut world = self.call("set_flags")?;
        world.volume(request.transaction)?.flags = request.flags.0;
        Ok(afsvol::set_flags::Reply {})
    }

    async fn set_info(
        &self,
        _: &Caller,
        request: afsvol::set_info::Request,
    ) -> Answer<afsvol::set_info::Reply> {
        let mut world = self.call("set_info")?;
        let volume = world.volume(request.transaction)?;
        if let Some(UnixTime(time)) = request.changes.update_date {
            volume.updated = time;
        }
        Ok(afsvol::set_info::Reply {})
    }

    async fn set_date(
        &self,
        _: &Caller,
        request: afsvol::set_date::Request,
    ) -> Answer<afsvol::set_date::Reply> {
        let mut world = self.call("set_date")?;
        world.volume(request.transaction)?.created = request.creation_date.0;
        Ok(afsvol::set_date::Reply {})
    }

    async fn set_ids_types(
        &self,
        _: &Caller,
        request: afsvol::set_ids_types::Request,
    ) -> Answer<afsvol::set_ids_types::Reply> {
        let mut world = self.call("set_ids_types")?;
        let volume = world.volume(request.transaction)?;
        volume.name = request.name.to_string();
        volume.kind = request.kind;
        volume.parent = request.parent.0;
        Ok(afsvol::set_ids_types::Reply {})
    }

    async fn set_forwarding(
        &self,
        _: &Caller,
        request: afsvol::set_forwarding::Request,
    ) -> Answer<afsvol::set_forwarding::Reply> {
        let mut world = self.call("set_forwarding")?;
        assert_eq!(request.new_site.to_ne_bytes()[0], 127);
        world.volume(request.transaction)?;
        Ok(afsvol::set_forwarding::Reply {})
    }

    async fn clone(
        &self,
        _: &Caller,
        request: afsvol::clone::Request,
    ) -> Answer<afsvol::clone::Reply> {
        let mut world = self.call("clone")?;
        let (server, partition, parent) = world.at(request.transaction)?;
        let mut clone = world.volume(request.transaction)?.clone();
        clone.name = request.name.to_string();
        clone.kind = request.kind;
        clone.parent = parent;
        clone.created = world.now;
        clone.flags = 3;
        world
            .volumes
            .insert((server, partition, request.volume.0), clone);
        Ok(afsvol::clone::Reply {
            volume: request.volume,
        })
    }

    async fn re_clone(
        &self,
        _: &Caller,
        request: afsvol::re_clone::Request,
    ) -> Answer<afsvol::re_clone::Reply> {
        let mut world = self.call("re_clone")?;
        let (server, partition, _) = world.at(request.transaction)?;
        let from = world.volume(request.transaction)?.clone();
        let now = world.now;
        let at = (server, partition, request.clone_id.0);
        let clone = world.volumes.get_mut(&at).ok_or(AbortCode(VNOVOL))?;
        clone.data = from.data;
        clone.updated = from.updated;
        clone.created = now;
        clone.flags = 0;
        Ok(afsvol::re_clone::Reply {})
    }

    async fn get_name(
        &self,
        _: &Caller,
        request: afsvol::get_name::Request,
    ) -> Answer<afsvol::get_name::Reply> {
        let mut world = self.call("get_name")?;
        let name = world.volume(request.transaction)?.name.clone();
        let name = XdrString::new(name.into_bytes()).unwrap();
        Ok(afsvol::get_name::Reply { name })
    }

    async fn get_status(
        &self,
        _: &Caller,
        request: afsvol::get_status::Request,
    ) -> Answer<afsvol::get_status::Reply> {
        let mut world = self.call("get_status")?;
        let volume = world.volume(request.transaction)?;
        let status = VolserStatus {
            creation_date: UnixTime(volume.created),
            update_date: UnixTime(volume.updated),
            ..VolserStatus::default()
        };
        Ok(afsvol::get_status::Reply { status })
    }

    async fn forward(
        &self,
        _: &Caller,
        request: afsvol::forward::Request,
    ) -> Answer<afsvol::forward::Reply> {
        let mut world = self.call("forward")?;
        send(
            &mut world,
            request.transaction,
            request.destination_transaction,
        )?;
        Ok(afsvol::forward::Reply {})
    }

    async fn forward_multiple(
        &self,
        _: &Caller,
        request: afsvol::forward_multiple::Request,
    ) -> Answer<afsvol::forward_multiple::Reply> {
        let mut world = self.call("forward_multiple")?;
        let sent = request.destinations.iter().map(|to| {
            let sent = send(&mut world, request.transaction, to.transaction);
            sent.err().map_or(0, |code| code.0)
        });
        let results = List::new(sent.collect::<Vec<_>>()).unwrap();
        Ok(afsvol::forward_multiple::Reply { results })
    }

    async fn list_one_volume(
        &self,
        _: &Caller,
        request: afsvol::list_one_volume::Request,
    ) -> Answer<afsvol::list_one_volume::Reply> {
        let world = self.call("list_one_volume")?;
        let at = (self.address, request.partition.0, request.volume.0);
        let volume = world.volumes.get(&at).ok_or(AbortCode(ENODEV))?;
        let info = VolintInfo {
            name: CharArray::new(&volume.name).unwrap(),
            volume: request.volume,
            kind: volume.kind,
            parent_id: VolumeId(volume.parent),
            status: VolintInfo::OK,
            in_use: volume.flags & TransactionFlags::OUT_OF_SERVICE.0 == 0,
            creation_date: UnixTime(volume.created),
            update_date: UnixTime(volume.updated),
            ..VolintInfo::default()
        };
        let volumes = List::new(vec![info]).unwrap();
        Ok(afsvol::list_one_volume::Reply { volumes })
    }

    async fn dump(
        &self,
        _: &Caller,
        request: afsvol::dump::Request,
        data: &mut DownloadSink<'_>,
    ) -> Answer<afsvol::dump::Reply> {
        let bytes = self.call("dump")?.volume(request.transaction)?.data.clone();
        for piece in bytes.chunks(1000) {
            data.send(piece.to_vec().into()).await?;
        }
        Ok(afsvol::dump::Reply {})
    }

    async fn restore(
        &self,
        _: &Caller,
        request: afsvol::restore::Request,
        data: &mut UploadSource<'_>,
    ) -> Answer<afsvol::restore::Reply> {
        let mut bytes = Vec::new();
        while let Some(chunk) = data.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        let mut world = self.call("restore")?;
        world.volume(request.transaction)?.data = bytes;
        Ok(afsvol::restore::Reply {})
    }
}

fn send(world: &mut World, from: TransactionId, to: TransactionId) -> Answer<()> {
    let (server, ..) = world.at(to)?;
    if world.full.contains(&server) {
        return code(108);
    }
    let source = world.volume(from)?.clone();
    let target = world.volume(to)?;
    target.data = source.data;
    target.created = source.created;
    target.updated = source.updated;
    Ok(())
}

/// Keeps what is told.
#[derive(Default)]
pub(crate) struct Heard(Mutex<String>);

impl Watch for Heard {
    fn event(&self, event: Event<'_>) {
        if let Event::Said(text)
        | Event::Step(text)
        | Event::StepAside(text)
        | Event::Complaint(text) = event
        {
            self.0.lock().unwrap().push_str(text);
        }
    }
}

impl Heard {
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The cell, and what `vos` says of it.
pub(crate) struct Cell {
    pub(crate) world: Shared,
    pub(crate) vos: Vos,
    pub(crate) heard: Arc<Heard>,
    _endpoints: Vec<Endpoint>,
}

pub(crate) fn server(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, number)
}

pub(crate) fn place(number: u8) -> ServerPartition {
    ServerPartition {
        server: server(number),
        partition: PartitionId(0),
    }
}

impl Cell {
    pub(crate) async fn new(servers: u8) -> Self {
        let world = World {
            now: 1_000_000,
            max_id: 536_870_912,
            ..World::default()
        };
        let world = Arc::new(Mutex::new(world));
        let bind = |address: Ipv4Addr, port| {
            let address = SocketAddr::from((address, port));
            Endpoint::bind(address, Config::default()).unwrap()
        };
        let locations = bind(server(1), 0);
        locations.serve(
            vl::SERVICE,
            "vl",
            vl::Server::new(Locations(Arc::clone(&world))),
        );
        let mut endpoints = vec![locations];
        let mut port = 0;
        for number in 1..=servers {
            let endpoint = bind(server(number), port);
            port = endpoint.local_addr().port();
            let volumes = Volumes {
                world: Arc::clone(&world),
                address: server(number),
            };
            endpoint.serve(afsvol::SERVICE, "volumes", afsvol::Server::new(volumes));
            endpoints.push(endpoint);
        }
        for endpoint in &endpoints {
            endpoint.stats().await;
        }
        let vl = [endpoints[0].local_addr()];
        let servers = Servers::with_addresses(bind(server(1), 0), &vl, &vl, port, Security::none());
        let heard = Arc::new(Heard::default());
        let vos = Vos::new(servers, Arc::clone(&heard) as Arc<_>);
        Self {
            world,
            vos,
            heard,
            _endpoints: endpoints,
        }
    }

    /// A change of a volume's data.
    pub(crate) fn write(&self, at: ServerPartition, id: VolumeId, data: &[u8]) {
        let mut world = self.world.lock().unwrap();
        world.now += 100;
        let now = world.now;
        let key = (at.server, at.partition.0, id.0);
        let volume = world.volumes.get_mut(&key).unwrap();
        volume.data = data.to_vec();
        volume.updated = now;
        world.now += 100;
    }

    pub(crate) fn volume(&self, at: ServerPartition, id: VolumeId) -> Option<Volume> {
        let world = self.world.lock().unwrap();
        world
            .volumes
            .get(&(at.server, at.partition.0, id.0))
            .cloned()
    }

    pub(crate) fn entry(&self, id: VolumeId) -> NvldbEntry {
        self.world.lock().unwrap().entry(id.0).unwrap().clone()
    }

    /// Nothing is held, and nothing is left that is neither on line nor named by the database.
    pub(crate) fn assert_tidy(&self, context: &str) {
        let said = self.heard.take();
        let world = self.world.lock().unwrap();
        assert_eq!(world.open(), 0, "{context}: transactions remain\n{said}");
        for entry in &world.entries {
            let held = VldbFlags(entry.flags.0 & OPERATIONS);
            assert_eq!(held, VldbFlags(0), "{context}: an entry is held\n{said}");
        }
        for (at, volume) in &world.volumes {
            assert_eq!(volume.flags, 0, "{context}: {at:?} {volume:?}\n{said}");
            let named = world.entries.iter().any(|entry| {
                let sites = usize::try_from(entry.n_servers).unwrap();
                entry.volume_id.contains(&VolumeId(at.2))
                    && entry.server_number[..sites].contains(&at.0.into())
            });
            assert!(named, "{context}: {at:?} is left over\n{said}");
        }
    }
}
