//! Leases asked for, kept, given back and lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::{BreakHandler as _, Volume};
use afar_lease::holder::Action;
use afar_lease::wire::{WISHES, Word};
use afar_types::{Fid, VolumeType};
use tokio::time::Instant;

use super::store::MOST;
use crate::model::boot;
use crate::model::user::User;
use crate::model::vnode::Vnode;
use crate::ops::cache::{Cache, Inner};
use crate::ops::prefetch::known_entries;
use crate::table::leases::Site;

/// Wishes of a vnode in a row: a server grants none before it has noted on its disk that this machine has some.
const TRIES: u32 = 2;
/// The time between them.
const AGAIN: Duration = Duration::from_millis(30);
/// How long something is not wished for again that was not granted: others use it.
const NOT_GRANTED: Duration = Duration::from_secs(1);
/// Fids that are in reserve; more are asked for when fewer than half of them are left. A program makes about as many in two
/// round trips around the world.
pub(super) const RESERVE: u32 = 2048;
/// How long the answer to a note takes at most. After more the leases are about to be over.
const KEEP: Duration = Duration::from_secs(10);
/// The same at the end: a server that does not answer knows in 20 s that all leases are over.
const LEAVE: Duration = Duration::from_secs(2);
/// The longest sleep of a task that looks after leases.
const LOOK: Duration = Duration::from_secs(1);
/// The pause before something is said again that a server did not hear.
const SAY_AGAIN: Duration = Duration::from_secs(1);

impl Cache {
    /// These were changed by calls, and will perhaps be changed again: asks for leases of them, while the program goes on.
    // spec: leases#grant
    pub(crate) fn wish(&self, user: &Arc<User>, vnodes: &[&Arc<Vnode>]) {
        if self.0.config.write_through {
            return;
        }
        let now = Instant::now();
        let wanted = vnodes.iter().filter(|vnode| may_wish(vnode, now));
        let wanted: Vec<Arc<Vnode>> = wanted.map(|vnode| Arc::clone(vnode)).collect();
        for some in wanted.chunks(WISHES) {
            tokio::spawn(self.clone().ask_for_leases(Arc::clone(user), some.to_vec()));
        }
    }

    /// A name in a directory is removed. If that is the first one there, a whole tree may be: asks for leases of the
    /// directories beside it and below, as far as they are known.
    pub(crate) fn wish_around(&self, user: &Arc<User>, directory: &Arc<Vnode>) {
        if self.0.config.write_through {
            return;
        }
        let last = self.0.removed_in.lock().replace(directory.fid);
        if last == Some(directory.fid) {
            return;
        }
        let above = self.directory_above(directory);
        // The last that is removed of a tree is its top.
        let top = above.as_ref();
        let top = top.and_then(|above| self.directory_above(above));
        let mut near = vec![Arc::clone(directory)];
        near.extend(above.clone());
        near.extend(top);
        for vnode in above.iter().chain([directory]) {
            near.extend(self.directories_in(vnode));
        }
        let now = boot::now();
        let site = self.0.leases.known(&directory.volume);
        near.retain(|vnode| {
            let leased = site
                .as_ref()
                .is_some_and(|site| site.lock().lease(now, vnode.fid).is_some());
            !leased && vnode.lock().promised().is_some()
        });
        near.truncate(WISHES);
        let near: Vec<&Arc<Vnode>> = near.iter().collect();
        self.wish(user, &near);
    }

    /// The directories in a directory whose pages are known.
    fn directories_in(&self, directory: &Arc<Vnode>) -> Vec<Arc<Vnode>> {
        let entries = known_entries(directory).unwrap_or_default().into_iter();
        let directories = entries.filter(|entry| entry.fid.vnode.is_directory());
        directories
            .map(|entry| self.0.vnodes.of(&directory.volume, entry.fid))
            .collect()
    }

