//! The location and protection servers of a cell: VL and PR, and how users prove
//! who they are, on one replicated key-value store.

pub mod kv;
pub mod pr;
pub mod users;
pub mod vl;
pub mod vote;
