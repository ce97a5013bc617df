//! rxkad: the security class of cells with Kerberos.
//!
//! A client shows a ticket that only the servers can open, and proves with the key in it that the
//! ticket is its own; from then on both sides protect packets with that key, as far as the
//! connection's [`Level`](crate::Level) says.
//!
//! - [`Client`]: a token, for connections to servers
//! - [`Server`]: the cell's keys, for connections from clients
//! - [`Refusals`]: what a server has refused, and why
//! - `packet`: sealing and opening
//! - `response`: the bodies of CHALLENGE and RESPONSE

mod client;
mod packet;
mod refusals;
mod response;
mod server;

use std::time::SystemTime;

use afar_rx::SecurityIndex;

pub use client::Client;
pub use refusals::Refusals;
pub use server::Server;

/// The class's number in packet headers.
const INDEX: SecurityIndex = SecurityIndex(2);

/// Bytes a ticket can have, at the least and at the most.
const TICKET_SIZES: std::ops::RangeInclusive<usize> = 32..=12_000;

/// Tells the time by which tokens expire: [`SystemTime::now`], or what a test wants.
pub type Clock = fn() -> SystemTime;

#[cfg(test)]
mod tests;
