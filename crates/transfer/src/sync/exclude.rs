//! Names that are left alone.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::{Error, PatternProblem, Result};

/// Patterns of names that are neither copied nor deleted, as `.gitignore` has them. The crates `globset` and `ignore`
/// take patterns of UTF-8 only, and names in AFS are bytes; `globset` also reads `{a,b}` as two names, which git does not.
#[derive(Debug, Clone, Default)]
pub(super) struct Exclude(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    regex: Regex,
    /// It ends with a slash.
    only_directories: bool,
}

impl Exclude {
    /// Understands patterns.
    ///
    /// # Errors
    /// Names the pattern that means nothing.
    pub(super) fn new(patterns: &[OsString]) -> Result<Self> {
        let patterns = patterns.iter().map(|text| pattern(text.as_bytes()));
        Ok(Self(patterns.collect::<Result<_>>()?))
    }

    /// Whether a path below SOURCE or DEST is left alone. What is in a directory that is left alone
    /// need not be asked for.
    pub(super) fn has(&self, path: &[u8], is_directory: bool) -> bool {
        self.0.iter().any(|pattern| {
            (is_directory || !pattern.only_directories) && pattern.regex.is_match(path)
        })
    }
}

fn pattern(text: &[u8]) -> Result<Pattern> {
    let wrong = |problem| Error::Pattern {
        pattern: match problem {
            PatternProblem::Nothing => format!("{:?}", String::from_utf8_lossy(text)),
            _ => String::from_utf8_lossy(text).into_owned(),
        },
        problem,
    };
    let only_directories = text.ends_with(b"/");
    let body = text.strip_suffix(b"/").unwrap_or(text);
    let anchored = body.contains(&b'/');
    let body = body.strip_prefix(b"/").unwrap_or(body);
    if body.is_empty() {
        return Err(wrong(PatternProblem::Nothing));
    }
    let mut regex = String::from(if anchored { "^" } else { "(?:^|/)" });
    translate(body, &mut regex).ok_or_else(|| wrong(PatternProblem::Bracket))?;
    regex.push('$');
    let regex = RegexBuilder::new(&regex)
        .unicode(false)
        .dot_matches_new_line(true)
        .build();
    match regex {
        Ok(regex) => Ok(Pattern {
            regex,
            only_directories,
        }),
        Err(_) => Err(wrong(PatternProblem::Range)),
    }
}

/// Translates a pattern into a regular expression; `None` if a `[` has no end.
fn translate(mut rest: &[u8], regex: &mut String) -> Option<()> {
    let mut at_start = true;
    while let Some((&first, after)) = rest.split_first() {
        let start = std::mem::replace(&mut at_start, first == b'/');
        rest = after;
        match first {
            b'*' if start && rest.starts_with(b"*/") => {
                regex.push_str("(?:[^/]+/)*");
                rest = &rest[2..];
                at_start = true;
            }
            b'*' if rest.starts_with(b"*") => {
                regex.push_str(".*");
                rest = &rest[1..];
            }
            b'*' => regex.push_str("[^/]*"),
            b'?' => regex.push_str("[^/]"),
            b'[' => rest = class(rest, regex)?,
            b'\\' if !rest.is_empty() => {
                octet(rest[0], regex);
                rest = &rest[1..];
            }
            other => octet(other, regex),
        }
    }
    Some(())
}

/// Translates what follows a `[`; returns what follows its `]`, if it has one.
fn class<'a>(text: &'a [u8], regex: &mut String) -> Option<&'a [u8]> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let text = &text[usize::from(negated)..];
    // A bracket that comes first is one of the characters.
    let end = text.iter().skip(1).position(|&byte| byte == b']')? + 1;
    let (mut inside, after) = (&text[..end], &text[end + 1..]);
    regex.push_str(if negated { "[^/" } else { "[" });
    while let [first, more @ ..] = inside {
        octet(*first, regex);
        inside = more;
        if let [b'-', last, more @ ..] = more {
            regex.push('-');
            octet(*last, regex);
            inside = more;
        }
    }
    regex.push(']');
    Some(after)
}

/// One byte as itself.
fn octet(octet: u8, regex: &mut String) {
    if octet.is_ascii_alphanumeric() {
        regex.push(char::from(octet));
    } else {
        // Writing to a string does not fail.
        let _written = write!(regex, "\\x{octet:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(pattern: &str, path: &str) -> bool {
        let exclude = Exclude::new(&[pattern.into()]).unwrap();
        exclude.has(path.as_bytes(), path.ends_with("dir"))
    }

    #[test]
    fn patterns_mean_what_they_do_to_git() {
        for (pattern, yes, no) in [
            (
                "*.o",
                &["a.o", "x/y/.o", "x.o"] as &[_],
                &["a.oo", "o", "a.o/b"] as &[_],
            ),
            ("/a", &["a"], &["b/a", "aa"]),
            ("b/a", &["b/a"], &["a", "c/b/a", "b/aa"]),
            ("a?", &["ab", "x/a."], &["a", "abc"]),
            ("sub/*", &["sub/a"], &["sub", "sub/a/b"]),
            ("sub/**", &["sub/a", "sub/a/b"], &["sub", "subs/a"]),
            ("**/a", &["a", "x/a", "x/y/a"], &["xa"]),
            ("x/**/a", &["x/a", "x/y/z/a"], &["xa", "x/ya"]),
            ("dir/", &["dir", "x/dir"], &["xdir"]),
            ("a/", &[], &["a"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x"]),
            ("[!a-c]x", &["dx", "y/ex"], &["ax", "/x"]),
            ("[]-]x", &["]x", "-x"], &["x"]),
            (r"\*.[.]+(", &["*..+("], &["a..+("]),
            ("é", &["é"], &["e"]),
        ] {
            for path in yes {
                assert!(excluded(pattern, path), "{pattern} {path}");
            }
            for path in no {
                assert!(!excluded(pattern, path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn what_means_nothing_is_told() {
        for pattern in ["", "/", "[a", "[]", "[c-a]"] {
            let error = Exclude::new(&[pattern.into()]).unwrap_err();
            assert!(matches!(error, Error::Pattern { .. }), "{error}");
        }
    }
}
