//! What file servers have leased to this machine.
//!
//! Each server has a [`Holder`] of its own, below a lock. What that wants done is done by `ops`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afar_cell::{BreakHandler, FileServer, RecallHandler, Volume};
use afar_lease::Holder;
use afar_lease::wire::{Recall, RecallAnswer};
use afar_types::Fid;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::model::user::User;
use crate::table::breaks::Breaks;

/// The holders of all servers.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    sites: Mutex<BTreeMap<SocketAddr, Arc<Site>>>,
}

/// A file server and what it has leased to this machine.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) server: Arc<FileServer>,
    holder: Mutex<Holder>,
    /// The holder wants something done.
    pub(crate) wake: Notify,
    /// It wants something said.
    pub(crate) says: AtomicBool,
    /// Something is being said.
    pub(crate) saying: AtomicBool,
    /// The server has restarted, and is to hear what this machine had.
    pub(crate) claims: AtomicBool,
    /// Held by the request that begins a session.
    pub(crate) beginning: AsyncMutex<()>,
    /// Held by the request that asks for fids.
    pub(crate) refilling: AsyncMutex<()>,
    /// They are asked for before they are needed.
    pub(crate) refills_ahead: AtomicBool,
    /// The user as whom leases were asked for last.
    user: Mutex<Option<Arc<User>>>,
}

impl Site {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock()
    }

    /// The user as whom leases were asked for last.
    pub(crate) fn user(&self) -> Option<Arc<User>> {
        self.user.lock().clone()
    }

    pub(crate) fn set_user(&self, user: &Arc<User>) {
        *self.user.lock() = Some(Arc::clone(user));
    }
}

impl Leases {
    /// The server of a volume that can be written to, if it is known here.
    pub(crate) fn known(&self, volume: &Volume) -> Option<Arc<Site>> {
        let address = volume.sites().first()?.address();
        self.sites.lock().get(&address).cloned()
    }

    /// The server of a volume that can be written to, and whether it was not known before.
    pub(crate) fn of(&self, volume: &Volume) -> Option<(Arc<Site>, bool)> {
        let server = volume.sites().into_iter().next()?;
        let mut sites = self.sites.lock();
        if let Some(known) = sites.get(&server.address()) {
            return Some((Arc::clone(known), false));
        }
        let address = server.address();
        let site = Arc::new(Site {
            server,
            holder: Mutex::new(Holder::new()),
            wake: Notify::new(),
            says: AtomicBool::new(false),
            saying: AtomicBool::new(false),
            beginning: AsyncMutex::new(()),
            refilling: AsyncMutex::new(()),
            refills_ahead: AtomicBool::new(false),
            user: Mutex::default(),
            claims: AtomicBool::new(false),
        });
        sites.insert(address, Arc::clone(&site));
        Some((site, true))
    }

    /// All servers that are known here.
    pub(crate) fn all(&self) -> Vec<Arc<Site>> {
        self.sites.lock().values().cloned().collect()
    }
}

/// Hears of recalls, and of broken promises.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) leases: Arc<Leases>,
    pub(crate) breaks: Arc<Breaks>,
}

impl BreakHandler for Told {
    fn broken(&self, server: SocketAddr, fids: &[Fid]) {
        self.breaks.broken(server, fids);
    }

    fn all_broken(&self, server: SocketAddr) {
        self.breaks.all_broken(server);
        // It may have restarted, and let others wait for what we had.
        for site in self.leases.all() {
            let has = site.lock().session().1 != 0;
            site.says.fetch_or(has, Ordering::SeqCst);
            site.wake.notify_one();
        }
    }

    fn carried_out(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.breaks.carried_out()
    }
}

impl RecallHandler for Told {
    fn recalled(&self, server: SocketAddr, recall: &Recall) -> RecallAnswer {
        // A server may call from another of its addresses. The session tells which it is.
        let sites = self.leases.all();
        let own = sites
            .iter()
            .find(|site| site.lock().session().1 == recall.session);
        let known = own.is_some();
        tracing::debug!(%server, items = recall.items.len(), known, "leases recalled");
        let Some(site) = own else {
            return Holder::new().recalled(recall);
        };
        if recall.items.is_empty() {
            // It has restarted, and waits for what we have to say.
            // spec: leases#restart-of-the-server
            site.says.store(true, Ordering::SeqCst);
        }
        let answer = site.lock().recalled(recall);
        // From the answer on the server believes that nothing is used under the lease any more, for reading as well.
        let fids: Vec<Fid> = recall.items.iter().map(|item| item.fid).collect();
        self.breaks.broken(server, &fids);
        site.wake.notify_one();
        answer
    }
}
