//! Settings of a volume server.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{ClientSecurity, Endpoint, RxNull};
use afar_rpc::vl;
use afar_telemetry::Registry;
use afar_types::PartitionId;

use crate::leases::Leases;
use crate::oob::Offers;

/// Settings of a [`VolumeServer`](super::VolumeServer). The default serves everybody.
#[derive(Clone)]
pub struct VolserConfig {
    pub(super) restricted_query: bool,
    pub(super) not_served: Vec<PartitionId>,
    pub(super) idle_limit: Duration,
    pub(super) sweep_interval: Duration,
    pub(super) callback_wait: Duration,
    pub(super) stall_limit: Duration,
    pub(super) max_transactions: usize,
    pub(super) max_streams: usize,
    pub(super) security: Arc<dyn Fn() -> Arc<dyn ClientSecurity> + Send + Sync>,
    pub(super) home: Option<Home>,
    pub(super) location: Arc<dyn Fn() -> Vec<vl::Client> + Send + Sync>,
    pub(super) registry: Registry,
    pub(super) offers: Option<Arc<Offers>>,
    pub(super) leases: Option<Arc<Leases>>,
}

/// Where this server itself is reached as by its administrator.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) addresses: Vec<Ipv4Addr>,
    pub(super) endpoint: Endpoint,
}

impl Default for VolserConfig {
    fn default() -> Self {
        Self {
            restricted_query: false,
            not_served: Vec::new(),
            idle_limit: Duration::from_secs(600),
            sweep_interval: Duration::from_secs(30),
            callback_wait: Duration::from_millis(500),
            stall_limit: Duration::from_secs(120),
            max_transactions: 16_384,
            max_streams: 64,
            security: Arc::new(|| Arc::new(RxNull)),
            home: None,
            location: Arc::new(Vec::new),
            registry: Registry::default(),
            offers: None,
            leases: None,
        }
    }
}

impl VolserConfig {
    /// Whether lists too are for the administration only (`-restricted_query admin`). By default
    /// they are open to all.
    #[must_use]
    pub fn restricted_query(mut self, restricted: bool) -> Self {
        self.restricted_query = restricted;
        self
    }

    /// Partitions that cannot be served now, with what is on them: callers get EIO for them. Were they told that there
    /// is no such partition or volume, `vos syncserv` and `vos remove` would have the location servers forget it.
    #[must_use]
    pub fn not_served(mut self, partitions: Vec<PartitionId>) -> Self {
        self.not_served = partitions;
        self
    }

    /// How long a transaction may be without a call before it is given up: 600 s, as OpenAFS has
    /// it. Tools that wait for their user hold volumes that long.
    #[must_use]
    pub fn idle_limit(mut self, limit: Duration) -> Self {
        self.idle_limit = limit;
        self
    }

    /// How often idle transactions are looked for: 30 s.
    #[must_use]
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.sweep_interval = interval;
        self
    }

    /// How long an operation waits until clients have been told that a volume changed: 0.5 s.
    /// Those that do not answer are told further, but the operation no longer waits for them.
    #[must_use]
    pub fn callback_wait(mut self, wait: Duration) -> Self {
        self.callback_wait = wait;
        self
    }

    /// How long one of several destinations may take nothing at all before the dump goes on to
    /// the others without it: 120 s.
    #[must_use]
    pub fn stall_limit(mut self, limit: Duration) -> Self {
        self.stall_limit = limit;
        self
    }

    /// How many transactions there may be: 16 384. Each is a few hundred bytes.
    #[must_use]
    pub fn max_transactions(mut self, most: usize) -> Self {
        self.max_transactions = most;
        self
    }

    /// How many dumps are made at a time, and how many restored: 64. Each has a thread and about
    /// 2 MiB of buffers; further ones wait.
    #[must_use]
    pub fn max_streams(mut self, most: usize) -> Self {
        self.max_streams = most.max(1);
        self
    }

    /// These addresses are this server's own, and `endpoint` reaches it as its administrator: from
    /// there dumps are forwarded between its own partitions.
    #[must_use]
    pub fn home(mut self, addresses: Vec<Ipv4Addr>, endpoint: Endpoint) -> Self {
        self.home = Some(Home {
            addresses,
            endpoint,
        });
        self
    }

    /// Connections to the location servers, asked for each time. By default there are none.
    #[must_use]
    pub fn location(
        mut self,
        location: impl Fn() -> Vec<vl::Client> + Send + Sync + 'static,
    ) -> Self {
        self.location = Arc::new(location);
        self
    }

    /// How this server proves to others who it is when it forwards a dump, asked for each: by
    /// default not at all.
    #[must_use]
    pub fn security(
        mut self,
        security: impl Fn() -> Arc<dyn ClientSecurity> + Send + Sync + 'static,
    ) -> Self {
        self.security = Arc::new(security);
        self
    }

    /// Has superusers dump and restore out of band, too, by offers made with these, and forwards dumps so to servers
    /// that offer it. By default all goes by Rx.
    #[must_use]
    pub fn out_of_band(mut self, offers: &Arc<Offers>) -> Self {
        self.offers = Some(Arc::clone(offers));
        self
    }

    /// Has clients' leases in a read-write volume recalled before a transaction on it begins. By default there are none.
    #[must_use]
    pub fn leases(mut self, leases: &Arc<Leases>) -> Self {
        self.leases = Some(Arc::clone(leases));
        self
    }

    /// Shows what is counted of its calls. By default nothing does.
    #[must_use]
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.registry = registry.clone();
        self
    }
}

impl fmt::Debug for VolserConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolserConfig")
            .field("restricted_query", &self.restricted_query)
            .field("idle_limit", &self.idle_limit)
            .field("sweep_interval", &self.sweep_interval)
            .field("callback_wait", &self.callback_wait)
            .field("stall_limit", &self.stall_limit)
            .field("max_transactions", &self.max_transactions)
            .field("max_streams", &self.max_streams)
            .finish_non_exhaustive()
    }
}
