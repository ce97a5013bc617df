//! A volume and how its file servers are asked: the best site first, others when it fails.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afar_net::AbortCode;
use afar_rpc::{RpcError, rxafs};
use afar_types::error::RXKADEXPIRED;
use afar_types::{CellName, Fid, VolumeId, VolumeType};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::mountpoint::Wanted;
use crate::pauses::Pauses;
use crate::preferences::{ServerKind, in_order};
use crate::server::{FileServer, NEAR, Verdict, may_be_done, verdict};
use crate::vldb::{Cell, Effort};

/// How long several sites of a volume get to show which is nearest.
const RACE: Duration = Duration::from_secs(3);
/// Directories kept a volume. They are kept for paths with common parts, which are few.
const DIRECTORIES_MOST: usize = 64;

/// What is known of the way to a server, and of what it takes of a call at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// All that fits the way.
    Afar,
    /// A little, which then is on its way for long: many small calls do more than a large one.
    Far,
    /// A little, or it is not known yet.
    Near,
}

/// A volume: one member of its group.
#[derive(Debug)]
pub struct Volume {
    cell: Arc<Cell>,
    /// As it was named, by which it is looked up again.
    asked: String,
    id: VolumeId,
    kind: VolumeType,
    sites: RwLock<Vec<Arc<FileServer>>>,
    ranked: AsyncMutex<Ranked>,
    /// Whether it is to be looked up again in any case.
    check: AtomicBool,
    /// Whether a server of it ever answered.
    met: AtomicBool,
    /// When it was looked where it is, as its servers did not answer.
    looked: AsyncMutex<Option<Instant>>,
    directories: Mutex<BTreeMap<Fid, Bytes>>,
}

/// When the sites of a volume were put in order.
#[derive(Debug, Default)]
struct Ranked {
    since: Option<Instant>,
    /// How often a server had been given a rank then.
    changes: u64,
}

/// Whether a request may be made again after a call that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It may: doing it twice is the same as doing it once.
    Always,
    /// It may not, unless it is sure that no server has done it.
    NeverTwice,
}

/// Why a request to a volume failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was not done.
    Sure(Error),
    /// A server got it and did not answer: it may be done.
    InDoubt(Error),
}

/// Why a request to one server failed.
enum Trouble {
    /// The call did.
    Call(RpcError),
    /// There is no token that the server takes.
    Token(Error),
    /// The token expired while the call ran, perhaps when only the answer was missing. There is a
    /// newer one.
    Expired(RpcError),
}

impl Volume {
    /// The way to the first of its sites.
    pub(crate) async fn way(&self) -> Way {
        let path = match self.sites().first() {
            Some(site) => {
                let path = site.path().await;
                site.set_afar(path.is_some_and(|path| path.afar));
                path
            }
            None => None,
        };
        match path {
            Some(path) if path.afar => Way::Afar,
            Some(path) if path.rtt_min.is_some_and(|rtt| rtt >= NEAR) => Way::Far,
            _ => Way::Near,
        }
    }

    pub(crate) fn new(
        cell: Arc<Cell>,
        asked: String,
        id: VolumeId,
        kind: VolumeType,
        sites: Vec<Arc<FileServer>>,
    ) -> Self {
        Self {
            cell,
            asked,
            id,
            kind,
            sites: RwLock::new(sites),
            ranked: AsyncMutex::default(),
            check: AtomicBool::new(false),
            met: AtomicBool::new(false),
            looked: AsyncMutex::default(),
            directories: Mutex::default(),
        }
    }

    /// Its cell.
    #[must_use]
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// The name of its cell.
    #[must_use]
    pub fn cell_name(&self) -> &CellName {
        self.cell.name()
    }

    /// The name or number by which it was found.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Which member of its group it is.
    #[must_use]
    pub fn kind(&self) -> VolumeType {
        self.kind
    }

