//! Patterns for volume names: the basic regular expressions of POSIX, as in OpenAFS.

use afar_net::AbortCode;
use regex::bytes::{Regex, RegexBuilder};

use super::codes::VL_BADNAME;

/// Memory a compiled pattern may take.
const SIZE_LIMIT: usize = 1 << 20;

/// Parentheses in each other.
const NEST_LIMIT: u32 = 32;

/// Compiles a pattern that has to match the whole name.
pub(super) fn compile(pattern: &[u8]) -> Result<Regex, AbortCode> {
    let pattern = std::str::from_utf8(pattern).map_err(|_| VL_BADNAME)?;
    let translated = translate(&format!("^{pattern}$")).ok_or(VL_BADNAME)?;
    RegexBuilder::new(&translated)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .nest_limit(NEST_LIMIT)
        .build()
        .map_err(|_| VL_BADNAME)
}

/// Writes a basic regular expression as the `regex` crate has it; `None` for what it has not, and
/// for one that is not whole.
fn translate(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    // Whether a group, a branch or the whole begins here: `*` stands for itself there, `^` is an
    // anchor.
    let mut at_start = true;
    while let Some(c) = rest.next() {
        let starts = std::mem::replace(&mut at_start, false);
        match c {
            '\\' => at_start = escaped(&mut out, rest.next()?)?,
            '[' => bracket(&mut out, &mut rest)?,
            '*' if starts => out.push_str("\\*"),
            '^' if starts => {
                out.push('^');
                at_start = true;
            }
            '$' if ends(&rest) => out.push('$'),
            '.' | '*' => out.push(c),
            other => literal(&mut out, other),
        }
    }
    Some(out)
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Whether the whole, a group or a branch ends here.
fn ends(rest: &Rest<'_>) -> bool {
    let mut ahead = rest.clone();
    match (ahead.next(), ahead.next()) {
        (None, _) => true,
        (Some('\\'), Some(')' | '|')) => true,
        (Some(_), _) => false,
    }
}

/// What stands for something else after a backslash; whether a group or branch begins after it.
fn escaped(out: &mut String, c: char) -> Option<bool> {
    match c {
        '(' | '|' => {
            out.push(c);
            return Some(true);
        }
        ')' | '{' | '}' | '+' | '?' => out.push(c),
        'w' | 'W' | 's' | 'S' | 'b' | 'B' => out.extend(['\\', c]),
        '<' => out.push_str("\\b{start}"),
        '>' => out.push_str("\\b{end}"),
        // The text a group matched is not looked for again by an automaton.
        '1'..='9' => return None,
        other => literal(out, other),
    }
    Some(false)
}

fn literal(out: &mut String, c: char) {
    out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

/// A set of characters, from after its `[` to its `]`. A backslash stands for itself in it.
fn bracket(out: &mut String, rest: &mut Rest<'_>) -> Option<()> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let c = rest.next()?;
        match c {
            ']' if !first => break,
            '[' => match rest.peek() {
                Some(':') => class(out, rest)?,
                Some('.' | '=') => return None,
                _ => out.push_str("\\["),
            },
            '-' if !first && rest.peek() != Some(&']') => out.push('-'),
            other if other.is_ascii_punctuation() => out.extend(['\\', other]),
            other => out.push(other),
        }
        first = false;
    }
    out.push(']');
    Some(())
}

/// A class such as `[:digit:]`, from after its `[`.
fn class(out: &mut String, rest: &mut Rest<'_>) -> Option<()> {
    out.push('[');
    let mut last = '[';
    loop {
        let c = rest.next()?;
        if !(c.is_ascii_alphabetic() || c == ':' || c == ']') {
            return None;
        }
        out.push(c);
        if (last, c) == (':', ']') {
            return Some(());
        }
        last = c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        compile(pattern.as_bytes())
            .unwrap()
            .is_match(name.as_bytes())
    }

    /// Each was tried with `grep -x`, which has the same basic regular expressions.
    #[test]
    fn basic_regular_expressions_match_as_in_posix() {
        let cases = [
            (r"root.*", "root.afs", true),
            (r"root.*", "aroot.afs", false),
            (r"user\.[a-c]*", "user.abc", true),
            (r"user\.[a-c]*", "user.abd", false),
            (r"a+b", "a+b", true),
            (r"a+b", "aab", false),
            (r"a\+b", "aab", true),
            (r"x(1)", "x(1)", true),
            (r"x\(1\)*", "x111", true),
            (r"a\{2,3\}", "aaa", true),
            (r"a\{2,3\}", "aaaa", false),
            (r"a{2}", "a{2}", true),
            (r"*a", "*a", true),
            (r"[]a]x", "]x", true),
            (r"[^]a]x", "]x", false),
            (r"[[:digit:]]*", "0123", true),
            (r"[a\]", "\\", true),
            (r"[a-]", "-", true),
            (r"[-a]", "-", true),
            (r"foo\|bar", "bar", true),
            (r"a^b$c", "a^b$c", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in [
            r"\(",
            r"\)",
            "[",
            "[a",
            r"\(a\)\1",
            "[[.a.]]",
            r"a\{9999999\}",
        ] {
            assert_eq!(
                compile(pattern.as_bytes()).unwrap_err(),
                VL_BADNAME,
                "{pattern}"
            );
        }
        let deep = r"\(".repeat(30) + &r"\{99\}".repeat(4);
        assert!(compile(deep.as_bytes()).is_err());
    }
}
