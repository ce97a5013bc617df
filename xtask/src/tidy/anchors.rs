//! The anchors of the headings of a Markdown file.

use std::collections::BTreeSet;

/// A heading of a Markdown file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heading {
    /// Counted from 1.
    pub(super) line: usize,
    /// 1 for the title, 2 for a section, and so on.
    pub(super) level: usize,
    pub(super) anchor: String,
}

/// All anchors of a text.
pub(super) fn of(text: &str) -> BTreeSet<String> {
    headings(text).into_iter().map(|h| h.anchor).collect()
}

/// The headings of a text in order. Their anchors are made as GitHub makes them: lower case, blanks
/// to hyphens, other punctuation dropped, a number after a repeated one.
pub(super) fn headings(text: &str) -> Vec<Heading> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if in_code || level == 0 || level > 6 || !title.starts_with(' ') {
            continue;
        }
        let base = slug(title.trim());
        let repeated = (1..).map(|n| format!("{base}-{n}"));
        let free = std::iter::once(base.clone())
            .chain(repeated)
            .find(|anchor| headings.iter().all(|h| h.anchor != *anchor));
        headings.extend(free.map(|anchor| Heading {
            line: number,
            level,
            anchor,
        }));
    }
    headings
}

fn slug(title: &str) -> String {
    title
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors() {
        let text = "# Rx\n## ACK packets (type 2)\n```\n# no heading\n```\n## Rx\n#tag\n";
        let anchors: Vec<String> = of(text).into_iter().collect();
        assert_eq!(anchors, ["ack-packets-type-2", "rx", "rx-1"]);
    }

    #[test]
    fn headings_keep_their_lines_and_levels() {
        let found: Vec<(usize, usize)> = headings("# Rx\n\n## ACK\ntext\n### Soft\n")
            .iter()
            .map(|heading| (heading.line, heading.level))
            .collect();
        assert_eq!(found, [(1, 1), (3, 2), (5, 3)]);
    }
}
