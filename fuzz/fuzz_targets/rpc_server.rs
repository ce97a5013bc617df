//! Requests to a whole server: RXAFS, AFSVol, VL and PR over Rx on loopback, with a store and
//! databases behind them. The input is a list of calls: who asks which service for what, and the
//! bytes of the arguments. Each is answered in time, by results that can be decoded or by an
//! abort. The server lives on between inputs, and is made again after many.

#![no_main]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afar_cell::CallbackService;
use afar_dbserver::kv::{Database, Options};
use afar_dbserver::pr::{ProtectionConfig, ProtectionServer};
use afar_dbserver::vl::{LocationConfig, LocationServer};
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volser::{VolserConfig, VolumeServer};
use afar_fileserver::volumes::Volumes;
use afar_net::{CallError, Config, Connection, Endpoint, RxNull};
use afar_rpc::{Identity, Interface, Kind, Operation, afsvol, pr, rxafs, vl};
use afar_store::{NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions};
use afar_types::{AclRecord, AclRecordEntry, AfsUuid, Fid, PartitionId, PtsId, Rights, VolumeId};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

const VOLUME: VolumeId = VolumeId(536_870_912);
/// KiB that files may have, so that no hole takes for ever to be dumped.
const QUOTA: u64 = 64 << 10;
/// Calls of one input.
const CALLS_MAX: usize = 6;
/// Inputs that one server gets.
const INPUTS_MAX: u32 = 20_000;
const LIMIT: Duration = Duration::from_secs(8);
/// Bytes of a reply that are read.
const REPLY_MAX: usize = 1 << 20;
const FOLDER: &str = "afar-fuzz-rpc-server-";

/// Folders made so far.
static COUNT: AtomicU32 = AtomicU32::new(0);
static WORLD: Mutex<Option<World>> = Mutex::new(None);

fuzz_target!(|data: &[u8]| {
    let mut place = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if place.as_ref().is_some_and(|world| world.inputs == 0) {
        *place = None;
    }
    let world = place.get_or_insert_with(World::new);
    world.inputs -= 1;
    let mut rest = data;
    for _ in 0..CALLS_MAX {
        let Some((head, tail)) = rest.split_first_chunk::<4>() else {
            return;
        };
        rest = world.call(*head, tail);
    }
});

/// A server and a client of it.
struct World {
    inputs: u32,
    fids: Vec<Fid>,
    /// To each service, as anonymous and as superuser.
    connections: Vec<(&'static Interface, [Connection; 2])>,
    /// Connections do not keep them.
    _endpoints: Vec<Endpoint>,
    runtime: Runtime,
    _folder: Folder,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads can be made");
        let folder = Folder::new();
        let (endpoints, connections, fids) = runtime.block_on(serve(&folder));
        Self {
            inputs: INPUTS_MAX,
            fids,
            connections,
            _endpoints: endpoints,
            runtime,
            _folder: folder,
        }
    }

    /// Makes one call and gives what is left of the input.
    fn call<'a>(&self, head: [u8; 4], tail: &'a [u8]) -> &'a [u8] {
        let [service, row, mode, length] = head;
        let (interface, connections) =
            &self.connections[usize::from(service) % self.connections.len()];
        let row = interface.operations[usize::from(row) % interface.operations.len()];
        let (arguments, rest) = tail.split_at(usize::from(length).min(tail.len()));
        let request = self.request(interface, row, mode, arguments);
        let connection = &connections[usize::from(mode & 1)];
        self.runtime
            .block_on(exchange(connection, interface, row, request));
        rest
    }

    fn request(
        &self,
        interface: &Interface,
        row: &Operation,
        mode: u8,
        arguments: &[u8],
    ) -> Vec<u8> {
        let mut request = row.opcode.to_be_bytes().to_vec();
        if mode & 2 != 0 {
            // Of something that there is, as otherwise nothing else matters.
            let fid = self.fids[usize::from(mode >> 5) % self.fids.len()];
            for word in [fid.volume.0, fid.vnode.0, fid.uniquifier.0] {
                request.extend(word.to_be_bytes());
            }
        }
        request.extend_from_slice(arguments);
        if mode & 4 != 0 {
            let mut whole = request.clone();
            whole.resize(request.len() + row.request_max_len.min(1 << 16), 0);
            if let Ok(Some(formed)) = (interface.canonical_request)(&whole) {
                request = formed.to_vec();
            }
        }
        if mode & 8 != 0 && matches!(row.kind, Kind::Store | Kind::Upload) {
            request.extend_from_slice(arguments);
        }
        request
    }
}

async fn exchange(
    connection: &Connection,
    interface: &Interface,
    row: &Operation,
    request: Vec<u8>,
) {
    let asked = request.clone();
    let exchange = async {
        let mut call = connection.call().await?;
        call.send(Bytes::from(request)).await?;
        call.finish().await?;
        call.read_to_end(REPLY_MAX).await
    };
    match tokio::time::timeout(LIMIT, exchange).await {
        Ok(Ok(reply)) if row.kind == Kind::Call => {
            let canonical = (interface.canonical_reply)(row.opcode, &reply);
            assert!(
                matches!(canonical, Ok(Some(_))),
                "{}: {canonical:?} {reply:02x?} to {asked:02x?}",
                row.name
            );
        }
        Ok(Ok(_) | Err(CallError::Aborted(_) | CallError::TooLong)) => {}
        // The server waits for a client that is not there.
        Err(_) if row.name.starts_with("forward") => {}
        other => panic!("{}: {other:?} to {asked:02x?}", row.name),
    }
}

