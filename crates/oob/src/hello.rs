//! The first message each way on a connection, after TLS's own handshake.
// spec: oob#connection

use afar_xdr::{Decode, Encode, FixedOpaque};

use crate::Parts;
use crate::offer::SealedGrant;

/// The client shows its grant. It need not wait for the answer before it asks for transfers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The version of the offer.
    pub version: u32,
    /// The grant of the offer.
    pub grant: SealedGrant,
    /// What proves that it is the client's: [`Secret::proof`](crate::Secret::proof).
    pub proof: FixedOpaque<32>,
    /// What else it says.
    pub parts: Parts,
}

/// The server has taken the client in.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// Transfers that may be under way on this connection at a time.
    pub transfers: u32,
    /// What else it says.
    pub parts: Parts,
}

/// Why a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Refusal {
    /// The grant is not this server's, has expired, or is not the client's: a new one may be better.
    #[xdr(case = 1)]
    Grant,
    /// The client has too many connections, or the server.
    #[xdr(case = 2)]
    Full,
    /// The server cannot understand what came.
    #[xdr(case = 3)]
    Message,
    /// Nothing was asked for in a while.
    #[xdr(case = 4)]
    Idle,
    /// The server is about to end.
    #[xdr(case = 5)]
    Ending,
    /// A later version knows why.
    #[xdr(default)]
    Other(u32),
}
