//! In which order hosts read what is in a volume, and so what will be read next.
//!
//! A program that starts reads the same hundreds of files one after the other each time, on whatever host. So each read
//! that comes soon after two others is noted as what follows those two: of two, as one alone (a directory that all
//! programs come through) is followed by something else each time.
//!
//! It is a table of fixed size, 3 MiB, in which pairs share sets of entries by a keyed hash: nobody can choose a pair that
//! takes the place of another, and a lost entry costs a prefetch. What is noted are numbers. A caller that has them told is
//! shown what it may read itself, and so learns of others in which order they read that. A host that reads in an order
//! of its own makes others prefetch for nothing, which their budgets bound, until some that read otherwise have outvoted it.
// spec: trees#what-the-server-learns, trees#what-others-can-do-with-it

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};

use afar_types::{Fid, VolumeId};
use parking_lot::Mutex;

/// Entries of the table, of 24 bytes.
const ENTRIES: usize = 1 << 17;
/// Entries of a set. With less each, long rows would be cut when a table is not nearly full.
const WAYS: usize = 8;
/// A read so long after the one before goes on with what that was part of.
const TOGETHER: Duration = Duration::from_secs(2);
/// How often an entry can be contradicted, at most, before it is another.
const SURE_MOST: u8 = 7;
/// Steps of what follows that are told at a time.
const STEPS_MOST: usize = 1024;
/// Volumes a host may read in turn without losing its place.
const VOLUMES: usize = 4;

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

/// Where a host is in each of the volumes it has read in last.
#[derive(Debug, Default)]
pub(crate) struct Trail(Vec<Step>);

#[derive(Debug)]
struct Step {
    volume: VolumeId,
    /// What it read last but one; nothing where it began.
    before: Fid,
    last: Fid,
    at: Instant,
    /// It was told what follows, and does not read all that it uses: what it does read follows nothing.
    told: bool,
}

impl Following {
    fn with_entries(entries: usize) -> Self {
        Self {
            hash: RandomState::new(),
            entries: Mutex::new(vec![Entry::default(); entries].into()),
        }
    }

    /// A host begins to read something.
    pub(crate) fn read(&self, trail: &mut Trail, fid: Fid, now: Instant) {
        let Some(pair) = trail.read(fid, now) else {
            return;
        };
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
        if known.is_some() && entry.next == fid {
            entry.sure = (entry.sure + 1).min(SURE_MOST);
        } else {
            entry.sure = entry.sure.saturating_sub(1);
            if entry.sure > 0 {
                return;
            }
            *entry = Entry {
                tag,
                next: fid,
                sure: 1,
            };
        }
        if let Some(front) = set.get_mut(..=place) {
            front.rotate_right(1);
        }
    }

    /// What follows in the same volume where a host has read `before` and `now`, which is told to a host.
    pub(crate) fn follow(
        &self,
        trail: &mut Trail,
        (before, now): (Fid, Fid),
        at: Instant,
    ) -> Vec<Fid> {
        let next = self.after(before, now);
        trail.told((before, now), !next.is_empty(), at);
        next
    }

    /// What follows in the same volume, each once, in its order. What is known of `now` alone serves if nothing is of both.
    fn after(&self, before: Fid, now: Fid) -> Vec<Fid> {
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

impl Trail {
    /// Something is read. Returns the two it follows.
    fn read(&mut self, fid: Fid, now: Instant) -> Option<(Fid, Fid)> {
        let Some(step) = self.step(fid.volume, now) else {
            self.begin((Fid::default(), fid), now, false);
            return None;
        };
        // The next piece of a file is no step.
        if step.told || step.last == fid {
            return None;
        }
        let pair = (step.before, step.last);
        (step.before, step.last) = (pair.1, fid);
        Some(pair)
    }

    /// The host asked what follows these two, and something does, or nothing.
    fn told(&mut self, (before, last): (Fid, Fid), something: bool, now: Instant) {
        match self.step(last.volume, now) {
            Some(step) if something => step.told = true,
            // It has used all it was told of, and goes on by itself.
            Some(step) if step.told => {
                (step.told, step.before, step.last) = (false, before, last);
            }
            None if something => self.begin((before, last), now, true),
            Some(_) | None => {}
        }
    }

    /// Where the host is in a volume, if it was there a moment ago.
    fn step(&mut self, volume: VolumeId, now: Instant) -> Option<&mut Step> {
        let step = self.0.iter_mut().find(|step| step.volume == volume)?;
        if now.saturating_duration_since(step.at) > TOGETHER {
            return None;
        }
        step.at = step.at.max(now);
        Some(step)
    }

    /// The host begins again in a volume.
    fn begin(&mut self, (before, last): (Fid, Fid), at: Instant, told: bool) {
        let volume = last.volume;
        self.0.retain(|step| step.volume != volume);
        if self.0.len() >= VOLUMES {
            self.0.remove(0);
        }
        self.0.push(Step {
            volume,
            before,
            last,
            at,
            told,
        });
    }
}

#[cfg(test)]
mod tests;
