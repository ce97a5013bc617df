//! Reading ahead of those who read in order.
//!
//! What is read ahead doubles with what was read in order, up to the setting and to what the reader
//! takes in four seconds at its pace. What the path to the server holds is not looked at yet.

use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use afar_types::FetchStatus;

use crate::cache::Cache;
use crate::handles::OpenFile;
use crate::users::User;

/// How far from the expected place a read may be: kernels send several at once, in any order.
const SLACK: u64 = 1 << 20;
/// Octets read ahead at first.
const FIRST: u64 = 256 << 10;
/// Parts of this size are fetched ahead, but for the last.
const PART: u64 = 1 << 20;
/// Seconds of reading at the pace of the reader that are fetched ahead at most.
const TIME: f64 = 4.0;

/// How a file is read through one handle.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Where the next read is expected.
    next: u64,
    /// Octets read in order so far.
    run: u64,
    /// Up to where it was asked for ahead.
    asked: u64,
    /// When the run began.
    since: Option<std::time::Instant>,
}

impl Ahead {
    /// Notes a read; returns what is to be fetched ahead.
    fn note(&mut self, range: &Range<u64>, length: u64, most: u64) -> Option<Range<u64>> {
        let in_order = range.start <= self.next.saturating_add(SLACK)
            && range.start.saturating_add(SLACK) >= self.next;
        if !in_order || self.run == 0 && range.start > 0 && range.start != self.next {
            *self = Self {
                next: range.end,
                asked: range.end,
                ..Self::default()
            };
            return None;
        }
        let begun = *self.since.get_or_insert_with(std::time::Instant::now);
        self.run += range.end - range.start;
        self.next = self.next.max(range.end);
        let window = self.window(begun.elapsed(), most);
        let (from, to) = (self.asked.max(range.end), range.end.saturating_add(window));
        // Asked for in large parts, before half of what is ahead is used.
        if self.asked > range.end + window / 2 || from >= length || to <= from {
            return None;
        }
        let to = if window >= PART {
            to.next_multiple_of(PART)
        } else {
            to
        }
        .min(length);
        self.asked = to;
        Some(from..to)
    }

    /// Octets to have ahead.
    fn window(&self, time: Duration, most: u64) -> u64 {
        let grown = FIRST.max(self.run.saturating_mul(2));
        // Someone who reads slowly needs no more than he reads in a few seconds.
        let seconds = time.as_secs_f64();
        let pace = if seconds > 1.0 {
            self.run as f64 / seconds
        } else {
            f64::INFINITY
        };
        let enough = pace * TIME;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates"
        )]
        let enough = enough as u64;
        grown.min(most).min(enough.max(PART))
    }
}

impl Cache {
    /// Fetches what the reader of this range is likely to want next.
    pub(super) fn read_ahead(
        &self,
        user: &Arc<User>,
        open: &Arc<OpenFile>,
        status: &FetchStatus,
        range: &Range<u64>,
    ) {
        if range.is_empty() {
            return;
        }
        let most = self.0.config.read_ahead.min(self.0.config.bytes / 4);
        let next = {
            let mut ahead = open.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            ahead.note(range, status.length, most)
        };
        let Some(next) = next else {
            return;
        };
        let vnode = &open.spot.vnode;
        let key = &vnode.key;
        let present = self
            .0
            .storage
            .present(key, status.data_version, next.clone());
        if present.unwrap_or_default().octets() < next.end - next.start {
            self.launch(user, vnode, status, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_more_and_more_is_read_ahead_up_to_the_limit() {
        let mut ahead = Ahead::default();
        let (most, length) = (8 << 20, 1 << 30);
        let (mut at, mut last, mut asked) = (0, 0, 0);
        for _ in 0..400 {
            if let Some(range) = ahead.note(&(at..at + 131_072), length, most) {
                assert!(range.start >= asked, "nothing is asked for twice");
                asked = range.end;
                last = range.end - (at + 131_072);
            }
            at += 131_072;
            assert!(asked >= at || at < 131_072 * 2, "the reader is never alone");
        }
        assert!((most / 2..=most + PART).contains(&last), "{last}");
    }

    #[test]
    fn at_random_nothing_is_read_ahead() {
        let mut ahead = Ahead::default();
        for place in [900_u64, 17, 433, 70, 612] {
            let start = place << 22;
            assert_eq!(ahead.note(&(start..start + 4096), 1 << 33, 1 << 25), None);
        }
    }

    #[test]
    fn a_short_file_is_asked_for_whole_and_once() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.note(&(0..4096), 50_000, 1 << 25), Some(4096..50_000));
        assert_eq!(ahead.note(&(4096..8192), 50_000, 1 << 25), None);
    }
}
