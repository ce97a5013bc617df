//! What the protection service knows of users and hosts: ids, names, memberships.
//!
//! Answers are kept: a host's groups for two hours, as OpenAFS's file server keeps them, a user's
//! memberships for ten minutes, as there is no new connection that would bring new ones. The names in
//! access lists are asked for each time. When answers are too old and no server answers, the old ones hold on. Someone of whom nothing is known and
//! nobody can be asked is anonymous until a server answers; after a question that no server
//! answered, none is asked for ten seconds, lest every call waits for the dead.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{Caller, Identity, RpcError, pr};
use afar_types::error::{PRNOENT, RXKADILLEGALLEVEL, RXKADINCONSISTENCY};
use afar_types::{PrIds, PrName, PrNamesAsked, PtsId};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::{Instant, timeout};

use crate::access::{Cps, Person};

const USER_LIFE: Duration = Duration::from_secs(10 * 60);
const HOST_LIFE: Duration = Duration::from_secs(2 * 60 * 60);
const NAME_LIFE: Duration = Duration::from_secs(10 * 60);
/// What one server has to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// For how long nobody is asked after nobody answered.
const REST: Duration = Duration::from_secs(10);
/// Answers kept, of each sort.
const KEPT: usize = 65_536;

/// Names that every cell has.
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

/// Connects to a protection server anew.
pub type Connect = Box<dyn Fn() -> pr::Client + Send + Sync>;

