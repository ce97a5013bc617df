//! Caches of several machines beside a real file server, on loopback.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod calls;
mod cells;
mod data;
mod leased;
mod names;
mod oob;
mod prefetch;
mod relay;
mod restart;
mod rights;
mod users;
mod world;
