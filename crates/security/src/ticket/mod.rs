//! Tickets: opening those of clients, and making our own.
//!
//! [`open()`] is what a server does with the ticket in a response. [`print()`] makes the ticket with
//! which servers and administrators on a server's machine prove to be the cell itself
//! (`-localauth`), and [`mint()`] one as a KDC would issue it, for a user.
//!
//! Tickets of Kerberos 4 are not opened: the answer is the same as if the cell had no key for them.

mod der;
mod derive;
#[cfg(test)]
mod kdc_tests;
mod mint;
mod open;
mod parts;
mod print;
mod seal;
#[cfg(test)]
mod tests;
mod time;

pub use derive::session_key;
pub use mint::{Mint, Minted, mint};
pub use open::{Opened, TicketPolicy, open};
pub(crate) use print::SUPERUSER;
pub use print::print;
#[cfg(fuzzing)]
pub use seal::seal_anything;