    async fn ask_for_leases(self, user: Arc<User>, vnodes: Vec<Arc<Vnode>>) {
        let asked = self.ask_for(&user, &vnodes).await;
        for vnode in &vnodes {
            answered(vnode, asked.as_ref());
        }
    }

    /// Asks for leases some times. Returns the server, if it gives any.
    async fn ask_for(&self, user: &Arc<User>, vnodes: &[Arc<Vnode>]) -> Option<Arc<Site>> {
        let volume = Arc::clone(&vnodes.first()?.volume);
        if volume.kind() != VolumeType::ReadWrite || !volume.leads_to_afar().await {
            return None;
        }
        let site = self.site(&volume)?;
        site.set_user(user);
        // Wishes get nothing by a note that does not name the session which another has just begun: the first goes alone.
        let mut first = None;
        if site.lock().session().1 == 0 {
            first = site.beginning.try_lock().ok();
            if first.is_none() {
                drop(site.beginning.lock().await);
            }
        }
        for _ in 0..TRIES {
            let wanted: Vec<Fid> = {
                let (holder, now) = (site.lock(), boot::now());
                let fids = vnodes.iter().map(|vnode| vnode.fid);
                fids.filter(|fid| holder.lease(now, *fid).is_none())
                    .collect()
            };
            if wanted.is_empty() {
                break;
            }
            let reserve = self.missing(&site, &volume);
            let wish = (&wanted[..], reserve);
            let heard = self.keep_leases(user, &site, wish, KEEP).await;
            // Whether it has begun one or not, nobody waits for more than this answer.
            drop(first.take());
            if heard.is_none() {
                break;
            }
            for vnode in vnodes {
                no_longer_wishing(vnode);
            }
            tokio::time::sleep(AGAIN).await;
        }
        drop(first);
        Some(site)
    }

    /// The server of a volume, and a task that looks after its leases.
    fn site(&self, volume: &Volume) -> Option<Arc<Site>> {
        let (site, new) = self.0.leases.of(volume)?;
        if new {
            tokio::spawn(look_after(Arc::downgrade(&self.0), Arc::clone(&site)));
        }
        Some(site)
    }

    /// How many fids are wanted in a volume.
    pub(super) fn missing(&self, site: &Site, volume: &Volume) -> u32 {
        let left = site.lock().reserved(volume.id());
        if left < RESERVE / 2 {
            RESERVE - left
        } else {
            0
        }
    }

    /// Asks for more fids before a program has to wait for them.
    pub(super) fn refill_ahead(&self, user: &Arc<User>, site: &Arc<Site>, volume: &Arc<Volume>) {
        if site.refills_ahead.load(Ordering::Relaxed) || self.missing(site, volume) == 0 {
            return;
        }
        if site.refills_ahead.swap(true, Ordering::Relaxed) {
            return;
        }
        let (cache, user) = (self.clone(), Arc::clone(user));
        let (site, volume) = (Arc::clone(site), Arc::clone(volume));
        tokio::spawn(async move {
            if !cache.refill(&user, &site, &volume).await {
                tokio::time::sleep(NOT_GRANTED).await;
            }
            site.refills_ahead.store(false, Ordering::Relaxed);
        });
    }

    /// Asks for more fids, and waits for them. False if a server was asked and gave none.
    pub(super) async fn refill(&self, user: &User, site: &Arc<Site>, volume: &Volume) -> bool {
        let _one = site.refilling.lock().await;
        let reserve = self.missing(site, volume);
        let wish = site.lock().some_lease(boot::now(), volume.id());
        let Some(wish) = wish.filter(|_| reserve > 0) else {
            return true;
        };
        let word = self.keep_leases(user, site, (&[wish], reserve), KEEP).await;
        word.is_some_and(|word| !word.blocks.is_empty())
    }

