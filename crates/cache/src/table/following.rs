//! What programs read one after the other in each volume, and what a server said that others read next.
// spec: trees#when-a-client-asks

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::Volume;
use afar_types::{Fid, READS_MOST, Reads};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::table::prefetched::WANTED;

/// Volumes in which programs may read at the same time.
const VOLUMES: usize = 16;
/// What a program reads is told when nothing was read for so long.
pub(crate) const QUIET: Duration = Duration::from_secs(3);
/// What is read behind so many other things is no program that starts: it goes through a tree, in an order that its directories
/// tell.
const SERIES_MOST: usize = 4096;
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
    /// When something was read last.
    at: Option<Instant>,
    /// What was read in this series, cached or not: each is a step once.
    seen: HashSet<Fid>,
    /// The last of it, in order: what no server was told of yet, behind the two before that.
    read: Vec<Fid>,
    /// How many of these were told.
    told_of: usize,
    /// Something had to wait that no server had told of, and none was told of that.
    missed: bool,
    /// Somebody waits until it is quiet.
    watched: bool,
    /// A server is being asked what follows.
    asking: bool,
    /// Reads that had to wait for which nothing is asked, and how many there are behind the next answer that tells nothing.
    skipped: u32,
    pause: u32,
    answer: Answer,
}

/// What a server told.
#[derive(Debug, Default)]
struct Answer {
    /// All but the last part; of the answer before that part.
    early: HashSet<Fid>,
    late: HashSet<Fid>,
    /// The last two: what follows them comes next.
    end: Option<(Fid, Fid)>,
}

/// What a server told of what programs read now.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    #[default]
    Nothing,
    /// Of other things: what is beside this is seldom read next.
    Others,
    /// That this would be read.
    This,
}

/// What came of a read.
#[derive(Debug, Default)]
pub(crate) struct Came {
    pub(crate) told: Told,
    /// What a server is to be told or asked now.
    pub(crate) ask: Option<Ask>,
    /// [`Following::rest`] is to be called [`QUIET`] later.
    pub(crate) watch: bool,
}

/// What a server is told and asked.
#[derive(Debug)]
pub(crate) struct Ask {
    /// What was read here.
    pub(crate) read: Reads,
    /// The two whose followers are asked for.
    pub(crate) from: (Fid, Fid),
    /// Whether these are wanted: [`Following::answered`] is called then.
    pub(crate) wanted: bool,
}

/// What is left to be told to a server.
#[derive(Debug)]
pub(crate) enum Rest {
    /// Programs are still reading, and may have come to rest then.
    Later(Instant),
    Tell(Ask),
    Nothing,
}

impl Following {
    /// A program comes to something. `waits`: it is not here. `may_ask` says whether what follows may be prefetched: few reads
    /// lead to that question, and each name that is looked up comes here.
    pub(crate) fn come(
        &self,
        volume: &Arc<Volume>,
        fid: Fid,
        (waits, may_ask): (bool, impl FnOnce() -> bool),
        now: Instant,
    ) -> Came {
        self.with(volume, |row| row.come(fid, (waits, may_ask), now))
    }

    /// A server was asked, and told of these; or failed, and told of none.
    pub(crate) fn answered(&self, volume: &Arc<Volume>, asked: (Fid, Fid), told: &[Fid]) {
        self.with(volume, |row| row.answered(asked, told));
    }

    /// To which of these programs have come by themselves.
    pub(crate) fn come_to_of(&self, volume: &Arc<Volume>, fids: &[Fid]) -> HashSet<Fid> {
        self.with(volume, |row| {
            let seen = fids.iter().copied().filter(|fid| row.seen.contains(fid));
            seen.collect()
        })
    }

