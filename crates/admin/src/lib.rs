//! What `vos`, `pts`, `fs` and `bos` do, as steps that can be resumed.
//!
//! Nothing is printed here: steps return what they found and tell how they go by events, so that
//! the same steps serve a command line, a program and a test.

pub mod bos;
pub mod pts;
mod servers;
pub mod vos;

pub use servers::{
    BOS_PORT, FILE_PORT, LocalServers, PR_PORT, Security, Servers, VL_PORT, VOLUME_PORT,
};
