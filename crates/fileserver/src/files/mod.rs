//! RXAFS: what clients do with files.
//!
//! A call is served in steps. A step that touches the store runs on a thread that may block, that of
//! the call if it has one, and enters the volume for its length only, so that the volume server gets
//! at a volume whatever clients do, and no client waits for another but for the length of a step.
//!
//! **No stale reads.** A read first records the promise, then reads the status; a change commits
//! first, then breaks the promises of others, then answers. So a client that read the old status
//! either had its promise in place when the change looked for promises, and is told before the
//! change is answered, or it read after the commit. OpenAFS breaks promises before it stores data
//! and keeps the vnode locked meanwhile; without that lock a break before the commit would let
//! others fetch the old data with a new promise, so the break after it is the one that counts, and
//! the only one.
//!
//! - `visit`: a call while it is served, and its way into a volume
//! - `status`: statuses, one or many; promises given up
//! - `fetch`, `store`: data; `tree`: data and statuses of a whole tree; `following`: of what hosts read next; `items`: what these
//!   two answers are made of
//! - `entries`: making, linking, removing, renaming
//! - `batch`: many of these in one call; `leases`: what a client keeps of leases, and claims after a restart
//! - `acl`, `lock`, `volume`: the same for ACLs, advisory locks, volumes
//! - `stats`: counters, and the forms in which AFS's tools ask for them

mod acl;
pub(crate) mod batch;
mod entries;
mod fetch;
mod following;
mod items;
mod leases;
mod listed;
mod lock;
mod snapshot;
mod stats;
mod status;
mod store;
mod tree;
mod visit;
mod volume;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use afar_net::{AbortCode, Endpoint, Local};
use afar_oob::Service;
use afar_rpc::{Caller, Calls, DownloadSink, FetchSink, Served, StoreSource, Wait, rxafs};
use afar_types::error::VNOVOL;
use afar_types::{
    CAPABILITY_64BIT_FILES, CAPABILITY_ERROR_TRANSLATION, CAPABILITY_WRITE_LOCK_ACL, Capabilities,
};
use afar_xdr::XdrString;

use crate::abort::errno;
use crate::hosts::Host;
use crate::leases::LeaseCall;
use crate::oob::offers::Offers;
use crate::server::FileServer;

pub use stats::Stats;
use visit::Visit;

/// The volume that clients of old ask the name of.
const ROOT_VOLUME: &str = "root.afs";

/// A file server's RXAFS at one endpoint.
#[derive(Clone)]
pub struct Files {
    server: Arc<FileServer>,
    endpoint: Endpoint,
    /// What it gives offers of out-of-band transfers with, if it does.
    offers: Option<Arc<Offers>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("server", &self.server)
            .field("endpoint", &self.endpoint)
            .finish()
    }
}

impl Files {
    pub(crate) fn new(server: Arc<FileServer>, endpoint: Endpoint) -> Self {
        Self {
            server,
            endpoint,
            offers: None,
        }
    }

    /// The same, which offers clients to have bulk data out of band.
    #[must_use]
    pub fn offering(self, offers: &Arc<Offers>) -> Self {
        Self {
            offers: Some(Arc::clone(offers)),
            ..self
        }
    }

    /// The calling host.
    ///
    /// # Errors
    /// Those of [`Hosts::identify`](crate::hosts::Hosts::identify).
    pub(crate) async fn host(&self, peer: SocketAddr) -> Result<Arc<Host>, AbortCode> {
        self.server.hosts.identify(&self.endpoint, peer).await
    }

    /// Begins to serve a call: finds out who calls.
    ///
    /// # Errors
    /// Those of [`Hosts::identify`](crate::hosts::Hosts::identify).
    async fn visit(&self, caller: &Caller) -> Result<Visit, AbortCode> {
        let began = Instant::now();
        let asking = async {
            tokio::join!(
                self.server.hosts.identify(&self.endpoint, caller.peer),
                self.server.protection.person(caller),
            )
        };
        let (host, person) = Wait::Identity.on(asking).await;
        let host = host?;
        let leases = LeaseCall::new(self.server.leases.as_ref(), host.uuid(), caller.peer.ip());
        Ok(Visit {
            server: Arc::clone(&self.server),
            leases: Arc::new(leases),
            host,
            person,
            peer: caller.peer,
            began,
            tally: Arc::default(),
        })
    }
}

