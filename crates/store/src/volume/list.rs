//! All volumes of a partition, a page of them at a time.

use std::time::SystemTime;

use afar_types::{UnixTime, VolumeId};

use super::VolumeState;
use crate::error::Result;
use crate::meta::{Rows, Table, VolumeInfo, VolumeRow};
use crate::partition::Partition;

impl Partition {
    /// Headers of the volumes whose numbers are above `after`, in order, at most `limit`.
    ///
    /// They are as of one moment; the next page is as of another.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn states(&self, after: VolumeId, limit: usize) -> Result<Vec<VolumeState>> {
        let Some(from) = after.0.checked_add(1) else {
            return Ok(Vec::new());
        };
        let now = UnixTime::from(SystemTime::now()).0;
        let reader = self.reader()?;
        let mut infos = reader.scan(Table::Infos, &from.to_be_bytes())?;
        let mut states = Vec::new();
        for row in reader
            .scan(Table::Volumes, &from.to_be_bytes())?
            .take(limit)
        {
            let (key, value) = row?;
            let id = key.try_into().map(u32::from_be_bytes);
            let (Ok(id), Some(row)) = (id, VolumeRow::from_bytes(value)) else {
                return Err(reader
                    .env()
                    .corrupt(format!("the row of a volume (key {key:02x?})")));
            };
            // The two tables have the same keys.
            let info = match infos.next().transpose()? {
                Some((same, value)) if same == key => VolumeInfo::from_bytes(value),
                _ => None,
            };
            let info =
                info.ok_or_else(|| reader.env().corrupt(format!("information of volume {id}")))?;
            let used = self.usage().pending(id);
            states.push(VolumeState::new(VolumeId(id), &row, info, now, used));
        }
        Ok(states)
    }
}
