//! A file server on a store, over Rx on loopback, as clients see it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod access;
mod batch;
mod cell;
mod coherence;
mod data;
mod entries;
mod following;
mod junk;
mod leases;
mod listed;
mod locks;
mod metrics;
mod oob;
mod oob_client;
mod oob_hostile;
mod oob_store;
mod oob_volumes;
mod statuses;
mod tree;
