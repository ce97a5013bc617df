//! What the protection service knows of users and hosts: ids, names, memberships.
//!
//! Answers are kept for as long as nothing has changed there: each time that somebody calls, the answers
//! must be of the version that the database has now. A protection server in this process tells it at
//! once; one elsewhere is asked for it, twice a second at most, by the call that `udebug` makes. A server
//! that does not tell it makes answers short-lived. The names in access lists are asked for each time.
//!
//! When answers are too old and no server answers, the old ones hold on. Someone of whom nothing is
//! known and nobody can be asked is anonymous until a server answers; after a question that no server
//! answered, none is asked for ten seconds, lest every call waits for the dead.
//!
//! - `servers`: asking them, the first that answers
//! - `version`: whether anything has changed
//! - `kept`: the answers

mod kept;
mod servers;
mod version;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{Caller, Identity, pr};
use afar_types::error::PRNOENT;
use afar_types::{PrIds, PrName, PrNamesAsked, PtsId};
use quick_cache::sync::Cache;

use crate::access::{Cps, Person};

pub use servers::{Clients, Connect};
pub use version::LastChange;

use kept::Kept;
use servers::Servers;
use version::{Version, Watch};

/// Answers kept, of each sort.
const KEPT: usize = 65_536;

/// Names that every cell has.
// spec: afs-rpc#names-and-ids
const WELL_KNOWN: [(PtsId, &str); 6] = [
    (PtsId::ANYUSER, "system:anyuser"),
    (PtsId::AUTHUSER, "system:authuser"),
    (PtsId::PTSVIEWERS, "system:ptsviewers"),
    (PtsId::ADMINISTRATORS, "system:administrators"),
    (PtsId::BACKUP, "system:backup"),
    (PtsId::ANONYMOUS, "anonymous"),
];

/// No protection server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no protection server answered")]
pub(crate) struct Unanswered;

/// The protection service, as a file server uses it.
pub struct Protection {
    servers: Arc<Servers>,
    watch: Watch,
    ids: Kept<Arc<str>, PtsId>,
    users: Kept<PtsId, Arc<Cps>>,
    hosts: Kept<Ipv4Addr, Arc<Cps>>,
    /// The last ones told.
    names: Cache<PtsId, Arc<str>>,
    anonymous: Arc<Cps>,
}

impl Protection {
    /// Asks these servers, the first that answers. They must take this server for one they may
    /// tell everyone's memberships, and be connected to from an endpoint that is kept elsewhere.
    /// Without any, only the ids that every cell has are known.
    #[must_use]
    pub fn new(servers: Vec<pr::Client>) -> Self {
        let same = |users: pr::Client| {
            let clients = Clients {
                users,
                versions: None,
            };
            Box::new(move || clients.clone()) as Connect
        };
        Self::connecting(servers.into_iter().map(same).collect())
    }

    /// The same for servers that are connected to again after an error: to show a ticket of a newer
    /// key, if that is why they refuse.
    #[must_use]
    pub fn connecting(servers: Vec<Connect>) -> Self {
        Self {
            servers: Arc::new(Servers::new(servers)),
            watch: Watch::default(),
            ids: Kept::default(),
            users: Kept::default(),
            hosts: Kept::default(),
            names: Cache::new(KEPT),
            anonymous: Arc::new(Cps::anonymous()),
        }
    }

    /// The protection server is in this process, and so is told of each change at once: by the number of
    /// the last one, if that can be read.
    #[must_use]
    pub fn told_by(mut self, last_change: LastChange) -> Self {
        self.watch = Watch::here(last_change);
        self
    }

    /// Forgets a user's memberships (AFS-3 RXAFS FlushCPS).
    pub fn forget_user(&self, id: PtsId) {
        self.users.forget(&id);
    }

    /// Forgets a host's groups.
    pub fn forget_host(&self, host: Ipv4Addr) {
        self.hosts.forget(&host);
    }

    /// The caller.
    pub(crate) async fn person(&self, caller: &Caller) -> Person {
        if caller.identity == Identity::Superuser {
            return Person::superuser();
        }
        // An operator's rights in directories are those of any user.
        let name = caller.identity.name();
        let version = self.watch.version(&self.servers).await;
        let (user, host) = tokio::join!(self.user(name, version), self.host(caller.peer, version));
        let (id, cps) = user.unwrap_or_else(|| (PtsId::ANONYMOUS, Arc::clone(&self.anonymous)));
        Person {
            id,
            cps,
            host: host.unwrap_or_default(),
            superuser: false,
        }
    }

