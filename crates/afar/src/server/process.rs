//! Starting the roles of a server, and stopping them so that nothing is lost.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afar_dbserver::kv::{Database, Options};
use afar_dbserver::pr::{ProtectionConfig, ProtectionServer};
use afar_dbserver::vl::{LocationConfig, LocationServer};
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::protection::Protection;
use afar_fileserver::registration;
use afar_fileserver::server::FileServer;
use afar_fileserver::volser::{VolserConfig, VolumeServer};
use afar_fileserver::volumes::Volumes;
use afar_net::{Endpoint, RxNull, Service, ServiceId};
use afar_rpc::{Identity, afsvol, bozo, pr, rxafs, vl};
use afar_store::Partition;
use afar_types::{AfsUuid, CellName, PartitionId};
use anyhow::Context;
#[cfg(not(feature = "etcd"))]
use anyhow::ensure;
use tokio::task::JoinSet;

use super::config::{Config, Peers, Role};
use super::found::found;
use super::identity;
use super::overseer::Overseer;
use super::sockets::{Opener, RunDir, Sockets, addresses};
use crate::local_cell;
use crate::resolve;

/// Where hosts and promises are kept between a stop and the next start.
const CALLBACKS: &str = "callbacks";
/// How long running calls have when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A server's roles, running.
pub(super) struct Process {
    cell: CellName,
    config: Config,
    run: RunDir,
    /// By role.
    sockets: BTreeMap<Role, Sockets>,
    /// For questions to the database servers.
    client: Endpoint,
    /// For dumps between our own partitions.
    home: Endpoint,
    location: Vec<vl::Client>,
    addresses: Vec<Ipv4Addr>,
    files: Option<Files>,
    background: JoinSet<()>,
}

/// What a file server keeps.
struct Files {
    volumes: Arc<Volumes>,
    hosts: Arc<Hosts>,
    state: PathBuf,
}

impl Process {
    /// Starts what the configuration says. When this returns the roles answer.
    pub(super) async fn start(config: Config) -> anyhow::Result<Self> {
        let cell = config.cell()?;
        if config.insecure_noauth {
            tracing::warn!(
                "insecure_noauth: everybody who reaches {} may administer this server",
                config.listen.0
            );
        }
        let run = match &config.run {
            Some(run) => run.clone(),
            None => local_cell::run_dir(&cell)?,
        };
        let run = RunDir::take(&run)?;
        let data = config.data.0.clone();
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot make the data directory {}", data.display()))?;
        let mut opener = Opener::new(&config, &run.path)?;
        let mut sockets = BTreeMap::new();
        for &role in &config.roles.0 {
            sockets.insert(role, opener.open(role)?);
        }
        let home = local_cell::endpoint(&run.path, afar_net::Config::default())
            .context("cannot make a socket")?;
        let client = if config.has(Role::Vl) && config.has(Role::Pt) {
            // The database servers in this process take us for one of theirs.
            home.clone()
        } else {
            client_endpoint(&config)?
        };
        let mut process = Self {
            addresses: addresses(&config)?,
            location: Vec::new(),
            cell,
            config,
            run,
            sockets,
            client,
            home,
            files: None,
            background: JoinSet::new(),
        };
        process.serve_databases(&data).await?;
        process.location = process.location_clients().await?;
        if process.config.has(Role::File) {
            process.serve_files(&data).await?;
        }
        process.serve_status();
        process.write_cellservdb()?;
        // The answer comes after the I/O threads know the services.
        for sockets in process.sockets.values() {
            sockets.public.stats().await;
            sockets.local.stats().await;
        }
        Ok(process)
    }

    /// The address a client on this machine would use.
    pub(super) fn listen(&self) -> IpAddr {
        match self.config.listen.0 {
            address if !address.is_unspecified() => address,
            _ => self
                .addresses
                .first()
                .map_or(Ipv4Addr::LOCALHOST, |a| *a)
                .into(),
        }
    }

