//! The engine and the flow controllers have no sockets and no async, not even through what they depend on.

use anyhow::Result;

use super::Finding;
use crate::sh;

const FORBIDDEN: &[&str] = &["tokio", "mio", "socket2"];
const CRATES: &[&str] = &["rx", "flow"];

/// Asks cargo what they are built from.
pub(super) fn check() -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for name in CRATES {
        let package = format!("afar-{name}");
        let args = [
            "tree", "-p", &package, "--edges", "normal", "--prefix", "none", "--locked",
        ];
        findings.extend(forbidden(name, &sh::capture(&mut sh::cargo(args))?));
    }
    Ok(findings)
}

/// The forbidden packages in what `cargo tree --prefix none` prints for a crate.
fn forbidden(name: &str, tree: &str) -> Vec<Finding> {
    let manifest = format!("crates/{name}/Cargo.toml");
    FORBIDDEN
        .iter()
        .filter(|used| {
            tree.lines()
                .any(|line| line.split(' ').next() == Some(**used))
        })
        .map(|used| Finding::new(&manifest, 0, format!("{name} is built from {used}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_are_compared() {
        let tree = "afar-rx v0.1.0\nbytes v1.0.0\ntokio-util v1.0.0\nmio v1.2.0 (*)\n";
        let found = forbidden("rx", tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.ends_with("mio"));
    }
}
