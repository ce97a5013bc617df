//! The client of all cells: one endpoint, its callback service, cells, volumes and servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use afar_net::Endpoint;
use afar_types::{CellName, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinSet;

use crate::callback::CallbackService;
use crate::cellservdb::{CellEntry, CellServDb, DEFAULT_PATHS, Watched};
use crate::class::Class;
use crate::config::Config;
use crate::credentials::{Access, Credentials};
use crate::dns::{self, DnsError};
use crate::error::{DnsErrorOrOff, Error};
use crate::mountpoint::Wanted;
use crate::nearby::Nearby;
use crate::oob::OobServer;
use crate::patience::Patience;
use crate::preferences::{Preferences, ServerKind};
use crate::server::{FileServer, Host, Hosts};
use crate::vldb::{Cell, file_server};
use crate::volume::Volume;

/// A client of all cells: what it learns of cells, volumes and servers is kept for its life. Cheap
/// to clone.
///
/// End it with [`close`](Self::close), so that no file server is left with promises to nobody.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
    /// Somebody else than the configuration says.
    identity: Option<Arc<Identity>>,
    /// Of what is fetched.
    class: Class,
    /// Where to look for data before asking servers.
    nearby: Option<Arc<dyn Nearby>>,
}

/// One of several users of a client, with their own connections to file servers.
#[derive(Debug)]
struct Identity {
    credentials: Option<Arc<dyn Credentials>>,
    servers: Mutex<Servers>,
}

type Servers = BTreeMap<(CellName, SocketAddr), Arc<FileServer>>;

#[derive(Debug)]
struct Inner {
    hosts: Arc<Hosts>,
    config: Config,
    database: Watched,
    preferences: Preferences,
    cells: Mutex<BTreeMap<CellName, Arc<OnceCell<Arc<Cell>>>>>,
    volumes: Mutex<BTreeMap<(CellName, VolumeId), Arc<Volume>>>,
    servers: Mutex<Servers>,
    /// The other users there were and still may be.
    others: Mutex<Vec<Weak<Identity>>>,
    /// Bytes from which a piece goes out of band; 0 for none.
    oob_threshold: AtomicU64,
    /// Whether nobody waits any more for servers that do not answer.
    hurried: watch::Sender<bool>,
}

