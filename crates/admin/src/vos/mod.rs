//! What `vos` does: volumes and their entries in the volume location database.
//!
//! Each verb is a method of [`Vos`]. It makes the same calls in the same order as OpenAFS's `vos`
//! does, so that its servers see what they expect, and tells of each step by [`Event`]s, in the
//! words administrators and their scripts know; a program that does not care passes a [`Watch`]
//! that does nothing. What a verb found or made is its result.
//!
//! A verb that fails has said why by then, so that its [`Failure`] is little more than a code. It
//! has also cleaned up: transactions are ended and entries let go of, even if it was interrupted.
//! What cannot be cleaned up is said, too; every verb can simply be called again.

mod addresses;
mod backup;
mod convert;
mod copy;
mod create;
mod dump;
mod entry;
mod event;
mod examine;
mod forward;
mod list;
mod r#move;
mod release;
mod remove;
mod rename;
mod restore;
mod set;
mod site;
mod sync;
mod transaction;
mod vldb;
pub mod words;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use afar_rpc::{RpcError, afsvol};
use afar_types::PartitionId;
use afar_types::error::errno;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Servers;

pub use backup::CloneOptions;
pub use copy::CopyOptions;
pub use create::CreateOptions;
pub use dump::DumpOptions;
pub use entry::{Location, enumerate, sub_enumerate};
pub use event::{Event, Failure, Watch};
pub use examine::{Examined, Member, is_missing};
pub use list::SizedPartition;
pub use r#move::MoveFailure;
pub use release::{ReleaseOptions, Released};
pub use restore::{RestoreDate, RestoreOptions};
pub use site::LOCK_ALL;
pub use sync::{SyncScope, Synced};

use event::Answer;

/// The interrupted operation's code.
pub const INTERRUPTED: i32 = errno::EINTR;

pub(super) mod codes {
    //! Codes that steps look at.

    pub(crate) use afar_types::error::errno::{EINVAL, ENODEV, ENOENT, EPIPE};
    pub(crate) use afar_types::error::{
        RXGEN_OPCODE, VL_BADENTRY, VL_ENTDELETED, VL_INDEXERANGE, VL_NOENT, VL_RERELEASE, VNOVOL,
        VOLSERBADNAME, VOLSERBADOP, VOLSERBADRELEASE, VOLSERFAILEDOP, VOLSERILLEGAL_PARTITION,
        VOLSERNOVOL, VOLSERREAD_DUMPERROR, VOLSERVLDB_ERROR, VOLSERVOLBUSY, VOLSERVOLMOVED,
        VVOLEXISTS,
    };
}

/// Tells of a step, to those who want to know each.
macro_rules! step {
    ($vos:expr, $($arg:tt)*) => { $vos.step(format_args!($($arg)*)) };
}
/// Says what everybody gets to see.
macro_rules! say {
    ($vos:expr, $($arg:tt)*) => { $vos.say(format_args!($($arg)*)) };
}
/// Says what is wrong.
macro_rules! complain {
    ($vos:expr, $($arg:tt)*) => { $vos.complain(format_args!($($arg)*)) };
}
pub(super) use {complain, say, step};

/// The longest name of a read-write volume: `.readonly` and an end still fit into 32 bytes.
pub const NAME_MAX: usize = 22;

/// Where a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerPartition {
    /// The server.
    pub server: Ipv4Addr,
    /// The partition there.
    pub partition: PartitionId,
}

/// What tells a server's name by its address.
pub type Names = Arc<dyn Fn(Ipv4Addr) -> String + Send + Sync>;

/// Volumes of a cell, to be looked after. Cheap to clone.
#[derive(Clone)]
pub struct Vos {
    servers: Servers,
    watch: Arc<dyn Watch>,
    names: Names,
    interrupt: Option<watch::Receiver<bool>>,
    /// Addresses of servers with several, by one of them.
    addresses: Arc<Mutex<BTreeMap<Ipv4Addr, Vec<Ipv4Addr>>>>,
}

impl Vos {
    /// For a cell with these servers. Hosts are told by their addresses, and nothing interrupts.
    #[must_use]
    pub fn new(servers: Servers, watch: Arc<dyn Watch>) -> Self {
        Self {
            servers,
            watch,
            names: Arc::new(|address| address.to_string()),
            interrupt: None,
            addresses: Arc::default(),
        }
    }

    /// Hosts are told by these names.
    #[must_use]
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// When this becomes true, operations stop at the next step, clean up and fail with
    /// [`INTERRUPTED`]. Cleaning up itself is not interrupted.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: watch::Receiver<bool>) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// The cell's servers.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// A server's name.
    #[must_use]
    pub fn name_of(&self, server: Ipv4Addr) -> String {
        (self.names)(server)
    }

    /// The same without interruptions, to clean up.
    fn calm(&self) -> Self {
        let mut calm = self.clone();
        calm.interrupt = None;
        calm
    }

    fn volume_server(&self, server: Ipv4Addr) -> afsvol::Client {
        self.servers.volume_server(server)
    }

    /// Waits for a call, unless it is interrupted.
    async fn rpc<T>(&self, call: impl Future<Output = Result<T, RpcError>>) -> Answer<T> {
        let call = async {
            call.await.map_err(|error| {
                tracing::debug!("{error}: {}", error.cause);
                error.code().0
            })
        };
        let Some(mut interrupt) = self.interrupt.clone() else {
            return call.await;
        };
        tokio::select! {
            biased;
            Ok(_) = interrupt.wait_for(|&interrupted| interrupted) => Err(INTERRUPTED),
            answer = call => answer,
        }
    }
}

impl std::fmt::Debug for Vos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vos")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// Whether a read-write volume can have this name, as far as its length goes.
#[must_use]
pub fn is_name_valid(name: &str) -> bool {
    name.len() <= NAME_MAX
}

/// A name without `.readonly` or `.backup`.
#[must_use]
pub fn base_name(name: &str) -> &str {
    let name = name.strip_suffix(".readonly").unwrap_or(name);
    name.strip_suffix(".backup").unwrap_or(name)
}