    /// What a server is to be told when programs have come to rest.
    pub(crate) fn rest(&self, volume: &Arc<Volume>, now: Instant) -> Rest {
        self.with(volume, |row| row.rest(now))
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
            at: None,
            seen: HashSet::new(),
            read: Vec::new(),
            told_of: 0,
            missed: false,
            watched: false,
            asking: false,
            skipped: 0,
            pause: PAUSE_FIRST,
            answer: Answer::default(),
        }
    }

    fn come(
        &mut self,
        fid: Fid,
        (waits, may_ask): (bool, impl FnOnce() -> bool),
        now: Instant,
    ) -> Came {
        let before = self.at.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) > WANTED) {
            // Another series.
            self.seen.clear();
            self.read.clear();
            self.told_of = 0;
            self.missed = false;
            self.answer = Answer::default();
        }
        let is_late = self.answer.late.contains(&fid);
        let told = is_late || self.answer.early.contains(&fid);
        let mut came = Came {
            told: match self.answer.end {
                _ if told => Told::This,
                Some(_) => Told::Others,
                None => Told::Nothing,
            },
            ..Came::default()
        };
        if self.seen.len() >= SERIES_MOST || !self.seen.insert(fid) {
            return came;
        }
        self.read.push(fid);
        if waits && !told {
            self.missed = true;
            came.watch = !std::mem::replace(&mut self.watched, true);
        }
        let wanted = match told {
            true => self.answer.end.filter(|_| is_late),
            // One read alone tells little.
            false => self.last_two().filter(|_| waits),
        };
        let wanted = wanted.filter(|_| !self.asking && may_ask());
        let skips = wanted.is_some() && !told && self.skipped > 0;
        if skips {
            self.skipped -= 1;
        }
        if let Some(from) = wanted.filter(|_| !skips) {
            self.asking = true;
            came.ask = Some(Ask {
                read: self.take(),
                from,
                wanted: true,
            });
        } else if self.read.len() >= READS_MOST {
            came.ask = self.tell();
            // What is all here is nothing new to a server.
            if came.ask.is_none() {
                drop(self.take());
            }
        }
        came
    }

    fn last_two(&self) -> Option<(Fid, Fid)> {
        match self.read[..] {
            [.., before, now] => Some((before, now)),
            _ => None,
        }
    }

    /// What no server was told of, behind the two before it, which the next time are the last two of this.
    fn take(&mut self) -> Reads {
        self.missed = false;
        if self.read.len() == self.told_of {
            return Reads::default();
        }
        let kept = self.read.len().saturating_sub(2);
        let read = self.read.clone();
        self.read.drain(..kept);
        self.told_of = self.read.len();
        // There are no more than a server is told at a time.
        Reads::new(read).unwrap_or_default()
    }

    /// What a server is told without being asked: nothing where it, or what is cached, told of all.
    fn tell(&mut self) -> Option<Ask> {
        let from = self.last_two().filter(|_| self.missed)?;
        Some(Ask {
            read: self.take(),
            from,
            wanted: false,
        })
    }

    fn rest(&mut self, now: Instant) -> Rest {
        if let Some(quiet) = self.at.map(|at| at + QUIET)
            && self.missed
            && now < quiet
        {
            return Rest::Later(quiet);
        }
        self.watched = false;
        self.tell().map_or(Rest::Nothing, Rest::Tell)
    }

    fn answered(&mut self, (_, now): (Fid, Fid), told: &[Fid]) {
        self.asking = false;
        let end = self.answer.end.take();
        if told.is_empty() {
            // That it ends somewhere was to be expected.
            if end.is_none_or(|(_, end)| end != now) {
                self.skipped = self.pause - 1;
                self.pause = (self.pause * 2).min(PAUSE_MOST);
            }
            return;
        }
        (self.skipped, self.pause) = (0, PAUSE_FIRST);
        let (early, late) = told.split_at(told.len() - told.len().div_ceil(PARTS));
        // What of the answer before is not read yet is still to come.
        let mut all = std::mem::take(&mut self.answer.late);
        all.extend(early);
        let end = match told {
            [.., before, last] => Some((*before, *last)),
            [last] => Some((now, *last)),
            [] => None,
        };
        self.answer = Answer {
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

    /// Comes to something that may be asked for.
    fn come(row: &mut Row, number: u32, waits: bool, now: Instant) -> Came {
        row.come(fid(number), (waits, || true), now)
    }

    fn asked(row: &mut Row, number: u32, waits: bool, now: Instant) -> Option<(Fid, Fid)> {
        let ask = come(row, number, waits, now).ask;
        ask.filter(|ask| ask.wanted).map(|ask| ask.from)
    }

    fn told_of(ask: &Ask) -> Vec<u32> {
        ask.read.iter().map(|fid| fid.vnode.0).collect()
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
        assert_eq!(come(&mut row, 20, false, now).told, Told::This);
        assert_eq!(come(&mut row, 99, false, now).told, Told::Others);
        assert_eq!(asked(&mut row, 32, false, now), None);
        let more = Some((fid(41), fid(42)));
        assert_eq!(asked(&mut row, 33, false, now), more);
        assert_eq!(asked(&mut row, 34, false, now), None);
        row.answered((fid(41), fid(42)), &fids(43..45));
        let before = come(&mut row, 34, false, now).told;
        assert_eq!(before, Told::This, "of the answer before");
        let more = Some((fid(43), fid(44)));
        assert_eq!(asked(&mut row, 44, false, now), more);
        row.answered((fid(43), fid(44)), &[]);
        assert_eq!(asked(&mut row, 43, false, now), None, "it is the end");
        assert_eq!(come(&mut row, 50, false, now).told, Told::Nothing);
        assert_eq!(asked(&mut row, 60, true, now), Some((fid(50), fid(60))));
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
        let later = now + WANTED * 2;
        assert_eq!(asked(&mut row, 2, true, later), None);
        let soon = later + WANTED;
        assert_eq!(asked(&mut row, 3, true, soon), Some((fid(2), fid(3))));
        row.answered((fid(2), fid(3)), &fids(4..44));
        let much_later = soon + WANTED * 2;
        let told = come(&mut row, 5, true, much_later).told;
        assert_eq!(told, Told::Nothing);
    }

    #[test]
    fn all_that_is_read_is_told_once_and_in_order() {
        let (mut row, mut now) = (Row::new(Weak::new()), Instant::now());
        let mut told = Vec::new();
        for number in 1..=600 {
            now += QUIET / 10;
            let waits = number % 5 == 0;
            if number == 1 {
                assert!(!come(&mut row, number, waits, now).watch);
                continue;
            }
            let came = come(&mut row, number, waits, now);
            // What is read again is no step.
            assert!(come(&mut row, number - 1, true, now).ask.is_none());
            assert_eq!(came.watch, number == 5);
            if let Some(ask) = came.ask {
                told.push(told_of(&ask));
                if ask.wanted {
                    row.answered(ask.from, &[]);
                }
            }
            assert!(matches!(row.rest(now), Rest::Later(_) | Rest::Nothing));
            row.watched = number >= 5;
        }
        let Rest::Tell(ask) = row.rest(now + QUIET) else {
            panic!("the end was not told");
        };
        assert!(!ask.wanted);
        told.push(told_of(&ask));
        assert!(told.iter().all(|piece| piece.len() <= READS_MOST));
        let mut all = told[0].clone();
        for piece in &told[1..] {
            assert_eq!(piece[..2], all[all.len() - 2..]);
            all.extend(&piece[2..]);
        }
        assert_eq!(all, (1..=600).collect::<Vec<_>>());
        assert!(matches!(row.rest(now + QUIET), Rest::Nothing));
    }

    #[test]
    fn what_is_all_here_is_told_to_nobody() {
        let (mut row, now) = (Row::new(Weak::new()), Instant::now());
        for number in 1..1000 {
            let came = come(&mut row, number, false, now);
            assert!(came.ask.is_none() && !came.watch);
        }
        assert!(row.read.len() < READS_MOST);
        // Nor what is behind a long series.
        for number in 1000..10_000 {
            come(&mut row, number, true, now);
        }
        assert_eq!(row.seen.len(), SERIES_MOST);
        assert!(matches!(row.rest(now + QUIET), Rest::Tell(_)));
        assert!(come(&mut row, 10_001, true, now).ask.is_none());
    }
}
