//! A cell in one process: a real file server on a store of its own, a location server, and caches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cache::{
    Attr, Cache, CacheConfig, Class, Entry, Errno, Handle, Ino, OpenFlags, RenameFlags, Root, Who,
};
use afar_cell::{Client, Config};
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::leases::Leases;
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volumes::Volumes;
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, rxafs, vl};
use afar_store::{
    NewClone, NewVolume, Partition, PartitionOptions, SetAttributes, Volume, VolumeChange,
};
use afar_telemetry::Registry;
use afar_types::{
    AclRecord, AclRecordEntry, AfsUuid, Fid, NvldbEntry, PartitionId, PtsId, SiteFlags, VldbFlags,
    VolumeId, VolumeType,
};
use afar_xdr::CharArray;

pub(crate) const CELL: &str = "test.example";
pub(crate) const WHO: Who = Who {
    uid: 0,
    gid: 0,
    pid: 1,
};

pub(crate) fn bind() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), afar_net::Config::default()).unwrap()
}

/// Volumes by name.
pub(crate) type Names = Arc<Mutex<BTreeMap<String, u32>>>;

/// The location server.
#[derive(Clone)]
pub(crate) struct Locations(pub(crate) Names);

impl vl::Service for Locations {
    async fn get_entry_by_name_n(
        &self,
        _: &Caller,
        request: vl::get_entry_by_name_n::Request,
    ) -> Result<vl::get_entry_by_name_n::Reply, AbortCode> {
        let asked = String::from_utf8(request.name.as_bytes().to_vec()).unwrap();
        let asked = asked.trim_end_matches(".backup").to_owned();
        let number = asked.parse::<u32>().ok();
        let names = self.0.lock().unwrap();
        let mut all = names.iter();
        let found = all.find(|(name, id)| **name == asked || number == Some(**id));
        let (name, id) = found.ok_or(AbortCode(363_524))?;
        let backup = names.get(&format!("{name}.backup"));
        let kinds = 0x1000 | backup.map_or(0, |_| 0x4000);
        let mut entry = NvldbEntry {
            name: CharArray::new(name).unwrap(),
            n_servers: 1,
            volume_id: [*id, 0, backup.copied().unwrap_or(0)].map(VolumeId),
            flags: VldbFlags(kinds),
            ..NvldbEntry::default()
        };
        entry.server_number[0] = u32::from_be_bytes([127, 0, 0, 1]);
        entry.server_flags[0] = SiteFlags(4);
        Ok(vl::get_entry_by_name_n::Reply { entry })
    }
}

/// A running cell.
pub(crate) struct World {
    names: Names,
    volumes: Arc<Volumes>,
    server: Arc<FileServer>,
    endpoint: Mutex<Option<Endpoint>>,
    locations: Endpoint,
    root: Volume,
    port: u16,
    caches: AtomicUsize,
    _directories: [tempfile::TempDir; 2],
}

