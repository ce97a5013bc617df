//! A user-space WAN between two network namespaces.
//!
//! `afar link up NAME` makes the namespaces `NAME-srv` and `NAME-cli`, puts a TUN device into each,
//! and starts an emulator process that carries IP packets between the two with a chosen rate,
//! queue, delay, loss, reordering, jitter, duplication, corruption and path MTU.
//!
//! The modules stand in the order a packet meets them:
//!
//! - [`tun`] reads what the kernel sends, super-packets included;
//! - [`packet`] cuts a super-packet into the packets a wire would carry, and builds their headers;
//! - [`path`] decides the fate of each of them in virtual time, without a clock or a socket;
//! - [`pending`] keeps those on their way until they are due;
//! - [`emulator`] is the loop around these, [`stats`] its counters, [`control`] its socket.
//!
//! Around them, [`config`] and [`units`] say what a link is, [`netns`] and [`netlink`] arrange the
//! namespaces, [`links`] starts and ends links, and [`cli`] is the command.
//!
//! Linux only. Everything but [`path`], [`packet`] and [`pending`] needs root.

pub mod cli;
pub mod config;
pub mod control;
pub mod emulator;
pub mod error;
pub mod links;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod path;
pub mod pending;
mod realtime;
pub mod stats;
pub mod tun;
pub mod units;

pub use config::LinkConfig;
pub use error::{Error, Result};
