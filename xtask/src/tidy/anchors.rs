//! The anchors of the headings of a Markdown file.

use std::collections::BTreeSet;

/// All anchors of a text, made as GitHub makes them: lower case, blanks to hyphens, other
/// punctuation dropped, a number after a repeated one.
pub(super) fn of(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let title = line.trim_start_matches('#');
        let depth = line.len() - title.len();
        if in_code || depth == 0 || depth > 6 || !title.starts_with(' ') {
            continue;
        }
        let base = slug(title.trim());
        let repeated = (1..).map(|n| format!("{base}-{n}"));
        let free = std::iter::once(base.clone())
            .chain(repeated)
            .find(|a| !anchors.contains(a));
        anchors.extend(free);
    }
    anchors
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
}
