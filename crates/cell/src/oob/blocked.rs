//! That TCP does not reach a server.

use std::time::Duration;

use crate::lately::Lately;

/// How long a server is taken for one that TCP does not reach.
// spec: oob#when-to-use-it
pub(super) const BLOCKED_TIME: Duration = Duration::from_secs(3600);

/// That TCP does not reach a server, or breaks on its way: for all users of it.
#[derive(Debug, Default)]
pub(crate) struct Blocked(Lately);

impl Blocked {
    /// It is so now.
    pub(crate) fn note(&self) {
        self.0.note();
    }

    /// Whether it was so of late.
    pub(crate) fn is_known(&self) -> bool {
        self.0.within(BLOCKED_TIME)
    }

    /// For how long it still counts as so.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = BLOCKED_TIME.checked_sub(self.0.time()?)?;
        Some(left).filter(|left| !left.is_zero())
    }

    /// It is no longer so.
    pub(crate) fn forget(&self) {
        self.0.forget();
    }
}
