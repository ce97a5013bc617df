//! Users of this machine as cells see them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use afar_cell::{Client, Credentials};
use afar_types::{CellName, PtsId};
use parking_lot::Mutex;

/// Tells users' tokens of one time from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

/// What a user is known as to cells.
#[derive(Debug, Clone)]
pub enum Identity {
    /// The identity of the cache's client itself.
    Client,
    /// Nobody: the user has no tokens.
    Anonymous,
    /// A user with tokens of their own.
    Own(Arc<dyn Credentials>),
}

/// Knows what tokens the users of this machine have.
pub trait Users: fmt::Debug + Send + Sync {
    /// Looks what tokens a user has; `None` if they are those of this stamp still. It may wait for
    /// disks, and is asked once a second for a user who makes requests.
    fn look(&self, uid: u32, before: Option<Stamp>) -> Option<(Stamp, Identity)>;
}

/// Names an identity for the life of a cache. A user with other tokens gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserId(pub(crate) u32);

impl UserId {
    /// Everybody, with or without a token: whose rights servers tell besides.
    pub(crate) const ANYBODY: Self = Self(0);
}

/// A user of this machine with the tokens he had at a time.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) id: UserId,
    /// Makes calls as him.
    pub(crate) client: Client,
    /// His number in cells where he has made something.
    numbers: Mutex<BTreeMap<CellName, PtsId>>,
}

impl User {
    pub(crate) fn new(id: UserId, client: Client) -> Self {
        Self {
            id,
            client,
            numbers: Mutex::default(),
        }
    }

    /// What he makes in this cell belongs to this number there: no call tells it otherwise.
    pub(crate) fn note_number(&self, cell: &CellName, number: PtsId) {
        self.numbers.lock().insert(cell.clone(), number);
    }

    /// His number in a cell, if it is known.
    pub(crate) fn number(&self, cell: &CellName) -> Option<PtsId> {
        self.numbers.lock().get(cell).copied()
    }
}
