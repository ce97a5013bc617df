//! A long file says why it is one.

use super::{Finding, Source};

/// Lines of code a file may have without a word about it.
const LIMIT: usize = 1000;
/// What that word contains, in the `//!` doc on top of the file.
const REASON: &str = "one file";

pub(super) fn check(source: &Source) -> Option<Finding> {
    if !source.is("rs") {
        return None;
    }
    let code = source.text.lines().filter(|line| is_code(line)).count();
    if code <= LIMIT || gives_reason(&source.text) {
        return None;
    }
    let what =
        format!("{code} lines of code; past {LIMIT}, the doc on top says why this is \"{REASON}\"");
    Some(Finding::new(&source.path, 0, what))
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn gives_reason(text: &str) -> bool {
    text.lines()
        .take_while(|line| line.starts_with("//!"))
        .any(|line| line.contains(REASON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_counted() {
        let long = "let x = 1;\n".repeat(LIMIT + 1);
        assert!(check(&Source::new("a.rs", &long)).is_some());
        assert!(check(&Source::new("a.md", &long)).is_none());
        let talk = "// why\n\n".repeat(LIMIT + 1);
        assert!(check(&Source::new("a.rs", &talk)).is_none());
    }

    #[test]
    fn a_reason_on_top_is_enough() {
        let text = format!(
            "//! This is one file because it is one table.\n{}",
            "x;\n".repeat(2000)
        );
        assert!(check(&Source::new("a.rs", &text)).is_none());
    }
}
