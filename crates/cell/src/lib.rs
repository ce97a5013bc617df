//! Knowing a cell: its servers, their addresses, its volumes and paths.
//!
//! A [`Client`] turns a path like `/afs/example.org/doc/README` into a file of a volume on a server,
//! and fetches it over as many parallel calls as the way to the server holds:
//!
//! - [`cellservdb`], `dns`: which servers a cell has
//! - [`Cell`] (`vldb`): where its volumes are
//! - [`Volume`], [`FileServer`]: which server to ask, and what to do when it fails;
//!   `preferences`: which are asked first
//! - [`Credentials`]: who the client is to servers
//! - `callback`: what servers ask back; `questions`: what tools ask about this cache manager
//! - [`Moves`]: this machine at another address; [`Patience`]: servers that do not answer
//! - [`Walked`], [`Node`] (`path`): mount points, symlinks, `@sys`
//! - `fetch`: a file in pieces, by many calls at a time
//! - `oob`: a file's data over TLS, beside the calls; [`VolumeOob`]: that of volumes
//! - `store`: a file's data the other way; [`TreePart`] (`tree`): a whole tree in one answer, and
//!   (`following`) what others read next
//! - `change`: names made, moved and removed, each once even when an answer is lost; [`Batches`]: many at a time
//! - `promise`: statuses with their servers' promises; `lock`: locks of files; `lease`: what is said of leases
//! - `acl`, `quota`: access control lists; quota and usage of volumes; `room`: what has none in one
//! - [`Waits`]: which server a request waits for
//! - `refusal`: tokens that servers refuse

mod acl;
mod batch;
mod callback;
pub mod cellservdb;
mod change;
mod class;
mod client;
mod config;
mod credentials;
mod dns;
mod ended;
mod entry;
mod error;
mod fetch;
mod files;
mod following;
mod lately;
mod lease;
mod listed;
mod lock;
mod mountpoint;
mod moves;
mod named;
mod nearby;
mod oob;
mod path;
mod patience;
mod pauses;
mod preferences;
mod promise;
mod questions;
mod quota;
mod refusal;
mod room;
mod server;
mod silence;
mod store;
mod sysname;
mod tree;
mod vldb;
mod volume;
mod waits;
mod window;

pub use afar_rpc::Asker;
pub use batch::{Batched, Batches, Outcome, Ran};
pub use callback::{BreakHandler, CallbackService, RecallHandler, new_uuid};
pub use change::{Changed, Made};
pub use class::Class;
pub use client::Client;
pub use config::Config;
pub use credentials::{Credentials, Secured};
pub use dns::DnsError;
pub use ended::ended;
pub use entry::Slot;
pub use error::{DnsErrorOrOff, Error, PathCause, PathError};
pub use fetch::{Fetched, Memory, Ordered, Sink};
pub use files::{Contents, DirEntry};
pub use following::FollowingWanted;
pub use lock::{LOCK_TIME, LockType};
pub use mountpoint::{MountPoint, MountPointError, Wanted};
pub use moves::Moves;
pub use nearby::{Nearby, NearbyFile, Waiting};
pub use oob::{OobOffer, OobServer, OobTransfers, VolumeDump, VolumeOob, VolumeRestore};
pub use path::{LastLink, Node, Walked};
pub use patience::Patience;
pub use preferences::{ServerKind, parse_rank};
pub use promise::Promised;
pub use questions::{Answers, CacheSettings, CellServers, Collection, Ranked};
pub use quota::VolumeStatus;
pub use refusal::ANONYMOUS;
pub use room::NoRoom;
pub use server::FileServer;
pub use store::{Source, Stored};
pub use sysname::default_sysnames;
pub use tree::{TreePart, TreeWanted};
pub use vldb::Cell;
pub use volume::Volume;
pub use waits::Waits;
