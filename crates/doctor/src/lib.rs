//! Why a server is slow or silent: what a client can measure without rights there, and what follows from it.
//!
//! Two layers, each of use without the other:
//!
//! - [`measure()`] asks a server and looks at this machine, in a bounded time and with a bounded number of
//!   packets, and gives [`Measured`]. `probe` has what goes over the network, `local` what does not.
//! - [`diagnose()`] says of [`Measured`] what binds, in the order of how much it does. It has no clock and
//!   no socket, so its tests are a table.
//!
//! The program makes text and JSON of both.

mod diagnose;
mod local;
mod measure;
mod measured;
mod probe;

pub use diagnose::{Cause, Diagnosis, diagnose, healthy};
pub use measure::{Plan, measure};
pub use measured::{
    Cipher, Clock, Database, Disk, Fetch, Local, Measured, Mtu, Nat, Path, PeerView, Rate, Server,
    SmallCall, Threads,
};
pub use probe::{File, threads};
