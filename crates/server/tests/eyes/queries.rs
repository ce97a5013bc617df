//! The queries of the dashboard in dist/grafana and of the alerts in dist/prometheus: what they ask
//! for is what a server shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

/// The labels by which Prometheus tells servers apart.
const OF_TARGETS: [&str; 2] = ["job", "instance"];

/// A file of the folder dist.
pub(crate) fn dist(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../dist")
        .join(file)
}

/// A query of the dashboard.
pub(crate) struct Query {
    pub(crate) panel: String,
    /// With the dashboard's variables.
    pub(crate) expr: String,
    legend: String,
}

/// The queries of all panels.
pub(crate) fn dashboard() -> Vec<Query> {
    let text = std::fs::read_to_string(dist("grafana/afar.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array();
        targets.into_iter().flatten().map(|target| Query {
            panel: panel["title"].as_str().unwrap().to_owned(),
            expr: target["expr"].as_str().unwrap().to_owned(),
            legend: target["legendFormat"].as_str().unwrap().to_owned(),
        })
    });
    queries.collect()
}

/// Words and signs of a query, or of a line of metrics, without its texts.
fn parts(query: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = query;
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => {
                let mut escaped = false;
                let end = rest.char_indices().skip(1).find(|(_, letter)| {
                    let ends = *letter == '"' && !escaped;
                    escaped = *letter == '\\' && !escaped;
                    ends
                });
                rest = end.map_or("", |(at, _)| &rest[at + 1..]);
                continue;
            }
            _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            parts.push(&rest[..end]);
        }
        rest = &rest[end..];
    }
    parts
}

/// The metrics in a query with the labels that it selects by, and the labels that it groups by.
fn used(query: &str) -> (Vec<(&str, Vec<&str>)>, Vec<&str>) {
    let parts = parts(query);
    let listed = |from: usize, open: &str, close: &str| -> Vec<&str> {
        if parts.get(from) != Some(&open) {
            return Vec::new();
        }
        let inner = parts[from + 1..].iter().take_while(|part| **part != close);
        inner.copied().collect()
    };
    let is_name = |part: &&&str| part.starts_with(|letter: char| letter.is_ascii_lowercase());
    let (mut metrics, mut groups) = (Vec::new(), Vec::new());
    for (at, part) in parts.iter().enumerate() {
        if part.starts_with("afar_") {
            let labels = listed(at + 1, "{", "}");
            metrics.push((*part, labels.iter().filter(is_name).copied().collect()));
        } else if *part == "by" {
            groups.extend(listed(at + 1, "(", ")").iter().filter(is_name));
        }
    }
    (metrics, groups)
}

/// What is between two marks, each time.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    let rest = text.split(open).skip(1);
    rest.filter_map(|rest| Some(rest.split_once(close)?.0.trim()))
        .collect()
}

/// Holds what the dashboard and the alerts use against the metrics of a server in which something
/// of everything has happened.
pub(crate) fn check(shown: &str) {
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in shown.lines().filter(|line| !line.starts_with('#')) {
        let (metrics, _) = used(line);
        let (name, labels) = &metrics[0];
        known.entry(name).or_default().extend(labels);
    }
    let holds = |place: &str, query: &str, named: Vec<&str>| {
        let (metrics, groups) = used(query);
        let mut all = BTreeSet::from(OF_TARGETS);
        for (metric, labels) in &metrics {
            let has = known.get(metric);
            let has = has.unwrap_or_else(|| panic!("{place}: no server shows {metric}"));
            all.extend(has);
            for label in labels {
                let has = has.contains(label) || OF_TARGETS.contains(label);
                assert!(has, "{place}: {metric} has no label {label}");
            }
        }
        for label in &groups {
            assert!(
                all.contains(label),
                "{place}: nothing has the label {label}"
            );
        }
        let left = if groups.is_empty() {
            all
        } else {
            groups.into_iter().collect()
        };
        for label in named {
            assert!(left.contains(label), "{place}: {label} is not left");
        }
        metrics.len()
    };
    let mut uses = 0;
    for Query {
        panel,
        expr,
        legend,
    } in dashboard()
    {
        uses += holds(&panel, &expr, between(&legend, "{{", "}}"));
    }
    assert!(uses > 50, "the dashboard has {uses} uses of metrics");
    let rules = std::fs::read_to_string(dist("prometheus/afar.rules.yml")).unwrap();
    for alert in rules.split("- alert: ").skip(1) {
        let (name, rule) = alert.split_once('\n').unwrap();
        let named = between(rule, "$labels.", " ");
        if rule.contains("up{job=\"afar\"}") {
            continue;
        }
        assert!(holds(name, rule, named) > 0, "{name} uses no metric");
    }
}

#[test]
fn queries_are_understood() {
    let query =
        "topk(10, sum by (a, le) (rate(afar_x_total{b=~\"$b\",c!=\"}\\\"\"}[5m])) / afar_y)";
    let metrics = vec![("afar_x_total", vec!["b", "c"]), ("afar_y", vec![])];
    assert_eq!(used(query), (metrics, vec!["a", "le"]));
    let line = "afar_x_count{a=\"by (z)\",b=\"\\\\\"} 7";
    assert_eq!(used(line), (vec![("afar_x_count", vec!["a", "b"])], vec![]));
    assert_eq!(between("{{a}} x {{ b }}", "{{", "}}"), ["a", "b"]);
}
