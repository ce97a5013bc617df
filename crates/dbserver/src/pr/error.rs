//! What the protection server refuses, and by which code.

use afar_net::AbortCode;
use afar_types::error;

use crate::kv::DbError;

/// Why an operation was refused. The codes are those of AFS-3's PT error table.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PrError {
    /// PREXIST: the name is taken.
    #[error("the name is taken")]
    NameTaken,
    /// PRIDEXIST: the id is taken, or the member is there already.
    #[error("the id is taken")]
    IdTaken,
    /// PRNOIDS: no free id was found.
    #[error("no free id was found")]
    NoIds,
    /// PRNOENT: no such user or group.
    #[error("there is no such user or group")]
    NoEntry,
    /// PRPERM: the caller may not do this.
    #[error("permission denied")]
    Permission,
    /// PRNOTGROUP: it is a user, where a group is needed.
    #[error("not a group")]
    NotGroup,
    /// PRBADNAM: the name is not one for this entry.
    #[error("bad name")]
    BadName,
    /// PRBADARG: an argument makes no sense.
    #[error("bad argument")]
    BadArgument,
    /// PRNOMORE: the quota of groups or foreign users is used up.
    #[error("the quota is used up")]
    NoMore,
    /// PRDBBAD: a row of the database contradicts itself or another.
    #[error("the database is damaged: {0}")]
    Damaged(&'static str),
    /// PRGROUPEMPTY: an empty group cannot own one.
    #[error("an empty group cannot own a group")]
    GroupEmpty,
    /// PRINCONSISTENT: nothing can be a member of itself.
    #[error("nothing can be a member of itself")]
    OwnMember,
    /// PRDBADDR: no entry is at this place.
    #[error("there is no entry at this place")]
    BadAddress,
    /// PRTOOMANY: a list is too long.
    #[error("the list is too long")]
    TooMany,
    /// The rows could not be read or changed.
    #[error(transparent)]
    Database(#[from] DbError),
}

impl PrError {
    /// The code to abort the call with.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        AbortCode(match self {
            Self::NameTaken => error::PREXIST,
            Self::IdTaken => error::PRIDEXIST,
            Self::NoIds => error::PRNOIDS,
            Self::NoEntry => error::PRNOENT,
            Self::Permission => error::PRPERM,
            Self::NotGroup => error::PRNOTGROUP,
            Self::BadName => error::PRBADNAM,
            Self::BadArgument => error::PRBADARG,
            Self::NoMore => error::PRNOMORE,
            Self::Damaged(_) => error::PRDBBAD,
            Self::GroupEmpty => error::PRGROUPEMPTY,
            Self::OwnMember => error::PRINCONSISTENT,
            Self::BadAddress => error::PRDBADDR,
            Self::TooMany => error::PRTOOMANY,
            Self::Database(error) => return error.code(),
        })
    }
}
