//! Volumes on a partition.

pub mod dump;
pub mod segment;
