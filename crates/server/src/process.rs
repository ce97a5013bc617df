//! Starting the roles of a server, and stopping them so that nothing is lost.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afar_dbserver::kv::{Database, DbError, Options};
use afar_dbserver::pr::{PrError, ProtectionServer};
use afar_dbserver::vl::LocationServer;
use afar_dbserver::vote::VoteServer;
use afar_fileserver::hosts::{Hosts, HostsConfig};
use afar_fileserver::leases::Leases;
use afar_fileserver::protection::Protection;
use afar_fileserver::server::FileServer;
use afar_fileserver::volser::{VolserConfig, VolumeServer};
use afar_fileserver::volumes::Volumes;
use afar_login::uri::CellUri;
use afar_net::{Endpoint, Service};
use afar_rpc::{afsvol, bozo, eyes, pr, rxafs, vl, vote};
use afar_store::Partition;
use afar_telemetry::Registry;
use afar_types::{AfsUuid, CellName, PartitionId};
use anyhow::Context;
#[cfg(not(feature = "etcd"))]
use anyhow::ensure;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::config::{self, Config, Role};
use crate::elsewhere::Elsewhere;
use crate::found::found;
use crate::http::LocalSocket;
use crate::identity;
use crate::local_cell;
use crate::login::Login;
use crate::metrics::{self, Exporter};
use crate::missing;
use crate::oob;
use crate::overseer::Overseer;
use crate::partitions::{self, Partitions};
use crate::peers::Peers;
use crate::private;
use crate::security::Security;
use crate::sockets::{Opener, RunDir, Sockets, addresses, own_addresses};
use crate::userlist;
use crate::view;
use crate::views::Views;
use crate::web::{self, Web};
use crate::whereabouts::Whereabouts;

/// Where hosts and promises are kept between a stop and the next start.
const CALLBACKS: &str = "callbacks";
/// What outlives a file server of leases.
const LEASES: &str = "leases";
/// What is in the data directory.
const DATA: [&str; 8] = [
    "vl",
    "pt",
    "uuid",
    "KeyFileExt",
    CALLBACKS,
    LEASES,
    partitions::NOTE,
    userlist::USERLIST,
];
/// How long running calls have when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A server's roles, running.
pub struct Process {
    cell: CellName,
    config: Config,
    run: RunDir,
    security: Arc<Security>,
    /// By role.
    sockets: BTreeMap<Role, Sockets>,
    /// For questions to database servers elsewhere.
    client: Endpoint,
    /// For what this process asks of itself.
    home: Endpoint,
    location: Peers,
    /// The database of users and groups, if it is here.
    users: Option<Database>,
    addresses: Vec<Ipv4Addr>,
    files: Option<Files>,
    background: JoinSet<()>,
    /// What all roles count.
    registry: Registry,
    /// Told when an administrator wants the server to start again.
    restart: Arc<Notify>,
    /// What is damaged, and not served.
    refused: Vec<String>,
    /// Of these, the partitions.
    not_served: Vec<PartitionId>,
}

/// What a file server keeps.
struct Files {
    uuid: AfsUuid,
    volumes: Arc<Volumes>,
    hosts: Arc<Hosts>,
    state: PathBuf,
}