    /// Whether it is one that can be changed.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match self.kind {
            VolumeType::ReadWrite => Ok(()),
            kind => Err(Error::ReadOnly {
                cell: self.cell_name().clone(),
                volume: self.asked.clone(),
                kind,
            }),
        }
    }

    /// Its file servers, the one to ask first in front.
    #[must_use]
    pub fn sites(&self) -> Vec<Arc<FileServer>> {
        self.sites.read().clone()
    }

    /// Whether the server to ask first is afar's.
    pub async fn leads_to_afar(&self) -> bool {
        self.way().await == Way::Afar
    }

    /// Whether the server to ask first was seen to be afar's when much was last asked of it.
    #[must_use]
    pub fn is_at_afar(&self) -> bool {
        let sites = self.sites.read();
        sites.first().is_some_and(|site| site.is_afar())
    }

    fn set_sites(&self, sites: Vec<Arc<FileServer>>) {
        *self.sites.write() = sites;
    }

    /// Adds sites that it is said to have; those it has no more say so themselves.
    pub(crate) fn add_sites(&self, said: Vec<Arc<FileServer>>) {
        let mut sites = self.sites.write();
        let before = sites.len();
        for site in said {
            if sites.iter().all(|known| !Arc::ptr_eq(known, &site)) {
                sites.push(site);
            }
        }
        if sites.len() > before {
            self.check();
        }
    }

    /// Has it looked up again, and its sites put in order, when it is used next.
    pub(crate) fn check(&self) {
        self.check.store(true, Ordering::Release);
    }

    /// Whether a server of it ever answered.
    pub(crate) fn is_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    /// Whether none of its servers answered when it was asked last.
    fn is_down(&self) -> bool {
        let sites = self.sites.read();
        sites.iter().all(|site| site.is_down())
    }

    /// When it was looked where it is, as its servers did not answer.
    pub(crate) fn looked(&self) -> &AsyncMutex<Option<Instant>> {
        &self.looked
    }

    /// Has this site asked first from now on.
    fn prefer(&self, server: &Arc<FileServer>) {
        let mut sites = self.sites.write();
        if let Some(place) = sites.iter().position(|site| Arc::ptr_eq(site, server)) {
            sites[..=place].rotate_right(1);
        }
    }

    pub(crate) fn directory(&self, fid: Fid) -> Option<Bytes> {
        self.lock_directories().get(&fid).cloned()
    }

    /// Has a directory read again the next time, as it may have changed.
    pub(crate) fn forget_directory(&self, fid: Fid) {
        self.lock_directories().remove(&fid);
    }

    pub(crate) fn keep_directory(&self, fid: Fid, data: Bytes) {
        let mut directories = self.lock_directories();
        if directories.len() >= DIRECTORIES_MOST {
            directories.pop_first();
        }
        directories.insert(fid, data);
        debug_assert!(directories.len() <= DIRECTORIES_MOST);
    }

    fn lock_directories(&self) -> MutexGuard<'_, BTreeMap<Fid, Bytes>> {
        self.directories.lock()
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.asked)
    }
}

impl Client {
    /// Makes an RPC to a file server of the volume: to the nearest one that is up; again after a
    /// pause when it is busy; to the others, known or newly looked up, when it fails or no longer
    /// has the volume.
    pub(crate) async fn on_volume<T, Q, F>(
        &self,
        volume: &Arc<Volume>,
        request: Q,
    ) -> Result<T, Error>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<T, RpcError>> + Send,
    {
        let result = self.attempt(volume, &request, Repeat::Always).await;
        result.map_err(|(Failure::Sure(error) | Failure::InDoubt(error))| error)
    }

