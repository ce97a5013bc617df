//! Asking the volume location servers of a cell (VL).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afar_net::{AbortCode, Endpoint};
use afar_rpc::{RpcError, vl};
use afar_types::error::{Code, VL_BADNAME, VL_NOENT};
use afar_types::{
    AfsUuid, CellName, ListAddrByAttributes, SiteServer, VldbEntry, VolumeId, VolumeName,
    VolumeType,
};
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::credentials::{Access, Secured, connect};
use crate::ended::ended;
use crate::error::Error;
use crate::lately::Lately;
use crate::mountpoint::{Wanted, split_suffix};
use crate::named::Named;
use crate::preferences::{Distance, Preferences, ServerKind, in_order};
use crate::refusal::is_refusal;
use crate::waits::Waits;

/// Without an answer for so long, the next server is asked too.
pub(crate) const HEDGE: Duration = Duration::from_secs(2);
/// How long servers get to show how far away they are.
const PROBE: Duration = Duration::from_secs(3);
/// For so long addresses of a server that were asked for are not asked for again.
const ADDRESSES_FRESH: Duration = Duration::from_secs(3);

/// A cell: its volume location servers and what they said.
#[derive(Debug)]
pub struct Cell {
    name: CellName,
    endpoint: Endpoint,
    access: Arc<Access>,
    /// The one to ask first in front.
    servers: RwLock<Vec<Arc<Server>>>,
    /// When it was looked which servers there are.
    looked: Mutex<Option<Instant>>,
    entries: Mutex<BTreeMap<String, Known<Arc<VldbEntry>>>>,
    addresses: Mutex<BTreeMap<AfsUuid, Known<Vec<Ipv4Addr>>>>,
    /// The addresses of its hosts by the names that the user gave.
    named: Named,
    fresh: Duration,
    /// Whether any of its servers ever answered.
    met: AtomicBool,
    /// Since when somebody waits for one of them to answer again.
    awaited: Lately,
}

/// What a server said, and when.
#[derive(Debug, Clone)]
struct Known<T> {
    what: T,
    since: Instant,
}

/// A volume location server.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    link: Mutex<Link>,
}

/// The connection to it: anonymous, until it refuses that.
#[derive(Debug, Clone)]
struct Link {
    client: vl::Client,
    secured: Option<Secured>,
}

/// A volume as the database describes it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) id: VolumeId,
    pub(crate) kind: VolumeType,
    /// Addresses of its sites; several of one server follow each other.
    pub(crate) addresses: Vec<Ipv4Addr>,
}

/// How much to ask of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// One round trip: the entry with an address of each server, from memory if it is there. One
    /// that is old is looked up again, for the next who asks.
    Quick,
    /// Again, with all addresses of each server.
    Thorough,
}

/// How a VL call's failure is to be taken.
enum VlVerdict {
    Final,
    NextServer,
}

impl Cell {
    pub(crate) fn new(access: Access, endpoint: &Endpoint, fresh: Duration) -> Self {
        Self {
            name: access.cell().clone(),
            endpoint: endpoint.clone(),
            access: Arc::new(access),
            servers: RwLock::default(),
            looked: Mutex::default(),
            entries: Mutex::default(),
            named: Named::default(),
            addresses: Mutex::default(),
            fresh,
            met: AtomicBool::new(false),
            awaited: Lately::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CellName {
        &self.name
    }

    /// Addresses of its volume location servers, the one to ask first in front.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.all().into_iter().map(|server| server.address)
    }

    fn all(&self) -> Vec<Arc<Server>> {
        self.servers.read().clone()
    }

    /// These are its servers from now on, in this order but for those that it had. Says whether they
    /// are others than before.
    pub(crate) fn set_servers(&self, addresses: &[SocketAddr]) -> bool {
        let mut servers = self.servers.write();
        let before = servers.len();
        // Those that stay keep their connections, and their order.
        servers.retain(|server| addresses.contains(&server.address));
        let mut changed = servers.len() < before;
        for &address in addresses {
            if servers.iter().all(|server| server.address != address) {
                changed = true;
                servers.push(Arc::new(Server {
                    address,
                    link: Mutex::new(Link::new(&self.endpoint, address, None)),
                }));
            }
        }
        *self.looked() = Some(Instant::now());
        changed
    }

    /// The addresses of its hosts by the names that the user gave.
    pub(crate) const fn named(&self) -> &Named {
        &self.named
    }

    /// Whether it is time to look again which servers there are. Only one who asks is told so.
    pub(crate) fn is_stale(&self) -> bool {
        let mut looked = self.looked();
        let stale = looked.is_none_or(|since| since.elapsed() >= self.fresh);
        if stale {
            *looked = Some(Instant::now());
        }
        stale
    }

    fn looked(&self) -> parking_lot::MutexGuard<'_, Option<Instant>> {
        self.looked.lock()
    }