/// The protection service, as a file server uses it.
pub struct Protection {
    servers: Vec<Server>,
    /// The one that answered last.
    preferred: AtomicUsize,
    rest_until: Mutex<Option<Instant>>,
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
        let same = |server: pr::Client| Box::new(move || server.clone()) as Connect;
        Self::connecting(servers.into_iter().map(same).collect())
    }

    /// The same for servers that are connected to anew after an error: to show a ticket of a newer
    /// key, if that is why they refuse.
    #[must_use]
    pub fn connecting(servers: Vec<Connect>) -> Self {
        Self {
            servers: servers.into_iter().map(Server::new).collect(),
            preferred: AtomicUsize::new(0),
            rest_until: Mutex::default(),
            ids: Kept::new(NAME_LIFE),
            users: Kept::new(USER_LIFE),
            hosts: Kept::new(HOST_LIFE),
            names: Cache::new(KEPT),
            anonymous: Arc::new(Cps::anonymous()),
        }
    }

    /// Forgets a user's memberships (AFS-3 RXAFS FlushCPS).
    pub fn forget_user(&self, id: PtsId) {
        self.users.forget(&id);
    }

    /// Forgets a host's groups.
    pub fn forget_host(&self, host: Ipv4Addr) {
        self.hosts.forget(&host);
    }

    /// Who calls.
    pub(crate) async fn person(&self, caller: &Caller) -> Person {
        if caller.identity == Identity::Superuser {
            return Person::superuser();
        }
        // An operator's rights in directories are those of any user.
        let name = caller.identity.name();
        let (user, host) = tokio::join!(self.user(name), self.host(caller.peer));
        let (id, cps) = user.unwrap_or_else(|| (PtsId::ANONYMOUS, Arc::clone(&self.anonymous)));
        Person {
            id,
            cps,
            host: host.unwrap_or_default(),
            superuser: false,
        }
    }

    async fn user(&self, name: Option<&Arc<str>>) -> Option<(PtsId, Arc<Cps>)> {
        let name = name?;
        let asked = self.ids(std::slice::from_ref(name));
        let first = async { asked.await.map(|ids| ids.first().copied()) };
        let id = self.ids.get(Arc::clone(name), async {
            first.await.map(|id| id.unwrap_or(PtsId::ANONYMOUS))
        });
        let id = id.await.ok().filter(|id| *id != PtsId::ANONYMOUS)?;
        let cps = self.users.get(id, self.ask_cps(id)).await.ok()?;
        Some((id, cps))
    }

    async fn ask_cps(&self, id: PtsId) -> Result<Arc<Cps>, Unanswered> {
        let answer = self.ask(|server| async move {
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

    async fn host(&self, peer: SocketAddr) -> Option<Arc<Cps>> {
        let IpAddr::V4(address) = peer.ip().to_canonical() else {
            return None;
        };
        if self.servers.is_empty() || address.is_unspecified() {
            return None;
        }
        let asked = async {
            let number = u32::from(address);
            let reply = self.ask(|server| async move { server.get_host_cps(number).await });
            Ok(Arc::new(Cps::new(reply.await?.cps)))
        };
        self.hosts.get(address, asked).await.ok()
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
            let reply = self.ask(|server| {
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
            let reply = self.ask(|server| {
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
            .map(|id| id.unwrap_or(PtsId::ANONYMOUS))
            .collect())
    }

    /// Asks one server after the other until one answers.
    async fn ask<T, F>(&self, question: impl Fn(pr::Client) -> F) -> Result<T, Unanswered>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let resting = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if resting(&self.rest_until.lock()) {
            return Err(Unanswered);
        }
        let first = self.preferred.load(Ordering::Relaxed);
        for turn in 0..self.servers.len() {
            let number = (first + turn) % self.servers.len();
            if let Some(answer) = self.servers[number].ask(&question).await {
                self.preferred.store(number, Ordering::Relaxed);
                *self.rest_until.lock() = None;
                return Ok(answer);
            }
        }
        *self.rest_until.lock() = Some(Instant::now() + REST);
        Err(Unanswered)
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.servers.iter();
        let servers = servers.map(|server| server.client.lock().connection().peer());
        f.debug_struct("Protection")
            .field("servers", &servers.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A protection server.
struct Server {
    connect: Connect,
    client: Mutex<pr::Client>,
}

impl Server {
    fn new(connect: Connect) -> Self {
        let client = Mutex::new(connect());
        Self { connect, client }
    }

    /// Its answer, if it gives one. One that does not like our ticket is shown a new one.
    async fn ask<T, F>(&self, question: &impl Fn(pr::Client) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, RpcError>>,
    {
        let mut again = true;
        loop {
            let client = self.client.lock().clone();
            let peer = client.connection().peer();
            match timeout(PATIENCE, question(client)).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => {
                    *self.client.lock() = (self.connect)();
                    let disliked = is_rxkad(error.code());
                    if disliked && std::mem::take(&mut again) {
                        continue;
                    }
                    tracing::warn!(%peer, %error, "asking a protection server");
                }
                Err(_) => tracing::warn!(%peer, "a protection server does not answer"),
            }
            return None;
        }
    }
}

/// Whether a code is rxkad's: it is about the ticket, not about the question.
fn is_rxkad(code: AbortCode) -> bool {
    (RXKADINCONSISTENCY..=RXKADILLEGALLEVEL).contains(&code.0)
}

type Slot<V> = Arc<tokio::sync::Mutex<Option<(V, Instant)>>>;

/// Answers that hold for a while. Of those who want the same one, one asks and the others wait.
struct Kept<K, V> {
    slots: Cache<K, Slot<V>>,
    life: Duration,
}

impl<K: Hash + Eq + Clone, V: Clone> Kept<K, V> {
    fn new(life: Duration) -> Self {
        Self {
            slots: Cache::new(KEPT),
            life,
        }
    }

    /// The kept answer if it is young enough, else a new one, else an old one.
    async fn get(
        &self,
        key: K,
        ask: impl Future<Output = Result<V, Unanswered>>,
    ) -> Result<V, Unanswered> {
        let made = self
            .slots
            .get_or_insert_with(&key, || Ok::<_, Infallible>(Slot::default()));
        let Ok(slot) = made;
        let mut slot = slot.lock().await;
        match &*slot {
            Some((value, since)) if since.elapsed() < self.life => return Ok(value.clone()),
            _ => {}
        }
        match ask.await {
            Ok(value) => {
                *slot = Some((value.clone(), Instant::now()));
                Ok(value)
            }
            Err(unanswered) => slot
                .as_ref()
                .map(|(value, _)| value.clone())
                .ok_or(unanswered),
        }
    }

    fn forget(&self, key: &K) {
        self.slots.remove(key);
    }
}
