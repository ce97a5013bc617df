//! The Rx engine, sans-IO: packets, calls, acknowledgements, RTT, loss recovery, congestion control.
//!
//! An [`Endpoint`] is one UDP port's worth of Rx. It has no socket, clock, thread or lock: datagrams
//! go in through [`Endpoint::handle`], datagrams come out of [`Endpoint::poll_transmit`], time is an
//! argument, and what the application must know comes out of [`Endpoint::poll_event`]. Crate
//! `afar-net` is the shell that gives it all of these; the tests here give it virtual ones.
//!
//! Order of work for a driver, after any input: take every event, take every transmit, then sleep
//! until [`Endpoint::poll_timeout`] and call [`Endpoint::handle_timeout`]. Time must not go back.
//!
//! Layout, in the order of the data:
//!
//! - [`packet`]: headers, acknowledgements, jumbograms, debug answers on the wire
//! - `endpoint`: which connection a packet belongs to; services; timers; what to send next
//! - `addresses`: who has proved to receive at an address, and what others may be sent
//! - `connection`: four channels, call numbers, serials, security
//! - `call`: one call's two byte streams, sending and receiving
//! - `peer`: the path to an address: RTT, congestion, pacing, MTU, capabilities
//! - [`security`]: the trait that rxkad and rxgk implement; rxnull

#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, reason = "tests build small packets")
)]

mod addresses;
mod arena;
mod call;
mod config;
mod connection;
mod endpoint;
mod error;
mod event;
pub mod packet;
mod peer;
mod random;
pub mod security;
mod stats;
mod types;

pub use config::Config;
pub use endpoint::Endpoint;
pub use error::{AbortCode, CallError};
pub use event::{Ecn, Event, Read, Service, Transmit};
pub use peer::congestion::{CongestionKind, UnknownCongestionKind};
pub use security::{Identity, RxNull};
pub use stats::{PeerStats, Stats};
pub use types::{CallId, CallNumber, Cid, ConnectionId, Epoch, SecurityIndex, ServiceId};

#[cfg(test)]
mod tests;
