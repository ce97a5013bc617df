//! How much of a connection is protected.

use std::fmt;
use std::str::FromStr;

/// A level of protection of rxkad, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
// spec: security#levels-that-peers-ask-for
pub enum Level {
    /// The caller is authenticated; packets carry a checksum of their headers.
    Clear,
    /// Also the first eight bytes of each packet are sealed, so that lengths cannot be changed.
    Auth,
    /// Packets are encrypted.
    #[default]
    Crypt,
}

/// No level of rxkad is called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a level of protection; use clear, auth or crypt")]
pub struct UnknownLevel(String);

impl Level {
    /// All of them, in ascending order.
    pub const ALL: [Self; 3] = [Self::Clear, Self::Auth, Self::Crypt];

    /// Its number in challenges and responses.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The level with this number, if there is one.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.number() == number)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Auth => "auth",
            Self::Crypt => "crypt",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_wire() {
        for (number, level) in Level::ALL.into_iter().enumerate() {
            assert_eq!(level.number(), i32::try_from(number).unwrap());
            assert_eq!(Level::from_number(level.number()), Some(level));
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!(Level::from_number(3), None);
        assert!("private".parse::<Level>().is_err());
    }
}