impl World {
    /// With the volume `root.cell`, in which anyone may do anything.
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = PartitionOptions::default();
        let partition = Arc::new(Partition::init(directory.path(), &options).unwrap());
        let name: PartitionId = "/vicepa".parse().unwrap();
        let volumes = Arc::new(Volumes::new(vec![(name, partition)]));
        let uuid = AfsUuid::from_random([7; 16]);
        let hosts = Hosts::new(HostsConfig::new(uuid));
        let protection = Arc::new(Protection::new(Vec::new()));
        let registry = Registry::default();
        let kept = tempfile::tempdir().unwrap();
        let leases = Leases::open(&kept.path().join("leases"), uuid, 100, &registry);
        let leases = Some(leases.unwrap());
        let of_volumes = Arc::clone(&volumes);
        let server = FileServer::with_leases(of_volumes, hosts, protection, &registry, leases);
        let locations = bind();
        let names = Names::default();
        let service = vl::Server::new(Locations(Arc::clone(&names)));
        locations.serve(vl::SERVICE, vl::NAME, service);
        let root = make_volume(&names, &volumes, "root.cell", 10);
        let world = Self {
            names,
            volumes,
            server,
            endpoint: Mutex::new(None),
            locations,
            root,
            port: 0,
            caches: AtomicUsize::new(0),
            _directories: [directory, kept],
        };
        let port = world.serve(0).await;
        Self { port, ..world }
    }

    /// Begins to serve files at a port.
    async fn serve(&self, port: u16) -> u16 {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let endpoint = Endpoint::bind(address, afar_net::Config::default()).unwrap();
        let service = rxafs::Server::new(self.server.service(endpoint.clone()));
        endpoint.serve(rxafs::SERVICE, rxafs::NAME, service);
        for endpoint in [&endpoint, &self.locations] {
            // The answer comes after the services are known to the I/O thread.
            endpoint.stats().await;
        }
        let port = endpoint.local_addr().port();
        *self.endpoint.lock().unwrap() = Some(endpoint);
        port
    }

    /// The process of the file server ends for its clients, and another one is there.
    pub(crate) async fn restart(&self) {
        let endpoint = self.endpoint.lock().unwrap().take();
        endpoint.unwrap().shutdown().await;
        self.serve(self.port).await;
    }

    /// Sets what anyone may do in the root volume.
    pub(crate) fn set_rights(&self, rights: &str) {
        allow(&self.root, rights);
    }

    /// Gives a file of the root volume, by its fid, to this user; `protected`: nobody may write to it.
    pub(crate) fn give(&self, fid: &str, owner: PtsId, protected: bool) {
        let wanted = SetAttributes {
            owner: Some(owner),
            mode: protected.then_some(0o444),
            ..SetAttributes::default()
        };
        let numbers: Vec<u32> = fid.split('.').map(|part| part.parse().unwrap()).collect();
        let fid = Fid::new(numbers[0], numbers[1], numbers[2]);
        self.root.set_attributes(fid, &wanted).unwrap();
    }

    /// Adds a volume in which anyone may do anything.
    pub(crate) fn volume(&self, name: &str, id: u32) -> Volume {
        make_volume(&self.names, &self.volumes, name, id)
    }

    /// Adds the backup volume of a volume.
    pub(crate) fn back_up(&self, volume: &Volume, name: &str, id: u32) {
        let name = format!("{name}.backup");
        let new = NewClone::new(VolumeId(id), name.clone(), VolumeType::Backup);
        volume.make_clone(&new).unwrap();
        self.names.lock().unwrap().insert(name, id);
    }

    /// Where the location server is, and the port of file servers.
    pub(crate) fn servers(&self) -> (std::net::SocketAddr, u16) {
        (self.locations.local_addr(), self.port)
    }

    /// A client machine.
    pub(crate) async fn cache(&self) -> Machine {
        self.cache_with(|_| {}).await
    }

    /// A client machine that makes changes itself, under leases.
    pub(crate) async fn leasing(&self) -> Machine {
        self.cache_with(|config| config.write_through = false).await
    }

    pub(crate) async fn cache_with(&self, adjust: impl FnOnce(&mut CacheConfig)) -> Machine {
        self.caches.fetch_add(1, Ordering::Relaxed);
        machine(self.locations.local_addr(), self.port, adjust).await
    }
}

fn make_volume(names: &Names, volumes: &Volumes, name: &str, id: u32) -> Volume {
    let (_, partition) = volumes.partitions().next().unwrap();
    let new = NewVolume::new(VolumeId(id), name);
    let volume = volumes.create(partition, &new).unwrap();
    let unlimited = VolumeChange {
        max_quota: Some(0),
        ..VolumeChange::default()
    };
    volume.change(unlimited).unwrap();
    allow(&volume, "rlidwka");
    names.lock().unwrap().insert(name.to_owned(), id);
    volume
}

/// Lets anyone do this much in the root of a volume.
fn allow(volume: &Volume, rights: &str) {
    let anyone = AclRecordEntry {
        id: PtsId::ANYUSER,
        rights: rights.parse().unwrap(),
    };
    let acl = AclRecord::new(vec![anyone], Vec::new()).unwrap();
    volume.set_acl(volume.root(), &acl).unwrap();
}

/// A cache of a client of these servers.
pub(crate) async fn machine(
    locations: std::net::SocketAddr,
    port: u16,
    adjust: impl FnOnce(&mut CacheConfig),
) -> Machine {
    let config = Config {
        cellservdb: Some("/dev/null".into()),
        vl_servers: vec![locations],
        dns: false,
        file_port: port,
        busy_limit: Duration::from_secs(5),
        ..Config::default()
    };
    machine_of(config, adjust).await
}

/// A cache of a client with these settings.
pub(crate) async fn machine_of(config: Config, adjust: impl FnOnce(&mut CacheConfig)) -> Machine {
    let client = Client::new(bind(), config).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = CacheConfig::new(directory.path());
    config.root = Root::Volume(CELL.parse().unwrap(), "root.cell".to_owned());
    adjust(&mut config);
    let cache = Cache::open(client.clone(), config).await.unwrap();
    Machine {
        cache,
        client,
        _directory: directory,
    }
}

/// A client machine, and what programs on it do.
pub(crate) struct Machine {
    pub(crate) cache: Cache,
    pub(crate) client: Client,
    _directory: tempfile::TempDir,
}

