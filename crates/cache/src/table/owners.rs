//! Whose files are whose on this machine.
//!
//! A cell numbers users by its own database, and programs compare an owner with the numbers of this
//! machine: git, ssh and `rsync` do nothing, or something else, where a user's own files seem to be
//! another's. So the owners that are users of this machine are shown as these, as NFS's idmapper and
//! `idmap=user` of sshfs do. The numbers decide nothing here: servers look at tokens and access lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afar_types::{CellName, PtsId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;

use crate::model::owner::{Owner, Owners, local_owner};
use crate::model::types::Attr;

/// How long the mount waits for a cell's users before it shows numbers as they are.
const PATIENCE: Duration = Duration::from_secs(5);
/// The owner shown in place of a user of the cell whose number is, by chance, that of a user here who has
/// another identity in the cell (Linux's overflow uid).
const NOBODY: u32 = 65_534;

/// The owners of the cells in use.
#[derive(Debug)]
pub(crate) struct OwnerTable {
    source: Option<Arc<dyn Owners>>,
    cells: Mutex<BTreeMap<CellName, Arc<[Owner]>>>,
    /// One asks, the others wait for the answer.
    asking: AsyncMutex<()>,
}

impl OwnerTable {
    /// Without a source numbers are shown as they are.
    pub(crate) fn new(source: Option<Arc<dyn Owners>>) -> Self {
        Self {
            source,
            cells: Mutex::default(),
            asking: AsyncMutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CellName, Arc<[Owner]>>> {
        self.cells.lock()
    }

    fn known(&self, cell: &CellName) -> Option<Arc<[Owner]>> {
        self.source.as_ref()?;
        self.lock().get(cell).cloned()
    }

    /// Sees to it that it is known whose files are whose before any of a cell are shown.
    pub(crate) async fn ready(&self, cell: &CellName) {
        if self.source.is_none() || self.known(cell).is_some() {
            return;
        }
        let _one = self.asking.lock().await;
        if self.known(cell).is_none() {
            // A cell that does not answer counts as one without owners until `renew`, not once for each file shown.
            let found = self.ask(cell).await.unwrap_or_default();
            self.lock().insert(cell.clone(), found);
        }
    }

    async fn ask(&self, cell: &CellName) -> Option<Arc<[Owner]>> {
        let source = self.source.as_ref()?;
        let found = tokio::time::timeout(PATIENCE, source.of(cell)).await;
        found.ok().flatten().map(Arc::from)
    }

    /// Asks again; the cells of which something else is known now.
    pub(crate) async fn renew(&self) -> Vec<CellName> {
        let _one = self.asking.lock().await;
        let cells: Vec<_> = self.lock().keys().cloned().collect();
        let mut changed = Vec::new();
        for cell in cells {
            let Some(found) = self.ask(&cell).await else {
                // What is known stays, while the cell cannot be asked.
                continue;
            };
            let before = self.lock().insert(cell.clone(), Arc::clone(&found));
            if before != Some(found) {
                changed.push(cell);
            }
        }
        changed
    }

    /// Puts an owner's number on this machine in place of the number in the cell.
    pub(crate) fn show(&self, cell: &CellName, id: PtsId, attr: &mut Attr) {
        let Some(owners) = self.known(cell) else {
            return;
        };
        if let Some(owner) = owners.iter().find(|owner| owner.id == id) {
            (attr.uid, attr.gid) = (owner.uid, owner.gid);
        } else if attr.uid != 0 && owners.iter().any(|owner| owner.uid == attr.uid) {
            // Not administrators, shown as root: they are to the cell what root is to this machine.
            attr.uid = NOBODY;
        }
    }

    /// The number in a cell of a user of this machine; `None` if that number is another's there.
    pub(crate) fn id_of(&self, cell: &CellName, uid: u32) -> Option<PtsId> {
        let owners = self.known(cell).unwrap_or_default();
        if let Some(owner) = owners.iter().find(|owner| owner.uid == uid) {
            return Some(owner.id);
        }
        let taken = owners.iter().any(|owner| local_owner(owner.id) == uid);
        i32::try_from(uid).ok().filter(|_| !taken).map(PtsId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::owner::OwnersOfCell;

    #[derive(Debug)]
    struct Ann(Mutex<Option<Vec<Owner>>>);

    impl Owners for Ann {
        fn of<'a>(&'a self, _: &'a CellName) -> OwnersOfCell<'a> {
            let answer = self.0.lock().clone();
            Box::pin(async move { answer })
        }
    }

    fn ann(id: i32) -> Owner {
        Owner {
            id: PtsId(id),
            uid: 1000,
            gid: 100,
        }
    }

    fn shown(table: &OwnerTable, cell: &CellName, id: i32) -> (u32, u32) {
        let status = afar_types::FetchStatus {
            owner: PtsId(id),
            ..Default::default()
        };
        let state = crate::model::vnode::VnodeState::default();
        let mut attr = state.attr(crate::model::types::Ino(7), &status);
        table.show(cell, PtsId(id), &mut attr);
        (attr.uid, attr.gid)
    }

    #[tokio::test]
    async fn a_user_is_the_one_here_and_nobody_else_is() {
        let cell: CellName = "a.org".parse().unwrap();
        let source = Arc::new(Ann(Mutex::new(Some(vec![ann(5)]))));
        let table = OwnerTable::new(Some(Arc::clone(&source) as _));
        assert_eq!(shown(&table, &cell, 5), (5, 0), "nothing is known yet");
        table.ready(&cell).await;
        assert_eq!(shown(&table, &cell, 5), (1000, 100));
        assert_eq!(shown(&table, &cell, 7), (7, 0));
        assert_eq!(shown(&table, &cell, 1000), (NOBODY, 0), "somebody else");
        assert_eq!(table.id_of(&cell, 1000), Some(PtsId(5)));
        assert_eq!(table.id_of(&cell, 7), Some(PtsId(7)));
        assert_eq!(table.id_of(&cell, 5), None, "it is another's there");
        // What cannot be asked now stays as it was.
        *source.0.lock() = None;
        assert!(table.renew().await.is_empty());
        *source.0.lock() = Some(vec![ann(6)]);
        assert_eq!(table.renew().await, std::slice::from_ref(&cell));
        assert_eq!(shown(&table, &cell, 6), (1000, 100));
        let without = OwnerTable::new(None);
        without.ready(&cell).await;
        assert_eq!(shown(&without, &cell, 5), (5, 0));
        assert_eq!(without.id_of(&cell, 5), Some(PtsId(5)));
    }
}