fn bind() -> Endpoint {
    let address = "127.0.0.1:0".parse().expect("an address");
    Endpoint::bind(address, Config::default()).expect("a port is free")
}

type Served = (
    Vec<Endpoint>,
    Vec<(&'static Interface, [Connection; 2])>,
    Vec<Fid>,
);

/// Starts everything.
async fn serve(folder: &Folder) -> Served {
    let (open, admin, client) = (bind(), bind(), bind());
    let database = |name: &str| {
        let path = folder.0.join(name);
        Database::open(&path, &Options::default()).expect("a new database opens")
    };
    let location = LocationServer::open(database("vl"), LocationConfig::default());
    let location = Arc::new(location.expect("a new database is in order"));
    let protection = ProtectionServer::open(database("pt"), ProtectionConfig::default()).await;
    let protection = Arc::new(protection.expect("a new database is in order"));
    let (volumes, fids) = volumes(folder);
    let hosts = Hosts::new(HostsConfig::new(AfsUuid::from_random([7; 16])));
    let asks = client.connect(admin.local_addr(), pr::SERVICE, Arc::new(RxNull));
    let known = Arc::new(Protection::new(vec![pr::Client::new(asks)]));
    let files = FileServer::new(Arc::clone(&volumes), Arc::clone(&hosts), known);
    let config = VolserConfig::default();
    let volser = VolumeServer::new(volumes, Arc::clone(&hosts), open.clone(), config);
    let volser = Arc::new(volser);
    for (endpoint, identity) in [(&open, Identity::Anonymous), (&admin, Identity::Superuser)] {
        let service = files.service(endpoint.clone());
        let service = rxafs::Server::with_identity(service, identity.clone());
        endpoint.serve(rxafs::SERVICE, rxafs::NAME, service);
        let service = afsvol::Server::shared(&volser, identity.clone());
        endpoint.serve(afsvol::SERVICE, afsvol::NAME, service);
        let service = vl::Server::shared(&location, identity.clone());
        endpoint.serve(vl::SERVICE, vl::NAME, service);
        let service = pr::Server::shared(&protection, identity);
        endpoint.serve(pr::SERVICE, pr::NAME, service);
    }
    hosts.attach(&open);
    // It goes on with the endpoint.
    let _callbacks = CallbackService::start(&client);
    for endpoint in [&open, &admin, &client] {
        endpoint.stats().await;
    }
    let interfaces = [
        rxafs::INTERFACE,
        afsvol::INTERFACE,
        vl::INTERFACE,
        pr::INTERFACE,
    ];
    let connect = |to: &Endpoint, interface: &Interface| {
        client.connect(to.local_addr(), interface.service, Arc::new(RxNull))
    };
    let connections = interfaces
        .map(|interface| (interface, [&open, &admin].map(|to| connect(to, interface))))
        .to_vec();
    (vec![open, admin, client], connections, fids)
}

/// A volume in which anybody may do anything, and what is in it.
fn volumes(folder: &Folder) -> (Arc<Volumes>, Vec<Fid>) {
    let path = folder.0.join("vicepa");
    std::fs::create_dir(&path).expect("a folder can be made");
    let options = PartitionOptions::default()
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .expect("within the bounds");
    let partition = Arc::new(Partition::init(&path, &options).expect("an empty folder"));
    let volumes = Arc::new(Volumes::new(vec![(PartitionId(0), Arc::clone(&partition))]));
    let new = NewVolume::new(VOLUME, "fuzz").max_quota(QUOTA);
    let volume = volumes.create(&partition, &new).expect("a new volume");
    let all = AclRecordEntry {
        id: PtsId::ANYUSER,
        rights: Rights::ALL,
    };
    let acl = AclRecord::new(vec![all], Vec::new()).expect("a short list");
    let root = volume.root();
    volume.set_acl(root, &acl).expect("the root is there");
    let new = NewVnode::new(PtsId(0), 0o755);
    let made = [
        volume.create_file(root, b"file", &new),
        volume.make_directory(root, b"directory", &new),
        volume.symlink(root, b"symlink", b"file", &new),
    ];
    let made = made.map(|made| made.expect("a new name").vnode.fid);
    volume
        .write(made[0], 0, &[7; 10_000], &StoreOptions::default())
        .expect("there is room");
    (volumes, [root].into_iter().chain(made).collect())
}

/// A folder for this process, that a later one removes if this does not come to it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let base = std::env::temp_dir();
        let entries = std::fs::read_dir(&base).expect("there is a folder for such things");
        let left: BTreeSet<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        for path in left {
            let name = path.file_name().and_then(|name| name.to_str());
            let process = name
                .and_then(|name| name.strip_prefix(FOLDER))
                .and_then(|numbers| numbers.split('-').next());
            if process.is_some_and(|id| !PathBuf::from("/proc").join(id).exists()) {
                // Another process may be doing the same.
                std::fs::remove_dir_all(&path).unwrap_or_default();
            }
        }
        // What is left of the one before may not let go of its folder at once.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{FOLDER}{}-{count}", std::process::id()));
        std::fs::create_dir(&path).expect("it is not there yet");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}