/// Writes methods of the service: `operation = function;`, where the function takes the visit and
/// the request.
macro_rules! operations {
    ($($name:ident = $function:path;)*) => {$(
        async fn $name(
            &self,
            caller: &Caller,
            request: rxafs::$name::Request,
        ) -> Result<rxafs::$name::Reply, AbortCode> {
            let visit = self.visit(caller).await?;
            let result = $function(&visit, request).await;
            visit.end(result).await
        }
    )*};
}

/// The same for operations with data.
macro_rules! data_operations {
    ($($name:ident($data:ty) = $function:path;)*) => {$(
        async fn $name(
            &self,
            caller: &Caller,
            request: rxafs::$name::Request,
            data: &mut $data,
        ) -> Result<rxafs::$name::Reply, AbortCode> {
            let visit = self.visit(caller).await?;
            let result = $function(&visit, request, data).await;
            visit.end(result).await
        }
    )*};
}

/// The same for what needs no volume and no host: `operation = |files, caller, request| result;`.
macro_rules! plain_operations {
    ($($name:ident = |$files:pat_param, $caller:pat_param, $request:pat_param| $result:expr;)*) => {$(
        async fn $name(
            &self,
            caller: &Caller,
            request: rxafs::$name::Request,
        ) -> Result<rxafs::$name::Reply, AbortCode> {
            let ($files, $caller, $request) = (self, caller, request);
            $result
        }
    )*};
}

impl rxafs::Service for Files {
    const BLOCKS: bool = true;

    fn calls(&self) -> Option<&Calls> {
        Some(self.server.stats.table())
    }

    fn served(&self, served: &Served<'_>) {
        self.server.stats.count(served);
        self.server.metrics.served(served);
    }

    operations! {
        fetch_status = status::fetch_status;
        bulk_status = status::bulk_status;
        inline_bulk_status = status::inline_bulk_status;
        give_up_call_backs = status::give_up_call_backs;
        give_up_all_call_backs = status::give_up_all_call_backs;
        store_status = status::store_status;
        fetch_acl = acl::fetch_acl;
        store_acl = acl::store_acl;
        old_store_acl = acl::old_store_acl;
        create_file = entries::create_file;
        make_dir = entries::make_dir;
        symlink = entries::symlink;
        link = entries::link;
        remove_file = entries::remove_file;
        remove_dir = entries::remove_dir;
        rename = entries::rename;
        set_lock = lock::set_lock;
        extend_lock = lock::extend_lock;
        release_lock = lock::release_lock;
        old_set_lock = lock::old_set_lock;
        old_extend_lock = lock::old_extend_lock;
        old_release_lock = lock::old_release_lock;
        get_volume_status = volume::get_volume_status;
        set_volume_status = volume::set_volume_status;
        get_capabilities = capabilities;
        keep_leases = leases::keep_leases;
        claim_leases = leases::claim_leases;
    }

