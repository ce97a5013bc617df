//! The volume server as its callers see it: over Rx on loopback, with real stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod bad;
mod clones;
mod crowd;
mod lists;
mod moves;
mod orphans;
mod releases;
mod transactions;
mod vos;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use afar_dir::Directory;
use afar_fileserver::volser::{BreakVolume, VolserConfig, VolumeServer};
use afar_fileserver::volumes::Volumes;
use afar_net::{Config, Endpoint, RxNull};
use afar_rpc::{Identity, RpcError, afsvol};
use afar_store::{NewVnode, Partition, PartitionOptions, StoreOptions, VnodeStatus, Volume};
use afar_types::{
    AttachFlags, DestServer, Fid, FileType, PartitionId, PtsId, RestoreCookie, TransactionFlags,
    TransactionId, UnixTime, VolintName, VolintNameText, VolumeId, VolumeType,
};
use parking_lot::Mutex;
use tempfile::TempDir;

pub(crate) const A: PartitionId = PartitionId(0);
pub(crate) const B: PartitionId = PartitionId(1);
pub(crate) const RW: VolumeId = VolumeId(536_870_912);
pub(crate) const RO: VolumeId = VolumeId(536_870_913);
pub(crate) const BK: VolumeId = VolumeId(536_870_914);
pub(crate) const TEMP: VolumeId = VolumeId(536_870_999);
/// Both flags of a volume that is not whole yet.
pub(crate) const UNFINISHED: TransactionFlags = TransactionFlags(3);
pub(crate) const FINISHED: TransactionFlags = TransactionFlags(0);

pub(crate) const BAD_ACCESS: i32 = 1_492_325_127;
pub(crate) const VOLBUSY: i32 = 1_492_325_133;
pub(crate) const VNOVOL: i32 = 103;
pub(crate) const ENOENT: i32 = 2;

/// Writes down which volumes clients were told of.
#[derive(Clone, Default)]
pub(crate) struct Broken(Arc<Mutex<Vec<VolumeId>>>);

impl BreakVolume for Broken {
    fn break_volume(&self, volume: VolumeId) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let broken = Arc::clone(&self.0);
        Box::pin(async move { broken.lock().push(volume) })
    }
}

impl Broken {
    /// What was broken since this was asked last.
    pub(crate) fn take(&self) -> Vec<VolumeId> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A volume server with two partitions, and clients of it.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) broken: Broken,
    server: Endpoint,
    client: Endpoint,
    pub(crate) vol: afsvol::Client,
}

pub(crate) fn bind() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

/// An endpoint from which another one can be reached.
fn bind_beside(server: &Endpoint) -> Endpoint {
    let address = (server.local_addr().ip(), 0).into();
    Endpoint::bind(address, Config::default()).unwrap()
}

