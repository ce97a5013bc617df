//! What is to be done about a name, by what has it on both sides.

use crate::facts::{Facts, Kind};

/// What the user allows and wants.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// What the source does not have goes.
    pub(super) delete: bool,
    /// Contents are compared, not times.
    pub(super) checksum: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// They are the same.
    Nothing,
    /// The contents are the same; mode or time is not.
    Attributes,
    /// Only the contents can tell.
    Compare,
    /// A copy is to be made; it takes the place of what is there.
    Copy,
    /// Both are directories, or a directory is to be made: what is in them is compared.
    Enter,
    /// What is there must be removed first, with all below it.
    Replace,
    /// What is there would have to be removed with all below it, which nobody has allowed.
    Refuse,
    /// AFS has nothing like it.
    Special,
}

/// Compares what the source has with what is there.
pub(super) fn action(source: &Facts, there: Option<&Facts>, rules: Rules) -> Action {
    if source.kind == Kind::Special {
        return Action::Special;
    }
    let Some(there) = there else {
        return if source.is_directory() {
            Action::Enter
        } else {
            Action::Copy
        };
    };
    match (source.is_directory(), there.is_directory()) {
        (true, true) => return Action::Enter,
        (true, false) => return Action::Replace,
        (false, true) if rules.delete => return Action::Replace,
        (false, true) => return Action::Refuse,
        (false, false) => {}
    }
    match (source.kind, there.kind) {
        (Kind::File(length), Kind::File(other)) if length == other => {
            if rules.checksum {
                Action::Compare
            } else if source.modified != there.modified {
                Action::Copy
            } else {
                same_contents(source, there)
            }
        }
        (Kind::Symlink, Kind::Symlink) => Action::Compare,
        _ => Action::Copy,
    }
}

/// What is left to be done when both have the same contents. Symlinks have nothing else.
pub(super) fn same_contents(source: &Facts, there: &Facts) -> Action {
    let same = source.mode == there.mode && source.modified == there.modified;
    if same || source.kind == Kind::Symlink {
        Action::Nothing
    } else {
        Action::Attributes
    }
}

#[cfg(test)]
mod tests {
    use afar_types::UnixTime;
    use proptest::prelude::*;

    use super::*;

    fn facts() -> impl Strategy<Value = Facts> {
        let kind = prop_oneof![
            (0..3_u64).prop_map(Kind::File),
            Just(Kind::Directory),
            Just(Kind::Symlink),
            Just(Kind::MountPoint),
            Just(Kind::Special),
        ];
        (kind, 0..3_u32, 0..3_u32).prop_map(|(kind, mode, modified)| Facts {
            kind,
            mode: mode | 0o600,
            modified: UnixTime(modified),
        })
    }

    fn file(length: u64, mode: u32, modified: u32) -> Facts {
        Facts {
            kind: Kind::File(length),
            mode,
            modified: UnixTime(modified),
        }
    }

    const PLAIN: Rules = Rules {
        delete: false,
        checksum: false,
    };

    #[test]
    fn size_and_time_tell_whether_a_file_is_copied() {
        let old = file(3, 0o644, 1_000);
        let plain = |new| action(&new, Some(&old), PLAIN);
        assert_eq!(plain(old), Action::Nothing);
        assert_eq!(plain(file(3, 0o600, 1_000)), Action::Attributes);
        assert_eq!(plain(file(3, 0o644, 999)), Action::Copy);
        assert_eq!(plain(file(4, 0o644, 1_000)), Action::Copy);
        let by_contents = Rules {
            checksum: true,
            ..PLAIN
        };
        for (new, expected) in [
            (old, Action::Compare),
            (file(3, 0o644, 999), Action::Compare),
            (file(4, 0o644, 1_000), Action::Copy),
        ] {
            assert_eq!(action(&new, Some(&old), by_contents), expected);
        }
    }

    proptest! {
        /// Once all is done, a second run finds nothing to do.
        #[test]
        fn a_copy_is_the_same(source in facts(), delete: bool, checksum: bool) {
            let rules = Rules { delete, checksum };
            match action(&source, Some(&source), rules) {
                Action::Nothing | Action::Enter | Action::Special => {}
                Action::Compare => {
                    prop_assert!(checksum || source.kind == Kind::Symlink);
                    prop_assert_eq!(same_contents(&source, &source), Action::Nothing);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        /// Nothing below a directory goes unless that was allowed.
        #[test]
        fn directories_go_only_when_that_is_allowed(source in facts(), there in facts()) {
            let rules = PLAIN;
            let done = action(&source, Some(&there), rules);
            if there.is_directory() {
                prop_assert!(matches!(done, Action::Enter | Action::Refuse | Action::Special));
            }
            let allowed = action(&source, Some(&there), Rules { delete: true, ..rules });
            if done == Action::Refuse {
                prop_assert_eq!(allowed, Action::Replace);
            } else {
                prop_assert_eq!(allowed, done);
            }
        }

        /// Whatever differs but in what a symlink says is seen.
        #[test]
        fn differences_are_seen(source in facts(), there in facts()) {
            let kinds = (source.kind, there.kind);
            let same = source.mode == there.mode && source.modified == there.modified;
            let nothing = matches!(kinds, (Kind::File(a), Kind::File(b)) if a == b) && same;
            let done = action(&source, Some(&there), PLAIN);
            prop_assert_eq!(done == Action::Nothing, nothing);
        }
    }
}
