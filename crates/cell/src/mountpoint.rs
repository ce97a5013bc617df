//! What a mount point says, and which member of a volume group it leads to.

use std::fmt;

use afar_types::{CellName, VolumeType};

/// A mount point's text: `#` or `%`, a cell and `:` if it leads to another cell, a volume's name or
/// number, and a dot at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// `%`: to the read-write volume, whatever the mount point is in.
    pub read_write: bool,
    /// The cell named.
    pub cell: Option<CellName>,
    /// The volume as named, with its suffix if it has one.
    pub volume: String,
}

/// A text that is no mount point's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a mount point: {problem}")]
pub struct MountPointError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl MountPoint {
    /// Understands the data of a mount point.
    ///
    /// # Errors
    /// When it does not start with `#` or `%`, or names no volume or an impossible cell.
    pub fn parse(data: &[u8]) -> Result<Self, MountPointError> {
        let fail = |problem| MountPointError {
            text: String::from_utf8_lossy(data).into_owned(),
            problem,
        };
        let text = std::str::from_utf8(data).map_err(|_| fail("it is not UTF-8"))?;
        let (read_write, rest) = match text.split_at_checked(1) {
            Some(("#", rest)) => (false, rest),
            Some(("%", rest)) => (true, rest),
            _ => return Err(fail("it starts with neither # nor %")),
        };
        // spec: volumes#symbolic-links-and-mount-points
        // The dot is there so that a text of no volume is not empty. Old tools left it out.
        let rest = rest.trim_end_matches(['\n', '\0']);
        let rest = rest.strip_suffix('.').unwrap_or(rest);
        let (cell, volume) = match rest.split_once(':') {
            None => (None, rest),
            Some((cell, volume)) => {
                let cell = cell.parse().map_err(|_| fail("the cell's name is wrong"))?;
                (Some(cell), volume)
            }
        };
        if volume.is_empty() {
            return Err(fail("it names no volume"));
        }
        if volume.len() > 64 {
            return Err(fail("the volume's name is longer than 64 bytes"));
        }
        Ok(Self {
            read_write,
            cell,
            volume: volume.to_owned(),
        })
    }

    /// Which member of the group is meant, when the mount point is in a volume of type `parent`.
    ///
    /// The rules are those of AFS clients: a suffix names the member; `%` is the read-write volume;
    /// `#` is the read-only one, if there is one, when the mount point itself is in a read-only
    /// volume or leads to another cell, and else the read-write one.
    #[must_use]
    // spec: volumes#symbolic-links-and-mount-points
    pub fn wanted(&self, parent: VolumeType, same_cell: bool) -> Wanted {
        let (_, suffix) = split_suffix(&self.volume);
        match suffix {
            Some(kind) => Wanted::Exactly(kind),
            None if self.read_write => Wanted::Exactly(VolumeType::ReadWrite),
            None if parent == VolumeType::ReadOnly || !same_cell => Wanted::PreferReadOnly,
            None => Wanted::PreferReadWrite,
        }
    }
}

/// The text as it is stored, with its dot.
impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.read_write { '%' } else { '#' };
        match &self.cell {
            Some(cell) => write!(f, "{sign}{cell}:{}.", self.volume),
            None => write!(f, "{sign}{}.", self.volume),
        }
    }
}

/// Which member of a volume group is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// This one and no other.
    Exactly(VolumeType),
    /// The read-only volume, or the read-write one where there is none.
    PreferReadOnly,
    /// The read-write volume, or the read-only one where there is no other.
    PreferReadWrite,
}

impl Wanted {
    /// The members that will do, the best first.
    #[must_use]
    pub fn order(self) -> &'static [VolumeType] {
        use VolumeType::{Backup, ReadOnly, ReadWrite};
        match self {
            Self::Exactly(ReadWrite) => &[ReadWrite],
            Self::Exactly(ReadOnly) => &[ReadOnly],
            Self::Exactly(Backup) => &[Backup],
            Self::PreferReadOnly => &[ReadOnly, ReadWrite],
            Self::PreferReadWrite => &[ReadWrite, ReadOnly],
        }
    }
}

/// Splits `name.readonly` and `name.backup` into the group's name and the member it names.
#[must_use]
// spec: volumes#volumes-and-their-groups
pub(crate) fn split_suffix(name: &str) -> (&str, Option<VolumeType>) {
    for (suffix, kind) in [
        (".readonly", VolumeType::ReadOnly),
        (".backup", VolumeType::Backup),
    ] {
        if let Some(base) = name.strip_suffix(suffix)
            && !base.is_empty()
        {
            return (base, Some(kind));
        }
    }
    (name, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_understood_and_written_again() {
        for (text, read_write, cell, volume) in [
            ("#root.cell.", false, None, "root.cell"),
            ("%test.pub.", true, None, "test.pub"),
            ("#Example.org:x.y.", false, Some("example.org"), "x.y"),
            ("#536870915.", false, None, "536870915"),
            ("%v.readonly.", true, None, "v.readonly"),
        ] {
            let mount = MountPoint::parse(text.as_bytes()).unwrap();
            assert_eq!(mount.read_write, read_write, "{text}");
            assert_eq!(mount.cell.as_ref().map(CellName::as_str), cell, "{text}");
            assert_eq!(mount.volume, volume, "{text}");
            assert_eq!(mount.to_string().to_lowercase(), text.to_lowercase());
        }
        // Without the dot, as some tools wrote it.
        assert_eq!(MountPoint::parse(b"#user").unwrap().volume, "user");
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("#{}.", "v".repeat(65));
        for bad in [
            b"".as_slice(),
            b"root.cell.",
            b"#",
            b"#.",
            b"%cell.org:.",
            b"#bad cell:v.",
            b"#:v.",
            b"#\xff.",
            long.as_bytes(),
        ] {
            assert!(MountPoint::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_member_follows_from_sign_suffix_and_place() {
        use VolumeType::{Backup, ReadOnly, ReadWrite};
        let wanted = |text: &str, parent, same| {
            let mount = MountPoint::parse(text.as_bytes()).unwrap();
            mount.wanted(parent, same).order()
        };
        assert_eq!(wanted("#v.", ReadOnly, true), [ReadOnly, ReadWrite]);
        assert_eq!(wanted("#v.", ReadWrite, true), [ReadWrite, ReadOnly]);
        assert_eq!(wanted("#v.", Backup, true), [ReadWrite, ReadOnly]);
        assert_eq!(wanted("#v.", ReadWrite, false), [ReadOnly, ReadWrite]);
        assert_eq!(wanted("%v.", ReadOnly, false), [ReadWrite]);
        assert_eq!(wanted("%v.readonly.", ReadWrite, true), [ReadOnly]);
        assert_eq!(wanted("#v.backup.", ReadOnly, true), [Backup]);
    }
}