    /// The same, for requests that may not be repeated, too.
    pub(crate) async fn attempt<T, Q, F>(
        &self,
        volume: &Arc<Volume>,
        request: &Q,
        repeat: Repeat,
    ) -> Result<T, Failure>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<T, RpcError>> + Send,
    {
        let failed = |tried, error| Error::Volume {
            cell: volume.cell_name().clone(),
            volume: volume.asked.clone(),
            tried,
            last: Box::new(error),
        };
        // The limit is one for all sites and both rounds: nobody waits for their sum.
        let patience = Instant::now() + self.config().busy_limit;
        let mut looked_up_again = false;
        let (began, mut pauses) = (Instant::now(), Pauses::default());
        let mut last = None;
        if repeat == Repeat::NeverTwice && self.waits_for(volume) && volume.is_down() {
            // What is not begun is not in doubt.
            self.wait(volume).await;
        }
        loop {
            let (mut tried, mut silent) = (0, false);
            self.rank(volume).await;
            let mut sites = volume.sites();
            // Those that are down come last but are not left out: all may be, and one may be back.
            sites.sort_by_key(|site| site.is_down());
            for site in sites {
                tried += 1;
                let own = self.own(&site);
                match self
                    .on_server(volume, &own, request, repeat, patience)
                    .await
                {
                    Ok(reply) => {
                        volume.met.store(true, Ordering::Relaxed);
                        if tried > 1 {
                            volume.prefer(&site);
                        }
                        return Ok(reply);
                    }
                    Err(Trouble::Token(error)) => return Err(Failure::Sure(error)),
                    Err(Trouble::Expired(error)) => {
                        return Err(Failure::InDoubt(failed(tried, error)));
                    }
                    Err(Trouble::Call(error)) => match verdict(&error) {
                        Verdict::Final | Verdict::Token => {
                            return Err(Failure::Sure(Error::refused(error, own.who())));
                        }
                        _ if repeat == Repeat::NeverTwice && may_be_done(&error) => {
                            return Err(Failure::InDoubt(failed(tried, error)));
                        }
                        Verdict::Busy | Verdict::OtherSite | Verdict::Down => {
                            silent |= error.code() == AbortCode::RX_CALL_DEAD;
                            last = Some(error);
                        }
                    },
                }
            }
            if silent && self.waits_for(volume) {
                let in_time = !self.patience().is_over(began.elapsed());
                if in_time && self.wait(volume).await {
                    tokio::time::sleep(pauses.next()).await;
                    continue;
                }
            } else if !looked_up_again {
                looked_up_again = true;
                self.look_up_again(volume).await.map_err(Failure::Sure)?;
                continue;
            }
            return Err(Failure::Sure(match last {
                Some(error) => failed(tried, error),
                None => Error::NoSite {
                    cell: volume.cell_name().clone(),
                    volume: volume.asked.clone(),
                    problem: "it has no site".to_owned(),
                },
            }));
        }
    }

