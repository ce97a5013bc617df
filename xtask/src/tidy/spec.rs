//! A `// spec: file#anchor` comment names a heading that exists in docs/protocol.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Source, anchors};

const FOLDER: &str = "docs/protocol/";
/// Put together from parts, so that this file does not find itself.
const MARK: &str = concat!("// ", "spec: ");

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let specs: BTreeMap<&str, BTreeSet<String>> = sources
        .iter()
        .filter_map(|source| {
            let name = source.path.strip_prefix(FOLDER)?.strip_suffix(".md")?;
            Some((name, anchors::of(&source.text)))
        })
        .collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is("rs")) {
        for (number, line) in source.lines() {
            for reference in references(line) {
                if let Some(what) = problem(reference, &specs) {
                    findings.push(Finding::new(&source.path, number, what));
                }
            }
        }
    }
    findings
}

/// The `file#anchor` words of a comment; several are separated by commas or blanks. A mark
/// inside another comment or a string is talk about marks.
fn references(line: &str) -> impl Iterator<Item = &str> {
    let list = line
        .split_once(MARK)
        .filter(|(before, _)| !before.contains("//") && !before.contains('"'))
        .map_or("", |(_, list)| list);
    list.split([' ', ',']).filter(|word| !word.is_empty())
}

fn problem(reference: &str, specs: &BTreeMap<&str, BTreeSet<String>>) -> Option<String> {
    let Some((file, anchor)) = reference.split_once('#') else {
        return Some(format!("`{reference}` is not of the form file#anchor"));
    };
    match specs.get(file) {
        None => Some(format!("there is no {FOLDER}{file}.md")),
        Some(anchors) if !anchors.contains(anchor) => {
            Some(format!("{FOLDER}{file}.md has no heading #{anchor}"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(comment: &str) -> usize {
        check(&[
            Source::new("docs/protocol/rx.md", "# Rx\n## ACK packets\n## Timeouts\n"),
            Source::new(
                "crates/rx/src/ack.rs",
                &format!("fn a() {{\n    {MARK}{comment}\n}}\n"),
            ),
        ])
        .len()
    }

    #[test]
    fn references_are_looked_up() {
        assert_eq!(found("rx#ack-packets"), 0);
        assert_eq!(found("rx#ack-packets, rx#timeouts"), 0);
        assert_eq!(found("rx#no-such-heading"), 1);
        assert_eq!(found("vl#ack-packets"), 1);
        assert_eq!(found("rx"), 1);
    }

    #[test]
    fn talk_about_references_is_left_alone() {
        let doc = Source::new("a.rs", &format!("//! Write `{MARK}file#anchor`.\n"));
        assert_eq!(check(&[doc]), []);
    }
}
