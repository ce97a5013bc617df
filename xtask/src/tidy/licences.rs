//! Every package names its licence.

use super::{Finding, Source};

/// Checks one manifest; a file that is none, or has no package in it, is fine.
pub(super) fn check(source: &Source) -> Option<Finding> {
    let manifest = source.path == "Cargo.toml" || source.path.ends_with("/Cargo.toml");
    if !manifest || !source.text.lines().any(|line| line.trim() == "[package]") {
        return None;
    }
    let named = source.text.lines().any(|line| {
        let line: String = line.split_whitespace().collect();
        line == "license.workspace=true" || line == r#"license="Apache-2.0""#
    });
    (!named).then(|| Finding::new(&source.path, 0, "the package names no licence"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_needs_a_licence() {
        let check = |path, text| check(&Source::new(path, text));
        assert!(check("crates/a/Cargo.toml", "[package]\nname = \"a\"\n").is_some());
        assert!(
            check(
                "crates/a/Cargo.toml",
                "[package]\nlicense.workspace = true\n"
            )
            .is_none()
        );
        assert!(check("Cargo.toml", "[workspace]\n").is_none());
        assert!(check("notes.md", "[package]\n").is_none());
    }
}
