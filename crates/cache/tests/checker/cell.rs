//! A cell in one process, whose file server can be stopped and killed and whose machines can be cut
//! off, and which knows which machine may not know what is new.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use afar_cache::{Cache, CacheConfig, Root};
use afar_cell::{Client, Config};
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::leases::Leases;
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volumes::{Held, Hold, Volumes};
use afar_lease::Limits;
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, rxafs, vl};
use afar_store::{Durability, NewVolume, Partition, PartitionOptions, VolumeChange};
use afar_telemetry::Registry;
use afar_types::{
    AclRecord, AclRecordEntry, AfsUuid, NvldbEntry, PartitionId, PtsId, SiteFlags, VldbFlags,
    VolumeId,
};
use afar_xdr::CharArray;

use crate::history::{Tick, tick};
use crate::kernel::Kernel;
use crate::switch::Switch;

const NAME: &str = "root.cell";
const VOLUME: VolumeId = VolumeId(10);
/// Rx gives a silent peer up after this; shorter than usual, so that both outcomes are met.
const DEAD_TIME: Duration = Duration::from_secs(2);
/// A change waits for a machine that does not answer.
const BREAK_WAIT: Duration = Duration::from_millis(1200);
/// When a machine that does not answer counts as down.
const BREAK_LIMIT: Duration = Duration::from_millis(2500);
/// What a machine needs at most, once nothing is in its way, until it knows what is new: it asks a
/// server, or the server calls it.
const SYNC: Duration = Duration::from_secs(8);
/// How long what was recalled is not leased again, at first.
const DAMPING: Duration = Duration::from_millis(20);
/// How long after a trouble requests may fail because of it.
const AFTERMATH: Duration = Duration::from_secs(6);

/// Machines so far.
static MACHINES: AtomicU8 = AtomicU8::new(1);

/// The location server.
#[derive(Clone)]
struct Locations;

impl vl::Service for Locations {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        _: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let mut entry = NvldbEntry {
            name: CharArray::new(NAME).unwrap(),
            n_servers: 1,
            volume_id: [VOLUME, VolumeId(0), VolumeId(0)],
            flags: VldbFlags(0x1000),
            ..NvldbEntry::default()
        };
        entry.server_number[0] = u32::from_be_bytes([127, 0, 0, 1]);
        entry.server_flags[0] = SiteFlags(4);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

/// What a machine may not know yet.
#[derive(Debug, Default)]
struct Sight {
    /// It may not know what was changed since then.
    blind_since: Option<Tick>,
    /// Since when, and since what time, nothing has been in its way.
    clear: Option<(Tick, Instant)>,
}

/// A client machine.
pub(crate) struct Machine {
    pub(crate) cache: Cache,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) switch: Switch,
    sight: Mutex<Sight>,
    /// It makes changes itself, without an answer of the server.
    pub(crate) leases: bool,
}

impl Machine {
    fn sight(&self) -> MutexGuard<'_, Sight> {
        self.sight.lock().unwrap()
    }

    /// From now on it may not be told what is new.
    pub(crate) fn blind(&self) {
        let mut sight = self.sight();
        sight.blind_since.get_or_insert_with(tick);
        sight.clear = None;
    }

    /// Nothing is in its way any more.
    pub(crate) fn clear(&self) {
        self.sight().clear = Some((tick(), Instant::now()));
    }

    /// Since when it knows everything, if it looks from this time on.
    pub(crate) fn knows_since(&self, from: Tick) -> Tick {
        let mut sight = self.sight();
        if sight.clear.is_some_and(|(_, when)| when.elapsed() > SYNC) {
            *sight = Sight::default();
        }
        sight.blind_since.map_or(from, |since| since.min(from))
    }

    /// The server has answered a request made at this time: now it knows everything that was changed
    /// before.
    pub(crate) fn was_answered(&self, asked: Tick) {
        let mut sight = self.sight();
        if !self.leases && sight.clear.is_some_and(|(since, _)| since < asked) {
            *sight = Sight::default();
        }
    }
}

/// A running file server.
struct Running {
    volumes: Arc<Volumes>,
    server: Arc<FileServer>,
    endpoint: Endpoint,
    switch: Switch,
}

