//! Fetches under way.

use std::ops::Range;
use std::sync::Arc;

use afar_cell::{Class, Error, Waits};
use afar_types::DataVersion;
use parking_lot::Mutex;

use crate::model::user::UserId;

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) user: UserId,
    class: Class,
    version: DataVersion,
    range: Range<u64>,
    end: Mutex<Option<Result<(), Error>>>,
    /// What it waits for.
    pub(crate) waits: Arc<Waits>,
}

impl Flight {
    pub(crate) fn new(user: UserId, class: Class, version: DataVersion, range: Range<u64>) -> Self {
        Self {
            user,
            class,
            version,
            range,
            end: Mutex::new(None),
            waits: Arc::default(),
        }
    }

    /// Whether it brings this byte in time for what is wanted in this class. A background flight will do for
    /// background readers only. One without priority will do: it is soon over.
    pub(crate) fn brings(&self, version: DataVersion, place: u64, class: Class) -> bool {
        let in_time = self.class != Class::Idle || class == Class::Idle;
        in_time && self.version == version && self.range.contains(&place)
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<Result<(), Error>> {
        self.end.lock().clone()
    }

    /// Says how it ended, unless that was said.
    pub(crate) fn set(&self, end: Result<(), Error>) {
        let mut slot = self.end.lock();
        slot.get_or_insert(end);
    }
}
