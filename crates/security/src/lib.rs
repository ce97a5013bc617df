//! Who is who: rxkad, Kerberos tickets, keys and tokens.
//!
//! The engine (`afar-rx`) asks a security class what to do with packets and connections; here is
//! what answers:
//!
//! - [`fcrypt`]: rxkad's cipher
//! - [`Level`], [`RxkadError`]: the words of rxkad
//! - [`Token`]: what a user shows to servers

mod error;
pub mod fcrypt;
mod level;
mod token;

pub use error::RxkadError;
pub use level::{Level, UnknownLevel};
pub use token::{SessionKey, Token, kvno};
