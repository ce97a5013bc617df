//! A file server on a store, over Rx on loopback, as clients see it.

mod access;
mod cell;
mod coherence;
mod data;
mod entries;
mod junk;
mod locks;
mod statuses;