    data_operations! {
        fetch_data(FetchSink<'_>) = fetch::fetch_data;
        fetch_data64(FetchSink<'_>) = fetch::fetch_data64;
        fetch_tree(DownloadSink<'_>) = tree::fetch_tree;
        fetch_following(DownloadSink<'_>) = following::fetch_following;
        fetch_files(DownloadSink<'_>) = listed::fetch_files;
        store_data(StoreSource<'_>) = store::store_data;
        store_data64(StoreSource<'_>) = store::store_data64;
    }

    plain_operations! {
        get_time = |_, _, _| Ok(time());
        get_root_volume = |_, _, _| root_volume();
        // spec: afs-rpc#operations-that-tell-little
        get_volume_info = |_, _, _| Err(AbortCode(VNOVOL));
        n_get_volume_info = |_, _, _| Err(AbortCode(VNOVOL));
        lookup = |_, _, _| Err(AbortCode(errno::EINVAL));
        dfs_symlink = |_, _, _| Err(AbortCode(errno::EINVAL));
        // As OpenAFS answers: calls back go where calls come from.
        call_back_rx_conn_addr = |_, _, _| Err(AbortCode(errno::EPERM));
        flush_cps = |files, caller, request| files.flush_cps(caller, &request);
        get_statistics64 = |files, _, request| stats::statistics64(&files.server, request.count);
        x_stats_version = |_, _, _| Ok(rxafs::x_stats_version::Reply { version: stats::X_STATS });
    }

    async fn batch(
        &self,
        caller: &Caller,
        request: rxafs::batch::Request,
        data: &mut StoreSource<'_>,
    ) -> Result<rxafs::batch::Reply, AbortCode> {
        let visit = self.visit(caller).await?;
        let result = batch::batch(&visit, caller, request, data).await;
        visit.end(result).await
    }

    async fn oob_offer(
        &self,
        caller: &Caller,
        request: rxafs::oob_offer::Request,
    ) -> Result<rxafs::oob_offer::Reply, AbortCode> {
        match &self.offers {
            // At a local socket there is nothing to gain, and no host that could be called back.
            Some(offers) if !Local::is_given(caller.peer) => {
                let host = self.host(caller.peer).await?;
                let question = &request.question;
                let offer = offers.offer(Service::Files, caller, host.uuid(), question)?;
                Ok(rxafs::oob_offer::Reply { offer })
            }
            // spec: afs-rpc#unknown-operations
            _ => Err(AbortCode::RXGEN_OPCODE),
        }
    }

    async fn get_statistics(
        &self,
        _: &Caller,
        _: rxafs::get_statistics::Request,
    ) -> Result<rxafs::get_statistics::Reply, AbortCode> {
        stats::statistics(Arc::clone(&self.server)).await
    }

    async fn get_x_stats(
        &self,
        _: &Caller,
        request: rxafs::get_x_stats::Request,
    ) -> Result<rxafs::get_x_stats::Reply, AbortCode> {
        stats::x_stats(&self.server, &self.endpoint, request.collection).await
    }
}

impl Files {
    fn flush_cps(
        &self,
        caller: &Caller,
        request: &rxafs::flush_cps::Request,
    ) -> Result<rxafs::flush_cps::Reply, AbortCode> {
        if !caller.identity.is_superuser() {
            return Err(AbortCode(errno::EPERM));
        }
        for id in &request.users {
            self.server.protection.forget_user(*id);
        }
        for host in &request.hosts {
            self.server.protection.forget_host(Ipv4Addr::from(*host));
        }
        Ok(rxafs::flush_cps::Reply {
            spare2: 0,
            spare3: 0,
        })
    }
}

/// What this server can do: errors are translated, files have 64 bits, and the right to write
/// suffices for a write lock.
async fn capabilities(
    _: &Visit,
    _: rxafs::get_capabilities::Request,
) -> Result<rxafs::get_capabilities::Reply, AbortCode> {
    // spec: afs-rpc#capabilities
    let word = CAPABILITY_ERROR_TRANSLATION | CAPABILITY_64BIT_FILES | CAPABILITY_WRITE_LOCK_ACL;
    let capabilities = Capabilities::new(vec![word]).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    Ok(rxafs::get_capabilities::Reply { capabilities })
}

fn time() -> rxafs::get_time::Reply {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    rxafs::get_time::Reply {
        seconds: u32::try_from(now.as_secs()).unwrap_or(u32::MAX),
        microseconds: now.subsec_micros(),
    }
}

fn root_volume() -> Result<rxafs::get_root_volume::Reply, AbortCode> {
    let name = XdrString::new(ROOT_VOLUME).map_err(|_| AbortCode::RXGEN_SS_MARSHAL)?;
    Ok(rxafs::get_root_volume::Reply { name })
}
