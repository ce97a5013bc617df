//! The engine has no sockets and no async, not even through what it depends on.

use anyhow::Result;

use super::Finding;
use crate::sh;

const FORBIDDEN: &[&str] = &["tokio", "mio", "socket2"];
const MANIFEST: &str = "crates/rx/Cargo.toml";

/// Asks cargo what the engine is built from.
pub(super) fn check() -> Result<Vec<Finding>> {
    let args = [
        "tree", "-p", "afar-rx", "--edges", "normal", "--prefix", "none", "--locked",
    ];
    Ok(forbidden(&sh::capture(&mut sh::cargo(args))?))
}

/// The forbidden packages in what `cargo tree --prefix none` prints.
fn forbidden(tree: &str) -> Vec<Finding> {
    FORBIDDEN
        .iter()
        .filter(|name| {
            tree.lines()
                .any(|line| line.split(' ').next() == Some(**name))
        })
        .map(|name| Finding::new(MANIFEST, 0, format!("the engine is built from {name}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_are_compared() {
        let tree = "afar-rx v0.1.0\nbytes v1.0.0\ntokio-util v1.0.0\nmio v1.2.0 (*)\n";
        let found = forbidden(tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.ends_with("mio"));
    }
}
