//! Access rights.

use std::fmt;
use std::ops::{BitAnd, BitOr};
use std::str::FromStr;

use afar_xdr::{Decode, Encode};

/// A set of rights in AFS's bits: `rlidwka`, and eight (`A`–`H`) for a site's own use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rights(pub u32);

/// A text that is neither a row of right letters nor one of the common names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a set of rights: {letter:?} is none of rlidwka and A to H")]
pub struct RightsError {
    /// The text given.
    pub text: String,
    /// The letter at fault.
    pub letter: char,
}

const LETTERS: [(char, Rights); 15] = [
    ('r', Rights::READ),
    ('l', Rights::LOOKUP),
    ('i', Rights::INSERT),
    ('d', Rights::DELETE),
    ('w', Rights::WRITE),
    ('k', Rights::LOCK),
    ('a', Rights::ADMINISTER),
    ('A', Rights(1 << 24)),
    ('B', Rights(1 << 25)),
    ('C', Rights(1 << 26)),
    ('D', Rights(1 << 27)),
    ('E', Rights(1 << 28)),
    ('F', Rights(1 << 29)),
    ('G', Rights(1 << 30)),
    ('H', Rights(1 << 31)),
];

impl Rights {
    /// No rights.
    pub const NONE: Self = Self(0);
    /// Read data of files.
    pub const READ: Self = Self(1);
    /// Write data and attributes of files.
    pub const WRITE: Self = Self(2);
    /// Create entries.
    pub const INSERT: Self = Self(4);
    /// List the directory and see its ACL.
    pub const LOOKUP: Self = Self(8);
    /// Remove entries.
    pub const DELETE: Self = Self(16);
    /// Lock files.
    pub const LOCK: Self = Self(32);
    /// Change the ACL.
    pub const ADMINISTER: Self = Self(64);
    /// All seven that AFS gives a meaning to.
    pub const ALL: Self = Self(0x7f);

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The letters in the order `rlidwkaABCDEFGH`; bits without a letter do not show.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = LETTERS.iter().filter(|(_, right)| self.contains(*right));
        f.pad(&letters.map(|(letter, _)| letter).collect::<String>())
    }
}

/// Letters in any order, or `read` (rl), `write` (all but a), `all`, `none`.
impl FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        match text {
            "none" => return Ok(Self::NONE),
            "read" => return Ok(Self::READ | Self::LOOKUP),
            "write" => return Ok(Self(Self::ALL.0 & !Self::ADMINISTER.0)),
            "all" => return Ok(Self::ALL),
            _ => {}
        }
        text.chars().try_fold(Self::NONE, |rights, letter| {
            let right = LETTERS.iter().find(|(known, _)| *known == letter);
            right
                .map(|(_, right)| rights | *right)
                .ok_or_else(|| RightsError {
                    text: text.to_owned(),
                    letter,
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_names() {
        assert_eq!("rl".parse(), Ok(Rights::READ | Rights::LOOKUP));
        assert_eq!("read".parse::<Rights>().unwrap().to_string(), "rl");
        assert_eq!("write".parse::<Rights>().unwrap().to_string(), "rlidwk");
        assert_eq!("all".parse::<Rights>().unwrap().to_string(), "rlidwka");
        assert_eq!("Har".parse::<Rights>().unwrap(), Rights(0x8000_0041));
        assert_eq!("none".parse::<Rights>().unwrap().to_string(), "");
        assert_eq!("rx".parse::<Rights>().unwrap_err().letter, 'x');
    }
}
