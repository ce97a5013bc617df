//! What `udebug` is told of a database: that this server takes changes.
//!
//! Servers of afar do not vote: one is alone, or all agree through etcd, and then each takes changes.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use afar_net::AbortCode;
use afar_rpc::{Caller, Calls, vote};
use afar_telemetry::Registry;
use afar_types::{UbikDebug, UbikState, UbikVersion, UnixTime};

use crate::kv::Database;

/// ubik: there is no server of that number.
const NO_SERVER: AbortCode = AbortCode(2);
/// The epoch of all versions, as databases are not made again.
const EPOCH: i32 = 1;

/// Answers for one database.
#[derive(Debug)]
pub struct VoteServer {
    database: Database,
    addresses: Vec<Ipv4Addr>,
    started: UnixTime,
    calls: Calls,
}

impl VoteServer {
    /// For this database of a server with these addresses that starts now.
    #[must_use]
    pub fn new(database: Database, addresses: Vec<Ipv4Addr>) -> Self {
        Self {
            database,
            addresses,
            started: now(),
            calls: Calls::new(vote::INTERFACE, &Registry::default()),
        }
    }

    /// The same, whose counters this registry shows.
    #[must_use]
    pub fn with_registry(mut self, registry: &Registry) -> Self {
        self.calls = Calls::new(vote::INTERFACE, registry);
        self
    }

    fn state(&self) -> Result<UbikState, AbortCode> {
        let commit = self.database.commit().map_err(|error| error.code())?;
        let version = UbikVersion {
            epoch: EPOCH,
            counter: i32::try_from(commit).unwrap_or(i32::MAX),
        };
        let now = now();
        Ok(UbikState {
            now,
            last_yes_time: now,
            last_yes_claim: now,
            last_yes_state: 1,
            sync_time: now,
            sync_version: version,
            is_sync_site: 1,
            sync_site_until: UbikState::FOREVER,
            servers: 1,
            local_version: version,
            recovery_state: UbikState::RECOVERED,
            started: self.started,
            ..UbikState::default()
        })
    }

    fn debug(&self) -> Result<UbikDebug, AbortCode> {
        let addresses = self.addresses.iter().map(|address| address.to_bits());
        Ok(UbikDebug::new(self.state()?, addresses))
    }
}

impl vote::Service for VoteServer {
    fn calls(&self) -> Option<&Calls> {
        Some(&self.calls)
    }

    async fn debug_old(
        &self,
        _: &Caller,
        _: vote::debug_old::Request,
    ) -> Result<vote::debug_old::Reply, AbortCode> {
        let state = self.state()?;
        Ok(vote::debug_old::Reply { state })
    }

    async fn debug(
        &self,
        _: &Caller,
        _: vote::debug::Request,
    ) -> Result<vote::debug::Reply, AbortCode> {
        let state = self.debug()?;
        Ok(vote::debug::Reply { state })
    }

    async fn s_debug(
        &self,
        _: &Caller,
        _: vote::s_debug::Request,
    ) -> Result<vote::s_debug::Reply, AbortCode> {
        Err(NO_SERVER)
    }

    async fn x_debug(
        &self,
        _: &Caller,
        _: vote::x_debug::Request,
    ) -> Result<vote::x_debug::Reply, AbortCode> {
        let state = self.debug()?;
        Ok(vote::x_debug::Reply { state, is_clone: 0 })
    }

    async fn xs_debug(
        &self,
        _: &Caller,
        _: vote::xs_debug::Request,
    ) -> Result<vote::xs_debug::Reply, AbortCode> {
        Err(NO_SERVER)
    }
}

fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}
