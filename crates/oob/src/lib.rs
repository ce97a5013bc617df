//! Bulk data out of band: data of files and volumes over TLS on TCP, set up by an authenticated call over Rx.
//!
//! A client asks a server for an [`Offer`] (`OobOffer` of RXAFS or AFSVol) and connects to the port in it. The first
//! message there is a [`Hello`] with the server's own [`Grant`], sealed, and a proof that the client is the one that
//! was given it. Then [frames](frame) carry transfers. docs/protocol/oob.md has the bytes.
//!
//! - [`offer`]: what is asked and answered over Rx
//! - [`grant`]: what a server gives to itself through a client
//! - [`secret`]: the secret of one offer, and what proves it
//! - [`hello`]: the first message each way
//! - [`frame`]: all others
//! - [`record`]: how data is packed, checked and unpacked
//!
//! **Invariant:** this crate has no socket, clock or thread. Bytes come in and go out, and time is an argument.
//!
//! **Invariant:** an offer that others could read is of no use to them: its secret is agreed on (X25519) and never
//! sent. A proof holds in one TLS session only.

pub mod frame;
pub mod grant;
pub mod hello;
pub mod offer;
pub mod record;
pub mod secret;

pub use frame::{ClientFrame, DataHead, FrameError, Incoming, ServerFrame};
pub use grant::{Grant, GrantError, Holder, Sealer, Service};
pub use hello::{Hello, Refusal, Welcome};
pub use offer::{Offer, Question};
pub use record::{Codec, Codecs, RecordError, Unpacker};
pub use secret::{Agreement, Secret, SecretError};

use afar_xdr::{Decode, Encode, List, Opaque};

/// The protocol within TLS (ALPN).
// spec: oob#connection
pub const PROTOCOL: &[u8] = b"afar-oob/1";

/// The version of offers and of what follows from them.
// spec: oob#the-offer
pub const VERSION: u32 = 1;

/// The label under which TLS derives the bytes that a proof is made of (RFC 8446, 7.5).
// spec: oob#the-proof
pub const EXPORTER: &[u8] = b"EXPORTER-afar-oob";

/// Something that a version may leave out and another may not know: a number that says what it is, and bytes.
// spec: oob#parts
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Part {
    /// What it is.
    pub number: u32,
    /// What there is of it.
    pub bytes: Opaque<256>,
}

/// What may be left out. Parts with unknown numbers are ignored.
pub type Parts = List<Part, 8>;

/// No parts.
#[must_use]
pub fn no_parts() -> Parts {
    Parts::default()
}
