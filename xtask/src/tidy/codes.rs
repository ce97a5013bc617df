//! Codes that AFS's services abort calls with have names: their numbers stand in `afar-types` only.

use std::ops::RangeInclusive;

use super::imports::production;
use super::{Finding, Source};

/// The crate of the codes.
const TYPES: &str = "crates/types/";
/// The engine is built from nothing, so it names the few codes that it has itself.
const ENGINE: &str = "crates/rx/src/error.rs";

/// Codes of a service, and what it is called.
const SERVICES: &[(&str, RangeInclusive<i64>)] = &[
    ("RXGEN", -457..=-450),
    ("BZ", 39_424..=39_679),
    ("PT", 267_264..=267_519),
    ("VL", 363_520..=363_775),
    ("RXK", 19_270_400..=19_270_655),
    ("UAE", 49_733_376..=49_733_631),
    ("RXGK", 1_233_242_880..=1_233_243_135),
    ("VOLS", 1_492_325_120..=1_492_325_375),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = &source.path;
    let checked = source.is("rs")
        && path.starts_with("crates/")
        && !path.starts_with(TYPES)
        && path != ENGINE
        && !is_of_tests(path);
    if !checked {
        return Vec::new();
    }
    let code = production(&source.text);
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        findings.extend(numbers(text).into_iter().filter_map(|number| {
            let (service, _) = SERVICES.iter().find(|(_, codes)| codes.contains(&number))?;
            let what =
                format!("{number} is a code of {service}: use its name in afar_types::error");
            Some(Finding::new(path, line, what))
        }));
    }
    findings
}

/// Whether a file is compiled for tests only. They say what is on the wire in numbers.
fn is_of_tests(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    folders.iter().any(|folder| path.contains(folder)) || path.ends_with("/tests.rs")
}

/// The decimal numbers in a line of code.
fn numbers(line: &str) -> Vec<i64> {
    let mut found = Vec::new();
    let mut before = ' ';
    let mut at = 0;
    while let Some(c) = line[at..].chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = line[at..].find(|c| !is_word(c)).unwrap_or(line.len() - at);
        if word == 0 {
            before = c;
            at += c.len_utf8();
            continue;
        }
        let digits: String = line[at..at + word].chars().filter(|c| *c != '_').collect();
        let digits = ["i32", "u32", "i64", "u64"]
            .iter()
            .find_map(|kind| digits.strip_suffix(kind))
            .unwrap_or(&digits);
        if let Ok(number) = digits.parse::<i64>() {
            found.push(if before == '-' { -number } else { number });
        }
        before = c;
        at += word;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = check(&Source::new(path, text)).into_iter();
        found.map(|finding| finding.line).collect()
    }

    #[test]
    fn codes_without_their_names_are_found() {
        let text = "const A: i32 = 363_524;\nfn f(a: i32) -> bool {\n    matches!(a, -455 | 13)\n}\n\
                    const B: u32 = 1492325133_u32;\nconst C: [i32; 2] = [39_430, 49_733_388];\n";
        assert_eq!(lines("crates/cell/src/a.rs", text), [1, 3, 5, 6, 6]);
        let found = check(&Source::new("crates/cell/src/a.rs", text));
        assert_eq!(
            found[0].what,
            "363524 is a code of VL: use its name in afar_types::error"
        );
    }

    #[test]
    fn other_numbers_and_what_is_said_of_codes_are_not() {
        let text = "// 363524 is VL_NOENT.\nconst A: &str = \"-455\";\nconst B: u32 = 455;\n\
                    const C: u32 = 363_519 + 0x363524;\nconst D: [i32; 2] = [-449, 1];\n";
        assert!(lines("crates/cell/src/a.rs", text).is_empty());
    }

    #[test]
    fn tests_and_the_crate_of_the_codes_have_numbers() {
        let text = "const A: i32 = 363_524;\n";
        for path in [
            "crates/types/src/error/tables.rs",
            "crates/rx/src/error.rs",
            "crates/cell/tests/a.rs",
            "crates/cell/src/a/tests.rs",
            "xtask/src/a.rs",
        ] {
            assert!(lines(path, text).is_empty(), "{path}");
        }
        let text = format!("#[cfg(test)]\nmod tests {{\n    {text}}}\n{text}");
        assert_eq!(lines("crates/cell/src/a.rs", &text), [5]);
    }
}
