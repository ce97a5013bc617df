//! The file server and the volume server: RXAFS and AFSVol on a volume store.
//!
//! - [`server`]: a file server, and what its calls share
//! - [`files`]: RXAFS, what clients do with files
//! - `access`: who may do what
//! - [`protection`]: users and groups, as the protection service knows them
//! - `locks`: advisory locks; `following`: in which order hosts read
//! - [`hosts`]: who the clients are, what they were promised, and how they hear of changes
//! - [`leases`]: what a client has for itself until it is asked
//! - [`volumes`]: which volumes there are, and whether clients may use them at the moment
//! - [`volser`]: the volume server, AFSVol
//! - [`oob`]: file data over TLS, beside the calls that ask for it
//! - `metrics`: what is counted by volume, client and file; `disks`: what is told of those of partitions
//! - `abort`: the codes that failures are answered with

pub mod files;
pub mod hosts;
pub mod leases;
pub mod oob;
pub mod protection;
pub mod server;
pub mod volser;
pub mod volumes;

pub mod registration;

mod abort;
mod access;
mod disks;
mod following;
mod locks;
mod metrics;
mod space;
