//! Authentication: rxkad, Kerberos tickets, keys and tokens.
//!
//! The engine (`afar-rx`) asks a security class what to do with packets and connections; here is
//! what answers:
//!
//! - [`rxkad`]: the security class, for clients and servers; [`fcrypt`]: its cipher
//! - [`Level`], [`RxkadError`]: the words of rxkad
//! - [`Token`]: what a user shows to servers
//! - [`ticket`]: opening tickets and making them
//! - [`keys`]: the cell's keys
//! - [`Identities`]: which user of AFS somebody is
//! - [`tokens`]: where users' tokens are kept; [`libkrb5`], [`ccache`]: where they come from

pub mod ccache;
mod error;
pub mod fcrypt;
mod identities;
mod kerberos;
pub mod keys;
mod level;
pub mod libkrb5;
mod principal;
mod random;
mod reload;
pub mod rxkad;
#[cfg(test)]
mod tests;
pub mod ticket;
mod token;
pub mod tokens;

pub use error::RxkadError;
pub use identities::{Identities, IdentityError};
pub use kerberos::{EncryptionKey, EncryptionType, UnknownEncryptionType};
pub use keys::KeyRing;
pub use level::{Level, UnknownLevel};
pub use principal::Principal;
pub use ticket::TicketPolicy;
pub use token::{SessionKey, Token, kvno};