impl Process {
    /// Starts what the configuration says. When this returns the roles answer.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let cell = config.cell()?;
        if config.insecure_noauth {
            tracing::warn!(
                "insecure_noauth: every caller that reaches {} may administer this server",
                config.listen.0
            );
        }
        let run = match &config.run {
            Some(run) => run.clone(),
            None => local_cell::run_dir(&cell)?,
        };
        let run = RunDir::take(&run)?;
        private::files();
        let data = config.data.0.clone();
        std::fs::create_dir_all(&data)
            .and_then(|()| private::mend(&data, &DATA))
            .with_context(|| format!("cannot use the data directory {}", data.display()))?;
        let addresses = addresses(&config)?;
        let security = Arc::new(Security::open(&config)?);
        let mut opener = Opener::new(&config, &run.path)?;
        let mut sockets = BTreeMap::new();
        for &role in &config.roles.0 {
            sockets.insert(role, opener.open(role)?);
        }
        let home = local_cell::own_endpoint(&run.path).context("cannot make a socket")?;
        let client = if config.has(Role::Vl) && config.has(Role::Pt) {
            // There is nobody else to ask.
            home.clone()
        } else {
            client_endpoint(&config)?
        };
        let listen = listen(&config, &addresses);
        let peers = async |role, elsewhere: &[String]| {
            if config.has(role) {
                return Ok(Peers::here(SocketAddr::new(listen, role.port()), &home));
            }
            Peers::elsewhere(role, elsewhere, &client, &security).await
        };
        let location = peers(Role::Vl, &config.location.servers).await?;
        let protection = peers(Role::Pt, &config.protection.servers).await?;
        let mut process = Self {
            addresses,
            location,
            cell,
            config,
            run,
            security,
            sockets,
            client,
            home,
            users: None,
            files: None,
            background: JoinSet::new(),
            registry: Registry::default(),
            restart: Arc::default(),
            refused: Vec::new(),
            not_served: Vec::new(),
        };
        let served = process.serve_location(&data);
        process.go_on_without((Role::Vl, "vl"), served)?;
        process.listen_as(&[Role::Vl]);
        let served = process.serve_protection(&data).await;
        process.go_on_without((Role::Pt, "pt"), served)?;
        process.listen_as(&[Role::Pt]);
        if process.config.has(Role::File) {
            process.serve_files(&data, &protection)?;
        }
        process.listen_as(&[Role::File, Role::Vol]);
        process.serve_status();
        process.serve_metrics().await?;
        process.listen_as(&[Role::Bos]);
        process.serve_page()?;
        process.tell_where()?;
        process.run.is_told = true;
        Ok(process)
    }

    /// The address a client on this machine would use.
    #[must_use]
    pub fn listen(&self) -> IpAddr {
        listen(&self.config, &self.addresses)
    }

    /// What the server counts.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The identities of callers.
    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    /// Returns when an administrator wants the server to start again.
    pub async fn restart(&self) {
        self.restart.notified().await;
    }

    /// The line by which other machines are told of the cell, if there is a login service.
    #[must_use]
    pub fn login_line(&self) -> Option<CellUri> {
        let (address, fingerprint) = afar_login::client::local(&self.run.path)?;
        match address.ip() {
            IpAddr::V4(ip) => {
                let cell = self.cell.clone();
                Some(CellUri::new(cell, ip, address.port(), fingerprint))
            }
            IpAddr::V6(_) => None,
        }
    }

    /// Finishes running calls, writes down who has which promises, and closes everything.
    pub async fn stop(mut self) -> anyhow::Result<()> {
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

    fn serve_location(&self, data: &Path) -> anyhow::Result<()> {
        let Some(sockets) = self.sockets.get(&Role::Vl) else {
            return Ok(());
        };
        let database = self.database(data, "vl")?;
        self.serve_votes(Role::Vl, sockets, &database);
        let server = LocationServer::open(database, self.config.location.serving())?;
        let server = Arc::new(server.with_registry(&self.registry));
        sockets.serve(
            Service::new(vl::SERVICE, vl::NAME),
            self.security.public(Role::Vl),
            |_, identity| vl::Server::shared(&server, identity),
        );
        Ok(())
    }

    async fn serve_protection(&mut self, data: &Path) -> anyhow::Result<()> {
        let Some(sockets) = self.sockets.get(&Role::Pt) else {
            return Ok(());
        };
        let database = self.database(data, "pt")?;
        self.serve_votes(Role::Pt, sockets, &database);
        self.users = Some(database.clone());
        let mut local_realms = self.config.security.realms.clone();
        local_realms.push(self.cell.to_string());
        let config = self.config.protection.serving(local_realms)?;
        let server = ProtectionServer::open(database, config).await?;
        let server = Arc::new(server.with_registry(&self.registry));
        sockets.serve(
            Service::new(pr::SERVICE, pr::NAME),
            self.security.public(Role::Pt),
            |_, identity| pr::Server::shared(&server, identity),
        );
        let login = Login {
            cell: &self.cell,
            config: &self.config,
            security: &self.security,
            listen: self.listen(),
            run: &self.run.path,
            registry: &self.registry,
        };
        let served = login.serve(server, sockets, &mut self.background);
        served.await
    }

    /// Tells `udebug` of a database.
    fn serve_votes(&self, role: Role, sockets: &Sockets, database: &Database) {
        let server = VoteServer::new(database.clone(), self.addresses.clone());
        let server = Arc::new(server.with_registry(&self.registry));
        sockets.serve(
            Service::new(vote::SERVICE, vote::NAME),
            self.security.public(role),
            |_, identity| vote::Server::shared(&server, identity),
        );
    }

    /// Answers calls at the ports of these roles: their services are all there.
    fn listen_as(&self, roles: &[Role]) {
        for sockets in roles.iter().filter_map(|role| self.sockets.get(role)) {
            sockets.listen();
        }
    }

    /// Goes on without the service of a database that is damaged. Other errors are for who starts the
    /// server to mend.
    fn go_on_without(
        &mut self,
        (role, service): (Role, &str),
        served: anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Err(error) = served else {
            return Ok(());
        };
        if !is_damaged(&error) {
            return Err(error);
        }
        let back = self.way_back(service);
        tracing::error!("the database {service} is damaged and not served: {error:#}; {back}");
        self.refused.push(service.to_owned());
        // A closed port sends clients to other servers at once. Linux's client takes a refused call for the answer.
        self.sockets.remove(&role);
        Ok(())
    }

    /// What to do about a damaged database.
    fn way_back(&self, service: &str) -> String {
        let dir = self.config.data.0.join(service);
        let Some(made) = Database::copy_made(&dir) else {
            return format!(
                "there is no complete copy of it: restore {} from a backup",
                dir.display()
            );
        };
        let file = self.config.file.as_deref();
        let file = file.unwrap_or_else(|| Path::new(config::DEFAULT_PATH));
        let age = made.elapsed().unwrap_or_default().as_secs();
        format!(
            "to go back to the copy of {age} s ago, stop the server and run: afar server --config {} \
             --restore {service}",
            file.display()
        )
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

    fn serve_files(&mut self, data: &Path, protection: &Peers) -> anyhow::Result<()> {
        let uuid = identity::uuid(data)?;
        let volumes = Arc::new(Volumes::new(self.open_partitions()?));
        let state = data.join(CALLBACKS);
        let hosts = Hosts::new(HostsConfig {
            promises_max: usize::try_from(self.config.files.max_callbacks.0)?,
            restore: Some(state.clone()),
            ..HostsConfig::new(uuid)
        });
        let mut protection = Protection::connecting(protection.protection());
        if let Some(users) = self.users.clone() {
            protection = protection.told_by(Box::new(move || users.commit().ok()));
        }
        let protection = Arc::new(protection);
        let leases = self.leases(&data.join(LEASES), uuid)?;
        let files = FileServer::with_leases(
            Arc::clone(&volumes),
            Arc::clone(&hosts),
            protection,
            &self.registry,
            leases.clone(),
        );
        let oob = oob::open(&self.config, &self.registry);
        let sockets = &self.sockets[&Role::File];
        let service = Service {
            max_calls: self.config.files.max_calls.0 as usize,
            check_reach: true,
            ..Service::new(rxafs::SERVICE, rxafs::NAME)
        };
        sockets.serve(service, self.security.public(Role::File), |at, identity| {
            let service = files.service(at.clone());
            let service = match &oob {
                Some((oob, _)) => service.offering(oob.offers()),
                None => service,
            };
            rxafs::Server::with_identity(service, identity)
        });
        hosts.attach(&sockets.public);
        let files_endpoint = sockets.public.clone();
        let sockets = &self.sockets[&Role::Vol];
        let mut config = self.volser_config();
        if let Some(leases) = &leases {
            config = config.leases(leases);
        }
        if let Some((oob, _)) = &oob {
            config = config.out_of_band(oob.offers());
        }
        let server = VolumeServer::new(
            Arc::clone(&volumes),
            Arc::clone(&hosts),
            sockets.public.clone(),
            config,
        );
        sockets.serve(
            Service {
                check_reach: true,
                ..Service::new(afsvol::SERVICE, afsvol::NAME)
            },
            self.security.public(Role::Vol),
            |at, identity| afsvol::Server::with_identity(server.at(at.clone()), identity),
        );
        if let Some((oob, listener)) = oob {
            let serving = oob.with_volumes(server.clone()).serve(
                listener,
                Arc::clone(&files),
                files_endpoint,
            );
            self.background.spawn(serving);
        }
        self.files = Some(Files {
            uuid,
            volumes,
            hosts,
            state,
        });
        Ok(())
    }

    /// The leases that clients get, if they get any.
    fn leases(&self, path: &Path, uuid: AfsUuid) -> anyhow::Result<Option<Arc<Leases>>> {
        if self.config.files.leases.0 {
            // The other half is for those who have leases and send what they have.
            let waits = self.config.files.max_calls.0 as usize / 2;
            Ok(Some(Leases::open(path, uuid, waits, &self.registry)?))
        } else {
            Leases::end_earlier(path, uuid)?;
            Ok(None)
        }
    }

    fn volser_config(&self) -> VolserConfig {
        let own = own_addresses(&self.config, &self.addresses).into_iter();
        let own = own.filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let idle = self.config.volumes.idle_seconds.0;
        let security = Arc::clone(&self.security);
        let location = self.location.clone();
        VolserConfig::default()
            .location(move || location.location())
            .home(own.collect(), self.home.clone())
            .security(move || security.localauth(security.forward_level()))
            .restricted_query(self.config.volumes.restricted_query)
            .not_served(self.not_served.clone())
            .idle_limit(Duration::from_secs(idle.into()))
            .registry(&self.registry)
    }

    /// Opens the partitions that can be served, tells of the others, and goes on with the databases in any
    /// case.
    fn open_partitions(&mut self) -> anyhow::Result<Vec<(PartitionId, Arc<Partition>)>> {
        let Partitions { open, refused } = partitions::open(&self.config)?;
        for (id, error) in &refused {
            tracing::error!("{id} is not served: {error:#}");
            self.refused.push(id.to_string());
            self.not_served.push(*id);
        }
        if let Some(&address) = self.addresses.first() {
            let peers = self.location.clone();
            let refused = refused.iter().map(|(id, _)| *id).collect();
            self.background
                .spawn(missing::tell(move || peers.location(), address, refused));
        }
        match refused.into_iter().next() {
            // There is nothing to go on with.
            Some((id, error)) if open.is_empty() && self.config.roles.0.iter().all(is_of_files) => {
                Err(error).with_context(|| format!("{id}"))
            }
            _ => Ok(open),
        }
    }

    /// Tells clients on this machine, and the location servers if this is a file server, where it is, from now on.
    fn tell_where(&mut self) -> anyhow::Result<()> {
        let whereabouts = Whereabouts {
            cell: self.cell.clone(),
            config: self.config.clone(),
            run: self.run.path.clone(),
            location: self.location.clone(),
            uuid: self.files.as_ref().map(|files| files.uuid),
        };
        whereabouts.write(&self.addresses)?;
        self.background
            .spawn(whereabouts.follow(self.addresses.clone()));
        Ok(())
    }

    /// Shows what the roles count, at a socket in the run directory and where else the configuration says.
    async fn serve_metrics(&mut self) -> anyhow::Result<()> {
        let callers = self.sockets.get(&Role::File).into_iter();
        let callers = callers.flat_map(|sockets| [sockets.public.clone(), sockets.local.clone()]);
        let views = Views::new(&self.registry, self.cell.to_string(), callers.collect());
        let exporter = Exporter::new(&self.registry, views);
        match LocalSocket::bind(&self.run.path, view::SOCKET) {
            Ok(socket) => {
                self.background.spawn(Arc::clone(&exporter).serve(socket));
            }
            // Nobody does without files for that.
            Err(error) => {
                let path = self.run.path.join(view::SOCKET);
                tracing::warn!(%error, path = %path.display(), "there is no socket for metrics");
            }
        }
        if let Some(sockets) = self.sockets.get(&Role::Bos) {
            let elsewhere = Arc::new(Elsewhere::new(Arc::clone(&exporter), &self.registry));
            sockets.serve(
                Service::new(eyes::SERVICE, eyes::NAME),
                self.security.public(Role::Bos),
                |_, identity| eyes::Server::shared(&elsewhere, identity),
            );
        }
        if let Some(address) = self.config.metrics.listen {
            let listener = metrics::listen(address).await?;
            tracing::info!(%address, "metrics are served");
            self.background.spawn(exporter.serve(listener));
        }
        Ok(())
    }

    /// Shows the server and the cell on a page, at a socket in the run directory and where else the configuration
    /// says.
    fn serve_page(&mut self) -> anyhow::Result<()> {
        let page = Web::new(&self.registry, &self.config, self.listen());
        // A file server's own port is for its clients.
        let asking = self.sockets.iter().rfind(|(role, _)| **role != Role::File);
        let cell = asking.map(|(_, sockets)| web::Cell {
            location: self.location.clone(),
            endpoint: sockets.public.clone(),
            own: own_addresses(&self.config, &self.addresses),
        });
        self.background.spawn(page.sample(cell));
        match LocalSocket::bind(&self.run.path, web::SOCKET) {
            Ok(socket) => {
                let served = Arc::clone(&page).serve(socket, web::Door::Local);
                self.background.spawn(served);
            }
            // Nobody does without files for that.
            Err(error) => {
                let path = self.run.path.join(web::SOCKET);
                tracing::warn!(%error, path = %path.display(), "there is no socket for the page");
            }
        }
        if let Some(address) = self.config.web.listen {
            let door = web::Door::open(self.config.web.token.as_deref())?;
            let listener = web::listen(address)?;
            tracing::info!(%address, "the page is served");
            self.background.spawn(page.serve(listener, door));
        }
        Ok(())
    }

    fn serve_status(&self) {
        let Some(sockets) = self.sockets.get(&Role::Bos) else {
            return;
        };
        let hosts = self.location.addresses().iter();
        let hosts = hosts.map(|address| address.ip().to_string());
        let overseer = Arc::new(Overseer::new(
            self.cell.to_string(),
            hosts.collect(),
            &self.config.roles.0,
            Arc::clone(&self.security),
            Arc::clone(&self.restart),
            &self.registry,
        ));
        sockets.serve(
            Service::new(bozo::SERVICE, bozo::NAME),
            self.security.public(Role::Bos),
            |_, identity| bozo::Server::shared(&overseer, identity),
        );
    }
}

/// Whether a role serves what lies on partitions.
fn is_of_files(role: &Role) -> bool {
    matches!(role, Role::File | Role::Vol | Role::Bos)
}

/// Whether an error is of a database that is damaged.
fn is_damaged(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_rows = matches!(cause.downcast_ref(), Some(DbError::Damaged { .. }));
        let of_users = cause.downcast_ref();
        of_rows || matches!(of_users, Some(PrError::Database(DbError::Damaged { .. })))
    })
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