    /// Asks all servers whether they are there, and puts them in order, if there are several.
    pub(crate) async fn rank(&self, preferences: &Preferences) {
        let servers = self.all();
        if servers.len() < 2 {
            return;
        }
        let mut probes = JoinSet::new();
        for server in servers {
            let asked = server.link().client;
            probes.spawn(async move {
                let error = asked.probe_server().await.err();
                // A server that refuses the question is there.
                let answered = error.is_none_or(|error| error.aborted().is_some());
                (server.address, answered)
            });
        }
        let mut answered = Vec::new();
        let all = async {
            while let Some(probed) = probes.join_next().await {
                answered.extend(probed.ok().filter(|(_, yes)| *yes).map(|(at, _)| at));
            }
        };
        drop(tokio::time::timeout(PROBE, all).await);
        self.order(preferences, &answered).await;
    }

    /// Puts the servers in order; those that do not answer come last.
    pub(crate) async fn order(&self, preferences: &Preferences, answering: &[SocketAddr]) {
        let ranks = self.ranks(preferences).await;
        let ranks: BTreeMap<_, _> = ranks
            .into_iter()
            .filter(|(server, _)| answering.contains(server))
            .collect();
        let mut servers = self.servers.write();
        let ranked = servers.drain(..).map(|server| {
            let rank = ranks.get(&server.address).copied();
            (rank.unwrap_or(u16::MAX), server)
        });
        let ranked = in_order(ranked.collect());
        *servers = ranked;
    }

    /// The ranks of its servers.
    pub(crate) async fn ranks(&self, preferences: &Preferences) -> Vec<(SocketAddr, u16)> {
        let mut ranks = Vec::new();
        for server in self.all() {
            let path = self.endpoint.peer_stats(server.address).await;
            let rtt = path.and_then(|path| path.rtt_min);
            let distance = Distance { rtt, rate: None };
            let rank = preferences.rank(ServerKind::Location, server.address.ip(), distance);
            ranks.push((server.address, rank));
        }
        ranks
    }

    /// Has a server asked first from now on.
    fn prefer(&self, server: &Arc<Server>) {
        let mut servers = self.servers.write();
        if let Some(place) = servers.iter().position(|other| Arc::ptr_eq(other, server)) {
            servers[..=place].rotate_right(1);
        }
    }

    /// Replaces the connections to these servers.
    pub(crate) fn reconnect(&self, which: impl Fn(SocketAddr) -> bool) {
        for server in self.all() {
            if which(server.address) {
                let mut link = server.link.lock();
                *link = Link::new(&self.endpoint, server.address, link.secured.clone());
            }
        }
    }

    /// Whether any of its servers ever answered.
    pub(crate) fn is_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    /// Says that somebody waits for its servers, unless that was said.
    pub(crate) fn awaited(&self) {
        if self.awaited.note_first() {
            let cell = &self.name;
            tracing::warn!("cell {cell}: no volume location server answers, waiting");
        }
    }

    /// For how long somebody has waited for them to answer.
    pub(crate) fn awaited_for(&self) -> Option<Duration> {
        self.awaited.time()
    }

    /// One of them has answered.
    fn answered(&self) {
        self.met.store(true, Ordering::Relaxed);
        if let Some(time) = self.awaited.take() {
            let (cell, seconds) = (&self.name, time.as_secs());
            tracing::warn!(
                "cell {cell}: a volume location server answers again, after {seconds} s"
            );
        }
    }

