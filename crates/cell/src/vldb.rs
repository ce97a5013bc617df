//! Asking the volume location servers of a cell (VL).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afar_net::{AbortCode, Endpoint};
use afar_rpc::{RpcError, vl};
use afar_types::error::VL_NOENT;
use afar_types::{
    AfsUuid, CellName, ListAddrByAttributes, SiteServer, VldbEntry, VolumeId, VolumeName,
    VolumeType,
};
use tokio::task::JoinSet;

use crate::credentials::{Access, Secured, connect, is_refusal};
use crate::error::Error;
use crate::mountpoint::{Wanted, split_suffix};

/// Without an answer for so long, the next server is asked too.
const HEDGE: Duration = Duration::from_secs(2);
/// VL codes for a name that cannot be a volume's, or an id without an entry.
const VL_BADNAME: i32 = 363_527;

/// A cell: its volume location servers and what they said.
#[derive(Debug)]
pub struct Cell {
    name: CellName,
    endpoint: Endpoint,
    access: Arc<Access>,
    servers: Vec<Server>,
    /// The server that answered last.
    preferred: AtomicUsize,
    entries: Mutex<BTreeMap<String, Arc<VldbEntry>>>,
    addresses: Mutex<BTreeMap<AfsUuid, Vec<Ipv4Addr>>>,
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
    /// One round trip: the entry with an address of each server, from memory if it is there.
    Quick,
    /// Anew, with all addresses of each server.
    Thorough,
}

/// How a VL call's failure is to be taken.
enum VlVerdict {
    Final,
    NextServer,
}

impl Cell {
    pub(crate) fn new(access: Access, endpoint: &Endpoint, servers: &[SocketAddr]) -> Self {
        let server = |&address| Server {
            address,
            link: Mutex::new(Link::new(endpoint, address, None)),
        };
        Self {
            name: access.cell().clone(),
            endpoint: endpoint.clone(),
            access: Arc::new(access),
            servers: servers.iter().map(server).collect(),
            preferred: AtomicUsize::new(0),
            entries: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CellName {
        &self.name
    }

    /// Addresses of its volume location servers.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.servers.iter().map(|server| server.address)
    }

    /// Who we are to its servers.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Finds a volume by name (with or without suffix) or number.
    pub(crate) async fn find(
        &self,
        volume: &str,
        wanted: Wanted,
        effort: Effort,
    ) -> Result<Found, Error> {
        let (base, suffix) = split_suffix(volume);
        let wanted = suffix.map_or(wanted, Wanted::Exactly);
        let entry = self.entry(base, effort).await?;
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

    /// The entry of a volume group.
    async fn entry(&self, base: &str, effort: Effort) -> Result<Arc<VldbEntry>, Error> {
        let known = self.lock_entries().get(base).cloned();
        if let (Some(entry), Effort::Quick) = (known, effort) {
            return Ok(entry);
        }
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
        self.lock_entries()
            .insert(base.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }

    /// The entry with one address of each server: GetEntryByNameN first, since GetEntryByNameU
    /// costs another round trip for the addresses; then U for servers that have only that, then O.
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
    async fn addresses_of(&self, uuid: AfsUuid, volume: &str) -> Result<Vec<Ipv4Addr>, Error> {
        let known = self.lock_addresses().get(&uuid).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let reply = self
            .ask(move |server| async move {
                let attributes = ListAddrByAttributes::by_uuid(uuid);
                server.get_addrs_u(attributes).await
            })
            .await
            .map_err(|error| self.failed(volume, error))?;
        let addresses: Vec<_> = reply.addresses.addresses().collect();
        self.lock_addresses().insert(uuid, addresses.clone());
        Ok(addresses)
    }

    fn failed(&self, volume: &str, error: RpcError) -> Error {
        let (cell, error) = (self.name.clone(), Box::new(error));
        match vl_verdict(&error) {
            VlVerdict::NextServer => Error::VlUnreachable {
                cell,
                tried: self.servers.len(),
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
        let number = self.servers.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut rest = (0..number).map(|offset| (first + offset) % number);
        let mut asked = JoinSet::new();
        let mut last = None;
        let mut again: Vec<usize> = Vec::new();
        loop {
            let next = rest.next();
            if let Some(index) = next {
                let answer = question(self.servers[index].link().client);
                asked.spawn(async move { (index, answer.await) });
            }
            loop {
                let patience = if next.is_some() { HEDGE } else { Duration::MAX };
                let joined = match tokio::time::timeout(patience, asked.join_next()).await {
                    Err(_) => break,
                    Ok(Some(Ok(joined))) => joined,
                    // The questions neither panic nor are cancelled before this returns.
                    Ok(Some(Err(_))) => continue,
                    Ok(None) => match last {
                        Some(error) if next.is_none() => return Err(error),
                        _ => break,
                    },
                };
                match joined {
                    (index, Ok(reply)) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok(reply);
                    }
                    // Once with a token, and once more with a newer one.
                    (index, Err(error))
                        if again.iter().filter(|&&asked| asked == index).count() < 2
                            && self.secure(index, &error).await =>
                    {
                        again.push(index);
                        let answer = question(self.servers[index].link().client);
                        asked.spawn(async move { (index, answer.await) });
                    }
                    (index, Err(error)) => match vl_verdict(&error) {
                        VlVerdict::Final => {
                            self.preferred.store(index, Ordering::Relaxed);
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
    async fn secure(&self, index: usize, error: &RpcError) -> bool {
        let server = &self.servers[index];
        let used = server.link().secured;
        // Either may come for the call or for the whole connection.
        let newer = match (error.code(), used) {
            (AbortCode::RX_INVALID_OPERATION, None) => self.access.secured().await,
            (code, Some(used)) if is_refusal(code.0) => self.access.newer(&used).await,
            _ => return false,
        };
        match newer {
            Ok(Some(newer)) => {
                let link = Link::new(&self.endpoint, server.address, Some(newer));
                *server.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!("{} is not asked again: {error}", server.address);
                false
            }
        }
    }

    fn lock_entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<VldbEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_addresses(&self) -> std::sync::MutexGuard<'_, BTreeMap<AfsUuid, Vec<Ipv4Addr>>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn link(&self) -> Link {
        self.link
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
            5376..=5631 => VlVerdict::NextServer,
            -457..=-450 => VlVerdict::Final,
            i32::MIN..0 => VlVerdict::NextServer,
            _ => VlVerdict::Final,
        },
    }
}

/// Where a file server at this address answers.
pub(crate) fn file_server(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(address), port)
}
