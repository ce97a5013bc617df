//! The volume server: AFSVol on a volume store.
//!
//! A volume is worked on in a transaction, which keeps other transactions from it and clients away
//! from it, until the caller ends it, is gone, or forgets it for ten minutes. What is done is durable when it
//! is answered; what must not be seen half done is out of service meanwhile, and removed if the
//! server stops.
//!
//! - `transactions`: who works on which volume
//! - `service`: the operations, one method each
//! - `change`, `clone`: making, removing and changing volumes
//! - `dump`, `forward`, `restore`: volumes into dump streams and out of them
//! - `origin`: whether clients that began transactions are still there
//! - `location`: what the location servers say of a volume that is left out of service
//! - `previous`: what stays until what replaces it is complete
//! - `list`: volumes and partitions as tools show them
//! - `streams`: between the store's threads and calls
//!
//! Codes, and the order of what is checked, are those of OpenAFS (`volser/volprocs.c`), as tools
//! go by them.

mod change;
mod clone;
mod codes;
mod config;
mod dump;
mod forward;
mod list;
mod location;
mod origin;
mod previous;
mod restore;
mod service;
mod streams;
mod transactions;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use afar_cell::VolumeOob;
use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, Calls, Lists, afsvol};
use afar_store::{Partition, StoreError, VolumeChange};
use afar_types::{PartitionId, TransactionFlags, VolumeId};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::hosts::Hosts;
use crate::volumes::Volumes;
use origin::Refusals;
use previous::JustRemoved;
use streams::blocking;
use transactions::{Transactions, Use};

pub use config::VolserConfig;

/// Tells clients that what they know of a volume no longer holds.
pub trait BreakVolume: Send + Sync + 'static {
    /// Breaks all promises on a volume's files. Ready when clients have been told.
    fn break_volume(&self, volume: VolumeId) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl BreakVolume for Arc<Hosts> {
    fn break_volume(&self, volume: VolumeId) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let hosts = Self::clone(self);
        Box::pin(async move { Hosts::break_volume(&hosts, volume).await })
    }
}

/// The volume server, at an endpoint. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct VolumeServer(Arc<Volser>, Endpoint);

/// All there is of a volume server.
struct Volser {
    volumes: Arc<Volumes>,
    transactions: Arc<Transactions>,
    removed: Arc<JustRemoved>,
    callbacks: Arc<dyn BreakVolume>,
    endpoint: Endpoint,
    config: VolserConfig,
    /// Dumps that may be made at a time. Forwarding to a server, which may be this one, takes one
    /// of these first and one of the next there: never the other way round.
    outgoing: Arc<Semaphore>,
    /// Dumps that may be restored at a time.
    incoming: Arc<Semaphore>,
    lists: Lists,
    calls: Calls,
    /// How dumps are forwarded out of band, if they are.
    out_of_band: Option<Arc<VolumeOob>>,
}

impl VolumeServer {
    /// Serves these volumes. `callbacks` tells clients of changes; dumps are forwarded to other
    /// servers from `endpoint`. Idle transactions are ended by a task of the current runtime, as
    /// long as the server is there.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(
        volumes: Arc<Volumes>,
        callbacks: impl BreakVolume,
        endpoint: Endpoint,
        config: VolserConfig,
    ) -> Self {
        let transactions = Transactions::new(Arc::clone(&volumes), config.max_transactions);
        let volser = Arc::new(Volser {
            volumes,
            transactions: Arc::new(transactions),
            removed: Arc::default(),
            callbacks: Arc::new(callbacks),
            endpoint,
            outgoing: Arc::new(Semaphore::new(config.max_streams)),
            incoming: Arc::new(Semaphore::new(config.max_streams)),
            lists: Lists::default(),
            calls: Calls::new(afsvol::INTERFACE, &config.registry),
            out_of_band: config.offers.is_some().then(Arc::default),
            config,
        });
        tokio::spawn(sweep(Arc::downgrade(&volser)));
        tokio::spawn(attend(Arc::downgrade(&volser)));
        let endpoint = volser.endpoint.clone();
        Self(volser, endpoint)
    }

    /// The same server at another endpoint, from which its clients there are reached.
    #[must_use]
    pub fn at(&self, endpoint: Endpoint) -> Self {
        Self(Arc::clone(&self.0), endpoint)
    }
}

