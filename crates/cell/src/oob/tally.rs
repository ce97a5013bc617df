//! What is counted of one server, for all users of it, and how that is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::blocked::Blocked;
use super::offer::Asked;
use super::pace::{By, Pace};

/// Whether a server offers transfers out of band.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OobOffer {
    /// It was not asked, or has not answered.
    #[default]
    NotAsked,
    /// It does.
    Offered,
    /// It does not, or nothing that is known here.
    NotOffered,
    /// TCP did not reach it, or broke: for so long it is not tried again.
    Blocked(Duration),
}

/// Transfers of one kind, since the client began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OobTransfers {
    /// Those under way now.
    pub under_way: u64,
    /// Bytes of files that came, or went, also by those that did not end well.
    pub bytes: u64,
    /// Those that ended well.
    pub done: u64,
    /// Those that ended with a code of the server.
    pub aborted: u64,
    /// Those of which the rest, or all, was left to Rx.
    pub by_rx: u64,
    /// Those that were no longer wanted here, or whose data could not be used.
    pub given_up: u64,
}

/// What goes out of band between a client and a file server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OobServer {
    /// The server.
    pub address: SocketAddr,
    /// Whether it offers that.
    pub offer: OobOffer,
    /// Connections to it that can be used: one for each user who has large files of it.
    pub connections: u64,
    /// Transfers from it.
    pub fetches: OobTransfers,
    /// Transfers to it.
    pub stores: OobTransfers,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Aborted,
    ByRx,
}

/// What is counted of a server.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answer: Mutex<OobOffer>,
    pub(crate) fetches: Arc<Count>,
    pub(crate) stores: Arc<Count>,
}

/// Counts transfers of one kind.
#[derive(Debug, Default)]
pub(crate) struct Count {
    under_way: AtomicU64,
    bytes: AtomicU64,
    done: AtomicU64,
    aborted: AtomicU64,
    by_rx: AtomicU64,
    given_up: AtomicU64,
    pace: Pace,
}

/// A large piece by a call, as long as that is under way.
#[derive(Debug)]
pub(crate) struct Called(Arc<Count>);

/// A transfer that counts as one under way. One that is dropped before it has ended was given up.
#[derive(Debug)]
pub(crate) struct Counted {
    count: Arc<Count>,
    ended: Option<Ended>,
}

impl Tally {
    /// The server was asked for an offer.
    pub(crate) fn asked(&self, answer: &Asked) {
        *self.answer.lock() = match answer {
            Asked::Offered(_) => OobOffer::Offered,
            Asked::Unknown => OobOffer::NotOffered,
            Asked::Failed => return,
        };
    }

    /// The server is to be asked again if it does not offer any.
    pub(crate) fn retry(&self) {
        let mut answer = self.answer.lock();
        if *answer == OobOffer::NotOffered {
            *answer = OobOffer::NotAsked;
        }
    }

    /// What the server last said of it, unless TCP does not reach it.
    pub(crate) fn offer(&self, blocked: &Blocked) -> OobOffer {
        let answer = *self.answer.lock();
        blocked.left().map_or(answer, OobOffer::Blocked)
    }
}

impl Count {
    /// One begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Counted {
        self.under_way.fetch_add(1, Relaxed);
        self.pace.begin(By::Tcp);
        Counted {
            count: Arc::clone(self),
            ended: None,
        }
    }

    /// A large piece is to pass by a call.
    pub(crate) fn call(self: &Arc<Self>) -> Called {
        self.pace.begin(By::Calls);
        Called(Arc::clone(self))
    }

    /// What was counted.
    pub(crate) fn read(&self) -> OobTransfers {
        OobTransfers {
            under_way: self.under_way.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            done: self.done.load(Relaxed),
            aborted: self.aborted.load(Relaxed),
            by_rx: self.by_rx.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
        }
    }
}

impl Counted {
    /// So many bytes of a file came, or went. Says whether calls have been so much faster that they should bring the
    /// rest.
    #[must_use]
    pub(crate) fn moved(&self, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.count.bytes.fetch_add(bytes, Relaxed);
        self.count.pace.moved(By::Tcp, bytes)
    }

    /// It has ended.
    pub(crate) fn ended(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Called {
    /// So many bytes came, or went.
    pub(crate) fn moved(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.0.pace.moved(By::Calls, bytes);
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        self.0.pace.end(By::Calls);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = &self.count;
        count.pace.end(By::Tcp);
        let ended = match self.ended {
            Some(Ended::Done) => &count.done,
            Some(Ended::Aborted) => &count.aborted,
            Some(Ended::ByRx) => &count.by_rx,
            None => &count.given_up,
        };
        ended.fetch_add(1, Relaxed);
        count.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocked::BLOCKED_TIME;
    use super::*;

    #[test]
    fn each_transfer_counts_once_however_it_ends() {
        let count = Arc::new(Count::default());
        let [done, aborted, left, dropped] = [(); 4].map(|()| count.begin());
        assert!(!done.moved(5) && !dropped.moved(2));
        assert_eq!((count.read().under_way, count.read().bytes), (4, 7));
        done.ended(Ended::Done);
        aborted.ended(Ended::Aborted);
        left.ended(Ended::ByRx);
        drop(dropped);
        assert_eq!(
            count.read(),
            OobTransfers {
                under_way: 0,
                bytes: 7,
                done: 1,
                aborted: 1,
                by_rx: 1,
                given_up: 1,
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_blocked_for_an_hour_and_then_as_it_was() {
        let (tally, blocked) = (Tally::default(), Blocked::default());
        assert_eq!(tally.offer(&blocked), OobOffer::NotAsked);
        tally.asked(&Asked::Unknown);
        assert_eq!(tally.offer(&blocked), OobOffer::NotOffered);
        tally.asked(&Asked::Failed);
        assert_eq!(
            tally.offer(&blocked),
            OobOffer::NotOffered,
            "it is no answer"
        );
        blocked.note();
        let most = Duration::from_secs(60);
        tokio::time::advance(most).await;
        let left = OobOffer::Blocked(BLOCKED_TIME - most);
        assert_eq!(tally.offer(&blocked), left);
        tokio::time::advance(BLOCKED_TIME - most).await;
        assert_eq!(tally.offer(&blocked), OobOffer::NotOffered);
        blocked.note();
        blocked.forget();
        tally.retry();
        assert_eq!(tally.offer(&blocked), OobOffer::NotAsked);
    }
}
