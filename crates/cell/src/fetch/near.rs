//! Parts of a file that are on this machine already.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Part, PartResult, Sink};
use crate::ended::ended;
use crate::nearby::NearbyFile;

/// Bytes that are read at a time.
const READ: u64 = 1 << 20;
/// Reads at a time.
const AT_A_TIME: usize = 4;
/// Parts shorter than this are asked of a server with what is around them: a call costs more.
const LEAST: u64 = 64 << 10;

/// What is still to be asked for, in order.
#[derive(Debug)]
pub(super) struct Gaps(VecDeque<Range<u64>>);

impl From<Range<u64>> for Gaps {
    fn from(all: Range<u64>) -> Self {
        Self(
            Some(all)
                .filter(|all| !all.is_empty())
                .into_iter()
                .collect(),
        )
    }
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(length).sum()
    }

    /// The next to be asked for, so many bytes at most.
    pub(super) fn next(&mut self, most: u64) -> Option<Range<u64>> {
        let gap = self.0.front_mut()?;
        debug_assert!(gap.start < gap.end, "{gap:?} is none");
        let end = gap.end.min(gap.start.saturating_add(most));
        let next = gap.start..end;
        gap.start = end;
        if gap.is_empty() {
            self.0.pop_front();
        }
        Some(next)
    }

    /// Takes out what is there, which is in order; returns it.
    pub(super) fn take_out(&mut self, there: &[Range<u64>]) -> Vec<Range<u64>> {
        let before = self.bytes();
        let mut taken = Vec::new();
        let mut left = VecDeque::new();
        for mut gap in self.0.drain(..) {
            for part in there {
                let part = part.start.max(gap.start)..part.end.min(gap.end);
                // A short one is worth it if it is all that was wanted.
                if part.is_empty() || length(&part) < LEAST && part != gap {
                    continue;
                }
                if gap.start < part.start {
                    left.push_back(gap.start..part.start);
                }
                gap.start = part.end;
                taken.push(part);
            }
            if !gap.is_empty() {
                left.push_back(gap);
            }
        }
        let in_all = taken.iter().chain(&left).map(length).sum::<u64>();
        debug_assert_eq!(in_all, before, "bytes are lost or there twice");
        self.0 = left;
        taken
    }

    /// Has these be asked for after all.
    pub(super) fn put_back(&mut self, parts: Vec<Range<u64>>) {
        self.0.extend(parts);
    }
}

/// How it went with what is on this machine.
#[derive(Debug)]
pub(super) struct Landed {
    /// Bytes that the sink has.
    pub(super) bytes: u64,
    /// What was not there after all.
    pub(super) missing: Vec<Range<u64>>,
}

/// Gives a sink parts of a file that are on this machine.
pub(super) async fn land<S: Sink>(
    file: Arc<dyn NearbyFile>,
    parts: Vec<Range<u64>>,
    sink: Arc<S>,
) -> PartResult {
    let mut landed = Landed {
        bytes: 0,
        missing: Vec::new(),
    };
    let mut parts = Gaps(parts.into());
    let mut reading = JoinSet::new();
    loop {
        while reading.len() < AT_A_TIME
            && let Some(part) = parts.next(READ)
        {
            reading.spawn(copy(Arc::clone(&file), part, Arc::clone(&sink)));
        }
        match reading.join_next().await {
            None => return Ok(Part::Near(landed)),
            Some(Err(error)) => ended(error).await,
            Some(Ok(copied)) => match copied? {
                Copied::There(bytes) => landed.bytes += bytes,
                Copied::Missing(part) => {
                    landed.missing.push(part);
                    // What is left is not there either.
                    landed.missing.extend(parts.0.drain(..));
                }
            },
        }
    }
}

/// What became of a part.
enum Copied {
    /// The sink has so many bytes.
    There(u64),
    Missing(Range<u64>),
}

/// Gives a sink one part of a file.
async fn copy<S: Sink>(
    file: Arc<dyn NearbyFile>,
    part: Range<u64>,
    sink: Arc<S>,
) -> io::Result<Copied> {
    let bytes = length(&part);
    match file.read(part.clone()).await {
        Some(data) if data.len() as u64 == bytes => {
            sink.write(part.start, vec![data]).await?;
            Ok(Copied::There(bytes))
        }
        // The cache that has it may drop it at any time.
        _ => Ok(Copied::Missing(part)),
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_parts_are_not_worth_a_call_more() {
        let mut gaps = Gaps::from(0..10 * LEAST);
        let there = [0..LEAST, 2 * LEAST..3 * LEAST - 1, 9 * LEAST..20 * LEAST];
        assert_eq!(gaps.take_out(&there), [0..LEAST, 9 * LEAST..10 * LEAST]);
        assert_eq!(gaps.bytes(), 8 * LEAST);
        let mut gaps = Gaps::from(5..10);
        assert_eq!(
            gaps.take_out(&[0..2, 3..100]),
            vec![Range { start: 5, end: 10 }]
        );
        assert!(gaps.is_empty() && gaps.next(1).is_none());
    }

    proptest! {
        #[test]
        fn every_octet_is_taken_or_asked_for_once(
            all in (0_u64..20, 0_u64..40),
            cuts in prop::collection::btree_set(0_u64..60, 0..12),
            most in 1_u64..5,
        ) {
            let scaled = |at: u64| at * (LEAST / 4);
            let cuts: Vec<_> = cuts.into_iter().collect();
            let there: Vec<_> = cuts.chunks_exact(2).map(|cut| scaled(cut[0])..scaled(cut[1])).collect();
            let all = scaled(all.0)..scaled(all.0 + all.1);
            let mut gaps = Gaps::from(all.clone());
            let mut parts = gaps.take_out(&there);
            for part in &parts {
                prop_assert!(there.iter().any(|there| there.start <= part.start && part.end <= there.end));
            }
            while let Some(part) = gaps.next(scaled(most)) {
                prop_assert!(length(&part) <= scaled(most));
                parts.push(part);
            }
            parts.sort_by_key(|part| part.start);
            let mut at = all.start;
            for part in parts {
                prop_assert_eq!(part.start, at);
                prop_assert!(part.end > at);
                at = part.end;
            }
            prop_assert_eq!(at, all.end);
        }
    }
}