pub(crate) const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    exclusive: false,
    direct: false,
    class: Class::BestEffort,
};
pub(crate) const WRITE: OpenFlags = OpenFlags {
    write: true,
    ..READ
};

pub(crate) const REPLACE: OpenFlags = OpenFlags {
    truncate: true,
    ..WRITE
};

impl Machine {
    /// Calls it has made to file servers.
    pub(crate) fn calls(&self) -> u64 {
        let servers = self.client.servers();
        servers.iter().map(|server| server.calls()).sum()
    }

    /// Follows a path from the top.
    pub(crate) async fn at(&self, path: &str) -> Result<Entry, Errno> {
        let mut ino = Ino::ROOT;
        let mut entry = None;
        for part in path.split('/') {
            let found = self.cache.lookup(WHO, ino, part.as_bytes()).await?;
            ino = found.attr.ino;
            entry = Some(found);
        }
        entry.ok_or(Errno::ENOENT)
    }

    pub(crate) async fn attr(&self, path: &str) -> Result<Attr, Errno> {
        Ok(self.at(path).await?.attr)
    }

    pub(crate) async fn fid(&self, path: &str) -> String {
        let ino = self.at(path).await.unwrap().attr.ino;
        let fid = self.cache.getxattr(WHO, ino, b"afs.fid").await.unwrap();
        String::from_utf8(fid.to_vec()).unwrap()
    }

    async fn parent<'a>(&self, path: &'a str) -> (Ino, &'a [u8]) {
        match path.rsplit_once('/') {
            Some((parent, name)) => (self.at(parent).await.unwrap().attr.ino, name.as_bytes()),
            None => (Ino::ROOT, path.as_bytes()),
        }
    }

    pub(crate) async fn mkdir(&self, path: &str) -> Result<Entry, Errno> {
        let (parent, name) = self.parent(path).await;
        self.cache.mkdir(WHO, parent, name, 0o755).await
    }

    pub(crate) async fn create(&self, path: &str) -> Result<Handle, Errno> {
        let (parent, name) = self.parent(path).await;
        let created = self.cache.create(WHO, parent, name, 0o644, WRITE).await;
        created.map(|(_, handle)| handle)
    }

    pub(crate) async fn open(&self, path: &str, flags: OpenFlags) -> Result<Handle, Errno> {
        let ino = self.at(path).await?.attr.ino;
        let opened = self.cache.open_file(WHO, ino, flags).await;
        opened.map(|(handle, _)| handle)
    }

    pub(crate) async fn close(&self, handle: Handle) -> Result<(), Errno> {
        let flushed = self.cache.flush(handle, 1).await;
        self.cache.release(handle, None).await;
        flushed
    }

    /// Makes or replaces a file.
    pub(crate) async fn put(&self, path: &str, data: &[u8]) -> Result<(), Errno> {
        let handle = match self.at(path).await {
            Ok(_) => self.open(path, REPLACE).await?,
            Err(_) => self.create(path).await?,
        };
        let mut at = 0;
        for piece in data.chunks(131_072) {
            self.cache.write(handle, at, piece).await?;
            at += piece.len() as u64;
        }
        self.close(handle).await
    }

    /// All of a file.
    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let handle = self.open(path, READ).await?;
        let data = self.read_all(handle).await;
        self.close(handle).await?;
        data
    }

    pub(crate) async fn read_all(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        let mut data = Vec::new();
        loop {
            let piece = self.cache.read(handle, data.len() as u64, 131_072).await?;
            if piece.is_empty() {
                return Ok(data);
            }
            data.extend_from_slice(&piece);
        }
    }

    pub(crate) async fn unlink(&self, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.parent(path).await;
        self.cache.unlink(WHO, parent, name).await
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (parent, name) = self.parent(from).await;
        let (new_parent, new_name) = self.parent(to).await;
        let flags = RenameFlags::default();
        self.cache
            .rename(WHO, parent, name, new_parent, new_name, flags)
            .await
    }

    /// The names in a directory but `.` and `..`, in order; the top for "".
    pub(crate) async fn list(&self, path: &str, plus: bool) -> Result<Vec<String>, Errno> {
        let ino = match path {
            "" => Ino::ROOT,
            path => self.at(path).await?.attr.ino,
        };
        let handle = self.cache.opendir(WHO, ino).await?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let entries = self.cache.readdir(handle, offset, plus).await?;
            let Some(last) = entries.last() else {
                break;
            };
            offset = last.offset;
            for entry in entries {
                names.push(String::from_utf8(entry.name).unwrap());
                if let Some(entry) = entry.entry {
                    self.cache.forget(entry.attr.ino, 1);
                }
            }
        }
        self.cache.releasedir(handle);
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        Ok(names)
    }
}
