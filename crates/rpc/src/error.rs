//! Why an RPC failed.

use std::net::SocketAddr;

use afar_net::{AbortCode, CallError};
use afar_types::error::describe;
use afar_xdr::DecodeError;

use crate::Operation;

/// A failed RPC: which, to whom, and (as its source) why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}.{} at {peer} failed", operation.interface, operation.name)]
pub struct RpcError {
    /// The operation.
    pub operation: &'static Operation,
    /// The server it went to.
    pub peer: SocketAddr,
    /// What happened.
    #[source]
    pub cause: RpcCause,
}

/// What made an RPC fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcCause {
    /// The call did not end well, most often because the server refused: see
    /// [`RpcError::aborted`].
    #[error("{}", call_text(.0))]
    Call(CallError),
    /// The reply could not be decoded.
    #[error("the reply is malformed: {0}")]
    Reply(DecodeError),
    /// The server announced more data than was asked for, or less than none.
    #[error("the server announced {announced} bytes where {asked} were requested")]
    Length {
        /// Bytes announced.
        announced: i128,
        /// Bytes asked for.
        asked: u64,
    },
    /// The caller asked for, or sent, another amount of data than it announced.
    #[error("{given} bytes of data given where {announced} were announced")]
    Data {
        /// Bytes given.
        given: i128,
        /// Bytes announced in the request.
        announced: u64,
    },
}

fn call_text(error: &CallError) -> String {
    match error {
        CallError::Aborted(code) => describe(code.0),
        other => other.to_string(),
    }
}

impl RpcError {
    /// The code by which AFS knows this failure.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match &self.cause {
            RpcCause::Call(error) => error.code(),
            RpcCause::Reply(_) | RpcCause::Length { .. } => AbortCode::RXGEN_CC_UNMARSHAL,
            RpcCause::Data { .. } => AbortCode::RXGEN_CC_MARSHAL,
        }
    }

    /// The code the server itself aborted the call with, if it did.
    #[must_use]
    pub fn aborted(&self) -> Option<AbortCode> {
        match self.cause {
            RpcCause::Call(CallError::Aborted(code)) => Some(code),
            _ => None,
        }
    }

    /// Whether the server does not know the operation, so that an older one may do.
    #[must_use]
    // spec: afs-rpc#unknown-operations
    pub fn is_unknown_operation(&self) -> bool {
        self.aborted() == Some(AbortCode::RXGEN_OPCODE)
    }
}