/// The cell.
pub(crate) struct Cell {
    partition: Arc<Partition>,
    running: Mutex<Option<Running>>,
    /// What servers that were killed must not get at.
    dead: Mutex<Vec<Held>>,
    locations: Endpoint,
    port: u16,
    directory: tempfile::TempDir,
    /// Servers that were started.
    lives: AtomicU64,
    pub(crate) machines: Vec<Machine>,
    /// Troubles under way, and when the last one ended.
    troubles: AtomicU64,
    last: Mutex<Option<Instant>>,
    pub(crate) over: AtomicBool,
}

impl Cell {
    /// With one volume, in which anyone may do anything, and so many machines, which may have leases.
    pub(crate) async fn new(machines: usize, leases: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = PartitionOptions::default().durability(Durability::Async);
        let store = directory.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let partition = Arc::new(Partition::init(&store, &options).unwrap());
        make_volume(&partition);
        let locations =
            Endpoint::bind("127.0.0.1:0".parse().unwrap(), afar_net::Config::default()).unwrap();
        locations.serve(vl::SERVICE, vl::NAME, vl::Server::new(Locations));
        locations.stats().await;
        let mut cell = Self {
            partition,
            running: Mutex::new(None),
            dead: Mutex::default(),
            locations,
            port: 0,
            directory,
            lives: AtomicU64::new(0),
            machines: Vec::new(),
            troubles: AtomicU64::new(0),
            last: Mutex::new(None),
            over: AtomicBool::new(false),
        };
        cell.port = cell.serve().await;
        for _ in 0..machines {
            let machine = cell.machine_with(|config| config.write_through = !leases);
            let machine = machine.await;
            cell.machines.push(machine);
        }
        cell
    }

