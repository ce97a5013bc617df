//! The shell around the Rx engine: UDP sockets, clock, threads; async connections and calls.
//!
//! Crate `afar-rx` decides everything about the protocol and touches nothing; this crate decides
//! nothing and touches the system. Layout, from the application down to the wire:
//!
//! - [`Endpoint`], [`Connection`], [`Call`], [`Handler`]: the async face, for any task of tokio
//! - `mailbox`: what applications ask of the I/O thread, and how they wake it
//! - `queue`: when a queue below a socket is full
//! - `driver`: the I/O thread, which alone owns the engine: no lock is taken for a packet
//! - [`Socket`]: the seam where a simulated network can take the place of UDP
//! - [`Udp`]: GSO, GRO, ECN, ICMP errors and socket buffers of Linux
//! - [`Routes`]: when this machine's own addresses change
//! - [`Local`]: Unix sockets, for the administration of a server on its own machine
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use afar_net::{Config, Endpoint, RxNull, ServiceId};
//!
//! let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, Config::default())?;
//! let server = endpoint.connect("192.0.2.1:7003".parse()?, ServiceId(52), Arc::new(RxNull));
//! let mut call = server.call().await?;
//! call.send(vec![0, 0, 2, 2].into()).await?;
//! call.finish().await?;
//! let reply = call.read_to_end(1 << 16).await?;
//! # Ok(()) }
//! ```

mod call;
mod config;
mod connection;
mod driver;
mod endpoint;
mod local;
mod mailbox;
mod queue;
mod routes;
mod server;
mod socket;
mod stats;
mod udp;

pub use afar_rx::security::{ClientSecurity, ServerSecurity};
pub use afar_rx::{
    AbortCode, CallError, Identity, PeerStats, RxNull, Service, ServiceId, Transmit,
};
pub use call::Call;
pub use config::Config;
pub use connection::Connection;
pub use endpoint::Endpoint;
pub use local::{Local, remove_left};
pub use routes::{Routes, source_of};
pub use server::{Handler, has_own_thread, is_wanted};
pub use socket::{Ready, Received, Socket, SocketStats};
pub use stats::Stats;
pub use udp::Udp;
