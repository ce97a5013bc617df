//! What a mount asks of the cache: a method of [`Cache`](cache::Cache) for each request, and what these share. Only
//! from here file servers are asked and data is read and written.
//!
//! - `cache`: what the cache is made of; `lifetime`: its beginning and its end
//! - `mounts`: volumes behind mount points and at the top; `places`: those, and files, by their names; `unvisited`:
//!   before anybody has gone into them
//! - `status`: statuses, asked for when no promise holds; `access`: who may do what
//! - `names`, `listing`, `entries`: directories looked up, read and changed; `changing`: changes under way; `prefetch`:
//!   what programs are likely to ask for next; `trees`: many directories of it in one answer; `following`: what others read next
//! - `leased`: changes made here, of what servers have leased to this machine; `conflicts`: those that could not be made
//! - `data`: files read, read ahead, written and stored; `recover`: what an earlier process could not store
//! - `attributes`, `xattr`, `locks`: what else there is to ask; `held`, `path_info`: what others on this machine are told of a file
//! - `control`: what is changed while the cache is in use; `metrics`: what it holds; `watch`: servers that nobody talks to
//! - `answers`: what tools ask over the network

pub(crate) mod cache;

mod access;
pub(crate) mod answers;
mod attributes;
mod changing;
mod conflicts;
mod control;
mod data;
mod entries;
mod following;
mod held;
mod leased;
mod lifetime;
mod listing;
mod locks;
mod metrics;
mod mounts;
mod names;
mod path_info;
mod places;
mod prefetch;
mod recover;
mod status;
mod trees;
mod unvisited;
mod watch;
mod xattr;
