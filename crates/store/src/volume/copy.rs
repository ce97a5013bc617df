//! Copying: a read-write volume with a tree of its own, whose data is shared until one of the two
//! changes it.

use std::sync::Arc;

use afar_types::UnixTime;

use super::{Filling, NewClone, Volume, check_id, check_name, is_writable};
use crate::error::{Result, StoreError};
use crate::meta::{At, Change, Item, Kind, Record, Rows, VolumeInfo, VolumeRow};
use crate::partition::Partition;
use crate::transfer::Pin;

/// Rows copied in one operation.
const ROWS: usize = 1_000;

impl Volume {
    /// Makes a read-write volume that holds what this one holds now (`vos copy` on one partition,
    /// `vos clone -readwrite`). Its rows are copied, file data is shared. The volume can be used
    /// meanwhile; the copy is seen when it is complete.
    ///
    /// # Errors
    ///
    /// [`StoreError::VolumeExists`], or if number or name cannot be a volume's, or the new volume
    /// is to be a clone: that is [`Volume::make_clone`].
    pub fn copy(&self, new: &NewClone) -> Result<Self> {
        check_id(new.id)?;
        check_name(&new.name)?;
        if !is_writable(new.kind) {
            return Err(StoreError::OutOfRange {
                option: "kind of a copy",
                value: new.kind.to_string(),
                range: "read-write",
            });
        }
        let id = new.id;
        if self.partition.has_volume(id)? {
            return Err(StoreError::VolumeExists(id));
        }
        let source = Pin::new(self)?;
        let filling = Filling::fresh(&self.partition, id)?;
        for kind in Kind::ALL {
            copy_rows(&self.partition, kind, source.at, filling.at())?;
        }
        let now = UnixTime::from(std::time::SystemTime::now()).0;
        let mut row = VolumeRow {
            kind: new.kind,
            flags: VolumeRow::BLESSED,
            parent: id.0,
            clone: 0,
            backup: 0,
            creation_date: now,
            copy_date: now,
            ..source.row
        };
        row.set(VolumeRow::IN_SERVICE, new.in_service);
        row.set(VolumeRow::DESTROY_ME, !new.in_service);
        let info = VolumeInfo {
            name: new.name.clone().into_bytes(),
            restored_from: self.id.0,
            day_use: 0,
            week_use: [0; 7],
            ..source.info.clone()
        };
        filling.finish(row, info, move |found| match found {
            None => Ok(()),
            Some(_) => Err(StoreError::VolumeExists(id)),
        })?;
        Ok(Self {
            partition: Arc::clone(&self.partition),
            id,
        })
    }
}

fn copy_rows(partition: &Partition, kind: Kind, from: At, to: At) -> Result<()> {
    let mut next = Some(Item {
        kind,
        vnode: 0,
        index: 0,
    });
    while let Some(first) = next {
        let mut rows = Vec::new();
        let reader = partition.reader()?;
        for found in reader.items(from, first)?.take(ROWS) {
            let (item, value) = found?;
            rows.push((item, value.to_vec()));
        }
        drop(reader);
        next = rows
            .last()
            .filter(|_| rows.len() == ROWS)
            .map(|(last, _)| Item {
                index: last.index + 1,
                ..*last
            });
        partition.commit(move |change| put_rows(change, to, rows))?;
    }
    Ok(())
}

fn put_rows(change: &mut Change<'_>, to: At, rows: Vec<(Item, Vec<u8>)>) -> Result<()> {
    for (item, value) in rows {
        if item.kind == Kind::Record
            && let Some(Record::Extent(extent)) = Record::from_bytes(&value)
        {
            change.share(&extent)?;
        }
        change.put_row(to, item, value)?;
    }
    Ok(())
}
