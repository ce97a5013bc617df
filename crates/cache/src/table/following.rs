//! What programs read one after the other in each volume, and what a server said that others read next.
// spec: trees#when-a-client-asks

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::Volume;
use afar_types::Fid;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::table::prefetched::WANTED;

/// Volumes in which programs may read at the same time.
const VOLUMES: usize = 16;
/// What is read so long after something else goes on with what that was part of.
const TOGETHER: Duration = Duration::from_secs(2);
/// Behind an answer that told nothing, a server is asked when so many reads had to wait, and behind the next such answer when
/// twice as many had, up to the most.
const PAUSE_FIRST: u32 = 8;
const PAUSE_MOST: u32 = 64;
/// A server is asked for more when a program has come to the last of so many parts of what it told.
const PARTS: usize = 4;

/// Where programs are in the volumes that they read last.
#[derive(Debug, Default)]
pub(crate) struct Following(Mutex<VecDeque<Row>>);

#[derive(Debug)]
struct Row {
    volume: Weak<Volume>,
    /// What was read last, and when.
    last: Option<(Fid, Instant)>,
    /// A server is being asked what follows.
    asking: bool,
    /// Reads that had to wait for which nothing is asked, and how many there are behind the next answer that tells nothing.
    skipped: u32,
    pause: u32,
    told: Told,
}

/// What a server told.
#[derive(Debug, Default)]
struct Told {
    /// All but the last part; of the answer before that part.
    early: HashSet<Fid>,
    late: HashSet<Fid>,
    /// The last two: what follows them comes next.
    end: Option<(Fid, Fid)>,
}

/// What came of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// A server told that it would be read.
    pub(crate) told: bool,
    /// What follows these two is to be asked for, and [`Following::answered`] called then.
    pub(crate) ask: Option<(Fid, Fid)>,
}

impl Following {
    /// A program comes to something. `waits`: it is not here.
    pub(crate) fn come(&self, volume: &Arc<Volume>, fid: Fid, waits: bool, now: Instant) -> Came {
        self.with(volume, |row| row.come(fid, waits, now))
    }

    /// A server was asked, and told of these; or failed, and told of none.
    pub(crate) fn answered(&self, volume: &Arc<Volume>, asked: (Fid, Fid), told: &[Fid]) {
        self.with(volume, |row| row.answered(asked, told));
    }

    /// A server is not asked after all.
    pub(crate) fn not_asked(&self, volume: &Arc<Volume>) {
        self.with(volume, |row| row.asking = false);
    }

    /// Does something with the row of a volume, which then is the last used.
    fn with<T>(&self, volume: &Arc<Volume>, work: impl FnOnce(&mut Row) -> T) -> T {
        let mut rows = self.0.lock();
        let place = rows
            .iter()
            .position(|row| row.volume.as_ptr() == Arc::as_ptr(volume));
        let known = place.and_then(|place| rows.remove(place));
        let mut row = known.unwrap_or_else(|| Row::new(Arc::downgrade(volume)));
        let done = work(&mut row);
        rows.truncate(VOLUMES - 1);
        rows.push_front(row);
        done
    }
}

impl Row {
    fn new(volume: Weak<Volume>) -> Self {
        Self {
            volume,
            last: None,
            asking: false,
            skipped: 0,
            pause: PAUSE_FIRST,
            told: Told::default(),
        }
    }

    fn come(&mut self, fid: Fid, waits: bool, now: Instant) -> Came {
        let ago = self.last.map(|(_, at)| now.saturating_duration_since(at));
        if ago.is_some_and(|ago| ago > WANTED) {
            self.told = Told::default();
        }
        let is_late = self.told.late.contains(&fid);
        let told = is_late || self.told.early.contains(&fid);
        let mut came = Came { told, ask: None };
        if !waits && !told {
            return came;
        }
        let before = self.last.replace((fid, now));
        let before = before.filter(|_| ago.is_some_and(|ago| ago <= TOGETHER));
        let before = before
            .map(|(before, _)| before)
            .filter(|before| *before != fid);
        let wanted = match told {
            true => self.told.end.filter(|_| is_late),
            // One read alone tells little.
            false => before.map(|before| (before, fid)),
        };
        if self.asking || wanted.is_none() {
            return came;
        }
        if !told && self.skipped > 0 {
            self.skipped -= 1;
            return came;
        }
        self.asking = true;
        came.ask = wanted;
        came
    }

