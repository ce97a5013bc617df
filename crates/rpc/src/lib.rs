//! The AFS-3 RPC interfaces, one table each: client stubs and server traits.
//!
//! A row of a table is an operation: opcode, name, arguments, results, and whether data flows
//! beside them. From the rows come, in each interface's module,
//!
//! - a module per operation with its `Request` and `Reply`,
//! - `Client`, an async function per operation over an [`afar_net::Connection`],
//! - `Service`, a trait with a method per operation, each answering RXGEN_OPCODE until it is
//!   written, and `Server`, which makes an [`afar_net::Handler`] of it,
//! - `OPERATIONS` and `name`, for traces and metrics,
//! - `canonical_request` and `canonical_reply`, which decode and encode again.
//!
//! [`INTERFACES`] has them all.
//!
//! The data of a split call is never buffered whole: a client takes it from [`Fetch`] or gives it
//! to [`Store`], a server gives it to [`FetchSink`] or takes it from [`StoreSource`]. Where nobody
//! announces how much data there is, as of a dump, these are [`Download`] and [`Upload`],
//! [`DownloadSink`] and [`UploadSource`].
//!
//! What a client asks is counted by operation ([`asked`]). What is served is told as [`audit`] events, and to [`Calls`],
//! which counts it by operation and lists what is being served, with what it waits for ([`Wait`]). A line that is logged
//! meanwhile belongs to a call, [`Serving::current`]; a client's call is a span `call` of the level DEBUG. What tools of
//! OpenAFS ask for of these counters has its form in [`xstat`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use afar_net::{Config, Endpoint, RxNull};
//! use afar_rpc::rxafs;
//! use afar_types::{Fid, VolumeId};
//!
//! let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, Config::default())?;
//! let connection =
//!     endpoint.connect("192.0.2.1:7000".parse()?, rxafs::SERVICE, Arc::new(RxNull));
//! let server = rxafs::Client::new(connection);
//! let root = Fid::root(VolumeId(536_870_915));
//! let mut data = server.fetch_data64(root, 0, 1 << 20).await?;
//! while let Some(bytes) = data.chunk().await? {
//!     // … any number of bytes, in order
//!     drop(bytes);
//! }
//! let status = data.finish().await?.status;
//! # Ok(()) }
//! ```

pub mod asked;
mod asker;
pub mod audit;
pub mod calls;
mod client;
mod error;
#[macro_use]
mod interface;
pub mod afsvol;
pub mod bozo;
pub mod eyes;
mod lists;
mod operation;
pub mod pr;
pub mod rxafs;
pub mod rxafscb;
pub mod rxstats;
mod server;
mod serving;
mod subject;
pub mod users;
pub mod vl;
pub mod vote;
mod wait;
pub mod xstat;

pub use afar_net::Identity;
pub use asker::Asker;
pub use calls::Calls;
pub use client::{Download, Fetch, Store, Upload};
pub use error::{RpcCause, RpcError};
pub use lists::Lists;
pub use operation::{Interface, Kind, Operation};
pub use server::{
    Caller, DownloadSink, FetchSink, Inlet, Outlet, Outletting, Packed, Served, StoreSource,
    UploadSource,
};
pub use serving::{Serving, spawn_blocking};
pub use subject::Subject;
pub use wait::Wait;

/// Every interface there is a table of.
pub const INTERFACES: [&Interface; 10] = [
    rxafs::INTERFACE,
    rxafscb::INTERFACE,
    vl::INTERFACE,
    pr::INTERFACE,
    afsvol::INTERFACE,
    bozo::INTERFACE,
    rxstats::INTERFACE,
    users::INTERFACE,
    vote::INTERFACE,
    eyes::INTERFACE,
];

#[cfg(test)]
mod tests;
