//! Reading ahead of those who read in order.
//!
//! A handle may be read in several places in turns, as players do that look into an index at the end.
//! Each place is a run of its own. What is read ahead of a run grows with what was read in it, up to
//! the setting. One who has to wait gets as much as the setting allows, since a long way holds much, and
//! an OpenAFS server takes six round trips to bring what was asked for. A reader who finds everything
//! there already is slower than the way to the server: it gets what it takes in some time at its own
//! pace, which may be several times the setting. That lasts it through the time in which another
//! transfer begins on the same way and all are slow until each has found its share.
//!
//! The slower one comes first on the way to the server: it is somebody who watches or listens, takes no more than
//! that, and has nothing of what comes late. Others get the rest, which they would have had anyway. When it has
//! to wait all the same it keeps that for a while, and is then one like others.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_cell::Class;
use tokio::sync::Mutex as AsyncMutex;

/// How far from the expected place a read of a run may be: kernels send several at once, in any order.
const SLACK: u64 = 4 << 20;
/// Bytes read ahead at first, at the beginning of a file and where a second read follows the first.
const FIRST: u64 = 1 << 20;
/// Times as much is read ahead as was read in order.
const GROWTH: u64 = 4;
/// Parts of this size are fetched ahead, but for the last.
const PART: u64 = 1 << 20;
/// Seconds of reading at the pace of the reader that are fetched ahead, if it never waits.
const TIME: f64 = 20.0;
/// How many times the setting that may be.
pub(crate) const TIMES_MOST: u64 = 8;
/// What is asked for at a time for a reader with priority, when that much is missing: it comes as evenly as
/// it is read.
/// What is asked of an OpenAFS server comes as a burst a second later; an afar server sends evenly by itself.
const STEP: u64 = 2 << 20;
const STEP_AFAR: u64 = 8 << 20;
/// The most that is asked for at a time.
const STEP_MOST: u64 = 32 << 20;
/// A reader that waited is taken for one that never does after this time.
const HUNGRY: Duration = Duration::from_secs(4);
/// For how long it comes first after that.
const PACED: Duration = Duration::from_secs(60);
/// Places a handle is read in at a time.
const RUNS_MOST: usize = 4;

/// How a file is read through one handle.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The one read last is in front.
    runs: Vec<Run>,
}

/// Reads in order.
#[derive(Debug)]
struct Run {
    /// Where the next read is expected.
    next: u64,
    /// Bytes read in order so far.
    bytes: u64,
    /// Up to where it was asked for ahead.
    asked: u64,
    /// When it began.
    since: Instant,
    /// When the reader last had to wait.
    waited: Instant,
    /// When it was last seen to be slower than the way.
    paced: Option<Instant>,
    turn: Turn,
}

/// The task that prefetches for a run holds this until it has asked for all of it. Otherwise data that is
/// wanted next would share the path with data that is wanted long after.
pub(crate) type Turn = Arc<AsyncMutex<()>>;

/// A read, as far as it tells what is wanted next.
pub(crate) struct Read<'a> {
    pub(crate) range: &'a Range<u64>,
    /// The file's.
    pub(crate) length: u64,
    /// What may be read ahead of one who waits.
    pub(crate) most: u64,
    /// The same of one who is slower than the way.
    pub(crate) most_paced: u64,
    /// Whether an afar server has it.
    pub(crate) at_afar: bool,
    /// What the file was opened for.
    pub(crate) class: Class,
    pub(crate) now: Instant,
}

impl Read<'_> {
    /// What is asked for at a time of the bytes that are to be ahead.
    fn step(&self, window: u64, is_paced: bool) -> u64 {
        let half = window / 2;
        let step = match (self.at_afar, is_paced, self.class) {
            (true, true, _) => STEP_AFAR,
            (false, true, _) | (false, false, Class::First) => STEP,
            // In large parts, before half of what is ahead is used.
            _ => half,
        };
        step.min(half)
    }
}

impl Ahead {
    /// Notes a read; returns what is to be fetched ahead.
    pub(crate) fn note(&mut self, read: &Read<'_>) -> Option<(Range<u64>, Turn)> {
        let Range { start, end } = *read.range;
        let known = self.runs.iter().position(|run| run.continues(start));
        let mut run = match known {
            Some(place) => self.runs.remove(place),
            None => Run {
                next: start,
                bytes: 0,
                asked: start,
                since: read.now,
                waited: read.now,
                paced: None,
                turn: Turn::default(),
            },
        };
        if run.is_slower(read.now) {
            run.paced = Some(read.now);
        }
        run.bytes += end - start;
        run.next = run.next.max(end);
        run.asked = run.asked.max(end);
        // One read in the middle of a file tells nothing of what is wanted next.
        let wanted = known.is_some() || start == 0;
        let ahead = wanted.then(|| run.ahead(read)).flatten();
        let turn = Arc::clone(&run.turn);
        self.runs.insert(0, run);
        self.runs.truncate(RUNS_MOST);
        Some((ahead?, turn))
    }
}