    /// Renews the leases of a server, with wishes. Returns what it says, if it has heard.
    async fn keep_leases(
        &self,
        user: &User,
        site: &Arc<Site>,
        (wishes, reserve): (&[Fid], u32),
        limit: Duration,
    ) -> Option<Word> {
        let (note, sent) = site.lock().note(boot::now(), wishes, reserve);
        let asked = user.client.keep_leases(&site.server, &note);
        let Ok(answer) = tokio::time::timeout(limit, asked).await else {
            tracing::debug!(server = %site.server.address(), "leases are not renewed in time");
            return None;
        };
        match answer {
            Ok(word) => {
                site.lock().answered(boot::now(), &sent, &word);
                self.act(site);
                Some(word)
            }
            Err(error) => {
                tracing::debug!(server = %site.server.address(), %error, "leases are not renewed");
                None
            }
        }
    }

    /// Does what the holder of a server's leases wants done.
    pub(super) fn act(&self, site: &Arc<Site>) {
        loop {
            let action = site.lock().poll_action();
            match action {
                None => return,
                Some(Action::Flush(fid)) => self.flush_lease(site, fid),
                Some(Action::Lost(fid)) => self.lost_lease(site, fid),
                Some(Action::Say) => {
                    site.says.store(true, Ordering::SeqCst);
                    site.wake.notify_one();
                }
                Some(Action::Claim) => {
                    site.claims.store(true, Ordering::SeqCst);
                    site.wake.notify_one();
                }
            }
        }
    }

    /// Gives a lease back when the server has all that was changed under it.
    // spec: leases#recall
    fn flush_lease(&self, site: &Arc<Site>, fid: Fid) {
        let address = site.server.address();
        self.0.breaks.broken(address, &[fid]);
        let here = |vnode: &Arc<Vnode>| {
            let sites = vnode.volume.sites();
            sites.first().is_some_and(|site| site.address() == address)
        };
        if fid.vnode.is_directory() {
            self.give_back_inside(site, fid);
        }
        let vnodes = self.0.vnodes.of_fid(fid).into_iter();
        let unsent = vnodes.filter(here).find_map(|vnode| {
            let unsent = vnode.lock().rare.unsent;
            (unsent > 0).then(|| (self.0.unsent.of(&vnode.volume), unsent))
        });
        let Some((line, number)) = unsent else {
            site.lock().flushed(fid);
            return;
        };
        let (site, cache) = (Arc::clone(site), Arc::downgrade(&self.0));
        tokio::spawn(async move {
            // What fails is tried again, and the server waits no longer than it does.
            while line.sent(number).await.is_err() {}
            site.lock().flushed(fid);
            if let Some(inner) = cache.upgrade() {
                Self(inner).act(&site);
            }
        });
    }

    /// A directory is recalled: who lists it will ask for the files in it next.
    fn give_back_inside(&self, site: &Site, directory: Fid) {
        let leased: Vec<Fid> = {
            let holder = site.lock();
            let fids = holder.leases().map(|lease| lease.fid);
            fids.filter(|fid| fid.volume == directory.volume && !fid.vnode.is_directory())
                .collect()
        };
        for fid in leased {
            let inside = self.0.vnodes.of_fid(fid).into_iter().any(|vnode| {
                let status = vnode.lock().status();
                status.is_some_and(|status| {
                    status.parent_vnode == directory.vnode
                        && status.parent_uniquifier == directory.uniquifier
                })
            });
            if inside {
                site.lock().give_back(fid);
            }
        }
    }

    /// A lease is over that was not given back.
    fn lost_lease(&self, site: &Site, fid: Fid) {
        self.0.breaks.broken(site.server.address(), &[fid]);
        for line in self.0.unsent.waiting() {
            if line.volume.id() == fid.volume {
                line.lock().lost(fid);
            }
        }
    }

