//! Hosts and callbacks on loopback: real calls to cache managers that behave, and to others.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod breaks;
mod identity;
mod restart;
mod support;
mod wire;
