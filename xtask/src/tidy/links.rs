//! Links between the Markdown files lead somewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Source, anchors};

/// Checks all relative links; `exists` tells whether a path from the top is there.
pub(super) fn check(sources: &[Source], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let pages: BTreeMap<&str, BTreeSet<String>> = sources
        .iter()
        .filter(|source| source.is("md"))
        .map(|source| (source.path.as_str(), anchors::of(&source.text)))
        .collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is("md")) {
        let mut in_code = false;
        for (number, line) in source.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            if in_code {
                continue;
            }
            for target in targets(line).filter(|target| is_relative(target)) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let full = resolve(source, path);
                let there = pages.contains_key(full.as_str()) || exists(&full);
                let anchored = anchor.is_empty()
                    || pages.get(full.as_str()).is_none_or(|a| a.contains(anchor));
                if !there || !anchored {
                    let what = format!("the link to {target} leads nowhere");
                    findings.push(Finding::new(&source.path, number, what));
                }
            }
        }
    }
    findings
}

/// What the links of a line point to: the part in parentheses after `](`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0;
        Some(target.split(' ').next().unwrap_or(target))
    })
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// A link's path from the top of the checkout; an empty one is the page itself.
fn resolve(source: &Source, path: &str) -> String {
    if path.is_empty() {
        return source.path.clone();
    }
    let mut parts: Vec<&str> = source
        .folder()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let sources = [
            Source::new("docs/a.md", text),
            Source::new("docs/protocol/rx.md", "# Rx\n## ACK packets\n"),
        ];
        check(&sources, |path| path == "LICENSE" || path == "docs/admin").len()
    }

    #[test]
    fn good_links_are_left_alone() {
        assert_eq!(
            found("[rx](protocol/rx.md#ack-packets) and [top](../LICENSE)"),
            0
        );
        assert_eq!(
            found("# A b\n[here](#a-b), [x](https://example.org/y#z), [d](admin/)"),
            0
        );
        assert_eq!(found("```\n[no](link)\n```\n"), 0);
    }

    #[test]
    fn broken_links_are_found() {
        assert_eq!(found("[rx](protocol/rx.md#nothing)"), 1);
        assert_eq!(found("[a](b.md) [c](d.md)"), 2);
        assert_eq!(found("[here](#nowhere)"), 1);
    }
}