    async fn say(&self, site: &Arc<Site>) {
        let user = site
            .user()
            .unwrap_or_else(|| Arc::clone(self.0.users.base()));
        let heard = self.keep_leases(&user, site, (&[], 0), KEEP).await;
        if heard.is_none() {
            tokio::time::sleep(SAY_AGAIN).await;
            let has = site.lock().leases().next().is_some();
            site.says.fetch_or(has, Ordering::SeqCst);
        }
        site.saying.store(false, Ordering::SeqCst);
        site.wake.notify_one();
    }

    /// Tells a server that has restarted what this machine had.
    // spec: leases#restart-of-the-server
    async fn claim(&self, site: &Arc<Site>) {
        let user = site
            .user()
            .unwrap_or_else(|| Arc::clone(self.0.users.base()));
        loop {
            let claim = site.lock().claim(boot::now());
            let Some((claim, sent)) = claim else {
                break;
            };
            match user.client.claim_leases(&site.server, &claim).await {
                Ok(answer) => {
                    site.lock().claimed(boot::now(), &sent, &claim, &answer);
                    break;
                }
                Err(error) => {
                    tracing::debug!(server = %site.server.address(), %error, "leases are not claimed yet");
                    tokio::time::sleep(SAY_AGAIN).await;
                }
            }
        }
        self.act(site);
    }

    /// Gives all leases back, when all is sent.
    pub(crate) async fn leave_leases(&self) {
        for site in self.0.leases.all() {
            if site.lock().session().1 == 0 {
                continue;
            }
            site.lock().leave();
            self.act(&site);
            let user = site
                .user()
                .unwrap_or_else(|| Arc::clone(self.0.users.base()));
            self.keep_leases(&user, &site, (&[], 0), LEAVE).await;
        }
    }
}

/// Whether a lease is to be asked for, which is noted.
fn may_wish(vnode: &Vnode, now: Instant) -> bool {
    let mut state = vnode.lock();
    // Longer files are stored by calls.
    let is_small = vnode.fid.vnode.is_directory() || state.length() <= MOST;
    let due = state.rare.wish.is_none_or(|again| again <= now) && !state.rare.gone && is_small;
    if due {
        state.rare.wish = Some(now + NOT_GRANTED);
        state.rare.wishing = true;
    }
    due
}

/// The first answer has come: what waits for that goes on.
fn no_longer_wishing(vnode: &Vnode) {
    let work = vnode.work();
    vnode.lock().rare.wishing = false;
    work.leased.notify_waiters();
}

/// All answers to a wish have come. What was granted may be wished for again as soon as it is lost.
fn answered(vnode: &Vnode, site: Option<&Arc<Site>>) {
    no_longer_wishing(vnode);
    let granted = site.is_some_and(|site| site.lock().lease(boot::now(), vnode.fid).is_some());
    let mut state = vnode.lock();
    if granted {
        state.rare.wish = None;
    }
    state.rare.tidy();
}

/// Renews the leases of a server, and does what its recalls take, as long as there is a cache.
async fn look_after(cache: Weak<Inner>, site: Arc<Site>) {
    loop {
        let due = site.lock().poll_timeout();
        let wait = due.map_or(LOOK, |due| due.saturating_sub(boot::now()));
        tokio::select! {
            () = site.wake.notified() => {}
            () = tokio::time::sleep(wait.min(LOOK)) => {}
        }
        let Some(inner) = cache.upgrade() else {
            return;
        };
        let cache = Cache(inner);
        site.lock().handle_timeout(boot::now());
        cache.act(&site);
        if site.claims.swap(false, Ordering::SeqCst) {
            let (cache, site) = (cache.clone(), Arc::clone(&site));
            tokio::spawn(async move { cache.claim(&site).await });
        }
        // Recalls are not to wait for an answer to this.
        if site.says.load(Ordering::SeqCst) && !site.saying.swap(true, Ordering::SeqCst) {
            site.says.store(false, Ordering::SeqCst);
            let (cache, site) = (cache.clone(), Arc::clone(&site));
            tokio::spawn(async move { cache.say(&site).await });
        }
    }
}
