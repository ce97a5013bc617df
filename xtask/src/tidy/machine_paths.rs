//! No file names a place that exists on one machine only.

use super::{Finding, Source};

/// Places of a person or a build machine. Well-known system places are fine.
const PRIVATE: &[&str] = &[
    concat!("/", "work"),
    concat!("/", "root"),
    concat!("/", "home"),
    concat!("/", "tmp"),
    concat!("/", "Users"),
    concat!("/", "private"),
];

/// Names in the place for temporary files that are the same on every machine: where Kerberos and
/// afar keep tickets and tokens of users without a runtime directory.
const EVERYWHERE: &[&str] = &["krb5cc_", "afar-tokens-"];

/// Files made by programs, where a match says nothing.
const MADE: &[&str] = &["Cargo.lock"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if MADE.contains(&source.path.as_str()) || source.path.ends_with("/Cargo.lock") {
        return Vec::new();
    }
    source
        .lines()
        .filter_map(|(number, line)| {
            let place = PRIVATE.iter().find(|place| names(line, place))?;
            Some(Finding::new(
                &source.path,
                number,
                format!("a machine's own path ({place}/…)"),
            ))
        })
        .collect()
}

/// Whether a line has an absolute path below `place`: not part of a longer path or word.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + place.len()..].chars().next();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && !"/._-}>)]*~$…".contains(c));
        let file = line.get(at + place.len() + 1..).unwrap_or_default();
        let is_everywhere = EVERYWHERE.iter().any(|name| file.starts_with(name));
        starts && after == Some('/') && !is_everywhere
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> bool {
        !check(&Source::new("a.md", line)).is_empty()
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert!(found(concat!("see `/", "work/x`")));
        assert!(found(concat!("\"/", "tmp/cell\"")));
        assert!(found(concat!("/", "root/.cargo")));
    }

    #[test]
    fn other_paths_are_not() {
        assert!(!found("/etc/openafs/CellServDB"));
        assert!(!found(concat!("FILE:/", "tmp/krb5cc_1000")));
        assert!(!found(concat!("/afs/example.org/", "home/alice")));
        assert!(!found(concat!("/", "worker/x and /", "root.cell")));
    }
}
