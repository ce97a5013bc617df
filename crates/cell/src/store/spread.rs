//! Storing one file by several calls at a time.
//!
//! They are many and small for servers that take little of a call at a time. An OpenAFS file server
//! lets a sender have 32 packets under way in a call, 45 KB a round trip, however long the way is. It
//! also locks the file for a call, from when it has read the call's arguments until it has read its
//! data: long calls for one file wait for each other. But a call of at most 32 packets is received
//! whole before anybody looks at it. While one is written, the data of others arrives; each holds the
//! lock for no longer than its writing takes. So as many are under way as bring more than fewer did,
//! and others' calls have their turn between them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use afar_types::{FetchStatus, Fid, StoreStatus};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::part::Part;
use super::{Parts, Source, Stored, at_end};
use crate::client::Client;
use crate::ended::ended;
use crate::error::Error;
use crate::volume::Volume;
use crate::waits::carried;

/// What fits into 32 packets of 1,416 bytes with the call's arguments before it.
// spec: rx#how-openafs-sends
pub(super) const FAR_PART: u64 = 44 << 10;
/// Calls under way at first.
const FIRST: usize = 8;
/// And at most.
const MOST: usize = 64;
/// Of so many more calls, this share must be seen in what they bring, else they are taken back.
const GAIN: f64 = 0.125;
/// After so many rounds it is tried again whether more calls bring more.
const PATIENCE: u32 = 12;

/// What is to be stored where.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) parts: Parts,
    pub(super) fid: Fid,
    pub(super) range: Range<u64>,
    pub(super) file_length: u64,
    pub(super) attributes: StoreStatus,
}

impl Client {
    /// Stores a range by several calls. Attributes other than the time go with the last, which is
    /// made when all others are done then.
    pub(super) async fn store_spread<S: Source>(
        &self,
        volume: &Arc<Volume>,
        task: &Task,
        source: &Arc<S>,
    ) -> Result<Stored, Error> {
        let Range { start, end } = task.range;
        let mut stored = Stored::default();
        let part = |position: u64| {
            let length = task.parts.next(end - position);
            Part {
                fid: task.fid,
                attributes: at_end(task.attributes, position + length == end),
                position,
                length,
                file_length: task.file_length,
            }
        };
        // A mode that keeps the writer out would keep out the parts that are still under way.
        let in_order = task.attributes.mask & !StoreStatus::SET_MOD_TIME != 0;
        let together = |at| at < end && !(in_order && task.parts.is_last(end - at));
        let mut load = Load::new(task.parts.calls);
        let mut running = JoinSet::new();
        let (mut at, mut failed) = (start, None);
        // Whether all that was begun is on its way, where the caller waits for that.
        let (sent, mut all_sent) = (Arc::new(Notify::new()), true);
        loop {
            while failed.is_none()
                && together(at)
                && running.len() < load.limit
                && (all_sent || running.is_empty())
            {
                let (client, part) = (self.clone(), part(at));
                let (volume, source) = (Arc::clone(volume), Arc::clone(source));
                let sent = Arc::clone(&sent);
                running.spawn(carried(async move {
                    let status = client.store_part(&volume, part, &source, &sent).await?;
                    Ok((status, part.length))
                }));
                at += part.length;
                all_sent = !task.parts.in_turn();
            }
            let done = tokio::select! {
                biased;
                () = sent.notified(), if !all_sent => {
                    all_sent = true;
                    continue;
                }
                done = running.join_next() => done,
            };
            let Some(done) = done else {
                break;
            };
            match settled(done).await {
                Ok((status, length)) => {
                    load.done(length, Instant::now());
                    stored.take(status, length);
                }
                // Waits for those under way: none is to change the file after this has returned.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        while at < end {
            let part = part(at);
            let status = self.store_part(volume, part, source, &sent).await?;
            stored.take(status, part.length);
            at += part.length;
        }
        debug_assert_eq!(stored.bytes, end.saturating_sub(start), "{task:?}");
        Ok(stored)
    }
}

type PartResult = Result<(FetchStatus, u64), Error>;

async fn settled(done: Result<PartResult, JoinError>) -> PartResult {
    match done {
        Ok(result) => result,
        Err(error) => ended(error).await,
    }
}

/// How many calls are under way, found by what rounds of as many bring.
#[derive(Debug)]
struct Load {
    limit: usize,
    /// The limit before it was last raised; the same if that proved good, or was taken back.
    before: usize,
    fixed: bool,
    /// Of the present round: when it began, its calls and bytes.
    since: Option<Instant>,
    calls: usize,
    octets: u64,
    /// What a round with the limit before brought, in bytes a second.
    rate: f64,
    /// Rounds since the limit was last changed.
    rounds: u32,
}

impl Load {
    fn new(fixed: Option<usize>) -> Self {
        let limit = fixed.map_or(FIRST, |calls| calls.clamp(1, MOST));
        Self {
            limit,
            before: limit,
            fixed: fixed.is_some(),
            since: None,
            calls: 0,
            octets: 0,
            rate: 0.0,
            rounds: PATIENCE,
        }
    }

    /// A call that stored so many bytes is done.
    fn done(&mut self, octets: u64, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.calls += 1;
        self.octets += octets;
        // Two generations of calls: the first may still be of the limit before.
        if self.fixed || self.calls < 2 * self.limit {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = self.octets as f64 / now.duration_since(since).as_secs_f64().max(1e-6);
        (self.since, self.calls, self.octets) = (Some(now), 0, 0);
        self.judge(rate);
    }

    /// Takes in what a round brought.
    fn judge(&mut self, rate: f64) {
        self.rounds += 1;
        let more = count(self.limit) / count(self.before) - 1.0;
        if more > 0.0 && rate < self.rate * (1.0 + more * GAIN) {
            (self.limit, self.rounds) = (self.before, 0);
            return;
        }
        if more > 0.0 || self.rounds > PATIENCE {
            self.rounds = 0;
            self.before = self.limit;
            self.limit = (self.limit + self.limit / 2).min(MOST);
        }
        debug_assert!(self.before <= self.limit && self.limit <= MOST, "{self:?}");
        self.rate = rate;
    }
}

fn count(calls: usize) -> f64 {
    f64::from(u32::try_from(calls).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Calls under way in the end, when a server finishes so many a second at most and each takes a
    /// round trip at least.
    fn settles(round_trip: f64, most: f64) -> usize {
        let mut load = Load::new(None);
        let begun = Instant::now();
        let mut at = 0.0;
        for _ in 0..20_000 {
            let calls = f64::from(u32::try_from(load.limit).unwrap());
            at += (round_trip / calls).max(1.0 / most);
            load.done(FAR_PART, begun + Duration::from_secs_f64(at));
        }
        load.limit
    }

    #[test]
    fn there_are_as_many_calls_as_bring_more() {
        // 30 Mbit/s at 230 ms hold 19 calls, 100 Mbit/s at 12.5 ms 3.5, 1 Gbit/s more than are allowed.
        assert!((19..=42).contains(&settles(0.23, 85.0)));
        assert!((FIRST..=12).contains(&settles(0.0125, 280.0)));
        assert_eq!(settles(0.23, 2770.0), MOST);
    }

    #[test]
    fn a_number_that_is_set_stays() {
        let mut load = Load::new(Some(3));
        for _ in 0..100 {
            load.done(FAR_PART, Instant::now());
        }
        assert_eq!(load.limit, 3);
    }
}
