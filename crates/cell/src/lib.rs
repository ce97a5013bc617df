//! Knowing a cell: its servers, their addresses, its volumes and paths.
//!
//! A [`Client`] turns a path like `/afs/example.org/doc/README` into a file of a volume on a server,
//! and fetches it over as many parallel calls as the way to the server holds:
//!
//! - [`cellservdb`], `dns`: which servers a cell has
//! - [`Cell`] (`vldb`): where its volumes are
//! - [`Volume`], [`FileServer`]: which server to ask, and what to do when it fails
//! - `callback`: what servers ask back
//! - [`Place`], [`Node`] (`path`): mount points, symlinks, `@sys`
//! - `fetch`: a file in pieces, by many calls at a time

mod callback;
pub mod cellservdb;
mod client;
mod config;
mod dns;
mod error;
mod fetch;
mod files;
mod mountpoint;
mod path;
mod server;
mod sysname;
mod vldb;
mod volume;
mod window;

pub use callback::CallbackService;
pub use client::Client;
pub use config::Config;
pub use dns::DnsError;
pub use error::{DnsErrorOrOff, Error, PathCause, PathError};
pub use fetch::{Fetched, Memory, Ordered, Sink};
pub use files::DirEntry;
pub use mountpoint::{MountPoint, MountPointError, Wanted};
pub use path::{LastLink, Node, Place};
pub use server::FileServer;
pub use sysname::default_sysnames;
pub use vldb::Cell;
pub use volume::Volume;