fn partition_options() -> PartitionOptions {
    PartitionOptions::default()
        .map_size(1 << 30)
        .and_then(|options| options.segment_size(4 << 20))
        .unwrap()
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(VolserConfig::default(), Identity::Superuser).await
    }

    pub(crate) async fn with(config: VolserConfig, identity: Identity) -> Self {
        Self::serve(bind(), config, identity).await
    }

    /// At this endpoint.
    pub(crate) async fn at(server: Endpoint, config: VolserConfig) -> Self {
        Self::serve(server, config, Identity::Superuser).await
    }

    async fn serve(server: Endpoint, config: VolserConfig, identity: Identity) -> Self {
        let dir = TempDir::new().unwrap();
        let open = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            Arc::new(Partition::init(&path, &partition_options()).unwrap())
        };
        let partitions = vec![(A, open("a")), (B, open("b"))];
        let volumes = Arc::new(Volumes::new(partitions));
        let broken = Broken::default();
        let volser =
            VolumeServer::new(Arc::clone(&volumes), broken.clone(), server.clone(), config);
        let service = afsvol::Server::with_identity(volser, identity);
        server.serve(afsvol::SERVICE, "volumes", service);
        server.stats().await;
        let client = bind_beside(&server);
        let vol = connect(&client, &server);
        Self {
            dir,
            volumes,
            broken,
            server,
            client,
            vol,
        }
    }

    /// Another connection.
    pub(crate) fn connect(&self) -> afsvol::Client {
        connect(&self.client, &self.server)
    }

    /// Another client, and a connection of it.
    pub(crate) fn another_client(&self) -> (Endpoint, afsvol::Client) {
        let client = bind_beside(&self.server);
        let vol = connect(&client, &self.server);
        (client, vol)
    }

    /// What is left on disk of a partition after the server has stopped.
    pub(crate) async fn stop(self) -> Stopped {
        let Self {
            dir,
            volumes,
            server,
            client,
            vol,
            ..
        } = self;
        drop(vol);
        client.shutdown().await;
        server.shutdown().await;
        // The server's task and the threads of its calls may still be about to let go.
        for _ in 0..500 {
            if Arc::strong_count(&volumes) == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(Arc::strong_count(&volumes), 1);
        drop(volumes);
        Stopped { dir }
    }

    pub(crate) fn address(&self) -> DestServer {
        DestServer {
            port: self.server.local_addr().port().into(),
            ..DestServer::new(Ipv4Addr::LOCALHOST)
        }
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Arc<Partition> {
        Arc::clone(self.volumes.partition(id).unwrap())
    }

    pub(crate) fn volume(&self, partition: PartitionId, id: VolumeId) -> Volume {
        self.partition(partition).volume(id).unwrap()
    }

    pub(crate) async fn begin(&self, id: VolumeId, flags: AttachFlags) -> TransactionId {
        self.begin_on(A, id, flags).await
    }

    pub(crate) async fn begin_on(
        &self,
        partition: PartitionId,
        id: VolumeId,
        flags: AttachFlags,
    ) -> TransactionId {
        let reply = self.vol.trans_create(id, partition, flags).await;
        reply.unwrap().transaction
    }

    pub(crate) async fn end(&self, transaction: TransactionId) {
        let reply = self.vol.end_trans(transaction).await.unwrap();
        assert_eq!(reply.return_code, 0);
    }

    pub(crate) async fn set_flags(&self, transaction: TransactionId, flags: TransactionFlags) {
        self.vol.set_flags(transaction, flags).await.unwrap();
    }

    /// Makes a volume as `vos create` does, without its place in the VLDB.
    pub(crate) async fn create(&self, partition: PartitionId, id: VolumeId, volume: &str) {
        let none = VolumeId(0);
        let made = self.vol.create_volume(partition, text(volume), 0, none, id);
        let made = made.await.unwrap();
        assert_eq!(made.volume, id);
        self.set_flags(made.transaction, FINISHED).await;
        self.end(made.transaction).await;
    }

    /// A volume with a tree in it.
    pub(crate) async fn filled(&self) -> Volume {
        self.create(A, RW, "user.ann").await;
        let volume = self.volume(A, RW);
        fill(&volume);
        volume
    }

    /// Clones a volume, and brings the clone on line, as `vos release` and `vos backup` do.
    pub(crate) async fn clone_of(
        &self,
        id: VolumeId,
        clone: VolumeId,
        kind: VolumeType,
        name: &str,
    ) {
        let transaction = self.begin(id, AttachFlags::BUSY).await;
        let purge = VolumeId(0);
        let made = self
            .vol
            .clone(transaction, purge, kind.number(), text(name), clone)
            .await;
        assert_eq!(made.unwrap().volume, clone);
        self.end(transaction).await;
        let transaction = self.begin(clone, AttachFlags::OFFLINE).await;
        self.set_flags(transaction, FINISHED).await;
        self.end(transaction).await;
    }

    /// All of a dump.
    pub(crate) async fn dump(&self, transaction: TransactionId, from: u32) -> Vec<u8> {
        let mut download = self.vol.dump(transaction, UnixTime(from)).await.unwrap();
        let mut whole = Vec::new();
        while let Some(piece) = download.chunk().await.unwrap() {
            whole.extend_from_slice(&piece);
        }
        whole
    }

    /// Restores a dump into a transaction.
    pub(crate) async fn restore(
        &self,
        transaction: TransactionId,
        stream: &[u8],
        cookie: RestoreCookie,
    ) -> Result<(), RpcError> {
        let mut upload = self.vol.restore(transaction, 0, cookie).await?;
        for piece in stream.chunks(50_000) {
            upload.send(piece.to_vec().into()).await?;
        }
        upload.finish().await.map(|_| ())
    }
}

fn connect(client: &Endpoint, server: &Endpoint) -> afsvol::Client {
    let security = Arc::new(RxNull);
    let connection = client.connect(server.local_addr(), afsvol::SERVICE, security);
    afsvol::Client::new(connection)
}

/// The partitions of a server that has stopped.
pub(crate) struct Stopped {
    dir: TempDir,
}

impl Stopped {
    /// Opens a partition as the next start does.
    pub(crate) fn open(&self, name: &str) -> Partition {
        Partition::open(&self.dir.path().join(name), &partition_options()).unwrap()
    }
}

pub(crate) fn text(name: &str) -> VolintNameText {
    VolintNameText::new(name).unwrap()
}

pub(crate) fn cookie(name: &str, kind: VolumeType, clone: VolumeId) -> RestoreCookie {
    RestoreCookie {
        name: VolintName::new(name).unwrap(),
        kind: kind.number(),
        clone_id: clone,
        parent_id: RW,
    }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, RpcError>) -> i32 {
    result.unwrap_err().aborted().unwrap().0
}

pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

pub(crate) fn new_file(volume: &Volume, directory: Fid, name: &str, data: &[u8]) -> Fid {
    let made = volume
        .create_file(directory, name.as_bytes(), &NewVnode::new(PtsId(7), 0o644))
        .unwrap();
    write(volume, made.vnode.fid, data);
    made.vnode.fid
}

pub(crate) fn write(volume: &Volume, fid: Fid, data: &[u8]) {
    volume
        .write(fid, 0, data, &StoreOptions::default())
        .unwrap();
}

/// Directories, files of several sizes and a symlink. The quota goes, as all is more than 5 MB.
fn fill(volume: &Volume) {
    let change = afar_store::VolumeChange {
        max_quota: Some(0),
        ..afar_store::VolumeChange::default()
    };
    volume.change(change).unwrap();
    let new = |mode| NewVnode::new(PtsId(7), mode);
    let root = volume.root();
    let made = volume.make_directory(root, b"src", &new(0o755)).unwrap();
    let src = made.vnode.fid;
    for number in 0..40 {
        let data = noise(number * 997, number as u64);
        new_file(volume, src, &format!("file.{number}"), &data);
    }
    new_file(volume, root, "large", &noise(9 << 20, 7));
    volume
        .symlink(root, b"link", b"src/file.1", &new(0o755))
        .unwrap();
}

/// What a vnode is, without the number of the volume it is in.
type Node = (VnodeStatus, Vec<u8>);

/// All vnodes of a volume by path.
fn tree(volume: &Volume) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut left = vec![(Vec::new(), volume.root())];
    while let Some((path, fid)) = left.pop() {
        let mut status = volume.status(fid).unwrap();
        status.fid.volume = VolumeId(0);
        let data = volume.read_all(fid, 64 << 20).unwrap();
        if status.file_type == FileType::Directory {
            for entry in Directory::new(&data).unwrap().entries() {
                let entry = entry.unwrap();
                if !matches!(entry.name, b"." | b"..") {
                    let path = [&path[..], b"/", entry.name].concat();
                    left.push((path, volume.fid(entry.id.vnode, entry.id.uniquifier)));
                }
            }
        }
        nodes.insert(path, (status, data));
    }
    nodes
}

/// Two volumes hold the same.
pub(crate) fn assert_same(one: &Volume, other: &Volume) {
    let (one, other) = (tree(one), tree(other));
    assert!(one.keys().eq(other.keys()), "other names");
    for (path, node) in &one {
        let path = String::from_utf8_lossy(path);
        let found = &other[path.as_bytes()];
        assert_eq!(node.0, found.0, "{path}");
        assert!(node.1 == found.1, "data of {path}");
    }
}

/// A clock that ticks in seconds: changes after this are later than those before.
pub(crate) async fn next_second() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}