impl Ahead {
    /// The class of what is fetched for the read noted last, through a handle opened in this one.
    pub(crate) fn class(&self, opened: Class, now: Instant) -> Class {
        match opened {
            Class::BestEffort if self.runs.first().is_some_and(|run| run.is_paced(now)) => {
                Class::First
            }
            _ => opened,
        }
    }

    /// The read noted last had to wait.
    pub(crate) fn waited(&mut self) {
        if let Some(run) = self.runs.first_mut() {
            run.waited = Instant::now();
        }
    }
}

impl Run {
    fn continues(&self, start: u64) -> bool {
        // What was read twice is read for another reason than order.
        let slack = SLACK.min(self.bytes);
        start <= self.next.saturating_add(slack) && start.saturating_add(slack) >= self.next
    }

    /// What is to be fetched ahead, if anything.
    fn ahead(&mut self, read: &Read<'_>) -> Option<Range<u64>> {
        let window = self.window(read);
        let (from, to) = (self.asked, self.next.saturating_add(window));
        let step = read.step(window, self.is_paced(read.now));
        if from > to.saturating_sub(step) || from >= read.length || to <= from {
            return None;
        }
        // What is wanted last need not be asked for as long as what is wanted next is to come.
        let to = to.min(from.saturating_add(STEP_MOST));
        let to = if window > PART {
            to.next_multiple_of(PART)
        } else {
            to
        };
        debug_assert!(self.next <= from, "what was read is asked for again");
        self.asked = to.min(read.length);
        debug_assert!(from < self.asked, "{from} to {}", self.asked);
        Some(from..self.asked)
    }

    /// Whether the reader is slower than the way to the server: it goes on and finds everything there.
    fn is_slower(&self, now: Instant) -> bool {
        now.duration_since(self.waited) >= HUNGRY
    }

    /// Whether it was of late, and comes first.
    fn is_paced(&self, now: Instant) -> bool {
        self.paced
            .is_some_and(|at| now.saturating_duration_since(at) < PACED)
    }

    /// Bytes to have ahead.
    fn window(&self, read: &Read<'_>) -> u64 {
        let grown = FIRST.max(self.bytes.saturating_mul(GROWTH));
        let seconds = read.now.duration_since(self.since).as_secs_f64();
        if !self.is_paced(read.now) {
            return grown.min(read.most);
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let pace = self.bytes as f64 / seconds;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates"
        )]
        let enough = (pace * TIME) as u64;
        grown.min(enough.max(PART)).min(read.most_paced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    pub(crate) fn note(ahead: &mut Ahead, range: Range<u64>, length: u64) -> Option<Range<u64>> {
        noted(ahead, range, length).map(|(range, _)| range)
    }

    fn noted(ahead: &mut Ahead, range: Range<u64>, length: u64) -> Option<(Range<u64>, Turn)> {
        ahead.note(&read(&range, length, Instant::now()))
    }

    fn read(range: &Range<u64>, length: u64, now: Instant) -> Read<'_> {
        Read {
            range,
            length,
            most: 32 * MIB,
            most_paced: 64 * MIB,
            at_afar: true,
            class: Class::BestEffort,
            now,
        }
    }

    #[test]
    fn in_order_more_and_more_is_read_ahead_up_to_the_limit() {
        let mut ahead = Ahead::default();
        let (mut at, mut last, mut asked) = (0, 0, 0);
        for _ in 0..800 {
            if let Some(range) = note(&mut ahead, at..at + 131_072, 1 << 30) {
                assert!(range.start >= asked, "nothing is asked for twice");
                asked = range.end;
                last = range.end - (at + 131_072);
            }
            at += 131_072;
            assert!(asked >= at, "the reader is never alone");
        }
        assert!((16 * MIB..=33 * MIB).contains(&last), "{last}");
    }

    #[test]
    fn at_random_nothing_is_read_ahead() {
        let mut ahead = Ahead::default();
        for place in [900_u64, 17, 433, 70, 612, 300, 5] {
            let start = place << 24;
            assert_eq!(note(&mut ahead, start..start + 4096, 1 << 36), None);
        }
    }

    #[test]
    fn a_short_file_is_asked_for_whole_and_once() {
        let mut ahead = Ahead::default();
        assert_eq!(note(&mut ahead, 0..4096, 50_000), Some(4096..50_000));
        assert_eq!(note(&mut ahead, 4096..8192, 50_000), None);
    }

