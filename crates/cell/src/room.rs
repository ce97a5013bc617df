//! What has no room in a volume.

use std::fmt;

use afar_types::CellName;
use afar_types::error::errno::{EDQUOT, ENOSPC};

/// Something that has no room in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The volume's cell.
    pub cell: CellName,
    /// Its name.
    pub volume: String,
    /// Bytes that it would have to take in addition.
    pub needed: u64,
    /// Bytes that it takes.
    pub used: u64,
    /// Bytes that it may take; `None` if that is not limited.
    pub quota: Option<u64>,
    /// Bytes that are free on its partition.
    pub free: u64,
    /// Whether the quota is in the way, and not the partition.
    pub by_quota: bool,
}

impl NoRoom {
    /// The `errno` of Linux for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        if self.by_quota { EDQUOT } else { ENOSPC }
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cell,
            volume,
            needed,
            used,
            free,
            ..
        } = self;
        write!(f, "no room in volume {volume} of cell {cell}: ")?;
        match needed {
            // It came out of a pipe, of which nobody knows the length.
            0 => write!(f, "what follows is too much")?,
            needed => write!(f, "{needed} bytes are needed")?,
        }
        match self.quota.filter(|_| self.by_quota) {
            Some(quota) => write!(
                f,
                ", and of its quota of {quota} bytes {} are left",
                quota.saturating_sub(*used)
            ),
            None => write!(f, ", and {free} are free on its partition"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_told_with_volume_quota_and_need() {
        let found = NoRoom {
            cell: "a.org".parse().unwrap(),
            volume: "user.ann".to_owned(),
            needed: 7 << 20,
            used: 1 << 20,
            quota: Some(5000 << 10),
            free: 1 << 30,
            by_quota: true,
        };
        let text = found.to_string();
        for part in [
            "user.ann",
            "a.org",
            "7340032 bytes",
            "quota of 5120000",
            "4071424 are left",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(found.errno(), EDQUOT);
        let disk = NoRoom {
            by_quota: false,
            ..found
        };
        assert!(
            disk.to_string()
                .contains("1073741824 are free on its partition")
        );
        assert_eq!(disk.errno(), ENOSPC);
    }
}
