//! What goes on at the moment, in bounded memory: for each thing a place, from its beginning to its end.
//!
//! To begin and to end something takes a lock that threads seldom share. What it waits for is a number
//! beside the lock, so that noting it is one write.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use crate::shard::{Apart, SHARDS, shard};

/// Places of each part.
const PLACES: usize = 128;

/// Things that go on, at most 4096 of them. Further ones are counted only. Its clones are the same.
pub struct Live<T>(Arc<[Apart<Part<T>>; SHARDS]>);

struct Part<T> {
    places: Mutex<Places<T>>,
    /// What is in a place waits for this.
    waits: [AtomicU8; PLACES],
}

struct Places<T> {
    /// As many as were in use at a time.
    all: Vec<Option<(Instant, T)>>,
    free: Vec<usize>,
    /// How many have no place.
    beyond: usize,
}

/// One of the things that go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ongoing<T> {
    /// What it is.
    pub what: T,
    /// When it began.
    pub began: Instant,
    /// What it waits for, as [`Going::waits`] was told; 0 at first.
    pub waits: u8,
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Live<T> {
    fn default() -> Self {
        let part = || Part {
            places: Mutex::new(Places {
                all: Vec::new(),
                free: Vec::new(),
                beyond: 0,
            }),
            waits: [const { AtomicU8::new(0) }; PLACES],
        };
        Self(Arc::new(std::array::from_fn(|_| Apart(part()))))
    }
}

impl<T> Live<T> {
    /// Something has begun; it goes on until the guard is dropped.
    #[must_use]
    pub fn begin(&self, began: Instant, what: T) -> Going<T> {
        let own = shard();
        if cfg!(feature = "off") {
            return self.going(own, None);
        }
        let mut entry = Some((began, what));
        for number in (own..SHARDS).chain(0..own) {
            let part = &self.0[number];
            let mut places = part.places.lock();
            let place = match places.free.pop() {
                Some(place) => {
                    places.all[place] = entry.take();
                    place
                }
                None if places.all.len() < PLACES => {
                    places.all.push(entry.take());
                    places.all.len() - 1
                }
                None => continue,
            };
            part.waits[place].store(0, Relaxed);
            return self.going(number, Some(place));
        }
        self.0[own].places.lock().beyond += 1;
        self.going(own, None)
    }

    fn going(&self, part: usize, place: Option<usize>) -> Going<T> {
        Going {
            live: self.clone(),
            part,
            place,
        }
    }

    /// What goes on, the oldest first, and how many more things do.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<Ongoing<T>>, usize)
    where
        T: Clone,
    {
        let (mut all, mut beyond) = (Vec::new(), 0);
        for part in self.0.iter() {
            let places = part.places.lock();
            beyond += places.beyond;
            for (entry, waits) in places.all.iter().zip(&part.waits) {
                if let Some((began, what)) = entry {
                    all.push(Ongoing {
                        what: what.clone(),
                        began: *began,
                        waits: waits.load(Relaxed),
                    });
                }
            }
        }
        all.sort_by_key(|one| one.began);
        (all, beyond)
    }
}

impl<T> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// Something goes on until this is dropped.
pub struct Going<T> {
    live: Live<T>,
    part: usize,
    place: Option<usize>,
}

impl<T> Going<T> {
    /// It waits for this from now on, in numbers of the program's.
    pub fn waits(&self, what: u8) {
        if let Some(place) = self.place {
            self.live.0[self.part].waits[place].store(what, Relaxed);
        }
    }
}

impl<T> Drop for Going<T> {
    fn drop(&mut self) {
        let mut places = self.live.0[self.part].places.lock();
        match self.place {
            Some(place) => {
                places.all[place] = None;
                places.free.push(place);
            }
            None if cfg!(feature = "off") => {}
            None => places.beyond = places.beyond.saturating_sub(1),
        }
    }
}

impl<T> fmt::Debug for Going<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Going").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(live: &Live<&'static str>) -> Vec<&'static str> {
        let (all, _) = live.snapshot();
        all.iter().map(|one| one.what).collect()
    }

    #[test]
    fn what_goes_on_is_shown_from_its_beginning_to_its_end() {
        let (live, now) = (Live::default(), Instant::now());
        let later = now + std::time::Duration::from_secs(1);
        let second = live.begin(later, "second");
        let first = live.begin(now, "first");
        assert_eq!(names(&live), ["first", "second"]);
        second.waits(3);
        let waits: Vec<u8> = live.snapshot().0.iter().map(|one| one.waits).collect();
        assert_eq!(waits, [0, 3]);
        drop(second);
        assert_eq!(names(&live), ["first"]);
        // Its place is taken again, and waits for nothing.
        let third = live.begin(later, "third");
        assert_eq!(live.snapshot().0[1].waits, 0);
        drop((first, third));
        assert_eq!(live.snapshot(), (Vec::new(), 0));
    }

    #[test]
    fn places_are_bounded_and_what_has_none_is_counted() {
        let live = Live::default();
        let now = Instant::now();
        let mut going: Vec<_> = (0..5000).map(|n| live.begin(now, n)).collect();
        let (all, beyond) = live.snapshot();
        assert_eq!(
            (all.len(), beyond),
            (SHARDS * PLACES, 5000 - SHARDS * PLACES)
        );
        going.truncate(4000);
        going.extend((0..100).map(|n| live.begin(now, n)));
        assert_eq!(live.snapshot().1, 4);
        going.clear();
        assert_eq!(live.snapshot(), (Vec::new(), 0));
    }

    #[test]
    fn threads_begin_and_end_at_the_same_time() {
        let live = Live::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000 {
                        let going = live.begin(Instant::now(), n);
                        going.waits(1);
                        if n % 64 == 0 {
                            assert!(live.snapshot().0.len() <= 4);
                        }
                    }
                });
            }
        });
        assert_eq!(live.snapshot(), (Vec::new(), 0));
    }
}
