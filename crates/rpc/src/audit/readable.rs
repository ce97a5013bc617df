//! Arguments and results as operators read them: `{name=bob owner=0}` instead of
//! `{ name: "bob", flag: 0, owner: PtsId(0) }`.
//!
//! What derives `Debug` is rewritten, so that no operation needs a text of its own: names of types are left out, as
//! are fields without a value, words that fill an array up, and `Some`; addresses and UUIDs look as everywhere
//! else. What does not look like a derived `Debug` stays as it is.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// Nested values, at most; deeper ones stay as they are.
const DEPTH_MAX: usize = 16;
/// Fields whose numbers are IPv4 addresses.
const ADDRESSES: &[&str] = &["addresses", "server_number", "server", "address", "host"];
/// Fields that mean nothing.
const SPARE: &str = "spare";

/// Whether a letter needs no quotes around it.
pub(super) fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "._-:/@+#".contains(letter)
}

/// Rewrites what `Debug` wrote, which may have been cut.
pub(super) fn readable(debug: &str) -> String {
    let mut reader = Reader { rest: debug };
    let text = reader.value("", 0);
    let rest = reader.rest.trim();
    match text {
        Some(text) if rest.is_empty() => text,
        Some(text) => format!("{text}{rest}"),
        None => debug.trim().to_owned(),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// A value of the field called so; `None` where it was cut, or is nested too deeply.
    fn value(&mut self, field: &str, depth: usize) -> Option<String> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next().filter(|_| depth < DEPTH_MAX)?;
        match first {
            '"' => self.string(),
            '[' => Some(self.list(field, depth)),
            '{' => Some(self.fields(depth)),
            _ => self.named(field, depth),
        }
    }

    fn string(&mut self) -> Option<String> {
        let inside = &self.rest[1..];
        let mut escaped = false;
        let end = inside.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        })?;
        let (text, rest) = inside.split_at(end);
        self.rest = &rest[1..];
        Some(match !text.is_empty() && text.chars().all(is_plain) {
            true => text.to_owned(),
            false => format!("\"{text}\""),
        })
    }

    /// A number, a name, or a name with what it contains.
    fn named(&mut self, field: &str, depth: usize) -> Option<String> {
        let end = self
            .rest
            .find([' ', ',', '(', ')', '{', '}', '[', ']', '"']);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if let Some(inside) = rest.strip_prefix('(') {
            self.rest = inside;
            let values = self.until(')', field, depth);
            return Some(values.join(","));
        }
        if rest.trim_start().starts_with('{') {
            self.rest = rest.trim_start();
            if word == "AfsUuid" {
                let start = self.rest;
                if let Some(uuid) = self.uuid() {
                    return Some(uuid);
                }
                self.rest = start;
            }
            return Some(self.fields(depth));
        }
        (!word.is_empty()).then(|| match word.parse() {
            Ok(number @ 1..) if ADDRESSES.contains(&field) => {
                Ipv4Addr::from_bits(number).to_string()
            }
            _ => word.to_owned(),
        })
    }

    fn list(&mut self, field: &str, depth: usize) -> String {
        self.rest = &self.rest[1..];
        let mut values = self.until(']', field, depth);
        // Arrays of a fixed length are filled up with zeros.
        let used = values
            .iter()
            .rposition(|value| value != "0" && !value.is_empty());
        values.truncate(used.map_or(0, |last| last + 1));
        match values.len() {
            0 => String::new(),
            1 => values.remove(0),
            _ => format!("[{}]", values.join(",")),
        }
    }

    /// Values up to a bracket, or as many as there are.
    fn until(&mut self, end: char, field: &str, depth: usize) -> Vec<String> {
        let mut values = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            if let Some(rest) = self.rest.strip_prefix(end) {
                self.rest = rest;
                return values;
            }
            match self.value(field, depth + 1) {
                Some(value) => values.push(value),
                None => return values,
            }
        }
    }

    fn fields(&mut self, depth: usize) -> String {
        self.rest = &self.rest[1..];
        let mut text = String::from("{");
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                break;
            }
            let Some((name, rest)) = self.rest.split_once(':') else {
                break;
            };
            self.rest = rest;
            let Some(value) = self.value(name, depth + 1) else {
                break;
            };
            if value.is_empty() || value == "None" || value == "{}" || name.starts_with(SPARE) {
                continue;
            }
            let blank = if text.len() > 1 { " " } else { "" };
            // A String takes everything.
            write!(text, "{blank}{name}={value}").ok();
        }
        text.push('}');
        text
    }

    /// The six fields of a UUID in their usual form.
    fn uuid(&mut self) -> Option<String> {
        let inside = self.rest.strip_prefix('{')?;
        let (fields, rest) = inside.split_once('}')?;
        let numbers: Vec<u64> = fields
            .split([',', '[', ']', ':'])
            .filter_map(|part| part.trim().parse().ok())
            .collect();
        let [low, mid, high, clock, clock_low, node @ ..] = numbers.as_slice() else {
            return None;
        };
        self.rest = rest;
        let mut text = format!("{low:08x}-{mid:04x}-{high:04x}-{clock:02x}{clock_low:02x}-");
        for byte in node {
            write!(text, "{byte:02x}").ok();
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::proptest;

    use super::*;

    #[test]
    fn types_and_what_is_empty_are_left_out() {
        for (debug, text) in [
            (
                r#"{ name: "bob", flag: 0, owner: PtsId(0) }"#,
                "{name=bob flag=0 owner=0}",
            ),
            (r#"{ a: Some(5), b: None, c: [], spare0: 3 }"#, "{a=5}"),
            (
                r#"{ text: "two words", quote: "a\"b" }"#,
                r#"{text="two words" quote="a\"b"}"#,
            ),
            (
                "{ entry: Entry { server_number: [2130706437, 0, 0], count: 1 } }",
                "{entry={server_number=127.0.0.5 count=1}}",
            ),
            (
                "{ addresses: List([2130706433, 3221225985]) }",
                "{addresses=[127.0.0.1,192.0.2.1]}",
            ),
            (
                "{ server: AfsUuid { time_low: 3299680079, time_mid: 7377, time_hi_and_version: 16536, \
              clock_seq_hi: 133, clock_seq_low: 54, node: [14, 172, 188, 172, 34, 165] } }",
                "{server=c4ad1f4f-1cd1-4098-8536-0eacbcac22a5}",
            ),
            (
                "{ kind: ReadWrite, pair: Pair(1, 2) }",
                "{kind=ReadWrite pair=1,2}",
            ),
            ("{}", "{}"),
            ("", ""),
        ] {
            assert_eq!(readable(debug), text, "{debug}");
        }
    }

    #[test]
    fn whatever_is_cut_or_strange_ends() {
        let whole =
            r#"{ a: Some(Wrapped("ä\"b")), b: [1, 2, { c: AfsUuid { x: 1 } }], d: (1, 2) } tail"#;
        for end in 0..=whole.len() {
            if whole.is_char_boundary(end) {
                readable(&whole[..end]);
            }
        }
        let deep = "[".repeat(10_000);
        assert!(readable(&deep).len() <= deep.len());
    }
    proptest! {
        #[test]
        fn any_text_ends(text in r#"[{}\[\](),: "\\aS0]{0,60}"#) {
            readable(&text);
        }
    }
}
