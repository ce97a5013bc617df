//! Abort codes and the ways a call ends without success.

use std::fmt;
use std::io;

/// The 32-bit code an ABORT packet carries: negative from Rx and rxgen, positive from services.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortCode(pub i32);

impl AbortCode {
    /// Nothing was heard from the peer for the dead time.
    // spec: rx#aborts
    pub const RX_CALL_DEAD: Self = Self(-1);
    /// No such service or security class on this port.
    pub const RX_INVALID_OPERATION: Self = Self(-2);
    /// An idle or hard time limit passed.
    pub const RX_CALL_TIMEOUT: Self = Self(-3);
    /// The stream ended early.
    pub const RX_EOF: Self = Self(-4);
    /// The peer broke the protocol.
    pub const RX_PROTOCOL_ERROR: Self = Self(-5);
    /// The application gave the call up.
    pub const RX_USER_ABORT: Self = Self(-6);
    /// The UDP port is taken.
    pub const RX_ADDRINUSE: Self = Self(-7);
    /// A packet was too large for the path.
    pub const RX_MSGSIZE: Self = Self(-8);
    /// The server is restarting.
    pub const RX_RESTARTING: Self = Self(-100);
    /// The server has too many calls waiting (VBUSY of the volume package).
    pub const VBUSY: Self = Self(110);
    /// A client stub could not marshal its arguments.
    pub const RXGEN_CC_MARSHAL: Self = Self(-450);
    /// A client stub could not unmarshal the reply.
    pub const RXGEN_CC_UNMARSHAL: Self = Self(-451);
    /// A server stub could not marshal the reply.
    pub const RXGEN_SS_MARSHAL: Self = Self(-452);
    /// A server stub could not unmarshal the request.
    pub const RXGEN_SS_UNMARSHAL: Self = Self(-453);
    /// A stub could not decode.
    pub const RXGEN_DECODE: Self = Self(-454);
    /// The service has no such operation.
    pub const RXGEN_OPCODE: Self = Self(-455);

    /// The name Rx and rxgen give this code, if it is one of theirs.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            -1 => "RX_CALL_DEAD",
            -2 => "RX_INVALID_OPERATION",
            -3 => "RX_CALL_TIMEOUT",
            -4 => "RX_EOF",
            -5 => "RX_PROTOCOL_ERROR",
            -6 => "RX_USER_ABORT",
            -7 => "RX_ADDRINUSE",
            -8 => "RX_MSGSIZE",
            -100 => "RX_RESTARTING",
            -450 => "RXGEN_CC_MARSHAL",
            -451 => "RXGEN_CC_UNMARSHAL",
            -452 => "RXGEN_SS_MARSHAL",
            -453 => "RXGEN_SS_UNMARSHAL",
            -454 => "RXGEN_DECODE",
            -455 => "RXGEN_OPCODE",
            _ => return None,
        })
    }
}

impl fmt::Debug for AbortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for AbortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Why a call ended without success.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The peer aborted this call.
    #[error("the peer aborted the call with {0}")]
    Aborted(AbortCode),
    /// The peer aborted the whole connection.
    #[error("the peer aborted the connection with {0}")]
    ConnectionAborted(AbortCode),
    /// Nothing was heard from the peer for the dead time.
    #[error("the peer did not answer")]
    Dead,
    /// The call made no progress for its idle limit, or passed its hard limit.
    #[error("the call passed its time limit")]
    TimedOut,
    /// The network said that the peer cannot be reached.
    #[error("the peer is unreachable: {0}")]
    Unreachable(io::ErrorKind),
    /// The peer broke the protocol.
    #[error("the peer broke the Rx protocol")]
    Protocol,
    /// The path drops packets of the size this call's were cut to, and packets that have their number
    /// cannot be cut again. The same call, made once more, uses smaller ones.
    #[error("the path to the peer drops packets as large as this call's")]
    TooLarge,
    /// This side gave the call up with that code.
    #[error("cancelled with {0}")]
    Cancelled(AbortCode),
    /// The stream ended before what was asked of it.
    #[error("the reply ended early")]
    UnexpectedEnd,
    /// The stream is longer than the limit given.
    #[error("the reply is longer than allowed")]
    TooLong,
    /// The endpoint was shut down.
    #[error("the endpoint is shut down")]
    Closed,
}

impl CallError {
    /// The abort code that stands for this error in AFS's tables.
    #[must_use]
    pub const fn code(&self) -> AbortCode {
        match *self {
            Self::Aborted(code) | Self::ConnectionAborted(code) | Self::Cancelled(code) => code,
            Self::Dead | Self::Unreachable(_) => AbortCode::RX_CALL_DEAD,
            Self::TimedOut => AbortCode::RX_CALL_TIMEOUT,
            Self::Protocol => AbortCode::RX_PROTOCOL_ERROR,
            Self::TooLarge => AbortCode::RX_MSGSIZE,
            Self::UnexpectedEnd => AbortCode::RX_EOF,
            Self::TooLong => AbortCode::RXGEN_CC_UNMARSHAL,
            Self::Closed => AbortCode::RX_USER_ABORT,
        }
    }
}
