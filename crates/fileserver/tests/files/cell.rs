//! A server, its volumes, and clients of it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afar_cell::CallbackService;
use afar_fileserver::files::Files;
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::leases::Leases;
use afar_fileserver::oob::{Oob, OobConfig};
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volser::{VolserConfig, VolumeServer};
use afar_fileserver::volumes::Volumes;
use afar_net::{AbortCode, Config, Endpoint, RxNull, ServiceId};
use afar_rpc::{Caller, Identity, RpcError, afsvol, pr, rxafs};
use afar_store::{NewVolume, Partition, PartitionOptions, Volume, VolumeChange};
use afar_telemetry::Registry;
use afar_types::{
    AclRecord, AclRecordEntry, AfsUuid, DestServer, Fid, FileName, PartitionId, PrIds, PrName,
    PrNames, PtsId, Rights, StoreStatus, UnixTime, VolumeId,
};
use bytes::Bytes;
use tokio::task::JoinHandle;

pub(crate) const VOLUME: VolumeId = VolumeId(536_870_912);
pub(crate) const ANN: PtsId = PtsId(7);
pub(crate) const STAFF: PtsId = PtsId(-300);

/// Codes as clients get them that know UAE codes, as those here do.
pub(crate) const fn uae(number: i32) -> AbortCode {
    AbortCode(49_733_376 + number)
}
pub(crate) const EPERM: AbortCode = uae(0);
pub(crate) const ENOENT: AbortCode = uae(1);
pub(crate) const EAGAIN: AbortCode = uae(0x0a);
pub(crate) const EACCES: AbortCode = uae(0x0c);
pub(crate) const EEXIST: AbortCode = uae(0x10);
pub(crate) const EXDEV: AbortCode = uae(0x11);
pub(crate) const ENOTDIR: AbortCode = uae(0x13);
pub(crate) const EISDIR: AbortCode = uae(0x14);
pub(crate) const EINVAL: AbortCode = uae(0x15);
pub(crate) const EFBIG: AbortCode = uae(0x1a);
pub(crate) const EROFS: AbortCode = uae(0x1d);
pub(crate) const ENAMETOOLONG: AbortCode = uae(0x23);
pub(crate) const VNOVNODE: AbortCode = AbortCode(102);
pub(crate) const VNOVOL: AbortCode = AbortCode(103);
pub(crate) const VOFFLINE: AbortCode = AbortCode(106);
pub(crate) const VOVERQUOTA: AbortCode = AbortCode(109);
pub(crate) const VBUSY: AbortCode = AbortCode(110);

/// A running server.
pub(crate) struct Cell {
    pub(crate) server: Arc<FileServer>,
    pub(crate) leases: Option<Arc<Leases>>,
    /// What the server counts.
    pub(crate) registry: Registry,
    pub(crate) volume: Volume,
    pub(crate) partition: PartitionId,
    /// Callers here are anonymous.
    pub(crate) open: Endpoint,
    /// Callers here are `ann`.
    ann: Endpoint,
    /// Callers here are the administration.
    admin: Endpoint,
    /// Where the first two have data out of band.
    pub(crate) tcp: SocketAddr,
    serving: JoinHandle<()>,
    /// The protection server.
    pub(crate) protection: Endpoint,
    names: Names,
    /// Endpoints of clients: connections do not keep them.
    clients: Mutex<Vec<Endpoint>>,
    _directory: tempfile::TempDir,
}

/// A client at a socket of its own.
pub(crate) struct Client {
    pub(crate) files: rxafs::Client,
    pub(crate) callbacks: CallbackService,
    pub(crate) endpoint: Endpoint,
}

/// Memory for data out of band: for eight transfers, of which an address has four, and a store with more.
const OOB_MEMORY: u64 = 32 << 20;
/// How long clients may take nothing of it.
const OOB_IDLE: Duration = Duration::from_secs(2);

/// The file beside the volumes in which is what outlives the server of leases.
pub(crate) const LEASES: &str = "leases";

