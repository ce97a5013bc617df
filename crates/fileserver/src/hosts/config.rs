//! Settings and counters.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_types::AfsUuid;

/// Settings of [`Hosts`](super::Hosts).
#[derive(Debug, Clone)]
pub struct HostsConfig {
    /// The server's UUID, by which hosts know whose promises are over.
    pub server: AfsUuid,
    /// Hosts known at a time. When there are more, those go first that never answered, then those
    /// without promises, then those that have not called for longest.
    pub hosts_max: usize,
    /// Promises standing at a time, each of which costs up to 100 bytes of memory. When there are
    /// more, those that end first are broken.
    pub promises_max: usize,
    /// How many hosts are called at a time. A host that has not answered within 100 ms no longer
    /// counts, so that the dead do not keep the living waiting.
    pub breaks_at_once: usize,
    /// How long a change waits for a host that does not answer. It is the same for all, since a
    /// host could make its round trips seem as long as it likes.
    pub break_wait: Duration,
    /// How long a change waits at most, however many hosts have to be told, and in how many calls.
    pub change_wait: Duration,
    /// How long a host has to answer on each of its addresses until it counts as down. OpenAFS
    /// allows 4 s.
    pub break_limit: Duration,
    /// How long a call of a host that missed breaks waits until the host has dropped all it has. Then it is
    /// refused, before Rx takes it for dead.
    pub told_limit: Duration,
    /// After a crash, which loses what hosts were promised: for how long after its first call a host that does not
    /// answer counts as one that missed breaks.
    pub doubt_after_crash: Duration,
    /// After what time a host that is down is tried again, the first time.
    pub remind_after: Duration,
    /// How long the first call of a host waits until the host has said who it is.
    pub introduction_wait: Duration,
    /// How long a host has to say who it is before it counts as silent.
    pub introduction_limit: Duration,
    /// After what time a silent host that calls is asked again.
    pub ask_again_after: Duration,
    /// After what time without a call a host is asked whether it still is who it was.
    pub verify_after: Duration,
    /// After what time without a call a host that holds no promise is forgotten.
    pub forget_after: Duration,
    /// The file that [`Hosts::save`](super::Hosts::save) wrote when the server stopped, if hosts and
    /// promises are to be taken from there. It is emptied, so that no later start reads it, and one after a crash
    /// knows that promises were lost.
    pub restore: Option<PathBuf>,
}

impl HostsConfig {
    /// 100,000 hosts, 4 million promises (400 MB at most), 512 breaks at a time, and times that
    /// suit long links.
    #[must_use]
    pub fn new(server: AfsUuid) -> Self {
        Self {
            server,
            hosts_max: 100_000,
            promises_max: 4_000_000,
            breaks_at_once: 512,
            break_wait: Duration::from_millis(500),
            change_wait: Duration::from_secs(2),
            break_limit: Duration::from_secs(4),
            told_limit: Duration::from_secs(20),
            doubt_after_crash: Duration::from_secs(120),
            remind_after: Duration::from_secs(1),
            introduction_wait: Duration::from_secs(1),
            introduction_limit: Duration::from_secs(8),
            ask_again_after: Duration::from_secs(60),
            verify_after: Duration::from_secs(300),
            forget_after: Duration::from_secs(7200),
            restore: None,
        }
    }
}

/// What there is at the moment, and what has happened since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Hosts known.
    pub hosts: u64,
    /// Of them, hosts that did not answer a break, and must drop all promises when they come back.
    pub hosts_down: u64,
    /// Of them, hosts that have not said who they are.
    pub hosts_unknown: u64,
    /// Promises standing.
    pub promises: u64,
    /// Files and volumes they are of.
    pub files: u64,
    /// Promises made, or made again.
    pub promised: u64,
    /// Promises broken because of a change.
    pub broken: u64,
    /// Promises that ended by themselves.
    pub expired: u64,
    /// Promises broken to make room.
    pub evicted: u64,
    /// Promises that hosts gave up.
    pub given_up: u64,
    /// Calls that broke promises and were answered.
    pub break_calls: u64,
    /// Hosts that were not waited for until they answered.
    pub breaks_late: u64,
    /// Hosts that did not answer and count as down since.
    pub breaks_failed: u64,
    /// Hosts told to drop all promises.
    pub resets: u64,
    /// Hosts forgotten: idle, or to make room.
    pub hosts_forgotten: u64,
}

/// The counting part of [`HostStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) promised: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) break_calls: AtomicU64,
    pub(super) breaks_late: AtomicU64,
    pub(super) breaks_failed: AtomicU64,
    pub(super) resets: AtomicU64,
    pub(super) hosts_forgotten: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn stats(&self) -> HostStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HostStats {
            promised: read(&self.promised),
            broken: read(&self.broken),
            expired: read(&self.expired),
            evicted: read(&self.evicted),
            given_up: read(&self.given_up),
            break_calls: read(&self.break_calls),
            breaks_late: read(&self.breaks_late),
            breaks_failed: read(&self.breaks_failed),
            resets: read(&self.resets),
            hosts_forgotten: read(&self.hosts_forgotten),
            ..HostStats::default()
        }
    }
}
