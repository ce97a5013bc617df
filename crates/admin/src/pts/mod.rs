//! What `pts` does: users, groups, and who is in which group.
//!
//! Each step asks one protection server, or several if the first cannot answer; names go to it in
//! lower case. Nothing is kept between steps.

mod entries;
mod lookup;
mod members;

use afar_net::AbortCode;
use afar_rpc::RpcError;
use afar_types::error;

pub use entries::{
    Examined, change_name, change_owner, create_group, create_user, delete, entries, examine, max,
    owned, set_fields, set_max_group, set_max_user,
};
pub use lookup::{Found, find, id, ids, name, names};
pub use members::{add_to_group, elements, expanded_elements, remove_from_group, super_groups};

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PtsError {
    /// PRNAMETOOLONG: no user or group can have a name of more than 63 bytes, or with a NUL.
    #[error("the name is too long")]
    NameTooLong,
    /// PRNOENT: nobody has this name.
    #[error("there is no such user or group")]
    NoEntry,
    /// PRINTERNAL: the server answered with fewer or more than was asked for.
    #[error("the server's answer has another length than the question")]
    AnswerLength,
    /// The server refused, could not be reached, or answered what cannot be read.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

impl PtsError {
    /// The code by which AFS knows this failure.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::NameTooLong => AbortCode(error::PRNAMETOOLONG),
            Self::NoEntry => AbortCode(error::PRNOENT),
            Self::AnswerLength => AbortCode(error::PRINTERNAL),
            Self::Rpc(error) => error.code(),
        }
    }
}

#[cfg(test)]
mod tests;