    async fn user(
        &self,
        name: Option<&Arc<str>>,
        version: Option<Version>,
    ) -> Option<(PtsId, Arc<Cps>)> {
        let name = name?;
        let asked = self.ids(std::slice::from_ref(name));
        let first = async { asked.await.map(|ids| ids.first().copied()) };
        let id = self.ids.get(Arc::clone(name), version, async {
            first.await.map(|id| id.unwrap_or(PtsId::ANONYMOUS))
        });
        let id = id.await.ok().filter(|id| *id != PtsId::ANONYMOUS)?;
        let cps = self.users.get(id, version, self.ask_cps(id)).await.ok()?;
        Some((id, cps))
    }

    // spec: afs-rpc#what-grants-rights
    async fn ask_cps(&self, id: PtsId) -> Result<Arc<Cps>, Unanswered> {
        let answer = self.servers.ask(|server| async move {
            match server.get_cps(id).await {
                // Removed since: what anyone may do is left.
                Err(error) if error.aborted() == Some(AbortCode(PRNOENT)) => Ok(None),
                other => other.map(|reply| Some(reply.cps)),
            }
        });
        Ok(answer.await?.map_or_else(
            || Arc::clone(&self.anonymous),
            |cps| Arc::new(Cps::new(cps)),
        ))
    }

    async fn host(&self, peer: SocketAddr, version: Option<Version>) -> Option<Arc<Cps>> {
        // Entries of hosts are named as addresses of IPv4.
        // spec: afs-rpc#what-grants-rights
        let IpAddr::V4(address) = peer.ip().to_canonical() else {
            return None;
        };
        if self.servers.is_empty() || address.is_unspecified() {
            return None;
        }
        let asked = async {
            let number = u32::from(address);
            let reply = self
                .servers
                .ask(|server| async move { server.get_host_cps(number).await });
            Ok(Arc::new(Cps::new(reply.await?.cps)))
        };
        self.hosts.get(address, version, asked).await.ok()
    }

    /// Names by ids, one for each: the id's digits where there is none. They are asked for each time,
    /// since users are renamed and removed; the last ones known stand in while no server answers.
    pub(crate) async fn names(&self, ids: &[PtsId]) -> Result<Vec<Arc<str>>, Unanswered> {
        let fixed = |id: &PtsId| {
            let found = WELL_KNOWN.iter().find(|(known, _)| known == id);
            found.map(|(_, name)| Arc::from(*name))
        };
        let asked = ids.iter().copied().filter(|id| fixed(id).is_none());
        let asked: Vec<_> = asked.collect();
        let mut answers = HashMap::new();
        if !asked.is_empty() && !self.servers.is_empty() {
            let list = PrIds::new(asked.clone()).map_err(|_| Unanswered)?;
            let reply = self.servers.ask(|server| {
                let list = list.clone();
                async move { server.id_to_name(list).await }
            });
            match reply.await {
                Ok(reply) => {
                    for (id, name) in asked.iter().zip(&reply.names) {
                        let name: Arc<str> = Arc::from(name.to_string());
                        self.names.insert(*id, Arc::clone(&name));
                        answers.insert(*id, name);
                    }
                }
                Err(unanswered) => {
                    for id in &asked {
                        answers.insert(*id, self.names.get(id).ok_or(unanswered)?);
                    }
                }
            }
        }
        let name = |id: &PtsId| {
            fixed(id)
                .or_else(|| answers.get(id).cloned())
                .unwrap_or_else(|| Arc::from(id.to_string()))
        };
        Ok(ids.iter().map(name).collect())
    }

    /// Ids by names, one for each: `anonymous` where a name is not known.
    pub(crate) async fn ids(&self, names: &[Arc<str>]) -> Result<Vec<PtsId>, Unanswered> {
        let fixed = |name: &str| {
            let found = WELL_KNOWN.iter().find(|(_, known)| *known == name);
            found.map(|(id, _)| *id)
        };
        let mut ids: Vec<_> = names.iter().map(|name| fixed(name)).collect();
        let missing: Vec<_> = names.iter().filter(|name| fixed(name).is_none()).collect();
        let mut answers = Vec::new();
        if self.servers.is_empty() {
            // Nobody knows names, so ids stand for themselves.
            answers.extend(
                missing
                    .iter()
                    .map(|name| name.parse().unwrap_or(PtsId::ANONYMOUS)),
            );
        } else if !missing.is_empty() {
            // A name that is too long is nobody's.
            let list = missing
                .iter()
                .map(|name| PrName::new(name.as_bytes()).unwrap_or_default());
            let list = PrNamesAsked::new(list.collect::<Vec<_>>()).map_err(|_| Unanswered)?;
            let reply = self.servers.ask(|server| {
                let list = list.clone();
                async move { server.name_to_id(list).await }
            });
            answers.extend(&reply.await?.ids);
        }
        let mut answers = answers.into_iter();
        for id in ids.iter_mut().filter(|id| id.is_none()) {
            *id = answers.next();
        }
        Ok(ids
            .into_iter()
            // spec: afs-rpc#names-and-ids
            .map(|id| id.unwrap_or(PtsId::ANONYMOUS))
            .collect())
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}
