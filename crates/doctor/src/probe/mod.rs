//! What goes over the network. Each probe takes a bounded time and sends a bounded number of packets, whatever
//! the server does, and believes only answers to its own questions.

mod calls;
mod database;
mod debug;
mod echo;
mod fetch;
mod mtu;
mod nat;
mod wire;

pub(crate) use calls::small_calls;
pub(crate) use database::databases;
pub(crate) use debug::peer_view;
pub(crate) use echo::{Bursts, Echo, echo};
pub(crate) use fetch::fetch;
pub(crate) use mtu::mtu;
pub(crate) use nat::nat;

pub use debug::threads;
pub use fetch::File;