    fn answered(&mut self, (_, now): (Fid, Fid), told: &[Fid]) {
        self.asking = false;
        let goes_on = self.told.end.is_some_and(|(_, end)| end == now);
        if told.is_empty() {
            // That it ends somewhere was to be expected.
            if goes_on {
                self.told.end = None;
            } else {
                self.skipped = self.pause - 1;
                self.pause = (self.pause * 2).min(PAUSE_MOST);
            }
            return;
        }
        (self.skipped, self.pause) = (0, PAUSE_FIRST);
        let (early, late) = told.split_at(told.len() - told.len().div_ceil(PARTS));
        // What of the answer before is not read yet is still to come.
        let mut all = std::mem::take(&mut self.told.late);
        all.extend(early);
        let end = match told {
            [.., before, last] => Some((*before, *last)),
            [last] => Some((now, *last)),
            [] => None,
        };
        self.told = Told {
            early: all,
            late: late.iter().copied().collect(),
            end,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(number: u32) -> Fid {
        Fid::new(1, number, 1)
    }

    /// Fids of these numbers.
    fn fids(numbers: impl Iterator<Item = u32>) -> Vec<Fid> {
        numbers.map(fid).collect()
    }

    fn asked(row: &mut Row, number: u32, waits: bool, now: Instant) -> Option<(Fid, Fid)> {
        row.come(fid(number), waits, now).ask
    }

    #[test]
    fn the_second_read_asks_and_the_last_quarter_asks_for_more() {
        let (mut row, now) = (Row::new(Weak::new()), Instant::now());
        assert_eq!(asked(&mut row, 1, true, now), None);
        assert_eq!(asked(&mut row, 2, true, now), Some((fid(1), fid(2))));
        assert_eq!(asked(&mut row, 3, true, now), None, "one at a time");
        row.answered((fid(1), fid(2)), &fids(3..43));
        // A large file comes without its data.
        assert_eq!(asked(&mut row, 20, true, now), None);
        assert!(row.come(fid(20), false, now).told);
        assert!(!row.come(fid(99), false, now).told);
        assert_eq!(asked(&mut row, 32, false, now), None);
        let more = Some((fid(41), fid(42)));
        assert_eq!(asked(&mut row, 33, false, now), more);
        assert_eq!(asked(&mut row, 34, false, now), None);
        row.answered((fid(41), fid(42)), &fids(43..44));
        assert!(row.come(fid(34), false, now).told, "of the answer before");
        let more = Some((fid(42), fid(43)));
        assert_eq!(asked(&mut row, 43, false, now), more);
        row.answered((fid(42), fid(43)), &[]);
        assert_eq!(asked(&mut row, 43, false, now), None, "it is the end");
        assert_eq!(asked(&mut row, 60, true, now), Some((fid(43), fid(60))));
    }

    #[test]
    fn what_told_nothing_is_asked_seldom() {
        let (mut row, now) = (Row::new(Weak::new()), Instant::now());
        let mut gaps = Vec::new();
        let mut last = 0;
        for number in 1..400 {
            if let Some(pair) = asked(&mut row, number, true, now) {
                gaps.push(number - last);
                last = number;
                row.answered(pair, &[]);
            }
        }
        assert_eq!(gaps[..6], [2, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn what_is_read_later_has_nothing_before_it() {
        let (mut row, now) = (Row::new(Weak::new()), Instant::now());
        assert_eq!(asked(&mut row, 1, true, now), None);
        let later = now + TOGETHER * 2;
        assert_eq!(asked(&mut row, 2, true, later), None);
        let soon = later + TOGETHER;
        assert_eq!(asked(&mut row, 3, true, soon), Some((fid(2), fid(3))));
        row.answered((fid(2), fid(3)), &fids(4..44));
        let much_later = soon + WANTED * 2;
        assert!(!row.come(fid(5), true, much_later).told);
    }
}
