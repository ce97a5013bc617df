//! Which crate may use which: the borders that docs/architecture.md draws.

use super::{Finding, Source};

/// Each crate and the crates of the project it may use, in the order of the data path.
/// `xtask` and `afar` stand outside: the first uses none, the second may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("xdr-derive", &[]),
    ("xdr", &["xdr-derive"]),
    ("types", &["xdr"]),
    ("dir", &["types"]),
    ("telemetry", &[]),
    ("probes", &[]),
    ("rx", &["probes"]),
    ("security", &["rx", "xdr", "types"]),
    ("tls", &[]),
    ("login", &["security", "tls", "types", "xdr"]),
    ("oob", &["types", "xdr"]),
    ("lease", &["types", "xdr"]),
    ("net", &["rx"]),
    ("rpc", &["rx", "net", "xdr", "types", "telemetry", "probes"]),
    (
        "cell",
        &[
            "rpc", "oob", "lease", "net", "rx", "security", "tls", "dir", "types", "xdr",
        ],
    ),
    ("lmdb", &[]),
    ("store", &["dir", "lmdb", "types", "telemetry"]),
    (
        "fileserver",
        &[
            "store",
            "cell",
            "rpc",
            "oob",
            "lease",
            "net",
            "dir",
            "types",
            "xdr",
            "telemetry",
            "tls",
            "probes",
        ],
    ),
    (
        "dbserver",
        &[
            "lmdb",
            "login",
            "cell",
            "rpc",
            "net",
            "types",
            "xdr",
            "telemetry",
        ],
    ),
    (
        "server",
        &[
            "fileserver",
            "dbserver",
            "store",
            "login",
            "security",
            "cell",
            "rpc",
            "net",
            "types",
            "xdr",
            "telemetry",
            "tls",
        ],
    ),
    (
        "cache",
        &["cell", "rpc", "lease", "dir", "types", "xdr", "telemetry"],
    ),
    ("fuse", &["cache", "types", "telemetry"]),
    ("admin", &["cell", "rpc", "net", "types", "xdr"]),
    ("doctor", &["security", "rpc", "net", "rx", "types"]),
    ("transfer", &["cell", "types"]),
    ("link", &[]),
    (
        "sim",
        &[
            "xdr",
            "types",
            "dir",
            "rx",
            "security",
            "net",
            "rpc",
            "cell",
            "store",
            "fileserver",
            "dbserver",
            "cache",
            "admin",
            "transfer",
            "telemetry",
        ],
    ),
];

/// Checks the dependencies (not those of tests) in the manifests of `crates/`.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(name) = crate_name(&source.path) else {
            continue;
        };
        if name == "afar" {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::new(
                &source.path,
                0,
                format!("crate {name} has no row in the table of borders (xtask/src/tidy)"),
            ));
            continue;
        };
        for (line, used) in dependencies(source) {
            if !allowed.contains(&used) {
                let what = format!("{name} may not use {used} (docs/architecture.md, borders)");
                findings.push(Finding::new(&source.path, line, what));
            }
        }
    }
    findings
}

/// `x` for `crates/x/Cargo.toml`.
fn crate_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

/// The project's crates a manifest depends on, with their lines.
fn dependencies(source: &Source) -> Vec<(usize, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // A dependency may have a section of its own: [dependencies.afar-x].
            if let Some(name) = section
                .rsplit_once("dependencies.afar-")
                .map(|(_, name)| name)
                && !section.starts_with("dev-")
            {
                found.push((number, name));
            }
        } else if section.ends_with("dependencies")
            && !section.ends_with("dev-dependencies")
            && let Some(rest) = line.strip_prefix("afar-")
        {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.push((number, &rest[..end]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, text: &str) -> Vec<Finding> {
        check(&[Source::new(&format!("crates/{name}/Cargo.toml"), text)])
    }

    #[test]
    fn a_forbidden_dependency_is_found_at_its_line() {
        let found = manifest(
            "store",
            "[dependencies]\nafar-types.workspace = true\nafar-net = 1\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            (
                found[0].line,
                found[0].what.contains("store may not use net")
            ),
            (3, true)
        );
    }

    #[test]
    fn every_way_of_writing_it_is_seen() {
        for text in [
            "[dependencies.afar-net]\nworkspace = true\n",
            "[build-dependencies]\nafar-net = { workspace = true }\n",
            "[target.'cfg(unix)'.dependencies]\nafar-net.workspace = true\n",
        ] {
            assert_eq!(manifest("rx", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn tests_may_use_what_they_like_and_the_binary_too() {
        assert_eq!(
            manifest("rx", "[dev-dependencies]\nafar-net.workspace = true\n"),
            []
        );
        assert_eq!(
            manifest("afar", "[dependencies]\nafar-store.workspace = true\n"),
            []
        );
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(manifest("novel", "[package]\n").len(), 1);
    }

    #[test]
    fn the_table_has_no_circle() {
        // Repeatedly drop the crates that use nothing that is left.
        let mut left: Vec<_> = MAY_USE.to_vec();
        while !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
            let before = left.len();
            left.retain(|(_, uses)| uses.iter().any(|used| names.contains(used)));
            assert!(left.len() < before, "a circle among {names:?}");
        }
    }
}
