//! The file server and the volume server: RXAFS and AFSVol on a volume store.
//!
//! - [`volumes`]: which volumes there are, and whether clients may use them at the moment
//! - `abort`: the codes that failures are answered with

pub mod volumes;

mod abort;
