//! What is told of the changes of a volume that wait to be sent.

use std::fmt;
use std::time::Duration;

use afar_types::{CellName, VolumeId};

use crate::model::error::Errno;

/// Changes of a volume that a cache made itself, and that its server does not have yet. Its text is a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingVolume {
    /// The cell of the volume.
    pub cell: CellName,
    /// Its number.
    pub volume: VolumeId,
    /// How many there are.
    pub changes: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How long the first of them waits, as far as this process knows.
    pub oldest: Duration,
    /// How sending failed last, if it did.
    pub failing: Option<Errno>,
}

impl fmt::Display for PendingVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{} {}: {} change{}, {} byte{}, the first waits for {} s",
            self.cell,
            self.volume,
            self.changes,
            counted(self.changes),
            self.bytes,
            counted(self.bytes),
            self.oldest.as_secs()
        )?;
        match self.failing {
            Some(error) => write!(f, "; sending failed: {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_line() {
        let mut pending = PendingVolume {
            cell: "a.example".parse().unwrap(),
            volume: VolumeId(536_870_915),
            changes: 12,
            bytes: 3456,
            oldest: Duration::from_millis(2700),
            failing: None,
        };
        assert_eq!(
            pending.to_string(),
            "a.example 536870915: 12 changes, 3456 bytes, the first waits for 2 s"
        );
        pending.changes = 1;
        pending.failing = Some(Errno::ETIMEDOUT);
        let text = pending.to_string();
        assert!(text.contains(": 1 change, "), "{text}");
        assert!(text.contains("; sending failed: "), "{text}");
    }
}
