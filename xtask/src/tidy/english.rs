//! The worst of translated English is not written: in comments and texts of the sources, and on
//! the pages. docs/language.md has what to write instead.

use super::{Finding, Source};

/// The page that shows what not to write.
const PAGE: &str = "docs/language.md";

/// Phrases in lower case, and what to write instead. Put together from parts, so that this file
/// does not find itself.
const PHRASES: &[(&str, &str)] = &[
    (concat!("oct", "et"), "byte"),
    (concat!("oct", "ets"), "bytes"),
    (concat!("an", "ew"), "again or new"),
    (
        concat!("it is ", "looked whether"),
        "the component checks whether",
    ),
    (
        concat!("it is ", "looked again"),
        "the component checks again",
    ),
    (
        concat!("it is ", "looked where"),
        "the component checks where",
    ),
    (concat!("it is ", "waited"), "the component waits"),
    (concat!("is ", "waited for"), "the component waits for"),
    (concat!("are ", "waited for"), "the component waits for"),
    (concat!("was ", "waited for"), "the component waited for"),
    (concat!("were ", "waited for"), "the component waited for"),
    (concat!("who ", "comes first"), "a reader with priority"),
    (concat!("can", "not be had"), "is not available"),
    (concat!("can ", "be had"), "is available"),
];

/// Words that begin no sentence.
const BEGINNINGS: &[&str] = &["Who", "Whoever", concat!("Those", " who")];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.path == PAGE || source.path.starts_with("third-party/") {
        return Vec::new();
    }
    let prose = if source.is("md") {
        code_spans_out(&source.text)
    } else if source.is("rs") {
        code_spans_out(&comments_and_texts(&source.text))
    } else {
        return Vec::new();
    };
    (1..)
        .zip(prose.lines())
        .flat_map(|(number, line)| {
            found(line).map(move |what| Finding::new(&source.path, number, what))
        })
        .collect()
}

/// What a line of prose has that should be written in another way.
fn found(line: &str) -> impl Iterator<Item = String> {
    let lower = line.to_lowercase();
    let phrases = PHRASES
        .iter()
        .filter(move |(phrase, _)| has(&lower, phrase))
        .map(|(phrase, better)| format!("\"{phrase}\": write {better}"));
    let beginnings = BEGINNINGS
        .iter()
        .filter(|word| has(line, word))
        .map(|word| format!("a sentence begins with \"{word}\": name who acts"));
    phrases.chain(beginnings)
}

/// Whether a line has these words, and not as parts of longer ones.
fn has(line: &str, words: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(words).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + words.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

/// A text with blanks for what stands between backticks on a line: it is code.
fn code_spans_out(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        for (n, part) in line.split('`').enumerate() {
            // An odd backtick at the end opens nothing.
            let is_code = n % 2 == 1 && n < line.matches('`').count();
            match is_code {
                true => out.extend(part.chars().map(|c| if c == '\n' { c } else { ' ' })),
                false => out.push_str(part),
            }
        }
    }
    out
}

/// A source with blanks for all that is neither a comment nor a text with blanks in it. Lines stay
/// where they are; what a text takes in braces is code.
fn comments_and_texts(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let (len, is_prose) = piece(rest);
        let (piece, after) = rest.split_at(len.max(c.len_utf8()));
        let mut depth = 0_u32;
        let is_text = !piece.starts_with("//");
        out.extend(piece.chars().map(|c| {
            if is_text && c == '{' {
                depth += 1;
            }
            let shown = (is_prose && depth == 0) || c == '\n';
            if is_text && c == '}' {
                depth = depth.saturating_sub(1);
            }
            if shown { c } else { ' ' }
        }));
        rest = after;
    }
    out
}

/// How long the first piece of a source is, and whether it is prose: a comment, a text, a
/// character, or anything else, which is taken a word at a time.
fn piece(rest: &str) -> (usize, bool) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), true);
    }
    if rest.starts_with('"') {
        let len = text_len(rest);
        return (len, rest[..len].contains(char::is_whitespace));
    }
    if let Some(len) = raw_len(rest) {
        return (len, rest[..len].contains(char::is_whitespace));
    }
    if rest.starts_with('\'') {
        return (character_len(rest), false);
    }
    let word = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    // The prefix of a text of bytes is a word by itself.
    (word, false)
}

/// The length of a text with its quotes.
fn text_len(rest: &str) -> usize {
    let mut escaped = false;
    for (n, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return n + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a raw text, if there is one.
fn raw_len(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let marks = inner.len() - inner.trim_start_matches('#').len();
    let body = inner[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let start = rest.len() - body.len();
    let len = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(start + len)
}

/// The length of a character in quotes; of a lifetime only that of its mark.
fn character_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[2..]
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '\'')
            .map_or(1, |(n, _)| n + 3),
        Some(_) => match chars.next() {
            Some((n, '\'')) => n + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Source::new(path, text));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn phrases_are_found_in_comments_texts_and_pages() {
        for (phrase, _) in PHRASES {
            assert_eq!(lines("a.rs", &format!("fn a() {{}}\n// {phrase} b\n")), [2]);
            assert_eq!(
                lines("a.rs", &format!("let a =\n    \"b {phrase}\";\n")),
                [2]
            );
            assert_eq!(lines("a.rs", &format!("let a = r#\"b {phrase}\"#;\n")), [1]);
            assert_eq!(lines("a.md", &format!("A b.\n\nC {phrase}.\n")), [3]);
            assert!(lines(PAGE, phrase).is_empty());
        }
    }

    #[test]
    fn names_and_code_are_not_prose() {
        for (phrase, _) in PHRASES {
            for text in [
                format!("let {phrase} = 1;\n"),
                format!("// the field `{phrase}`\n"),
                format!("// the function of_{phrase}\n"),
                format!("let a = map[\"{}\"];\n", phrase.replace(' ', "")),
                format!("print!(\"{{{phrase}}} bytes\");\n"),
                format!("let a = '\\''; let {phrase} = '\"';\n"),
                format!("fn a<'a>() {{ {phrase} }}\n"),
            ] {
                assert!(lines("a.rs", &text).is_empty(), "{text}");
            }
            assert!(lines("a.toml", phrase).is_empty());
        }
    }

    #[test]
    fn no_sentence_begins_with_who() {
        for word in BEGINNINGS {
            assert_eq!(lines("a.rs", &format!("/// A b. {word} c.\n")), [1]);
            assert_eq!(lines("a.md", &format!("{word} c.\n")), [1]);
        }
        let code = concat!("fn a(who: W", "ho) {} // the callers, who wait\n");
        assert!(lines("a.rs", code).is_empty());
        assert!(lines("a.rs", "/// Takes a [`Who`], and `Who` is one.\n").is_empty());
    }
}
