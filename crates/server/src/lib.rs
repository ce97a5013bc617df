//! A server of a cell in one process.
//!
//! - `config`, `explain`: what can be configured, and what it means
//! - `old_options`: what the options of OpenAFS's servers are here
//! - `units`: how systemd runs a server; `made`: taking back what was made when its beginning fails
//! - `sockets`, `identity`: where a server listens, who it is
//! - `security`: keys, who callers are, what they must do at least
//! - `peers`: the database servers that are asked; `whereabouts`: who is told where this server is
//! - `login`: tokens for users without a KDC; `oob`: files by TCP
//! - `process`: starting and stopping the roles
//! - `reload`: what is taken from a changed configuration without a restart
//! - `partitions`, `missing`: what is served of a server's partitions; what is lost for a time
//! - `log`: what is logged, and its last lines
//! - `overseer`, `userlist`: what `bos` is told, and may change
//! - `metrics`: what is counted, over HTTP; `view`, `views`: what viewers are shown of it
//! - `web`: a page of it for browsers; `http`: where clients of both come from
//! - `found`: the root volumes and mount points of a first cell
//! - `local_cell`: the cells that run on this machine, and how their administrator reaches them
//! - `private`: what others on this machine must not see
//! - `resolve`: addresses of servers as users name them

pub mod config;
mod elsewhere;
pub mod explain;
mod found;
mod http;
mod identity;
pub mod local_cell;
mod log;
mod login;
pub mod made;
mod metrics;
mod missing;
pub mod old_options;
mod oob;
mod overseer;
mod partitions;
mod peers;
pub mod private;
mod process;
mod reload;
pub mod resolve;
mod rows;
mod security;
mod sockets;
pub mod units;
mod userlist;
pub mod view;
mod views;
mod web;
mod whereabouts;

pub use log::start_log;
pub use process::{Process, Restored, restore};
pub use reload::Reload;
pub use security::{first_key, key_files, own_keys};
pub use views::mount_snapshot;
