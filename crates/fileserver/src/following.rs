//! In which order hosts read what is in a volume, and so what will be read next.
//!
//! A program that starts reads the same hundreds of files one after the other each time, on whatever host. Hosts tell what
//! was read there, and each read is noted as what follows the two before it: of two, as one alone (a directory that all
//! programs come through) is followed by something else each time.
//!
//! It is a table of fixed size, 3 MiB, in which pairs share sets of entries by a keyed hash: nobody can choose a pair that
//! takes the place of another, and a lost entry costs a prefetch. What is noted are numbers. A caller that has them told is
//! shown what it may read itself, and so learns of others in which order they read that. A host that tells an order
//! of its own makes others prefetch for nothing, which their budgets bound, until some that read otherwise have outvoted it.
// spec: trees#what-the-server-learns, trees#what-others-can-do-with-it

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use afar_types::Fid;
use parking_lot::Mutex;

/// Entries of the table, of 24 bytes.
const ENTRIES: usize = 1 << 17;
/// Entries of a set. With less each, long rows would be cut when a table is not nearly full.
const WAYS: usize = 8;
/// How often an entry can be contradicted, at most, before it is another.
const SURE_MOST: u8 = 7;
/// Steps of what follows that are told at a time.
const STEPS_MOST: usize = 1024;

/// What follows two reads.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Of which two, by their hash.
    tag: u64,
    next: Fid,
    /// How often that was so, and not otherwise; 0 while the entry is free.
    sure: u8,
}

/// What follows what. See the module.
pub(crate) struct Following {
    hash: RandomState,
    entries: Mutex<Box<[Entry]>>,
}

impl Default for Following {
    fn default() -> Self {
        Self::with_entries(ENTRIES)
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").finish_non_exhaustive()
    }
}

impl Following {
    fn with_entries(entries: usize) -> Self {
        Self {
            hash: RandomState::new(),
            entries: Mutex::new(vec![Entry::default(); entries].into()),
        }
    }

    /// A host has read these, one after the other.
    pub(crate) fn learn(&self, read: &[Fid]) {
        // A run that begins with the first may be told of from it alone.
        let first = read
            .first_chunk()
            .map(|[first, second]| [Fid::default(), *first, *second]);
        let later = read.array_windows().copied();
        for [before, now, next] in first.into_iter().chain(later) {
            self.note((before, now), next);
        }
    }

    /// This was read behind a pair.
    fn note(&self, pair: (Fid, Fid), next: Fid) {
        let tag = self.tag(pair);
        let mut entries = self.entries.lock();
        let Some(set) = set_of(&entries, tag).and_then(|range| entries.get_mut(range)) else {
            return;
        };
        // The last used are in front. The least sure gives way, of these the one that was not used for longest.
        let known = set
            .iter()
            .position(|entry| entry.tag == tag && entry.sure > 0);
        let least = || {
            let entries = set.iter().enumerate().rev();
            entries.min_by_key(|(_, entry)| entry.sure)
        };
        let Some(place) = known.or_else(|| least().map(|(place, _)| place)) else {
            return;
        };
        let Some(entry) = set.get_mut(place) else {
            return;
        };
        if known.is_some() && entry.next == next {
            entry.sure = (entry.sure + 1).min(SURE_MOST);
        } else {
            entry.sure = entry.sure.saturating_sub(1);
            if entry.sure > 0 {
                return;
            }
            *entry = Entry { tag, next, sure: 1 };
        }
        if let Some(front) = set.get_mut(..=place) {
            front.rotate_right(1);
        }
    }

    /// What follows in the same volume, each once, in its order. What is known of `now` alone serves if nothing is of both.
    pub(crate) fn after(&self, before: Fid, now: Fid) -> Vec<Fid> {
        let entries = self.entries.lock();
        let next = |pair| {
            let tag = self.tag(pair);
            let set = entries.get(set_of(&entries, tag)?)?;
            let entry = set
                .iter()
                .find(|entry| entry.tag == tag && entry.sure > 0)?;
            Some(entry.next)
        };
        let mut pair = match next((before, now)) {
            Some(_) => (before, now),
            None => (Fid::default(), now),
        };
        let (mut seen, mut pairs) = (HashSet::from([before, now]), HashSet::new());
        let mut all = Vec::new();
        while all.len() < STEPS_MOST && pairs.len() < STEPS_MOST && pairs.insert(pair) {
            let known = next(pair);
            let Some(fid) = known.filter(|fid| fid.volume == now.volume) else {
                break;
            };
            pair = (pair.1, fid);
            if seen.insert(fid) {
                all.push(fid);
            }
        }
        all
    }

    fn tag(&self, pair: (Fid, Fid)) -> u64 {
        self.hash.hash_one(pair)
    }
}

/// Where the set of a tag is.
fn set_of(entries: &[Entry], tag: u64) -> Option<Range<usize>> {
    let sets = entries.len() / WAYS;
    let number = usize::try_from(tag.checked_rem(sets as u64)?).ok()?;
    Some(number * WAYS..(number + 1) * WAYS)
}

#[cfg(test)]
mod tests;
