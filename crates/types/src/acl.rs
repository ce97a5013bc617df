//! Access control lists in the text form that FetchACL and StoreACL carry.

mod record;

use std::fmt::Write as _;

pub use record::{AclRecord, AclRecordEntry};

use crate::Rights;

/// The rights of users and groups in a directory. Negative entries take rights away again.
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

    /// Whether a name can be in an ACL's text, where white space ends it.
    #[must_use]
    pub fn carries(name: &str) -> bool {
        let ends = |c| is_space(c) || c == '\0';
        !name.is_empty() && name.len() <= Self::MAX_NAME && !name.contains(ends)
    }

    /// Reads the text of a FetchACL reply or StoreACL request: two counts, then lines of a name and
    /// rights, positive ones first. Bytes from the first NUL on are ignored, as old clients leave
    /// anything there.
    ///
    /// It takes what OpenAFS takes (`acl_Internalize_pr`, which reads by `sscanf`): any white space
    /// between the two, such as the blank of its `fs` or the tab of its servers; rights as a signed
    /// number of 32 bits, and anything after that in the line. Of a name that is too long it would
    /// take the beginning, for which nobody asked.
    ///
    /// # Errors
    /// With the line at fault.
    // spec: afs-rpc#access-lists
    pub fn parse(text: &[u8]) -> Result<Self, AclError> {
        let end = text.iter().position(|&byte| byte == 0);
        let text = &text[..end.unwrap_or(text.len())];
        let text = std::str::from_utf8(text).map_err(|_| AclError::NotUtf8)?;
        let mut lines = Lines {
            rest: text,
            number: 0,
        };
        let (positive, negative) = lines.counts()?;
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
            if !Self::carries(&entry.name) {
                return Err(AclError::Name(entry.name.clone()));
            }
            // Writing to a string cannot fail.
            let _ignored = writeln!(text, "{}\t{}", entry.name, entry.rights.0);
        }
        text.push('\0');
        Ok(text.into_bytes())
    }
}

/// White space to `sscanf`.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// The number that a text begins with, after white space, and the rest (`%d` of `sscanf`). One that is too long
/// is cut to 32 bits of the largest of 64.
fn number(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start_matches(is_space);
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text[sign..].find(|c: char| !c.is_ascii_digit());
    let end = digits.map_or(text.len(), |digits| sign + digits);
    if end == sign {
        return None;
    }
    let largest = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    let value: i64 = text[..end].parse().unwrap_or(largest);
    #[expect(clippy::cast_possible_truncation, reason = "as sscanf does it")]
    let value = value as i32;
    Some((value, &text[end..]))
}

/// Lines that are left to read.
struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    /// The next line. `None` if no line feed ends it.
    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        let (line, rest) = self.rest.split_once('\n')?;
        self.rest = rest;
        Some(line)
    }

    fn wrong(&self, text: &str, expected: &'static str) -> AclError {
        AclError::Line {
            line: self.number,
            text: text.to_owned(),
            expected,
        }
    }

    /// Both counts. The last line of an empty list need not end.
    fn counts(&mut self) -> Result<(usize, usize), AclError> {
        let mut count = || {
            let text = self.rest;
            let line = self.next().unwrap_or_else(|| {
                self.rest = "";
                text
            });
            let count = number(line).and_then(|(count, rest)| {
                // The second count follows in the next line, or anything in that of the second.
                let ended = self.number == 2 || rest.chars().all(is_space);
                usize::try_from(count).ok().filter(|_| ended)
            });
            count.ok_or_else(|| match line {
                "" => AclError::Truncated { line: self.number },
                _ => self.wrong(line, "a number of entries"),
            })
        };
        Ok((count()?, count()?))
    }

    fn entry(&mut self) -> Result<AclEntry, AclError> {
        let expected = "a name, white space and rights";
        let rest = self.rest;
        let line = self.next().ok_or_else(|| match rest {
            "" => AclError::Truncated { line: self.number },
            _ => self.wrong(rest, "a whole line"),
        })?;
        let text = line.trim_start_matches(is_space);
        let (name, rights) = text.split_once(is_space).unwrap_or((text, ""));
        match number(rights) {
            Some((rights, _)) if Acl::carries(name) => Ok(AclEntry {
                name: name.to_owned(),
                // Servers print the 32 bits with %d, so rights with the highest bit look negative.
                rights: Rights(rights.cast_unsigned()),
            }),
            _ => Err(self.wrong(line, expected)),
        }
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
            error(b"1\n0\nalice\n"),
            "line 3 of the ACL, \"alice\", is not a name, white space and rights"
        );
        assert_eq!(
            error(b"1\n0\nalice 127"),
            "line 3 of the ACL, \"alice 127\", is not a whole line"
        );
        assert_eq!(
            error(b"2000000000\n2000000000\n"),
            "the ACL has 4000000000 entries; a directory has room for 20"
        );
        for text in [
            "-1\n0\n",
            "1 0\nalice 1\n",
            "1x\n0\nalice 1\n",
            "",
            "1\n0\nalice x\n",
        ] {
            assert!(Acl::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        let long = format!("1\n0\n{} 1\n", "a".repeat(64));
        assert!(Acl::parse(long.as_bytes()).is_err());
    }

    #[test]
    fn text_of_openafs_clients() {
        // AclToString of src/venus/fs.c: "%d\n%d\n", then "%s %d\n" for each entry.
        let acl = Acl::parse(b"2\n1\nsystem:administrators 127\nalice 9\nmallory 2\n\0").unwrap();
        assert_eq!(acl.positive[1].name, "alice");
        assert_eq!(acl.positive[1].rights, Rights(9));
        assert_eq!(acl.negative[0].name, "mallory");
    }

    #[test]
    fn whatever_sscanf_reads_is_read() {
        // acl_Internalize_pr of src/libacl/aclprocs.c: "%d\n%d\n", then "%63s\t%d\n".
        let entry = |text: &[u8]| {
            let acl = Acl::parse(text).unwrap();
            (acl.positive[0].name.clone(), acl.positive[0].rights.0)
        };
        for line in [
            "alice\t7",
            "alice 7",
            " alice \t 7 ",
            "alice +7",
            "alice 7rl",
            "alice 7 x y",
        ] {
            let text = format!(" 1 \n0 of them\n{line}\n");
            assert_eq!(entry(text.as_bytes()), ("alice".to_owned(), 7), "{line}");
        }
        assert_eq!(entry(b"1\n0\na -1\n").1, u32::MAX);
        assert_eq!(entry(b"1\n0\na 4294967297\n").1, 1);
        assert_eq!(entry(b"1\n0\na 99999999999999999999\n").1, u32::MAX);
        for text in [&b"0\n0"[..], b"0\n0\n", b"+0\n-0\n\0\xff"] {
            assert_eq!(Acl::parse(text), Ok(Acl::default()), "{text:?}");
        }
    }

    #[test]
    fn names_that_would_break_the_text_are_refused() {
        let entry = AclEntry {
            name: "a b".to_owned(),
            rights: Rights::ALL,
        };
        let acl = Acl {
            positive: vec![entry],
            negative: vec![],
        };
        assert_eq!(acl.to_text(), Err(AclError::Name("a b".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn parsed_acls_are_written_back(text in "[0-3\n]{0,6}([a-c:]{1,4}[ \t]{1,2}-?[0-9]{1,3}\n){0,4}") {
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