impl fmt::Debug for VolumeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeServer")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

/// Ends transactions that nobody has used for long, until the server is gone.
async fn sweep(volser: Weak<Volser>) {
    let Some(period) = volser.upgrade().map(|volser| volser.config.sweep_interval) else {
        return;
    };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(volser) = volser.upgrade() else {
            return;
        };
        for expired in volser.transactions.expire(volser.config.idle_limit) {
            volser.abandon(expired).await;
        }
    }
}

/// Ends transactions whose clients are gone, until the server is.
async fn attend(volser: Weak<Volser>) {
    let mut ticks = interval(origin::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refusals = Refusals::default();
    loop {
        ticks.tick().await;
        let Some(volser) = volser.upgrade() else {
            return;
        };
        for id in refusals.ask(&volser.transactions).await {
            if let Some(orphan) = volser.transactions.orphan(id) {
                let volume = orphan.transaction.volume.id();
                tracing::warn!(transaction = id.0, %volume, "the client of a transaction is gone");
                volser.abandon(orphan).await;
            }
        }
    }
}

impl Volser {
    /// Puts right what a transaction has left that nobody ended: its volume is removed if it was not
    /// to stay, and is back in service if it was taken out and is still where clients look for it.
    async fn abandon(&self, expired: Use) {
        if expired.flags().contains(TransactionFlags::DELETED) {
            return;
        }
        self.settle(&expired).await;
        if expired.was_taken_out() {
            return self.put_back_in_service(&expired).await;
        }
        let volume = expired.transaction.volume.clone();
        let id = volume.id();
        let removed = blocking(move || {
            let unfinished = volume.state().is_ok_and(|state| state.destroy_me);
            if unfinished {
                let removed = volume.partition().remove_volume(id);
                removed.map_err(|error| failed("removing a volume left behind", id, &error))?;
            }
            Ok(unfinished)
        });
        if removed.await == Ok(true) {
            tracing::warn!(volume = %id, "removed a volume whose transaction timed out");
            expired.set_deleted();
            self.break_callbacks(id).await;
        }
    }

    /// Tells clients that a volume changed, and waits for those that answer soon.
    async fn break_callbacks(&self, volume: VolumeId) {
        let told = tokio::spawn(self.callbacks.break_volume(volume));
        // Those that do not answer are no reason to wait: the task goes on without us.
        if timeout(self.config.callback_wait, told).await.is_err() {
            tracing::debug!(%volume, "not all clients have answered yet");
        }
    }

    /// A partition by its number.
    fn partition(&self, id: PartitionId) -> Result<&Arc<Partition>, AbortCode> {
        self.served(id)?.ok_or(codes::ILLEGAL_PARTITION)
    }

    /// A partition by its number, if the server has it.
    ///
    /// # Errors
    /// EIO if it has, and cannot serve it.
    fn served(&self, id: PartitionId) -> Result<Option<&Arc<Partition>>, AbortCode> {
        match self.volumes.partition(id) {
            None if self.config.not_served.contains(&id) => Err(codes::EIO),
            partition => Ok(partition),
        }
    }

    /// Changes the header of a transaction's volume.
    async fn change_header(
        &self,
        used: &Use,
        what: &'static str,
        change: VolumeChange,
    ) -> Result<(), AbortCode> {
        let volume = used.transaction.volume.clone();
        blocking(move || {
            let changed = volume.change(change);
            changed.map_err(|error| failed(what, volume.id(), &error))
        })
        .await
    }

    /// Lists are open to all, unless the configuration says otherwise.
    fn may_query(&self, caller: &Caller) -> Result<(), AbortCode> {
        if self.config.restricted_query {
            return superuser(caller);
        }
        Ok(())
    }
}

/// All that changes something is for the cell's administration.
fn superuser(caller: &Caller) -> Result<(), AbortCode> {
    if caller.identity.is_superuser() {
        return Ok(());
    }
    Err(codes::BAD_ACCESS)
}

/// Logs a failure of the store, and gives what the caller is told of it.
fn failed(what: &'static str, volume: VolumeId, error: &StoreError) -> AbortCode {
    let code = codes::volume_code(error);
    tracing::warn!(%volume, code = code.0, "{what} failed: {error}");
    code
}
