//! The name of a cell.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A cell's name: a DNS domain in lower case, such as `example.org`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName(Arc<str>);

/// Why a text is no cell name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellNameError {
    /// Nothing there, or nothing between two dots.
    #[error("cell name {0:?} has an empty part")]
    Empty(String),
    /// More than 255 bytes, or a part of more than 63.
    #[error("cell name {0:?} is too long")]
    TooLong(String),
    /// A character outside letters, digits, `-`, `_` and `.`.
    #[error("cell name {name:?} contains {character:?}")]
    Character {
        /// The text given.
        name: String,
        /// The character at fault.
        character: char,
    },
}

impl CellName {
    /// The greatest length in bytes, that of a DNS name.
    pub const MAX: usize = 255;

    /// The name in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Upper-case letters are lowered; one dot at the end is dropped.
impl FromStr for CellName {
    type Err = CellNameError;

    fn from_str(text: &str) -> Result<Self, CellNameError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(character) = name.chars().find(|&c| !allowed(c)) {
            return Err(CellNameError::Character {
                name: text.to_owned(),
                character,
            });
        }
        if name.split('.').any(str::is_empty) {
            return Err(CellNameError::Empty(text.to_owned()));
        }
        if name.len() > Self::MAX || name.split('.').any(|part| part.len() > 63) {
            return Err(CellNameError::TooLong(text.to_owned()));
        }
        Ok(Self(name.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for CellName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lowered_and_checked() {
        assert_eq!(
            "Example.ORG.".parse::<CellName>().unwrap().as_str(),
            "example.org"
        );
        for bad in ["", ".", "a..b", "../etc", "a b", "ex\u{e4}mple.org", "a/b"] {
            assert!(bad.parse::<CellName>().is_err(), "{bad:?}");
        }
        assert!(
            format!("{}.org", "a".repeat(64))
                .parse::<CellName>()
                .is_err()
        );
    }
}
