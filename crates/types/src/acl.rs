//! Access control lists in the text form that FetchACL and StoreACL carry.

mod record;

use std::fmt::Write as _;

pub use record::{AclRecord, AclRecordEntry};

use crate::Rights;

/// Who may do what in a directory. Negative entries take rights away again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acl {
    /// Rights given.
    pub positive: Vec<AclEntry>,
    /// Rights taken away.
    pub negative: Vec<AclEntry>,
}

/// A user or group and its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclEntry {
    /// Name, or the decimal id if the server knows no name.
    pub name: String,
    /// Its rights.
    pub rights: Rights,
}

/// Why a text or record is no ACL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AclError {
    /// The text is not UTF-8.
    #[error("the ACL is not UTF-8")]
    NotUtf8,
    /// A line is missing.
    #[error("the ACL ends before line {line}")]
    Truncated {
        /// Its number, from 1.
        line: usize,
    },
    /// A line is not of its form.
    #[error("line {line} of the ACL, {text:?}, is not {expected}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// More entries than a directory has room for.
    #[error("the ACL has {0} entries; a directory has room for 20")]
    TooManyEntries(usize),
    /// A name that the text form cannot carry.
    #[error("{0:?} cannot be the name in an ACL entry")]
    Name(String),
    /// A record's counts are beyond its room, or do not agree.
    #[error("an ACL record of {total} entries, {positive} positive and {negative} negative")]
    Counts {
        /// Entries it counts in all.
        total: u32,
        /// Positive ones.
        positive: u32,
        /// Negative ones.
        negative: u32,
    },
    /// A record's size is less than its entries take, or more than its room.
    #[error("an ACL record of {total} entries in {size} bytes")]
    Size {
        /// The size it gives.
        size: u32,
        /// Its entries.
        total: u32,
    },
}

impl Acl {
    /// Entries a directory has room for, positive and negative together.
    pub const MAX_ENTRIES: usize = 20;
    /// Bytes a name may have.
    pub const MAX_NAME: usize = 63;

    /// Reads the text of a FetchACL reply or StoreACL request: two counts, then `name<TAB>rights`
    /// lines, positive ones first. Bytes from the first NUL on are ignored, as old clients leave
    /// anything there.
    ///
    /// # Errors
    /// With the line at fault.
    pub fn parse(text: &[u8]) -> Result<Self, AclError> {
        let end = text
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(text.len());
        let text = std::str::from_utf8(&text[..end]).map_err(|_| AclError::NotUtf8)?;
        let mut lines = Lines {
            lines: text.split('\n'),
            number: 0,
        };
        let positive = lines.count()?;
        let negative = lines.count()?;
        let total = positive.saturating_add(negative);
        if total > Self::MAX_ENTRIES {
            return Err(AclError::TooManyEntries(total));
        }
        Ok(Self {
            positive: (0..positive)
                .map(|_| lines.entry())
                .collect::<Result<_, _>>()?,
            negative: (0..negative)
                .map(|_| lines.entry())
                .collect::<Result<_, _>>()?,
        })
    }