    /// Has all volumes looked up again.
    pub(crate) fn forget_volumes(&self) {
        self.lock_entries().clear();
        self.lock_addresses().clear();
    }

    /// Our identity to its servers.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Finds a volume by name (with or without suffix) or number.
    pub(crate) async fn find(
        self: &Arc<Self>,
        volume: &str,
        wanted: Wanted,
        effort: Effort,
    ) -> Result<Found, Error> {
        let (base, suffix) = split_suffix(volume);
        let wanted = suffix.map_or(wanted, Wanted::Exactly);
        let (entry, remembered) = self.entry(base, effort).await?;
        match self.member(&entry, volume, wanted).await {
            // It may have been made since: the first release of a volume makes its read-only copy.
            Err(Error::NoSuchMember { .. } | Error::NoSite { .. }) if remembered => {
                let entry = self.look_up(base, effort).await?;
                self.member(&entry, volume, wanted).await
            }
            found => found,
        }
    }

    /// The wanted member of a volume group.
    async fn member(
        &self,
        entry: &VldbEntry,
        volume: &str,
        wanted: Wanted,
    ) -> Result<Found, Error> {
        let (base, _) = split_suffix(volume);
        // A number says itself which member it means, unless that is the usual one.
        let by_number = base
            .parse()
            .ok()
            .and_then(|id| entry.kind_of(VolumeId(id)))
            .filter(|&kind| kind != VolumeType::ReadWrite);
        let order = by_number.map_or(wanted, Wanted::Exactly).order();
        for &kind in order {
            let Some(id) = entry.id_of(kind) else {
                continue;
            };
            let mut addresses = Vec::new();
            for site in entry.sites_of(kind) {
                match site.server {
                    SiteServer::Address(address) => addresses.push(address),
                    SiteServer::Uuid { uuid, .. } => {
                        addresses.extend(self.addresses_of(uuid, volume).await?);
                    }
                }
            }
            if !addresses.is_empty() {
                return Ok(Found {
                    id,
                    kind,
                    addresses,
                });
            }
        }
        Err(match order {
            [kind] if entry.id_of(*kind).is_none() => Error::NoSuchMember {
                cell: self.name.clone(),
                volume: base.to_owned(),
                kind: *kind,
            },
            _ => Error::NoSite {
                cell: self.name.clone(),
                volume: volume.to_owned(),
                problem: "no server is said to have it in use".to_owned(),
            },
        })
    }

    /// The entry of a volume group, and whether it is one from memory.
    async fn entry(
        self: &Arc<Self>,
        base: &str,
        effort: Effort,
    ) -> Result<(Arc<VldbEntry>, bool), Error> {
        let mut old = false;
        let known = match (self.lock_entries().get_mut(base), effort) {
            (Some(known), Effort::Quick) => {
                old = known.since.elapsed() >= self.fresh;
                if old {
                    // So one of many requests looks it up, and the others go on with what is known.
                    known.since = Instant::now();
                }
                Some(Arc::clone(&known.what))
            }
            _ => None,
        };
        let Some(known) = known else {
            return Ok((self.look_up(base, effort).await?, false));
        };
        if old {
            let (cell, base) = (Arc::clone(self), base.to_owned());
            tokio::spawn(async move {
                match cell.look_up(&base, Effort::Quick).await {
                    Err(Error::NoSuchVolume { .. }) => drop(cell.lock_entries().remove(&base)),
                    Err(error) => tracing::debug!("keeping the old location of {base}: {error}"),
                    Ok(_) => {}
                }
            });
        }
        Ok((known, true))
    }

    /// The entry of a volume group as the servers have it now.
    async fn look_up(&self, base: &str, effort: Effort) -> Result<Arc<VldbEntry>, Error> {
        let no_such_volume = || Error::NoSuchVolume {
            cell: self.name.clone(),
            volume: base.to_owned(),
        };
        let name = VolumeName::new(base).map_err(|_| no_such_volume())?;
        let entry = match effort {
            Effort::Quick => self.by_address(name).await,
            Effort::Thorough => self.by_uuid(name).await,
        };
        let entry = match entry {
            Ok(entry) => Arc::new(entry.map_err(|error| Error::NoSite {
                cell: self.name.clone(),
                volume: base.to_owned(),
                problem: error.to_string(),
            })?),
            Err(error) if matches!(error.code().0, VL_NOENT | VL_BADNAME) => {
                return Err(no_such_volume());
            }
            Err(error) => return Err(self.failed(base, error)),
        };
        let mut entries = self.lock_entries();
        if effort == Effort::Thorough {
            // What is known of it by its name, or another number, is not so any more.
            entries.retain(|_, known| known.what.name != entry.name);
        }
        entries.insert(base.to_owned(), Known::now(Arc::clone(&entry)));
        drop(entries);
        Ok(entry)
    }

