//! Nothing is left half done: no marks of unfinished work in the sources.

use super::{Finding, Source};

/// Put together from parts, so that this file does not find itself.
const BANNED: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("FIX", "ME"),
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if !source.is("rs") && !source.is("toml") && !source.is("sh") {
        return Vec::new();
    }
    source
        .lines()
        .filter_map(|(number, line)| {
            let word = BANNED.iter().find(|word| line.contains(**word))?;
            Some(Finding::new(
                &source.path,
                number,
                format!("unfinished work: {word}"),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_is_found() {
        for word in BANNED {
            let found = check(&Source::new("a.rs", &format!("fn a() {{}}\n    {word})\n")));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].line, 2);
        }
        assert_eq!(
            check(&Source::new("a.rs", "// the method of doing it\n")),
            []
        );
    }
}