    /// Writes the text for a StoreACL request, with the NUL that ends it.
    ///
    /// # Errors
    /// When there are too many entries or a name cannot be carried.
    pub fn to_text(&self) -> Result<Vec<u8>, AclError> {
        let total = self.positive.len() + self.negative.len();
        if total > Self::MAX_ENTRIES {
            return Err(AclError::TooManyEntries(total));
        }
        let mut text = format!("{}\n{}\n", self.positive.len(), self.negative.len());
        for entry in self.positive.iter().chain(&self.negative) {
            if !is_name(&entry.name) {
                return Err(AclError::Name(entry.name.clone()));
            }
            // Writing to a string cannot fail.
            let _ignored = writeln!(text, "{}\t{}", entry.name, entry.rights.0);
        }
        text.push('\0');
        Ok(text.into_bytes())
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= Acl::MAX_NAME && !name.contains(['\t', '\n', '\0'])
}

struct Lines<'a> {
    lines: std::str::Split<'a, char>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a str, AclError> {
        self.number += 1;
        self.lines
            .next()
            .ok_or(AclError::Truncated { line: self.number })
    }

    fn wrong(&self, text: &str, expected: &'static str) -> AclError {
        AclError::Line {
            line: self.number,
            text: text.to_owned(),
            expected,
        }
    }

    fn count(&mut self) -> Result<usize, AclError> {
        let line = self.next()?;
        line.trim()
            .parse()
            .map_err(|_| self.wrong(line, "a number of entries"))
    }

    fn entry(&mut self) -> Result<AclEntry, AclError> {
        let expected = "a name, a tab and rights";
        let line = self.next()?;
        let (name, rights) = line
            .split_once('\t')
            .ok_or_else(|| self.wrong(line, expected))?;
        // Servers print the 32 bits with %d, so rights with the highest bit look negative.
        let rights: i64 = rights
            .trim()
            .parse()
            .map_err(|_| self.wrong(line, expected))?;
        let bits = u32::try_from(rights)
            .or_else(|_| i32::try_from(rights).map(i32::cast_unsigned))
            .map_err(|_| self.wrong(line, expected))?;
        if !is_name(name) {
            return Err(self.wrong(line, expected));
        }
        Ok(AclEntry {
            name: name.to_owned(),
            rights: Rights(bits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server() {
        let text =
            b"2\n1\nsystem:administrators\t127\nsystem:anyuser\t9\nmallory\t2\n\0rubbish\xff";
        let acl = Acl::parse(text).unwrap();
        assert_eq!(acl.positive[1].name, "system:anyuser");
        assert_eq!(acl.positive[1].rights.to_string(), "rl");
        assert_eq!(acl.negative[0].rights, Rights::WRITE);
        assert_eq!(acl.to_text().unwrap(), text[..text.len() - 8]);
    }

    #[test]
    fn rights_with_the_highest_bit() {
        let acl = Acl::parse(b"2\n0\na\t-2147483647\nb\t2147483649\n").unwrap();
        assert_eq!(acl.positive[0].rights, Rights(0x8000_0001));
        assert_eq!(acl.positive[1].rights, Rights(0x8000_0001));
    }

    #[test]
    fn bad_texts_name_the_line() {
        let error = |text: &[u8]| Acl::parse(text).unwrap_err().to_string();
        assert_eq!(
            error(b"x\n0\n"),
            "line 1 of the ACL, \"x\", is not a number of entries"
        );
        assert_eq!(error(b"1\n0"), "the ACL ends before line 3");
        assert_eq!(
            error(b"1\n0\nalice 127\n"),
            "line 3 of the ACL, \"alice 127\", is not a name, a tab and rights"
        );
        assert_eq!(
            error(b"4000000000\n4000000000\n"),
            "the ACL has 8000000000 entries; a directory has room for 20"
        );
    }

    #[test]
    fn names_that_would_break_the_text_are_refused() {
        let entry = AclEntry {
            name: "a\tb".to_owned(),
            rights: Rights::ALL,
        };
        let acl = Acl {
            positive: vec![entry],
            negative: vec![],
        };
        assert_eq!(acl.to_text(), Err(AclError::Name("a\tb".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn parsed_acls_are_written_back(text in "[0-3\n]{0,6}([a-c:]{1,4}\t-?[0-9]{1,3}\n){0,4}") {
            if let Ok(acl) = Acl::parse(text.as_bytes()) {
                proptest::prop_assert_eq!(Acl::parse(&acl.to_text().unwrap()).unwrap(), acl);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let parsed = Acl::parse(&text);
            proptest::prop_assert!(parsed.is_err() || text.len() >= 4 || parsed == Ok(Acl::default()));
        }
    }
}
