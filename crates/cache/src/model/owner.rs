//! Users of cells that are users of this machine.

use std::fmt;
use std::pin::Pin;

use afar_types::{CellName, PtsId};

/// A user of a cell that stands for a user of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The number in the cell.
    pub id: PtsId,
    /// The number on this machine.
    pub uid: u32,
    /// The group there: AFS has none that means anything.
    pub gid: u32,
}

/// The answer of [`Owners::of`] to come.
pub type OwnersOfCell<'a> = Pin<Box<dyn Future<Output = Option<Vec<Owner>>> + Send + 'a>>;

/// Knows which users of a cell are users of this machine.
pub trait Owners: fmt::Debug + Send + Sync {
    /// The users of this cell who are; `None` if that cannot be found out now. It may ask servers. Of two
    /// for one number the first counts.
    fn of<'a>(&'a self, cell: &'a CellName) -> OwnersOfCell<'a>;
}

/// The owner as programs are shown it. What is made with a cell's own key belongs to the group of its
/// administrators, who are to a cell what root is to a machine; some programs, such as git, do nothing
/// where they find an owner they do not know.
pub(crate) fn local_owner(owner: PtsId) -> u32 {
    match owner {
        PtsId::ADMINISTRATORS => 0,
        owner => owner.0.unsigned_abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_have_their_numbers_and_administrators_are_root() {
        for (owner, shown) in [(1001, 1001), (0, 0), (-204, 0), (204, 204)] {
            assert_eq!(local_owner(PtsId(owner)), shown);
        }
    }
}