    /// Finishes running calls, writes down who has which promises, and closes everything.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        tracing::info!("stopping");
        self.background.shutdown().await;
        let mut closing = JoinSet::new();
        for sockets in self.sockets.into_values() {
            closing.spawn(async move {
                tokio::join!(sockets.public.shutdown(), sockets.local.shutdown());
            });
        }
        closing.join_all().await;
        tokio::join!(self.client.shutdown(), self.home.shutdown());
        if let Some(files) = self.files.take() {
            files.hosts.save(&files.state).with_context(|| {
                format!(
                    "cannot write promises to {}; clients will be told to drop theirs",
                    files.state.display()
                )
            })?;
        }
        Ok(())
    }

    /// Who calls a public socket of an administrative service.
    fn public_identity(&self) -> Identity {
        if self.config.insecure_noauth {
            Identity::Superuser
        } else {
            Identity::Anonymous
        }
    }

    async fn serve_databases(&self, data: &Path) -> anyhow::Result<()> {
        if let Some(sockets) = self.sockets.get(&Role::Vl) {
            let database = self.database(data, "vl")?;
            let server = LocationServer::open(database, LocationConfig::default())?;
            let server = Arc::new(server);
            let public = vl::Server::shared(&server, self.public_identity());
            sockets.public.serve(vl::SERVICE, vl::NAME, public);
            let local = vl::Server::shared(&server, Identity::Superuser);
            sockets.local.serve(vl::SERVICE, vl::NAME, local);
        }
        if let Some(sockets) = self.sockets.get(&Role::Pt) {
            let database = self.database(data, "pt")?;
            let config = ProtectionConfig {
                local_realms: vec![self.cell.to_string()],
                ..ProtectionConfig::default()
            };
            let server = Arc::new(ProtectionServer::open(database, config).await?);
            let public = pr::Server::shared(&server, self.public_identity());
            sockets.public.serve(pr::SERVICE, pr::NAME, public);
            let local = pr::Server::shared(&server, Identity::Superuser);
            sockets.local.serve(pr::SERVICE, pr::NAME, local);
        }
        Ok(())
    }

    /// The rows of a service, this server's alone or agreed through etcd.
    fn database(&self, data: &Path, service: &str) -> anyhow::Result<Database> {
        let dir = data.join(service);
        let options = self.database_options(service)?;
        Database::open(&dir, &options)
            .with_context(|| format!("cannot open the database {}", dir.display()))
    }

    #[cfg(feature = "etcd")]
    fn database_options(&self, service: &str) -> anyhow::Result<Options> {
        let mut options = Options::default();
        let members = &self.config.database.etcd;
        if !members.is_empty() {
            let members = members.iter().map(|member| {
                if member.contains("://") {
                    member.clone()
                } else {
                    format!("http://{member}")
                }
            });
            let mut etcd = afar_dbserver::kv::EtcdOptions::new(members.collect());
            etcd.prefix = format!("/afar/{}/{service}/", self.cell);
            options.etcd = Some(etcd);
        }
        Ok(options)
    }

    #[cfg(not(feature = "etcd"))]
    fn database_options(&self, _service: &str) -> anyhow::Result<Options> {
        ensure!(
            self.config.database.etcd.is_empty(),
            "database.etcd is set, but this afar was built without the feature `etcd`"
        );
        Ok(Options::default())
    }

    async fn serve_files(&mut self, data: &Path) -> anyhow::Result<()> {
        let uuid = identity::uuid(data)?;
        let volumes = Arc::new(Volumes::new(self.open_partitions()?));
        let state = data.join(CALLBACKS);
        let hosts = Hosts::new(HostsConfig {
            promises_max: usize::try_from(self.config.files.max_callbacks.0)?,
            restore: Some(state.clone()),
            ..HostsConfig::new(uuid)
        });
        let protection = Arc::new(Protection::new(self.protection_clients().await?));
        let files = FileServer::new(Arc::clone(&volumes), Arc::clone(&hosts), protection);
        let sockets = &self.sockets[&Role::File];
        let max_calls = self.config.files.max_calls.0 as usize;
        for (endpoint, identity) in [
            (&sockets.public, Identity::Anonymous),
            (&sockets.local, Identity::Superuser),
        ] {
            let service = files.service(endpoint.clone());
            let server = rxafs::Server::with_identity(service, identity);
            endpoint.serve_with(service_of(rxafs::SERVICE, rxafs::NAME, max_calls), server);
        }
        hosts.attach(&sockets.public);
        let sockets = &self.sockets[&Role::Vol];
        let mut own = self.addresses.clone();
        own.push(Ipv4Addr::LOCALHOST);
        let config = VolserConfig::default()
            .home(own, self.home.clone())
            .restricted_query(self.config.volumes.restricted_query)
            .idle_limit(Duration::from_secs(
                self.config.volumes.idle_seconds.0.into(),
            ));
        let server = Arc::new(VolumeServer::new(
            Arc::clone(&volumes),
            Arc::clone(&hosts),
            sockets.public.clone(),
            config,
        ));
        let public = afsvol::Server::shared(&server, self.public_identity());
        sockets.public.serve(afsvol::SERVICE, afsvol::NAME, public);
        let local = afsvol::Server::shared(&server, Identity::Superuser);
        sockets.local.serve(afsvol::SERVICE, afsvol::NAME, local);
        self.register(uuid);
        self.files = Some(Files {
            volumes,
            hosts,
            state,
        });
        Ok(())
    }

    fn open_partitions(&self) -> anyhow::Result<Vec<(PartitionId, Arc<Partition>)>> {
        let mut opened = Vec::new();
        for (id, partition) in self.config.partitions()? {
            let (path, options) = (&partition.path, partition.options()?);
            std::fs::create_dir_all(path)
                .with_context(|| format!("cannot make {} for {id}", path.display()))?;
            let is_new = std::fs::read_dir(path)?.next().is_none();
            let partition = if is_new {
                Partition::init(path, &options)
            } else {
                Partition::open(path, &options)
            };
            opened.push((id, Arc::new(partition.with_context(|| format!("{id}"))?)));
        }
        Ok(opened)
    }

    /// Tells the location servers where this file server is, again until they know.
    fn register(&mut self, uuid: AfsUuid) {
        let (servers, addresses) = (self.location.clone(), self.addresses.clone());
        self.background
            .spawn(registration::keep_trying(servers, uuid, addresses));
    }

    fn serve_status(&self) {
        let Some(sockets) = self.sockets.get(&Role::Bos) else {
            return;
        };
        let hosts = self.location.iter();
        let hosts = hosts.map(|client| client.connection().peer().ip().to_string());
        let overseer = Arc::new(Overseer::new(
            self.cell.to_string(),
            hosts.collect(),
            &self.config.roles.0,
        ));
        let public = bozo::Server::shared(&overseer, self.public_identity());
        sockets.public.serve(bozo::SERVICE, bozo::NAME, public);
        let local = bozo::Server::shared(&overseer, Identity::Superuser);
        sockets.local.serve(bozo::SERVICE, bozo::NAME, local);
    }

    async fn location_clients(&self) -> anyhow::Result<Vec<vl::Client>> {
        let servers = self.peers(Role::Vl, &self.config.location).await?;
        let connect = |server| self.client.connect(server, vl::SERVICE, Arc::new(RxNull));
        Ok(servers
            .into_iter()
            .map(|server| vl::Client::new(connect(server)))
            .collect())
    }

    async fn protection_clients(&self) -> anyhow::Result<Vec<pr::Client>> {
        let servers = self.peers(Role::Pt, &self.config.protection).await?;
        let connect = |server| self.client.connect(server, pr::SERVICE, Arc::new(RxNull));
        Ok(servers
            .into_iter()
            .map(|server| pr::Client::new(connect(server)))
            .collect())
    }

    /// The addresses of a service: ours, or those configured.
    async fn peers(&self, role: Role, peers: &Peers) -> anyhow::Result<Vec<SocketAddr>> {
        if self.config.has(role) {
            return Ok(vec![SocketAddr::new(self.listen(), role.port())]);
        }
        let mut found = Vec::new();
        for server in &peers.servers {
            let addresses = resolve::addresses(server, role.port())
                .await
                .with_context(|| format!("cannot find the {} {server}", role.program()))?;
            found.extend(addresses);
        }
        Ok(found)
    }

    /// Writes where the location servers are, for clients on this machine.
    fn write_cellservdb(&self) -> anyhow::Result<()> {
        let mut text = format!(">{} #by afar on this machine\n", self.cell);
        for client in &self.location {
            let address = client.connection().peer().ip();
            text.push_str(&format!("{address} #{address}\n"));
        }
        let path = self.run.path.join(local_cell::CELLSERVDB);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// An endpoint for questions to database servers elsewhere.
fn client_endpoint(config: &Config) -> anyhow::Result<Endpoint> {
    let net = afar_net::Config {
        shutdown_limit: STOP_LIMIT,
        ..afar_net::Config::default()
    };
    let address = SocketAddr::new(config.listen.0, 0);
    Endpoint::bind(address, net).context("cannot open a UDP socket")
}

fn service_of(id: ServiceId, name: &'static str, max_calls: usize) -> Service {
    Service {
        max_calls,
        ..Service::new(id, name)
    }
}

impl Process {
    /// Makes the root volumes of a cell that has none.
    pub(super) async fn found_cell(&self) -> anyhow::Result<()> {
        let (Some(files), Some(location), Some(&address)) =
            (&self.files, self.location.first(), self.addresses.first())
        else {
            return Ok(());
        };
        found(&self.cell, &files.volumes, location, address).await
    }
}