    /// Makes an RPC to one server, again while it is busy and patience lasts, and once more with a newer
    /// token when it refuses the one there was.
    async fn on_server<T, Q, F>(
        &self,
        volume: &Arc<Volume>,
        server: &Arc<FileServer>,
        request: &Q,
        repeat: Repeat,
        patience: Instant,
    ) -> Result<T, Trouble>
    where
        Q: Fn(rxafs::Client) -> F + Sync,
        F: Future<Output = Result<T, RpcError>> + Send,
    {
        let (mut pauses, mut renewed) = (Pauses::default(), false);
        loop {
            let (mut lane, introduction) = server.lane().await.map_err(Trouble::Token)?;
            let call = request(lane.client());
            let error = match self.unless_elsewhere(volume, &lane, call).await {
                Ok(reply) => {
                    server.answered();
                    server.prepare(self.config().lanes);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            lane.failed();
            let secured = lane.secured().cloned();
            match verdict(&error) {
                Verdict::Down => server.silent(),
                _ => server.answered(),
            }
            // Only now: the first channel of a server that is not known is given back to nobody.
            drop(lane);
            // Not earlier: the next in line would still find a server that is not known.
            drop(introduction);
            if let (Verdict::Token, Some(refused)) = (verdict(&error), secured) {
                tracing::debug!("{} refuses a token: {}", server.address(), error.cause);
                // Once: a newer one that is refused as well is no matter of time.
                if renewed || !server.renew(&refused).await.map_err(Trouble::Token)? {
                    let code = error.code().0;
                    return Err(Trouble::Token(server.access().refused(&refused, code)));
                }
                if repeat == Repeat::NeverTwice && error.code().0 == RXKADEXPIRED {
                    return Err(Trouble::Expired(error));
                }
                renewed = true;
                continue;
            }
            let left = patience.saturating_duration_since(Instant::now());
            if verdict(&error) != Verdict::Busy || left.is_zero() {
                return Err(Trouble::Call(error));
            }
            tracing::debug!("{} is busy: {}", server.address(), error.cause);
            tokio::time::sleep(pauses.next().min(left)).await;
        }
    }

    /// As whom the servers of a volume were asked last.
    pub(crate) fn who(&self, volume: &Volume) -> Arc<str> {
        match volume.sites().first() {
            Some(site) => self.own(site).who(),
            None => volume.cell.access().who(),
        }
    }

    /// Puts the sites of a volume in order by the ranks of their servers: when it is first used, or
    /// a server was given another rank. If none was ever asked and none was given a rank, all are asked
    /// for the time, and the first to answer is the nearest. Later the client checks now and then, in the
    /// background, which sites there are and which is the nearest.
    async fn rank(&self, volume: &Arc<Volume>) {
        // Held during the race: requests that went on meanwhile would begin with a server that may be far.
        let mut ranked = volume.ranked.lock().await;
        let changes = self.preferences().changes();
        let was_ranked = ranked.since.is_some() && ranked.changes == changes;
        let fresh = |since: Instant| since.elapsed() < self.config().fresh;
        let check = volume.check.swap(false, Ordering::AcqRel);
        if was_ranked && !check && ranked.since.is_some_and(fresh) {
            return;
        }
        *ranked = Ranked {
            since: Some(Instant::now()),
            changes,
        };
        let sites = volume.sites();
        if was_ranked {
            self.keep_fresh(&volume.cell);
            // One that is moved says so, and it is only in one place.
            let only_one = volume.kind == VolumeType::ReadWrite && sites.len() < 2;
            if check || !only_one {
                let (client, volume) = (self.clone(), Arc::clone(volume));
                tokio::spawn(async move { client.look_around(&volume).await });
            }
            return;
        }
        if sites.len() < 2 {
            return;
        }
        let known = |site: &Arc<FileServer>| {
            let given = self
                .preferences()
                .get(ServerKind::File, site.address().ip());
            given.is_some() || (site.is_met() && !site.is_down())
        };
        if !sites.iter().any(known)
            && let Some(first) = self.race(sites).await
        {
            volume.prefer(&first);
        }
        self.put_in_order(volume).await;
    }

    /// Asks all sites for the time, and returns the first that answers.
    async fn race(&self, sites: Vec<Arc<FileServer>>) -> Option<Arc<FileServer>> {
        let mut race = JoinSet::new();
        for site in sites {
            let own = self.own(&site);
            race.spawn(async move {
                let answered = ask_time(&own).await;
                (site, answered)
            });
        }
        let winner = async {
            while let Some(joined) = race.join_next().await {
                if let Ok((site, true)) = joined {
                    return Some(site);
                }
            }
            None
        };
        let winner = tokio::time::timeout(RACE, winner).await;
        // The others' answers are still worth having, but not worth waiting for.
        race.detach_all();
        winner.ok().flatten()
    }

    async fn put_in_order(&self, volume: &Volume) {
        let mut ranked = Vec::new();
        let fastest = self.fastest();
        for site in volume.sites() {
            let rank = match site.is_down() {
                true => u16::MAX,
                false => site.rank(self.preferences(), fastest).await,
            };
            ranked.push((rank, site));
        }
        volume.set_sites(in_order(ranked));
    }

    /// Looks where a volume is now, and which of its sites is the nearest.
    async fn look_around(&self, volume: &Arc<Volume>) {
        if let Err(error) = self.look_up_again(volume).await {
            tracing::debug!("keeping the old sites of {volume}: {error}");
        }
        let sites = volume.sites();
        if sites.len() < 2 {
            return;
        }
        let mut asked = JoinSet::new();
        for site in sites {
            let own = self.own(&site);
            asked.spawn(async move { ask_time(&own).await });
        }
        drop(tokio::time::timeout(RACE, asked.join_all()).await);
        self.put_in_order(volume).await;
    }

    /// Looks the volume's sites up again, with all addresses of their servers. Those that it had
    /// keep their places, and new ones come behind.
    pub(crate) async fn look_up_again(&self, volume: &Arc<Volume>) -> Result<(), Error> {
        let wanted = Wanted::Exactly(volume.kind);
        // Its name may be another volume's by now.
        let number = volume.id.to_string();
        let found = volume.cell.find(&number, wanted, Effort::Thorough).await?;
        let found = found.addresses.into_iter();
        let mut found: Vec<_> = found
            .map(|address| self.server(&volume.cell, address))
            .collect();
        let before = volume.sites();
        let place = |site: &Arc<FileServer>| {
            let known = before.iter().position(|known| Arc::ptr_eq(known, site));
            known.unwrap_or(before.len())
        };
        found.sort_by_key(place);
        volume.set_sites(found);
        Ok(())
    }
}

/// Whether a server tells the time.
async fn ask_time(site: &Arc<FileServer>) -> bool {
    // Why there is no lane is told when one is needed.
    let Ok((mut lane, _introduction)) = site.lane().await else {
        return false;
    };
    let answer = lane.client().get_time().await;
    match &answer {
        Err(error) if verdict(error) == Verdict::Down => {
            lane.failed();
            site.silent();
        }
        _ => site.answered(),
    }
    answer.is_ok()
}
