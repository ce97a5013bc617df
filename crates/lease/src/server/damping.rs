//! Vnodes that are not leased for a while, because somebody else needed them; hosts that get no leases for a while,
//! because they did not give one back.
//!
//! A table of fixed size, in which they share entries by a keyed hash: a shared entry costs a lease, never more
//! recalls than are allowed.
// spec: leases#damping

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::{DAMPING_DOUBLINGS, Time};

const ENTRIES: usize = 1 << 16;

/// Behind so many times the last pause without a recall, doubling begins again.
const QUIET: u32 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    until: Time,
    /// How often the pause is doubled, and one more; 0: no recall yet.
    recalls: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Damping {
    key: u64,
    /// The first pause.
    first: Duration,
    entries: Box<[Entry]>,
}

impl Damping {
    pub(super) fn new(key: u64, first: Duration) -> Self {
        Self {
            key,
            first,
            entries: vec![Entry::default(); ENTRIES].into(),
        }
    }

    /// Whether no lease of it, or to it, may be given now.
    pub(super) fn holds(&self, what: &impl Hash, now: Time) -> bool {
        self.entries[self.place(what)].until > now
    }

    /// No lease of it may be given before `until`: somebody waits for it.
    pub(super) fn hold(&mut self, what: &impl Hash, until: Time) {
        let place = self.place(what);
        let entry = &mut self.entries[place];
        entry.until = entry.until.max(until);
    }

    /// A recall was necessary.
    pub(super) fn recalled(&mut self, what: &impl Hash, now: Time) {
        let (place, first) = (self.place(what), self.first);
        let entry = &mut self.entries[place];
        let quiet = now.saturating_sub(entry.until) >= pause(first, entry.recalls) * QUIET;
        entry.recalls = if quiet { 1 } else { entry.recalls + 1 };
        entry.recalls = entry.recalls.min(DAMPING_DOUBLINGS + 1);
        entry.until = entry.until.max(now + pause(first, entry.recalls));
    }

    /// A recalled lease is given back, or over: the pause begins.
    pub(super) fn freed(&mut self, what: &impl Hash, now: Time) {
        let (place, first) = (self.place(what), self.first);
        let entry = &mut self.entries[place];
        entry.until = entry.until.max(now + pause(first, entry.recalls.max(1)));
    }

    fn place(&self, what: &impl Hash) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.key, what).hash(&mut hasher);
        let mask = ENTRIES as u64 - 1;
        usize::try_from(hasher.finish() & mask).unwrap_or_default()
    }
}

fn pause(first: Duration, recalls: u8) -> Duration {
    first * (1 << recalls.saturating_sub(1).min(DAMPING_DOUBLINGS))
}
