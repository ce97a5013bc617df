//! Every crate says on top what it is for.

use super::{Finding, Source};

/// Checks the first line of the root file of each crate.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| is_root(&source.path))
        .filter(|source| !source.text.trim_start().starts_with("//! "))
        .map(|source| {
            Finding::new(
                &source.path,
                1,
                "the crate does not begin with its `//!` doc",
            )
        })
        .collect()
}

fn is_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_roots_without_a_doc_are_found() {
        let found = check(&[
            Source::new("crates/a/src/lib.rs", "//! A crate.\n"),
            Source::new("crates/b/src/lib.rs", "mod x;\n"),
            Source::new("crates/b/src/x.rs", "fn x() {}\n"),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/b/src/lib.rs");
    }
}