impl Client {
    /// A client on this endpoint, which from now on answers file servers' callbacks.
    ///
    /// # Errors
    /// When the CellServDB named in the configuration, or the one in a default place, cannot be
    /// read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(endpoint: Endpoint, config: Config) -> Result<Self, Error> {
        let named = config.cellservdb.as_deref();
        let read = match config.only_cells {
            true => Ok(Watched::none()),
            false => Watched::open(named),
        };
        let database = read.map_err(|error| Error::CellServDb {
            path: named
                .unwrap_or_else(|| Path::new(DEFAULT_PATHS[0]))
                .to_owned(),
            error: error.to_string(),
        })?;
        let hosts = Arc::new(Hosts::new(Host::start(endpoint)));
        let preferences = Preferences::new(config.ranks.iter().copied());
        let oob_threshold = AtomicU64::new(config.oob_threshold.unwrap_or(0));
        let inner = Arc::new(Inner {
            hosts,
            config,
            database,
            preferences,
            cells: Mutex::default(),
            volumes: Mutex::default(),
            servers: Mutex::default(),
            others: Mutex::default(),
            oob_threshold,
            hurried: watch::Sender::new(false),
        });
        Ok(Self {
            inner,
            identity: None,
            class: Class::default(),
            nearby: None,
        })
    }

    /// The same client as somebody else: it shares what is known of cells, volumes and paths, and
    /// has connections to file servers of its own, with these credentials or anonymous ones.
    /// Location servers are asked as before. File servers see one host, so their promises are for
    /// all its users; rights they tell are those of the user who asked.
    #[must_use]
    pub fn with_credentials(&self, credentials: Option<Arc<dyn Credentials>>) -> Self {
        let identity = Arc::new(Identity {
            credentials,
            servers: Mutex::default(),
        });
        let mut others = lock(&self.inner.others);
        others.retain(|other| other.strong_count() > 0);
        others.push(Arc::downgrade(&identity));
        Self {
            inner: Arc::clone(&self.inner),
            identity: Some(identity),
            class: self.class,
            // What is there is there for one user.
            nearby: None,
        }
    }

    /// The same client, for what is fetched in this class.
    #[must_use]
    pub fn in_class(&self, class: Class) -> Self {
        Self {
            class,
            ..self.clone()
        }
    }

    /// The same client, which looks there for the data of files before it asks their servers.
    #[must_use]
    pub fn with_nearby(&self, nearby: Arc<dyn Nearby>) -> Self {
        Self {
            nearby: Some(nearby),
            ..self.clone()
        }
    }

    /// Where to look for data before asking servers.
    pub(crate) fn nearby(&self) -> Option<&Arc<dyn Nearby>> {
        self.nearby.as_ref()
    }

    /// The class of what is fetched.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// A server as this client's user sees it.
    pub(crate) fn own(&self, site: &Arc<FileServer>) -> Arc<FileServer> {
        let Some(identity) = &self.identity else {
            return Arc::clone(site);
        };
        let cell = site.access().cell();
        let mut servers = lock(&identity.servers);
        let server = servers
            .entry((cell.clone(), site.address()))
            .or_insert_with(|| {
                let access = Access::new(cell.clone(), identity.credentials.clone());
                Arc::new(site.seen_by(access))
            });
        Arc::clone(server)
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Bytes from which a piece of a file goes out of band, where its server offers that; `None` if none does.
    #[must_use]
    pub fn oob_threshold(&self) -> Option<u64> {
        Some(self.inner.oob_threshold.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Whether a piece is as large as that.
    pub(crate) fn is_large(&self, bytes: u64) -> bool {
        self.oob_threshold().is_some_and(|least| bytes >= least)
    }

    /// Sets it for all users, from their next pieces on; 0 is `None`, with which connections end too.
    pub fn set_oob_threshold(&self, bytes: Option<u64>) {
        let bytes = bytes.unwrap_or(0);
        self.inner.oob_threshold.store(bytes, Relaxed);
        if bytes == 0 {
            for server in self.all_servers() {
                server.disconnect_oob();
            }
        }
    }

    /// Has servers tried again that out-of-band transfers did not reach, or that did not offer any.
    pub fn retry_oob(&self) {
        for server in self.all_servers() {
            server.retry_oob();
        }
    }

    /// What goes out of band to each file server that ever answered.
    #[must_use]
    pub fn oob_servers(&self) -> Vec<OobServer> {
        let mut connected = self.all_servers();
        connected.retain(|server| server.has_oob());
        let servers: Vec<_> = lock(&self.inner.servers).values().cloned().collect();
        let met = servers.iter().filter(|server| server.is_met());
        met.map(|server| server.tell_oob(&connected)).collect()
    }

    /// From now on nobody waits for servers that do not answer, as it ends.
    pub fn hurry(&self) {
        self.inner.hurried.send_replace(true);
    }

    /// Returns when nobody waits any more.
    pub(crate) async fn hurried(&self) {
        let mut hurried = self.inner.hurried.subscribe();
        // It is not dropped before the client.
        let _hurried = hurried.wait_for(|hurried| *hurried).await;
    }

    /// How long a request waits for servers that do not answer.
    pub(crate) fn patience(&self) -> Patience {
        match *self.inner.hurried.borrow() {
            true => Patience::NONE,
            false => self.config().patience,
        }
    }

    /// Its endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.hosts.first.endpoint
    }

    /// Its callback service.
    #[must_use]
    pub fn callbacks(&self) -> &CallbackService {
        &self.inner.hosts.first.callbacks
    }

    /// The CellServDB in use, as its file is now.
    #[must_use]
    pub fn database(&self) -> Option<Arc<CellServDb>> {
        self.inner.database.now()
    }

    /// The cells of the configuration, and those of the CellServDB in its order. Others may be
    /// known to DNS.
    #[must_use]
    pub fn cells(&self) -> Vec<CellEntry> {
        let own = &self.config().cells;
        let database = self.database();
        let listed = database.iter().flat_map(|database| &database.cells);
        let listed = listed.filter(|cell| own.iter().all(|known| known.name != cell.name));
        own.iter().chain(listed).cloned().collect()
    }

    /// Whether this is one of [`cells`](Self::cells).
    #[must_use]
    pub fn lists(&self, name: &CellName) -> bool {
        let own = &self.config().cells;
        let is_own = own.iter().any(|cell| cell.name == *name);
        is_own || (self.database()).is_some_and(|database| database.find(name).is_some())
    }

    /// Whether a location server of this cell has ever answered.
    #[must_use]
    pub fn has_reached(&self, name: &CellName) -> bool {
        let cells = lock(&self.inner.cells);
        let cell = cells.get(name).and_then(|slot| slot.get());
        cell.is_some_and(|cell| cell.is_met())
    }

    /// The cell of this name: its servers from the configuration, the CellServDB or DNS. After
    /// [`Config::fresh`] the client looks them up again, and which is the nearest.
    ///
    /// # Errors
    /// When none of them knows the cell.
    pub async fn cell(&self, name: &CellName) -> Result<Arc<Cell>, Error> {
        let slot = Arc::clone(lock(&self.inner.cells).entry(name.clone()).or_default());
        let mut new = false;
        let cell = slot
            .get_or_try_init(|| async {
                let servers = self.vl_servers(name).await?;
                let access = Access::new(name.clone(), self.config().credentials.clone());
                let cell = Cell::new(access, self.endpoint(), self.config().fresh);
                cell.set_servers(&servers);
                cell.order(self.preferences(), &servers).await;
                new = true;
                Ok::<_, Error>(Arc::new(cell))
            })
            .await?;
        if new {
            let (client, cell) = (self.clone(), Arc::clone(cell));
            // The first request does not wait until all have answered: one of them will do.
            tokio::spawn(async move { cell.rank(client.preferences()).await });
        } else {
            self.keep_fresh(cell);
        }
        Ok(Arc::clone(cell))
    }

    /// Looks in the background which servers a cell has, if that was long ago.
    pub(crate) fn keep_fresh(&self, cell: &Arc<Cell>) {
        if cell.is_stale() {
            let (client, cell) = (self.clone(), Arc::clone(cell));
            tokio::spawn(async move {
                client.has_moved(&cell).await;
                cell.rank(client.preferences()).await;
            });
        }
    }

    /// Looks which servers a cell has. Says whether they are others than before.
    pub(crate) async fn has_moved(&self, cell: &Cell) -> bool {
        match self.vl_servers(cell.name()).await {
            Ok(mut servers) => {
                servers.extend(cell.named().servers(&self.hosts(cell.name())).await);
                cell.set_servers(&servers)
            }
            Err(error) => {
                tracing::debug!(
                    "keeping the servers of {} as they were: {error}",
                    cell.name()
                );
                false
            }
        }
    }

    /// The names of a cell's hosts that are looked up besides: none where something else says its servers.
    fn hosts(&self, name: &CellName) -> Vec<String> {
        let config = self.config();
        if !config.vl_servers.is_empty() || config.only_cells || !config.dns {
            return Vec::new();
        }
        let database = self.database();
        let entry = database.as_ref().and_then(|database| database.find(name));
        entry.map_or_else(Vec::new, |entry| entry.hosts.clone())
    }

    async fn vl_servers(&self, name: &CellName) -> Result<Vec<SocketAddr>, Error> {
        let config = self.config();
        if !config.vl_servers.is_empty() {
            return Ok(config.vl_servers.clone());
        }
        let own = config.cells.iter().find(|cell| cell.name == *name);
        if let Some(entry) = own.filter(|entry| !entry.servers.is_empty()) {
            return Ok(entry.servers.clone());
        }
        if config.only_cells {
            let names = config.cells.iter().map(|cell| cell.name.to_string());
            return Err(Error::OutOfReach {
                cell: name.clone(),
                only: names.collect::<Vec<_>>().join(", "),
            });
        }
        let database = self.database();
        let looked = match &database {
            Some(database) => database.path.display().to_string(),
            None => format!("any of {}", DEFAULT_PATHS.join(", ")),
        };
        let entry = database.as_ref().and_then(|database| database.find(name));
        if let Some(entry) = entry.filter(|entry| !entry.servers.is_empty()) {
            return Ok(entry.servers.clone());
        }
        if !config.dns {
            return Err(Error::UnknownCell {
                cell: name.clone(),
                looked,
                dns: DnsErrorOrOff::Off,
            });
        }
        dns::vl_servers(name).await.map_err(|error| match error {
            // Listed with no servers means: ask DNS.
            DnsError::NoRecords(_) if entry.is_some() => Error::NoServers {
                cell: name.clone(),
                looked,
            },
            error => Error::UnknownCell {
                cell: name.clone(),
                looked,
                dns: error.into(),
            },
        })
    }

    /// A volume by name (with or without suffix) or number.
    ///
    /// # Errors
    /// When the cell's servers do not answer, or know no such volume.
    pub async fn volume(
        &self,
        cell: &Arc<Cell>,
        name: &str,
        wanted: Wanted,
    ) -> Result<Arc<Volume>, Error> {
        let found = self.find(cell, name, wanted).await?;
        let key = (cell.name().clone(), found.id);
        let sites = found.addresses.iter();
        let sites: Vec<_> = sites.map(|&address| self.server(cell, address)).collect();
        if let Some(known) = lock(&self.inner.volumes).get(&key) {
            known.add_sites(sites);
            return Ok(Arc::clone(known));
        }
        let volume = Volume::new(
            Arc::clone(cell),
            name.to_owned(),
            found.id,
            found.kind,
            sites,
        );
        // Another request may have found it meanwhile, and what is cached belongs to one volume.
        let volume = Arc::new(volume);
        let mut volumes = lock(&self.inner.volumes);
        Ok(Arc::clone(volumes.entry(key).or_insert(volume)))
    }

    /// The file server of a cell at this address. To another cell's we may be somebody else.
    pub(crate) fn server(&self, cell: &Cell, address: Ipv4Addr) -> Arc<FileServer> {
        let address = file_server(address, self.config().file_port);
        let mut servers = lock(&self.inner.servers);
        let key = (cell.name().clone(), address);
        let server = servers.entry(key).or_insert_with(|| {
            Arc::new(FileServer::new(
                Arc::clone(&self.inner.hosts),
                address,
                Arc::clone(cell.access()),
                self.config().calls,
            ))
        });
        Arc::clone(server)
    }

    /// The file server of a cell at this address, if it was ever to be asked.
    pub(crate) fn server_at(&self, cell: &CellName, at: SocketAddr) -> Option<Arc<FileServer>> {
        lock(&self.inner.servers).get(&(cell.clone(), at)).cloned()
    }

    /// Ranks that were given to servers.
    pub(crate) fn preferences(&self) -> &Preferences {
        &self.inner.preferences
    }

    /// Bytes a second that came from the fastest file server of late.
    pub(crate) fn fastest(&self) -> Option<f64> {
        let servers = lock(&self.inner.servers);
        servers
            .values()
            .filter_map(|server| server.rate())
            .max_by(f64::total_cmp)
    }

    /// The ranks of the servers of a kind that are known, and of others that were given one: a
    /// server of several cells is there once.
    pub async fn server_ranks(&self, kind: ServerKind) -> BTreeMap<IpAddr, u16> {
        let mut ranks = self.preferences().given(kind);
        match kind {
            ServerKind::File => {
                let servers: Vec<_> = lock(&self.inner.servers).values().cloned().collect();
                let fastest = self.fastest();
                for server in servers {
                    let rank = server.rank(self.preferences(), fastest).await;
                    ranks.insert(server.address().ip(), rank);
                }
            }
            ServerKind::Location => {
                let slots: Vec<_> = lock(&self.inner.cells).values().cloned().collect();
                for cell in slots.iter().filter_map(|slot| slot.get()) {
                    let of_cell = cell.ranks(self.preferences()).await;
                    ranks.extend(
                        of_cell
                            .into_iter()
                            .map(|(server, rank)| (server.ip(), rank)),
                    );
                }
            }
        }
        ranks
    }

    /// Gives a server a rank, which counts from its next request on.
    pub async fn set_rank(&self, kind: ServerKind, host: IpAddr, rank: u16) {
        self.preferences().set(kind, host, rank);
        if kind == ServerKind::Location {
            let slots: Vec<_> = lock(&self.inner.cells).values().cloned().collect();
            for cell in slots.iter().filter_map(|slot| slot.get()) {
                let servers: Vec<_> = cell.servers().collect();
                cell.order(self.preferences(), &servers).await;
            }
        }
    }

    /// Has all volumes looked up again when they are used next, and their sites put in order.
    pub fn check_volumes(&self) {
        for cell in self.known_cells() {
            cell.forget_volumes();
        }
        for volume in lock(&self.inner.volumes).values() {
            volume.check();
        }
    }

    /// The cells that were asked for anything.
    pub(crate) fn known_cells(&self) -> Vec<Arc<Cell>> {
        let cells = lock(&self.inner.cells);
        let known = cells.values().filter_map(|slot| slot.get());
        known.cloned().collect()
    }

    /// The names of the cells that were asked for anything.
    #[must_use]
    pub fn used_cells(&self) -> Vec<CellName> {
        let cells = self.known_cells();
        cells.iter().map(|cell| cell.name().clone()).collect()
    }

    /// The location servers of a cell that was asked for anything.
    #[must_use]
    pub fn servers_of(&self, name: &CellName) -> Vec<SocketAddr> {
        let cells = self.known_cells();
        let cell = cells.iter().find(|cell| cell.name() == name);
        cell.map_or_else(Vec::new, |cell| cell.servers().collect())
    }

    /// The file servers of a cell that were to be asked.
    #[must_use]
    pub fn file_servers_of(&self, name: &CellName) -> Vec<Arc<FileServer>> {
        let servers = lock(&self.inner.servers);
        let own = servers.iter().filter(|((cell, _), _)| cell == name);
        own.map(|(_, server)| Arc::clone(server)).collect()
    }

    /// The location servers of all cells that were asked for anything.
    pub(crate) fn location_servers(&self) -> Vec<SocketAddr> {
        let cells = self.known_cells();
        cells.iter().flat_map(|cell| cell.servers()).collect()
    }

    /// Makes new connections to these servers.
    pub(crate) fn reconnect(&self, which: impl Fn(SocketAddr) -> bool) {
        for server in self.servers() {
            if which(server.address()) {
                server.reconnect();
            }
        }
        for cell in self.known_cells() {
            cell.reconnect(&which);
        }
    }

    /// The file servers that answered a call; one that several users asked is there for each.
    #[must_use]
    pub fn servers(&self) -> Vec<Arc<FileServer>> {
        let mut all = self.all_servers();
        all.retain(|server| server.is_known());
        all
    }

    /// The file servers that were to be asked by anybody.
    pub(crate) fn all_servers(&self) -> Vec<Arc<FileServer>> {
        let mut all: Vec<_> = lock(&self.inner.servers).values().cloned().collect();
        let others: Vec<_> = lock(&self.inner.others).clone();
        for other in others.iter().filter_map(Weak::upgrade) {
            all.extend(lock(&other.servers).values().cloned());
        }
        all
    }

    /// Gives all promises back. A file server that still has promises of a client that is gone
    /// makes the next one who changes those files wait.
    pub async fn close(&self) {
        let mut servers = JoinSet::new();
        // Promises are given to the host, so one of its users gives back those of all.
        let all = self.servers();
        for server in &all {
            let server = Arc::clone(server);
            servers.spawn(async move { server.give_back_what_was_read().await });
        }
        let all = all.into_iter();
        let each: BTreeMap<_, _> = all.map(|server| (server.address(), server)).collect();
        for server in each.into_values() {
            servers.spawn(async move { server.give_up_callbacks().await });
        }
        servers.join_all().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