    /// The entry with one address of each server: GetEntryByNameN first, since GetEntryByNameU
    /// costs another round trip for the addresses; then U for servers that have only that, then O.
    // spec: afs-rpc#looking-a-volume-up
    async fn by_address(&self, name: VolumeName) -> Result<EntryResult, RpcError> {
        let asked = name.clone();
        let new = self
            .ask(move |server| {
                let name = asked.clone();
                async move { server.get_entry_by_name_n(name).await }
            })
            .await;
        match new {
            Ok(reply) => Ok(VldbEntry::try_from(&reply.entry)),
            Err(error) if error.is_unknown_operation() => match self.only_uuid(&name).await {
                Err(error) if error.is_unknown_operation() => self.oldest(name).await,
                other => other,
            },
            Err(error) => Err(error),
        }
    }

    /// The entry with UUIDs, by which all addresses of a server are found.
    async fn by_uuid(&self, name: VolumeName) -> Result<EntryResult, RpcError> {
        match self.only_uuid(&name).await {
            Err(error) if error.is_unknown_operation() => self.by_address(name).await,
            other => other,
        }
    }

    async fn only_uuid(&self, name: &VolumeName) -> Result<EntryResult, RpcError> {
        let name = name.clone();
        let reply = self
            .ask(move |server| {
                let name = name.clone();
                async move { server.get_entry_by_name_u(name).await }
            })
            .await?;
        Ok(VldbEntry::try_from(&reply.entry))
    }

    async fn oldest(&self, name: VolumeName) -> Result<EntryResult, RpcError> {
        let reply = self
            .ask(move |server| {
                let name = name.clone();
                async move { server.get_entry_by_name_o(name).await }
            })
            .await?;
        Ok(VldbEntry::try_from(&reply.entry))
    }

    /// All addresses of a server.
    // spec: afs-rpc#looking-a-volume-up
    async fn addresses_of(&self, uuid: AfsUuid, volume: &str) -> Result<Vec<Ipv4Addr>, Error> {
        let known = self.lock_addresses().get(&uuid).cloned();
        if let Some(known) = known.filter(|known| known.since.elapsed() < ADDRESSES_FRESH) {
            return Ok(known.what);
        }
        let reply = self
            .ask(move |server| async move {
                let attributes = ListAddrByAttributes::by_uuid(uuid);
                server.get_addrs_u(attributes).await
            })
            .await
            .map_err(|error| self.failed(volume, error))?;
        let addresses: Vec<_> = reply.addresses.addresses().collect();
        let known = Known::now(addresses.clone());
        self.lock_addresses().insert(uuid, known);
        Ok(addresses)
    }

    fn failed(&self, volume: &str, error: RpcError) -> Error {
        let (cell, error) = (self.name.clone(), Box::new(error));
        match vl_verdict(&error) {
            VlVerdict::NextServer => Error::VlUnreachable {
                cell,
                tried: self.all().len(),
                last: error,
            },
            VlVerdict::Final => Error::Vl {
                cell,
                volume: volume.to_owned(),
                source: error,
            },
        }
    }