    #[test]
    fn requests_of_a_kernel_in_any_order_are_one_run() {
        let mut ahead = Ahead::default();
        let mut asked = 0;
        for block in [0, 2, 1, 4, 3, 6, 5, 8, 7] {
            let range = block * MIB..(block + 1) * MIB;
            if let Some(range) = note(&mut ahead, range, 1 << 30) {
                assert!(range.start >= asked);
                asked = range.end;
            }
        }
        assert_eq!(ahead.runs.len(), 1);
        assert!(asked > 32 * MIB, "{asked}");
    }

    #[test]
    fn a_glance_elsewhere_does_not_end_a_run() {
        let mut ahead = Ahead::default();
        for block in 0..8 {
            note(&mut ahead, block * MIB..(block + 1) * MIB, 1 << 36);
        }
        let index = 1 << 35;
        assert_eq!(note(&mut ahead, index..index + 4096, 1 << 36), None);
        let run = ahead.runs.iter().find(|run| run.next == 8 * MIB);
        assert!(run.is_some_and(|run| run.bytes == 8 * MIB));
        // A reader that goes on there for a while is followed there as well.
        assert!(note(&mut ahead, index + 4096..index + 8192, 1 << 36).is_some());
    }

    #[test]
    fn what_is_read_ahead_of_a_run_has_one_turn_and_other_runs_have_theirs() {
        let mut ahead = Ahead::default();
        let mut turn = |range| noted(&mut ahead, range, 1 << 30).map(|(_, turn)| turn);
        let first = turn(0..MIB).unwrap();
        let next = (1..8).find_map(|block| turn(block * MIB..(block + 1) * MIB));
        assert!(Arc::ptr_eq(&first, &next.unwrap()));
        assert!(turn(500 * MIB..501 * MIB).is_none());
        let other = turn(501 * MIB..502 * MIB).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn who_is_slower_than_the_way_comes_first_for_a_while() {
        let mut ahead = Ahead::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let note = |ahead: &mut Ahead, block: u64, now| {
            let range = block * MIB..(block + 1) * MIB;
            ahead.note(&read(&range, 1 << 30, now));
        };
        for second in 0..8 {
            note(&mut ahead, second, at(second));
            let class = ahead.class(Class::BestEffort, at(second));
            assert_eq!(class == Class::First, second >= 4, "after {second} s");
        }
        assert_eq!(ahead.class(Class::Idle, at(7)), Class::Idle);
        // From then on the reader has to wait each time.
        ahead.runs[0].waited = at(500);
        for (second, class) in [(66, Class::First), (68, Class::BestEffort)] {
            assert_eq!(ahead.class(Class::BestEffort, at(second)), class);
        }
        // Of another place that is read it is not yet known.
        note(&mut ahead, 900, at(9));
        assert_eq!(ahead.class(Class::BestEffort, at(9)), Class::BestEffort);
    }

    #[test]
    fn a_slow_reader_that_never_waits_has_some_seconds_ahead() {
        for (pace, ahead) in [(1, 16..=23), (8, 48..=65)] {
            let most = most_ahead(pace * MIB) / MIB;
            assert!(ahead.contains(&most), "{most} MiB at {pace} MiB/s");
        }
    }

    #[test]
    fn as_much_as_a_step_is_asked_for_at_a_time() {
        let half = 16 * MIB;
        for (at_afar, class, never_waits, step) in [
            (true, Class::BestEffort, true, STEP_AFAR),
            (true, Class::First, false, half),
            (false, Class::BestEffort, true, STEP),
            (false, Class::BestEffort, false, half),
            (false, Class::First, false, STEP),
        ] {
            let mut ahead = Ahead::default();
            let begun = Instant::now();
            let mut largest = 0;
            for block in 0..400 {
                let range = block * MIB..(block + 1) * MIB;
                let now = begun + Duration::from_millis(125 * block);
                if !never_waits && let Some(run) = ahead.runs.first_mut() {
                    run.waited = now;
                }
                let read = Read {
                    at_afar,
                    class,
                    ..read(&range, 1 << 30, now)
                };
                if let Some((asked, _)) = ahead.note(&read)
                    && block > 200
                {
                    largest = largest.max(asked.end - asked.start);
                }
            }
            assert!(
                (step..=step + MIB).contains(&largest),
                "{largest} of {step}"
            );
        }
    }

    /// What is asked for ahead at most of one who reads so many bytes a second.
    fn most_ahead(pace: u64) -> u64 {
        let (mut ahead, mut most) = (Ahead::default(), 0);
        let begun = Instant::now();
        for second in 0..60 {
            let range = second * pace..(second + 1) * pace;
            let now = begun + Duration::from_secs(second);
            if let Some((asked, _)) = ahead.note(&read(&range, 1 << 30, now))
                && second > 10
            {
                most = most.max(asked.end - range.end);
            }
        }
        most
    }
}
