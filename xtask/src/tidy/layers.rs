//! Which module may use which within a crate, as `borders` says it of crates: the layers of the crates that have
//! some, and no circles of more than two files.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Arrow, Crate, crates};
use super::{Finding, Source};

/// This file, where findings about its tables are.
const HERE: &str = "xtask/src/tidy/layers.rs";

/// Layers of a crate, from below, each with those it may use.
type Layers<'a> = &'a [(&'a str, &'a [&'a str])];

/// The modules at the top of a crate, each with those it may use. The root itself may use all, and none of them uses
/// the root.
const LAYERS: &[(&str, Layers<'_>)] = &[(
    "cache",
    &[
        ("model", &[]),
        ("storage", &["model"]),
        ("table", &["model"]),
        ("ops", &["model", "storage", "table"]),
    ],
)];

/// Files that still use each other in a circle of more than two, by crate. None is added here, and what is no such
/// circle any more is taken off.
const CIRCLES: &[(&str, &[&str])] = &[
    (
        "afar",
        &["tokens/cells.rs", "tokens/login.rs", "tokens/service.rs"],
    ),
    ("cell", &["client.rs", "nearby.rs", "volume.rs"]),
    (
        "cell",
        &[
            "window/giving_way.rs",
            "window/meter.rs",
            "window/mod.rs",
            "window/pace.rs",
        ],
    ),
    ("dbserver", &["pr/access.rs", "pr/create.rs", "pr/mod.rs"]),
    (
        "fileserver",
        &[
            "files/mod.rs",
            "files/stats.rs",
            "files/visit.rs",
            "files/volume.rs",
            "server.rs",
        ],
    ),
    (
        "fileserver",
        &[
            "protection.rs",
            "protection/kept.rs",
            "protection/servers.rs",
            "protection/version.rs",
        ],
    ),
    ("lmdb", &["lib.rs", "pages.rs", "sums.rs"]),
    (
        "net",
        &[
            "call.rs",
            "call/state.rs",
            "connection.rs",
            "mailbox.rs",
            "server.rs",
        ],
    ),
    (
        "rx",
        &[
            "endpoint/answers.rs",
            "endpoint/calls.rs",
            "endpoint/mod.rs",
            "endpoint/timers.rs",
        ],
    ),
    (
        "rx",
        &[
            "peer/congestion/bbr.rs",
            "peer/congestion/cubic.rs",
            "peer/congestion/episode.rs",
            "peer/congestion/mod.rs",
            "peer/congestion/reno.rs",
            "peer/congestion/share.rs",
        ],
    ),
    (
        "store",
        &[
            "meta/change.rs",
            "meta/env.rs",
            "meta/memtable.rs",
            "meta/versions.rs",
        ],
    ),
    (
        "store",
        &[
            "partition/checkpoint.rs",
            "partition/commit.rs",
            "partition/logged.rs",
            "partition/mod.rs",
            "partition/pending.rs",
            "partition/reaper.rs",
        ],
    ),
];

/// Checks the arrows between the files of all crates.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    check_by(LAYERS, CIRCLES, sources)
}

fn check_by(
    layers: &[(&str, Layers<'_>)],
    known: &[(&str, &[&str])],
    sources: &[Source],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut circles = Vec::new();
    for krate in crates(sources) {
        let arrows = krate.arrows();
        if let Some((_, layers)) = layers.iter().find(|(name, _)| *name == krate.name) {
            findings.extend(between_layers(&krate, layers, &arrows));
        }
        let of_crate = circles_of(&arrows).into_iter();
        circles.extend(of_crate.map(|files| (krate.name, files, arrows.clone())));
    }
    findings.extend(compare(&circles, known));
    findings
}

/// The arrows from one layer to another that it may not use.
fn between_layers(krate: &Crate<'_>, layers: Layers<'_>, arrows: &[Arrow<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for arrow in arrows {
        let (from, to) = (layer_of(arrow.from), layer_of(arrow.to));
        if from.is_empty() || from == to {
            continue;
        }
        let Some((_, may_use)) = layers.iter().find(|(layer, _)| *layer == from) else {
            let what = format!("{from} of {} has no row in {HERE}", krate.name);
            findings.push(Finding::new(arrow.from, 0, what));
            continue;
        };
        if !may_use.contains(&to) {
            let to = if to.is_empty() { "the root" } else { to };
            let what = format!(
                "{from} of {} may not use {to} ({HERE}): {}",
                krate.name, arrow.to
            );
            findings.push(Finding::new(arrow.from, arrow.line, what));
        }
    }
    findings
}

/// The module at the top of its crate that a file is in; empty for the root.
fn layer_of(path: &str) -> &str {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    match inside.split_once('/') {
        Some((layer, _)) => layer,
        None => match inside.trim_end_matches(".rs") {
            "lib" | "main" => "",
            layer => layer,
        },
    }
}

/// The files that use each other in circles of more than two.
fn circles_of<'a>(arrows: &[Arrow<'a>]) -> Vec<BTreeSet<&'a str>> {
    let mut uses: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for arrow in arrows {
        uses.entry(arrow.from).or_default().push(arrow.to);
    }
    let reached = |from: &'a str| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(file) = left.pop() {
            for next in uses.get(file).into_iter().flatten() {
                if reached.insert(*next) {
                    left.push(next);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (*file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached) in &all {
        let back = |other: &&&str| all.get(**other).is_some_and(|from| from.contains(file));
        let circle: BTreeSet<&str> = reached.iter().filter(back).copied().collect();
        if circle.len() > 2 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Holds the circles there are against those that are known.
fn compare(
    circles: &[(&str, BTreeSet<&str>, Vec<Arrow<'_>>)],
    known: &[(&str, &[&str])],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut left = known.to_vec();
    for (krate, files, arrows) in circles {
        let now: BTreeSet<&str> = files.iter().map(|file| inside(file)).collect();
        let place = left.iter().position(|(name, before)| {
            name == krate && before.iter().any(|file| now.contains(file))
        });
        let before = place.map_or(&[][..], |place| left.remove(place).1);
        let new = |arrow: &&Arrow<'_>| {
            let both = files.contains(arrow.from) && files.contains(arrow.to);
            both && !before.contains(&inside(arrow.from))
        };
        if let Some(arrow) = arrows.iter().find(new) {
            let what = format!(
                "{} files of {krate} use each other in a circle: {}; what they share belongs below them",
                now.len(),
                listed(now.iter().copied())
            );
            findings.push(Finding::new(arrow.from, arrow.line, what));
        }
        let gone: Vec<&str> = before
            .iter()
            .filter(|file| !now.contains(*file))
            .copied()
            .collect();
        if !gone.is_empty() {
            let gone = listed(gone);
            let what = format!("no more in the circle of {krate}, so take them off: {gone}");
            findings.push(Finding::new(HERE, 0, what));
        }
    }
    for (krate, files) in left {
        let files = listed(files.iter().copied());
        let what = format!("no circle of {krate} any more, so take it off: {files}");
        findings.push(Finding::new(HERE, 0, what));
    }
    findings
}

fn listed<'a>(files: impl IntoIterator<Item = &'a str>) -> String {
    files.into_iter().collect::<Vec<_>>().join(", ")
}

/// A file's path in the sources of its crate.
fn inside(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, inside)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a crate `x`, each with those it uses, one a line.
    fn sources(files: &[(&str, &[&str])]) -> Vec<Source> {
        let text = |uses: &[&str]| {
            let lines = uses.iter().map(|module| {
                let of = module.replace(':', "");
                format!("use crate::{module}::Of{of};\n")
            });
            lines.collect::<String>()
        };
        let files = files.iter();
        files
            .map(|(path, uses)| Source::new(&format!("crates/x/src/{path}"), &text(uses)))
            .collect()
    }

    /// Path, line and the first words of what is found.
    fn found(findings: Vec<Finding>) -> Vec<(String, usize, String)> {
        let short = |finding: Finding| {
            let what = finding.what.split([':', '(']).next().unwrap_or_default();
            (finding.path, finding.line, what.trim().to_owned())
        };
        findings.into_iter().map(short).collect()
    }

    fn by_layers(files: &[(&str, &[&str])]) -> Vec<(String, usize, String)> {
        let layers: Layers<'_> = &[("low", &[]), ("high", &["low"])];
        found(check_by(&[("x", layers)], &[], &sources(files)))
    }

    fn by_circles(known: &[&str], files: &[(&str, &[&str])]) -> Vec<(String, usize, String)> {
        let known = [("x", known)];
        let known = if known[0].1.is_empty() {
            &[][..]
        } else {
            &known[..]
        };
        found(check_by(&[], known, &sources(files)))
    }

    const CIRCLE: &[(&str, &[&str])] = &[
        ("a.rs", &["b"]),
        ("b.rs", &["d", "c"]),
        ("c.rs", &["a"]),
        ("d.rs", &[]),
    ];

    #[test]
    fn an_arrow_up_is_found_at_its_line() {
        let files: &[(&str, &[&str])] = &[
            ("low/mod.rs", &["low::a"]),
            ("low/a.rs", &["low::b", "high"]),
            ("low/b.rs", &[]),
            ("high.rs", &["low::a"]),
        ];
        let up = ("crates/x/src/low/a.rs", 2, "low of x may not use high");
        let up = (up.0.to_owned(), up.1, up.2.to_owned());
        assert_eq!(by_layers(files), [up]);
    }

    #[test]
    fn the_root_uses_all_layers_and_none_uses_the_root() {
        let files: &[(&str, &[&str])] = &[
            ("lib.rs", &["high", "low"]),
            ("low.rs", &[]),
            ("high.rs", &["low"]),
        ];
        assert_eq!(by_layers(files), []);
        let found = by_layers(&[("lib.rs", &[]), ("low.rs", &["Root"])]);
        assert_eq!(found[0].2, "low of x may not use the root");
    }

    #[test]
    fn a_module_without_a_row_is_found() {
        let found = by_layers(&[("novel.rs", &["low"]), ("low.rs", &[])]);
        assert_eq!(
            found[0].2,
            "novel of x has no row in xtask/src/tidy/layers.rs"
        );
    }

    #[test]
    fn a_circle_of_three_is_found_and_a_pair_is_none() {
        let pair: &[(&str, &[&str])] = &[("a.rs", &["b"]), ("b.rs", &["a", "c"]), ("c.rs", &[])];
        assert_eq!(by_circles(&[], pair), []);
        let found = by_circles(&[], CIRCLE);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].2, "3 files of x use each other in a circle");
    }

    #[test]
    fn a_known_circle_may_only_shrink() {
        assert_eq!(by_circles(&["a.rs", "b.rs", "c.rs"], CIRCLE), []);
        let more = by_circles(&["a.rs", "c.rs", "old.rs"], CIRCLE);
        let (path, line) = (more[0].0.as_str(), more[0].1);
        assert_eq!((path, line), ("crates/x/src/b.rs", 2));
        let fewer = by_circles(&["a.rs", "b.rs", "c.rs", "d.rs"], CIRCLE);
        assert_eq!(fewer[0].2, "no more in the circle of x, so take them off");
        let none = by_circles(&["a.rs", "b.rs", "c.rs"], &CIRCLE[..2]);
        assert_eq!(none[0].2, "no circle of x any more, so take it off");
    }

    #[test]
    fn layers_use_those_below_them_only() {
        for (krate, layers) in LAYERS {
            for (place, (layer, uses)) in layers.iter().enumerate() {
                let below: Vec<&str> = layers[..place].iter().map(|(name, _)| *name).collect();
                let is_below = |used: &&str| below.contains(used);
                assert!(uses.iter().all(is_below), "{layer} of {krate}");
            }
        }
    }
}