    /// Asks the servers, the one that answered last first: the next one when one fails or is slow.
    async fn ask<T, Q, F>(&self, question: Q) -> Result<T, RpcError>
    where
        T: Send + 'static,
        Q: Fn(vl::Client) -> F,
        F: Future<Output = Result<T, RpcError>> + Send + 'static,
    {
        let servers = self.all();
        let mut rest = 0..servers.len();
        let mut asked = JoinSet::new();
        let mut last = None;
        let mut again: Vec<usize> = Vec::new();
        let mut waiting = Vec::new();
        loop {
            let next = rest.next();
            if let Some(index) = next {
                waiting.push(Waits::call(servers[index].address));
                let answer = question(servers[index].link().client);
                asked.spawn(async move { (index, answer.await) });
            }
            loop {
                let patience = if next.is_some() { HEDGE } else { Duration::MAX };
                let joined = match tokio::time::timeout(patience, asked.join_next()).await {
                    Err(_) => break,
                    Ok(Some(Ok(joined))) => joined,
                    // Without it, this would go round and round for an answer, and keep the runtime from ending.
                    Ok(Some(Err(error))) => ended(error).await,
                    Ok(None) => match last {
                        Some(error) if next.is_none() => return Err(error),
                        _ => break,
                    },
                };
                match joined {
                    (index, Ok(reply)) => {
                        self.answered();
                        self.prefer(&servers[index]);
                        return Ok(reply);
                    }
                    // Once with a token, and once more with a newer one.
                    (index, Err(error))
                        if again.iter().filter(|&&asked| asked == index).count() < 2
                            && self.secure(&servers[index], &error).await =>
                    {
                        again.push(index);
                        let answer = question(servers[index].link().client);
                        asked.spawn(async move { (index, answer.await) });
                    }
                    (index, Err(error)) => match vl_verdict(&error) {
                        VlVerdict::Final => {
                            // That there is no such volume is an answer too.
                            self.answered();
                            self.prefer(&servers[index]);
                            return Err(error);
                        }
                        VlVerdict::NextServer => last = Some(error),
                    },
                }
            }
        }
    }

    /// Connects to a server with a token, if it refuses to be asked without, or with a newer one, if
    /// it refuses that. Says whether it is worth asking again.
    async fn secure(&self, server: &Server, error: &RpcError) -> bool {
        let used = server.link().secured;
        // Either may come for the call or for the whole connection.
        let newer = match (error.code(), used) {
            // spec: security#security-classes
            (AbortCode::RX_INVALID_OPERATION, None) => self.access.secured().await,
            (code, Some(used)) if is_refusal(code.0) => self.access.newer(&used).await,
            _ => return false,
        };
        match newer {
            Ok(Some(newer)) => {
                let link = Link::new(&self.endpoint, server.address, Some(newer));
                *server.link.lock() = link;
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!("not asking {} again: {error}", server.address);
                false
            }
        }
    }

    fn lock_entries(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Known<Arc<VldbEntry>>>> {
        self.entries.lock()
    }

    fn lock_addresses(
        &self,
    ) -> parking_lot::MutexGuard<'_, BTreeMap<AfsUuid, Known<Vec<Ipv4Addr>>>> {
        self.addresses.lock()
    }
}

impl<T> Known<T> {
    fn now(what: T) -> Self {
        Self {
            what,
            since: Instant::now(),
        }
    }
}

impl Server {
    fn link(&self) -> Link {
        self.link.lock().clone()
    }
}

impl Link {
    fn new(endpoint: &Endpoint, address: SocketAddr, secured: Option<Secured>) -> Self {
        let connection = connect(endpoint, address, vl::SERVICE, secured.as_ref());
        Self {
            client: vl::Client::new(connection),
            secured,
        }
    }
}

type EntryResult = Result<VldbEntry, afar_types::EntryError>;

/// Whether another server may do better: when this one is silent, or has no quorum (ubik).
fn vl_verdict(error: &RpcError) -> VlVerdict {
    if is_refusal(error.code().0) {
        return VlVerdict::Final;
    }
    match error.aborted() {
        None => match error.cause {
            afar_rpc::RpcCause::Call(_) => VlVerdict::NextServer,
            _ => VlVerdict::Final,
        },
        Some(code) => match code.0 {
            // spec: afs-rpc#database-servers-that-agree
            code if Code(code).is_ubik() => VlVerdict::NextServer,
            // spec: afs-rpc#busy-and-gone
            code if Code(code).is_interface_mismatch() => VlVerdict::Final,
            i32::MIN..0 => VlVerdict::NextServer,
            _ => VlVerdict::Final,
        },
    }
}

/// Where a file server at this address answers.
pub(crate) fn file_server(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address), port)
}
