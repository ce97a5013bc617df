//! Cells, and mount points that lead to other cells, before anybody has gone into them.
//!
//! A directory of cells is listed with the attributes of each, and of two hundred cells many are not there: to ask
//! them all would take minutes. So a cell that has never answered is not asked before somebody goes into it; until
//! then it has attributes that are made up, as with OpenAFS's `-fakestat`. Its number is the same before and after.

use std::time::Duration;

use afar_cell::MountPoint;
use afar_types::{CellName, FetchStatus};

use crate::model::error::Errno;
use crate::model::place::{Inode, Referent, Spot};
use crate::model::types::{Attr, Entry, Ino};
use crate::model::user::User;
use crate::ops::cache::Cache;
use crate::ops::status::MADE_UP_VALID;

impl Cache {
    /// The cell of this name at the top, if it is listed there and was never reached.
    pub(crate) fn unreached_cell(&self, name: &[u8]) -> bool {
        let plain = name.strip_prefix(b".").unwrap_or(name);
        let cell = std::str::from_utf8(plain).ok();
        let cell = cell.and_then(|text| text.parse::<CellName>().ok());
        let client = &self.0.client;
        cell.is_some_and(|cell| !client.has_reached(&cell) && client.lists(&cell))
    }

    /// Whether a mount point leads to a cell that was never reached.
    pub(crate) async fn leads_to_unreached(
        &self,
        user: &User,
        point: &Spot,
    ) -> Result<bool, Errno> {
        let text = self.link_text(user, &point.vnode).await?;
        let Ok(MountPoint {
            cell: Some(cell), ..
        }) = MountPoint::parse(&text)
        else {
            return Ok(false);
        };
        let is_other = cell != *point.mount.volume.cell_name();
        Ok(is_other && !self.0.client.has_reached(&cell))
    }

    /// The answer to a look-up of a cell that nobody went into.
    pub(crate) fn unvisited_cell(&self, name: &[u8]) -> Entry {
        let ino = self.0.inodes.give_cell(name);
        self.unvisited_entry(ino, MADE_UP_VALID)
    }

    /// The same of a mount point in a directory.
    pub(crate) fn unvisited_point(
        &self,
        parent: &Inode,
        name: &[u8],
        point: &Spot,
        status: &FetchStatus,
    ) -> Entry {
        let entry = self.entry(parent, name, point, status);
        self.unvisited_entry(entry.attr.ino, entry.valid)
    }

    fn unvisited_entry(&self, ino: Ino, valid: Duration) -> Entry {
        Entry {
            attr: self.unvisited(ino),
            generation: 0,
            valid,
        }
    }

    /// Attributes until somebody goes into it.
    pub(crate) fn unvisited(&self, ino: Ino) -> Attr {
        Attr {
            valid: Duration::ZERO,
            ..self.made_up(ino)
        }
    }

    /// What a number stands for, by one who goes into it: what was not visited is found now.
    pub(crate) async fn visit(&self, user: &User, ino: Ino) -> Result<Inode, Errno> {
        let inode = self.inode(ino)?;
        let spot = match &inode.place {
            Referent::Cell(name) => self.cell_root(name).await?,
            Referent::Vnode(point) if is_point(point) => self.cross(user, point).await?,
            _ => return Ok(inode),
        };
        self.0.inodes.visited(ino, &spot);
        Ok(Inode {
            ino,
            place: Referent::Vnode(spot),
        })
    }
}

/// Whether this is a mount point itself: only those are that were looked up and not visited.
pub(crate) fn is_point(spot: &Spot) -> bool {
    let state = spot.vnode.lock();
    state.status().is_some_and(|status| status.is_mount_point())
}
