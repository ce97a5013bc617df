//! A `// spec: file#anchor` comment names a heading that exists in docs/protocol, and each section
//! there is named by such a comment, or says why none names it.

use std::collections::{BTreeMap, BTreeSet};

use super::anchors::{self, Heading};
use super::{Finding, Source};

const FOLDER: &str = "docs/protocol/";
/// Put together from parts, so that this file does not find itself.
const MARK: &str = concat!("// ", "spec: ");
/// Levels of the headings that code is to cite: the sections of a page, without its title.
const CITED: [usize; 2] = [2, 3];
/// What begins the first line below a heading that no code cites; the reason follows.
const NOT_CITED: &str = "<!-- not cited:";

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let specs: BTreeMap<&str, BTreeSet<String>> = sources
        .iter()
        .filter_map(|source| Some((page(source)?, anchors::of(&source.text))))
        .collect();
    let mut findings = Vec::new();
    let mut cited = BTreeSet::new();
    for source in sources.iter().filter(|source| source.is("rs")) {
        for (number, line) in source.lines() {
            for reference in references(line) {
                cited.insert(reference);
                if let Some(what) = problem(reference, &specs) {
                    findings.push(Finding::new(&source.path, number, what));
                }
            }
        }
    }
    for source in sources {
        let Some(page) = page(source) else { continue };
        for heading in anchors::headings(&source.text) {
            let is_cited = cited.contains(format!("{page}#{}", heading.anchor).as_str());
            if let Some(what) = neglect(source, &heading, is_cited) {
                findings.push(Finding::new(&source.path, heading.line, what));
            }
        }
    }
    findings
}

/// The name by which comments cite a file, if it is one of the specification.
fn page(source: &Source) -> Option<&str> {
    source.path.strip_prefix(FOLDER)?.strip_suffix(".md")
}

/// What is wrong with how often a section is cited.
fn neglect(source: &Source, heading: &Heading, is_cited: bool) -> Option<String> {
    if !CITED.contains(&heading.level) {
        return None;
    }
    let below = (source.text.lines().skip(heading.line)).find(|line| !line.trim().is_empty());
    let mark = below.and_then(|line| line.trim().strip_prefix(NOT_CITED));
    let reason = mark.map(|rest| rest.trim_end_matches("-->").trim());
    let anchor = &heading.anchor;
    match (is_cited, reason) {
        (false, None) => Some(format!("no code cites the section #{anchor}")),
        (_, Some("")) => Some(format!("#{anchor} does not say why no code cites it")),
        (true, Some(_)) => Some(format!("code cites #{anchor}, which says that none does")),
        _ => None,
    }
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

    /// Findings in a file with that comment, and none for what it leaves out.
    fn found(comment: &str) -> usize {
        let page = Source::new("docs/protocol/rx.md", "# Rx\n## ACK packets\n## Timeouts\n");
        let code = format!("fn a() {{\n    {MARK}{comment}\n}}\n");
        let findings = check(&[page, Source::new("crates/rx/src/ack.rs", &code)]);
        findings.iter().filter(|f| f.path.ends_with("rs")).count()
    }

    /// Findings in a page whose section `acks` is cited.
    fn neglected(page: &str) -> Vec<usize> {
        let code = Source::new("crates/rx/src/ack.rs", &format!("{MARK}rx#acks\n"));
        let findings = check(&[Source::new("docs/protocol/rx.md", page), code]);
        findings.iter().map(|finding| finding.line).collect()
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
    fn sections_that_nothing_cites_are_found() {
        assert!(neglected("# Rx\n## Acks\ntext\n").is_empty());
        assert_eq!(neglected("# Rx\n## Acks\n## Timeouts\n"), [3]);
        assert_eq!(neglected("## Acks\n### Soft ones\n#### In short\n"), [2]);
        assert!(neglected("## Acks\n```\n## no heading\n```\n").is_empty());
        assert_eq!(
            check(&[Source::new("docs/admin/users.md", "# Users\n## Names\n")]),
            []
        );
    }

    #[test]
    fn a_section_may_say_why_nothing_cites_it() {
        let page = format!("## Acks\n## History\n\n{NOT_CITED} an overview -->\ntext\n");
        assert!(neglected(&page).is_empty());
        let without = format!("## Acks\n## History\n{NOT_CITED} -->\n");
        assert_eq!(neglected(&without), [2]);
        let cited = format!("## Acks\n{NOT_CITED} an overview -->\n");
        assert_eq!(neglected(&cited), [1]);
        let later = format!("## Acks\n## History\ntext\n{NOT_CITED} an overview -->\n");
        assert_eq!(neglected(&later), [2]);
    }

    #[test]
    fn talk_about_references_is_left_alone() {
        let doc = Source::new("a.rs", &format!("//! Write `{MARK}file#anchor`.\n"));
        assert_eq!(check(&[doc]), []);
    }
}