/// The address a client on this machine would use.
pub(crate) fn listen(config: &Config, addresses: &[Ipv4Addr]) -> IpAddr {
    match config.listen.0 {
        address if !address.is_unspecified() => address,
        _ => addresses.first().map_or(Ipv4Addr::LOCALHOST, |a| *a).into(),
    }
}

impl Process {
    /// Makes the root volumes of a cell that has none.
    pub async fn found_cell(&self) -> anyhow::Result<()> {
        if !self.refused.is_empty() {
            // It has them, where they cannot be seen now.
            return Ok(());
        }
        let location = self.location.location();
        let (Some(files), Some(location), Some(&address)) =
            (&self.files, location.first(), self.addresses.first())
        else {
            return Ok(());
        };
        found(&self.cell, &files.volumes, location, address).await
    }
}

/// What a database went back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its directory. The damaged files are beside it, with names that end in `.damaged`.
    pub dir: PathBuf,
    /// How long ago the copy was made.
    pub age: Duration,
}

/// Goes back to the copy of a service's database.
///
/// # Errors
/// The server runs, or there is no copy that can be used.
pub fn restore(config: &Config, service: &str) -> anyhow::Result<Restored> {
    let run = match &config.run {
        Some(run) => run.clone(),
        None => local_cell::run_dir(&config.cell()?)?,
    };
    // No server uses the database as long as this is kept.
    let _run = RunDir::take(&run)?;
    let dir = config.data.0.join(service);
    let made = Database::copy_made(&dir);
    Database::restore(&dir)
        .with_context(|| format!("cannot go back to the copy of {}", dir.display()))?;
    let age = made
        .and_then(|made| made.elapsed().ok())
        .unwrap_or_default();
    Ok(Restored { dir, age })
}