    /// Starts the file server, from what the one before has saved if it has.
    async fn serve(&self) -> u16 {
        let saved = self.directory.path().join("callbacks");
        let uuid = AfsUuid::from_random([7; 16]);
        let hosts = Hosts::new(HostsConfig {
            break_wait: BREAK_WAIT,
            break_limit: BREAK_LIMIT,
            restore: Some(saved),
            ..HostsConfig::new(uuid)
        });
        let protection = Arc::new(Protection::new(Vec::new()));
        let name: PartitionId = "/vicepa".parse().unwrap();
        let volumes = Volumes::new(vec![(name, Arc::clone(&self.partition))]);
        let volumes = Arc::new(volumes);
        let registry = Registry::default();
        // One that was killed may write to its own as long as its tasks are there.
        let life = self.lives.fetch_add(1, Ordering::SeqCst);
        let file = |life: u64| self.directory.path().join(format!("leases{life}"));
        let path = file(life);
        if life > 0 {
            std::fs::copy(file(life - 1), &path).unwrap();
        }
        // One that waits for an earlier life does so here, and others are to go on meanwhile.
        let opened = {
            let registry = registry.clone();
            // What is recalled is leased again soon, so that there is more to recall.
            let limits = Limits {
                damping: DAMPING,
                ..Limits::default()
            };
            let open = move || Leases::open_limited(&path, uuid, 100, &registry, limits);
            tokio::task::spawn_blocking(open)
        };
        let leases = Some(opened.await.unwrap().unwrap());
        let of_volumes = Arc::clone(&volumes);
        let server = FileServer::with_leases(of_volumes, hosts, protection, &registry, leases);
        let switch = Switch::default();
        let mut config = afar_net::Config {
            hold: true,
            ..afar_net::Config::default()
        };
        // It gives calls up when its clients do.
        config.rx.dead_time = DEAD_TIME;
        let address = format!("127.0.0.1:{}", self.port).parse().unwrap();
        let endpoint = loop {
            match switch.bind(address, config.clone()) {
                Ok(endpoint) => break endpoint,
                // The one before is not gone yet.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        server.hosts().attach(&endpoint);
        let service = rxafs::Server::new(server.service(endpoint.clone()));
        endpoint.serve(rxafs::SERVICE, rxafs::NAME, service);
        endpoint.listen();
        endpoint.stats().await;
        let port = endpoint.local_addr().port();
        *self.running.lock().unwrap() = Some(Running {
            volumes,
            server,
            endpoint,
            switch,
        });
        port
    }

    /// Another machine.
    pub(crate) async fn machine(&self) -> Machine {
        self.machine_with(|_| {}).await
    }

    pub(crate) async fn machine_with(&self, adjust: impl FnOnce(&mut CacheConfig)) -> Machine {
        let config = Config {
            cellservdb: Some("/dev/null".into()),
            vl_servers: vec![self.locations.local_addr()],
            dns: false,
            file_port: self.port,
            busy_limit: Duration::from_secs(5),
            ..Config::default()
        };
        let switch = Switch::default();
        let mut network = afar_net::Config::default();
        network.rx.dead_time = DEAD_TIME;
        // To a server, hosts at one address are of one machine.
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let endpoint = switch.bind(([127, 0, 1, number], 0).into(), network);
        let client = Client::new(endpoint.unwrap(), config).unwrap();
        let own = format!("cache-{}", client.endpoint().local_addr().port());
        let mut config = CacheConfig::new(self.directory.path().join(own));
        config.root = Root::Volume("test.example".parse().unwrap(), NAME.to_owned());
        adjust(&mut config);
        let leases = !config.write_through;
        let cache = Cache::open(client, config).await.unwrap();
        Machine {
            leases,
            kernel: Kernel::start(&cache),
            cache,
            switch,
            sight: Mutex::default(),
        }
    }

    /// Stops the server cleanly, as SIGTERM does, and starts it again. The callback promises survive, so no
    /// machine is blinded.
    pub(crate) async fn restart(&self) {
        let running = self.running.lock().unwrap().take().unwrap();
        running.endpoint.shutdown().await;
        let saved = self.directory.path().join("callbacks");
        running.server.hosts().save(&saved).unwrap();
        // Calls that wait end with a process. Those of this one cannot get at the volume.
        let held = running.volumes.hold(VOLUME, Hold::Offline).await;
        self.serve().await;
        self.dead.lock().unwrap().extend(held.ok());
    }

    /// Kills the server, as SIGKILL does, and starts another one that knows nobody.
    pub(crate) async fn kill(&self) {
        self.machines.iter().for_each(Machine::blind);
        let running = self.running.lock().unwrap().take().unwrap();
        running.switch.kill();
        // The tasks of a process that is killed do nothing any more. Those of this one cannot get at
        // the volume.
        let held = running.volumes.hold(VOLUME, Hold::Offline).await;
        self.serve().await;
        self.machines.iter().for_each(Machine::clear);
        self.dead.lock().unwrap().extend(held.ok());
        tokio::spawn(async move { running.endpoint.shutdown().await });
    }

    /// Takes the volume away for a time, as the volume server does, and says that it is another one.
    pub(crate) async fn hold(&self, hold: Hold, time: Duration) {
        let (server, volumes) = {
            let running = self.running.lock().unwrap();
            let running = running.as_ref().unwrap();
            (Arc::clone(&running.server), Arc::clone(&running.volumes))
        };
        let held = volumes.hold(VOLUME, hold).await;
        server.hosts().break_volume(VOLUME).await;
        tokio::time::sleep(time).await;
        drop(held);
    }

    /// What the file server has counted, in words.
    pub(crate) fn counted(&self) -> String {
        let running = self.running.lock().unwrap();
        let hosts = running.as_ref().map(|running| running.server.hosts());
        let machines = self.machines.iter();
        let changes: Vec<_> = machines
            .map(|machine| machine.cache.changes_here())
            .collect();
        format!("{:?}; {changes:?}", hosts.map(|hosts| hosts.stats()))
    }

    pub(crate) fn trouble_begins(&self) {
        self.troubles.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn trouble_ends(&self) {
        *self.last.lock().unwrap() = Some(Instant::now());
        self.troubles.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a request that began then may have failed because of a trouble.
    pub(crate) fn may_fail(&self, begun: Instant) -> bool {
        let last = *self.last.lock().unwrap();
        self.troubles.load(Ordering::SeqCst) > 0
            || last.is_some_and(|last| last + AFTERMATH > begun)
    }
}

fn make_volume(partition: &Arc<Partition>) {
    let volume = partition.create_volume(&NewVolume::new(VOLUME, NAME));
    let volume = volume.unwrap();
    let unlimited = VolumeChange {
        max_quota: Some(0),
        ..VolumeChange::default()
    };
    volume.change(unlimited).unwrap();
    let anyone = AclRecordEntry {
        id: PtsId::ANYUSER,
        rights: "rlidwka".parse().unwrap(),
    };
    let acl = AclRecord::new(vec![anyone], Vec::new()).unwrap();
    volume.set_acl(volume.root(), &acl).unwrap();
}
