//! Power lost at any moment, and disks that fail: what the store acknowledged is there, and its
//! check is clean.
//!
//! The test's own definitions of the C library's file calls ([`interpose`]) record what LMDB and
//! the store do to a directory ([`recorder`]). From the log, [`power_cut`] makes what a disk may
//! hold after power was lost at a point: synced writes, and any part of the others. The shipped code
//! runs unchanged, and opens the result. `harness` shows that this finds what it should.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

mod content;
mod event;
mod fault;
mod harness;
mod interpose;
mod power_cut;
mod recorder;
mod respawn;
mod session;
