//! The location and protection servers of a cell: VL and PR on one replicated key-value store.

pub mod kv;
pub mod pr;
pub mod vl;
