//! TLS 1.3 between programs of afar, where a key counts and no name or authority does.
//!
//! - [`Fingerprint`]: by which a public key is known
//! - [`server`], [`client`]: settings of both ends, for one protocol within TLS
//! - [`Ephemeral`]: a key for as long as a process lives
//! - [`Gate`]: how many connections there may be, and how many may be begun, by address
//! - [`listen`], [`serve`]: accepting as many as a gate lets in

mod accept;
mod config;
mod fingerprint;
mod gate;

pub use accept::{Connections, listen, serve};
pub use config::{Ephemeral, EphemeralError, client, server};
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use gate::{Gate, GateLimits, Pass, network};
