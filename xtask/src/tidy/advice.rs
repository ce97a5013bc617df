//! Errors of libraries keep to facts: which command or option helps is for the program to say, in
//! `crates/afar/src/advice.rs`.

use super::{Finding, Source};

/// The program, which has the commands and options.
const PROGRAM: &str = "crates/afar/";
/// Its commands that errors would name.
const COMMANDS: &[&str] = &[
    "bos", "config", "cp", "doctor", "fs", "keys", "link", "login", "logout", "mount", "pts",
    "server", "store", "sync", "tokens", "umount", "up", "vos",
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = &source.path;
    if !source.is("rs") || !path.starts_with("crates/") || path.starts_with(PROGRAM) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut inside = false;
    for (line, text) in source.lines() {
        let text = text.trim();
        inside |= text.starts_with("#[error(");
        if inside && let Some(advice) = advice(text) {
            let what = format!(
                "an error of a library names {advice}: state facts, and the next step in \
                 {PROGRAM}src/advice.rs"
            );
            findings.push(Finding::new(path, line, what));
        }
        inside &= !text.ends_with(")]");
    }
    findings
}

/// The command or option of the program that a line names.
fn advice(line: &str) -> Option<&str> {
    let words = line.split([' ', '"', '`', '(', ')', ',', ';', ':']);
    let mut before = "";
    for word in words {
        let is_option = word
            .strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        if is_option || before == "afar" && COMMANDS.contains(&word) {
            return Some(word);
        }
        before = word;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = check(&Source::new(path, text)).into_iter();
        found.map(|finding| finding.line).collect()
    }

    const TEXT: &str = "#[error(\"no server; name one with --server\")]\nA,\n#[error(\n    \
                        \"{what}; run `afar store check`\",\n    what = 1\n)]\nB,\n\
                        #[error(\"no token; afar login gets one\")]\nC,\n";

    #[test]
    fn commands_and_options_in_errors_are_found() {
        assert_eq!(lines("crates/cell/src/error.rs", TEXT), [1, 4, 8]);
        let found = check(&Source::new("crates/cell/src/error.rs", TEXT));
        assert!(found[0].what.contains("names --server"), "{}", found[0]);
        assert!(lines("crates/afar/src/error.rs", TEXT).is_empty());
    }

    #[test]
    fn facts_and_what_stands_elsewhere_are_not() {
        let text = "#[error(\"this afar knows versions 1 to 3 -- no more\")]\nA,\n\
                    /// As `afar store check` with --json tells.\nB,\n";
        assert!(lines("crates/cell/src/error.rs", text).is_empty());
    }
}
