//! The file server and the volume server: RXAFS and AFSVol on a volume store.
//!
//! - [`hosts`]: who the clients are, what they were promised, and how they hear of changes
//! - [`volumes`]: which volumes there are, and whether clients may use them at the moment
//! - [`volser`]: the volume server, AFSVol
//! - `abort`: the codes that failures are answered with

pub mod hosts;
pub mod volser;
pub mod volumes;

mod abort;
