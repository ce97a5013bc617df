//! What is known, in memory: tables of what `model` has types for. No table asks a file server: `ops`
//! does, with what it finds here.
//!
//! - `vnodes`: files, directories and symlinks; `inodes`: the numbers by which the kernel knows them
//! - `mounts`: volumes as they are reached; `handles`: what is open
//! - `breaks`: promises that are broken, and who is told of that
//! - `leases`: what servers have leased to this machine; `unsent`: changes that are made here and not at their servers
//! - `users`, `owners`: who asks, and whose files are whose
//! - `pages`: directories that are in memory; `rows`: which of their entries were used last; `prefetched`: what came
//!   before it was asked for; `walks`: who goes through trees; `following`: who reads as others did; `said`: errors in the log

pub(crate) mod breaks;
pub(crate) mod following;
pub(crate) mod handles;
pub(crate) mod inodes;
pub(crate) mod leases;
pub(crate) mod mounts;
pub(crate) mod owners;
pub(crate) mod pages;
pub(crate) mod prefetched;
pub(crate) mod rows;
pub(crate) mod said;
pub(crate) mod unsent;
pub(crate) mod users;
pub(crate) mod vnodes;
pub(crate) mod walks;