pub(crate) fn bind() -> Endpoint {
    Endpoint::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

impl Cell {
    /// With one volume, in which anyone may do anything but administrate.
    pub(crate) async fn new() -> Self {
        Self::told(None).await
    }

    /// The same where clients are told another TCP port than the server's.
    pub(crate) async fn told(port: Option<u16>) -> Self {
        Self::at(tempfile::tempdir().unwrap(), port).await
    }

    /// The same with what was left on this disk, if anything was.
    pub(crate) async fn at(directory: tempfile::TempDir, port: Option<u16>) -> Self {
        Self::start(directory, port, false).await
    }

    /// The same whose clients get leases.
    pub(crate) async fn leasing(directory: tempfile::TempDir) -> Self {
        Self::start(directory, None, true).await
    }

    async fn start(directory: tempfile::TempDir, port: Option<u16>, leasing: bool) -> Self {
        let options = PartitionOptions::default();
        let is_new = directory.path().read_dir().unwrap().next().is_none();
        let partition = match is_new {
            true => Partition::init(directory.path(), &options),
            false => Partition::open(directory.path(), &options),
        };
        let partition = Arc::new(partition.unwrap());
        let name: PartitionId = "/vicepa".parse().unwrap();
        let volumes = Arc::new(Volumes::new(vec![(name, partition)]));
        let (_, partition) = volumes.partitions().next().unwrap();
        let volume = match is_new {
            true => volumes.create(partition, &NewVolume::new(VOLUME, "user.ann")),
            false => Ok(volumes.find(VOLUME).unwrap()),
        };
        let volume = volume.unwrap();

        let unlimited = VolumeChange {
            max_quota: Some(0),
            ..VolumeChange::default()
        };
        volume.change(unlimited).unwrap();
        let protection = bind();
        let names = Names::default();
        let groups = Groups(Arc::clone(&names));
        protection.serve(pr::SERVICE, pr::NAME, pr::Server::new(groups));
        let asker = bind();
        let asks = asker.connect(protection.local_addr(), pr::SERVICE, Arc::new(RxNull));
        let known = Arc::new(Protection::new(vec![pr::Client::new(asks)]));
        let uuid = AfsUuid::from_random([7; 16]);
        let hosts = Hosts::new(HostsConfig::new(uuid));
        let registry = Registry::default();
        let leases = leasing.then(|| {
            let path = directory.path().join(LEASES);
            Leases::open(&path, uuid, 100, &registry).unwrap()
        });
        let volumes = Arc::clone(&volumes);
        let server = FileServer::with_leases(
            Arc::clone(&volumes),
            Arc::clone(&hosts),
            known,
            &registry,
            leases.clone(),
        );
        let listener = afar_tls::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = listener.local_addr().unwrap();
        let config = OobConfig {
            port: port.unwrap_or_else(|| tcp.port()),
            memory: OOB_MEMORY,
            idle_limit: OOB_IDLE,
        };
        let oob = Oob::new(config, &registry).unwrap();
        let mut config = VolserConfig::default().out_of_band(oob.offers());
        if let Some(leases) = &leases {
            config = config.leases(leases);
        }
        let forwarder = bind();
        let volser = VolumeServer::new(volumes, hosts, forwarder.clone(), config);
        let serve = |identity: Identity| {
            let endpoint = bind();
            let service: Files = server.service(endpoint.clone()).offering(oob.offers());
            let service = rxafs::Server::with_identity(service, identity.clone());
            endpoint.serve(rxafs::SERVICE, rxafs::NAME, service);
            let service = afsvol::Server::with_identity(volser.at(endpoint.clone()), identity);
            endpoint.serve(afsvol::SERVICE, afsvol::NAME, service);
            endpoint
        };
        let open = serve(Identity::Anonymous);
        let ann = serve(Identity::User(Arc::from("ann")));
        let admin = serve(Identity::Superuser);
        let serving = oob.clone().with_volumes(volser.clone()).serve(
            listener,
            Arc::clone(&server),
            ann.clone(),
        );
        let serving = tokio::spawn(serving);
        for endpoint in [&open, &ann, &admin, &protection] {
            // The answer comes after the services are known to the I/O thread.
            endpoint.stats().await;
        }
        let cell = Self {
            server,
            leases,
            registry,
            volume,
            partition: name,
            open,
            ann,
            admin,
            tcp,
            serving,
            protection,
            names,
            clients: Mutex::new(vec![asker, forwarder]),
            _directory: directory,
        };
        cell.allow(cell.root(), &[(PtsId::ANYUSER, "rlidwk")]);
        cell
    }

    /// Where callers are `ann`.
    pub(crate) fn address_of_ann(&self) -> SocketAddr {
        self.ann.local_addr()
    }

    pub(crate) fn root(&self) -> Fid {
        Fid::root(VOLUME)
    }

    /// From now on somebody has another name, or is gone.
    pub(crate) fn rename(&self, id: PtsId, name: Option<&str>) {
        let name = name.map(str::to_owned);
        self.names.lock().unwrap().insert(id, name);
    }

    /// Sets an ACL without asking the server.
    pub(crate) fn allow(&self, directory: Fid, entries: &[(PtsId, &str)]) {
        let entry = |(id, rights): &(PtsId, &str)| AclRecordEntry {
            id: *id,
            rights: rights.parse::<Rights>().unwrap(),
        };
        let positive = entries.iter().map(entry).collect();
        let acl = AclRecord::new(positive, Vec::new()).unwrap();
        self.volume.set_acl(directory, &acl).unwrap();
    }

    fn client_of(&self, server: SocketAddr) -> Client {
        let endpoint = bind();
        self.clients.lock().unwrap().push(endpoint.clone());
        let callbacks = CallbackService::start(&endpoint);
        let connection = endpoint.connect(server, rxafs::SERVICE, Arc::new(RxNull));
        Client {
            files: rxafs::Client::new(connection),
            callbacks,
            endpoint,
        }
    }

    /// A client of the volume server, which knows it as this kind of caller.
    fn volumes_at(&self, server: &Endpoint) -> afsvol::Client {
        let endpoint = bind();
        self.clients.lock().unwrap().push(endpoint.clone());
        let connection = endpoint.connect(server.local_addr(), afsvol::SERVICE, Arc::new(RxNull));
        afsvol::Client::new(connection)
    }

    /// A client of the volume server, of the administration.
    pub(crate) fn volumes(&self) -> afsvol::Client {
        self.volumes_at(&self.admin)
    }

    /// The same of `ann`, and of nobody in particular.
    pub(crate) fn volumes_of_others(&self) -> [afsvol::Client; 2] {
        [&self.ann, &self.open].map(|server| self.volumes_at(server))
    }

    /// Where others forward dumps to.
    pub(crate) fn destination(&self) -> DestServer {
        DestServer {
            port: self.admin.local_addr().port().into(),
            ..DestServer::new(Ipv4Addr::LOCALHOST)
        }
    }

    /// A client of nobody in particular.
    pub(crate) fn client(&self) -> Client {
        self.client_of(self.open.local_addr())
    }

    /// The same client, which now calls this server.
    pub(crate) fn again(&self, client: Client) -> Client {
        self.clients.lock().unwrap().push(client.endpoint.clone());
        let server = self.open.local_addr();
        let connection = client
            .endpoint
            .connect(server, rxafs::SERVICE, Arc::new(RxNull));
        Client {
            files: rxafs::Client::new(connection),
            ..client
        }
    }

    /// A client of `ann`, a member of `staff`.
    pub(crate) fn ann(&self) -> Client {
        self.client_of(self.ann.local_addr())
    }

    /// A client of the administration.
    pub(crate) fn admin(&self) -> Client {
        self.client_of(self.admin.local_addr())
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Client {
    pub(crate) async fn create(&self, directory: Fid, file: &str) -> Fid {
        let made = self
            .files
            .create_file(directory, name(file), mode(0o644))
            .await;
        made.unwrap().fid
    }

    pub(crate) async fn make_dir(&self, directory: Fid, file: &str) -> Fid {
        let made = self
            .files
            .make_dir(directory, name(file), mode(0o755))
            .await;
        made.unwrap().fid
    }

    /// Stores data and returns the new status.
    pub(crate) async fn store(
        &self,
        fid: Fid,
        position: u64,
        data: &[u8],
        file_length: u64,
    ) -> Result<rxafs::store_data64::Reply, RpcError> {
        let (plain, length) = (StoreStatus::default(), data.len() as u64);
        let stored = self
            .files
            .store_data64(fid, plain, position, length, file_length);
        let mut store = stored.await?;
        for piece in data.chunks(100_000) {
            store.send(Bytes::copy_from_slice(piece)).await?;
        }
        store.finish().await
    }

    /// Fetches data with the results.
    pub(crate) async fn fetch(
        &self,
        fid: Fid,
        position: i64,
        length: i64,
    ) -> Result<(Vec<u8>, rxafs::fetch_data64::Reply), RpcError> {
        let mut fetch = self.files.fetch_data64(fid, position, length).await?;
        let mut data = Vec::new();
        while let Some(chunk) = fetch.chunk().await? {
            data.extend_from_slice(&chunk);
        }
        Ok((data, fetch.finish().await?))
    }
}

pub(crate) fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

pub(crate) fn mode(bits: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MODE | StoreStatus::SET_MOD_TIME,
        client_mod_time: UnixTime(1_000_000),
        unix_mode_bits: bits,
        ..StoreStatus::default()
    }
}

/// What a call was refused with.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, RpcError>) -> AbortCode {
    let error = result.expect_err("refused");
    error
        .aborted()
        .unwrap_or_else(|| panic!("refused by an abort: {error:?}"))
}

/// Names that are not what they were; none of those who are gone.
type Names = Arc<Mutex<HashMap<PtsId, Option<String>>>>;

/// A protection server that knows `ann`, of the group `staff`.
struct Groups(Names);

impl Groups {
    fn name(&self, id: PtsId) -> Option<String> {
        let changed = self.0.lock().unwrap().get(&id).cloned();
        changed.unwrap_or_else(|| match id {
            ANN => Some("ann".to_owned()),
            STAFF => Some("staff".to_owned()),
            _ => None,
        })
    }
}

impl pr::Service for Groups {
    async fn name_to_id(
        &self,
        _: &Caller,
        request: pr::name_to_id::Request,
    ) -> Result<pr::name_to_id::Reply, AbortCode> {
        let id = |name: &PrName| {
            let known = [ANN, STAFF].into_iter();
            let named = |id: &PtsId| self.name(*id) == Some(name.to_string());
            { known }.find(named)
        };
        let ids = request
            .names
            .iter()
            .map(|name| id(name).unwrap_or(PtsId::ANONYMOUS));
        let ids = PrIds::new(ids.collect::<Vec<_>>()).unwrap();
        Ok(pr::name_to_id::Reply { ids })
    }

    async fn id_to_name(
        &self,
        _: &Caller,
        request: pr::id_to_name::Request,
    ) -> Result<pr::id_to_name::Reply, AbortCode> {
        let name = |id: &PtsId| {
            let name = self.name(*id).unwrap_or_else(|| id.to_string());
            PrName::new(name).unwrap()
        };
        let names = request.ids.iter().map(name).collect::<Vec<_>>();
        let names = PrNames::new(names).unwrap();
        Ok(pr::id_to_name::Reply { names })
    }

    async fn get_cps(
        &self,
        _: &Caller,
        request: pr::get_cps::Request,
    ) -> Result<pr::get_cps::Reply, AbortCode> {
        assert_eq!(request.id, ANN);
        let cps = PrIds::new(vec![STAFF, PtsId::AUTHUSER, PtsId::ANYUSER, ANN]).unwrap();
        Ok(pr::get_cps::Reply { cps, over: 0 })
    }

    async fn get_host_cps(
        &self,
        _: &Caller,
        _: pr::get_host_cps::Request,
    ) -> Result<pr::get_host_cps::Reply, AbortCode> {
        let cps = PrIds::new(Vec::new()).unwrap();
        Ok(pr::get_host_cps::Reply { cps, over: 0 })
    }
}

/// A service number, for calls by hand.
pub(crate) const RXAFS: ServiceId = rxafs::SERVICE;
