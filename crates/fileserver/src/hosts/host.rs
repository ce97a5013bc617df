//! A cache manager, as the file server sees it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use afar_net::Endpoint;
use afar_types::{AfsUuid, Fid};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::HostsConfig;
use super::gate::Gate;
use super::punctuality::Punctuality;
use super::table::HostIndex;

/// Addresses a host is known to call from; older ones are forgotten.
pub(super) const ADDRESSES_MAX: usize = 16;

/// A cache manager that calls this server, whatever addresses and connections it uses.
pub struct Host {
    index: HostIndex,
    state: Mutex<HostState>,
    pub(super) punctuality: Punctuality,
    /// Told when questions have been answered, and when overdue breaks have.
    pub(super) changed: Notify,
}

/// How far a host may be trusted with promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not said who it is.
    Unknown,
    /// It answers, and holds the promises that the table has.
    Ready,
    /// It did not answer when promises were broken. It holds none by our account, and has to drop
    /// all it has before it is served again.
    Down,
    /// It is in no table any more: evicted, or found to be another host's address.
    Gone,
}

/// What changes of a host. Locked after the tables, never before, and never across an await.
pub(super) struct HostState {
    pub(super) standing: Standing,
    pub(super) uuid: Option<AfsUuid>,
    /// Where it calls from. Breaks go to the first.
    pub(super) peers: Vec<SocketAddr>,
    /// The addresses it tells of.
    pub(super) interfaces: Vec<IpAddr>,
    pub(super) translates_errors: bool,
    /// The endpoint it calls, from which it is called back.
    pub(super) endpoint: Option<Endpoint>,
    /// When it last called.
    pub(super) active: Instant,
    /// When it was last asked who it is.
    pub(super) asked: Option<Instant>,
    /// It is being asked who it is.
    pub(super) asking: bool,
    /// It was asked and did not answer in time: nobody waits for it any more, unless it [must be
    /// told](HostState::must_be_told).
    pub(super) silent: bool,
    /// Until then it may trust what it was promised before a crash, unless it says who it is.
    pub(super) doubted_until: Option<Instant>,
    /// Breaks that wait for the one that is under way.
    pub(super) breaks: VecDeque<Break>,
    /// A task is working on the breaks.
    pub(super) breaking: bool,
    /// While it is: since when the oldest of them is due.
    pub(super) due: Instant,
    /// It has not heard of a change that did not wait for it, or no longer does: none of its calls is
    /// served.
    pub(super) late: bool,
    /// A task tries to reach it while it is down.
    pub(super) reminded: bool,
}

/// A promise to break.
pub(super) struct Break {
    pub(super) fid: Fid,
    /// Since when.
    pub(super) since: Instant,
    /// The waiters until it is broken.
    pub(super) gate: Option<Arc<Gate>>,
}

/// What is to be done with a call of a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Serve it.
    Serve,
    /// Ask the host who it is; wait until then, unless it is silent.
    Ask { wait: Option<Instant> },
    /// Wait until something changes, or until then.
    Wait(Instant),
    /// Wait until it has heard of the promises that were broken.
    Settle,
    /// Look for the host again.
    Again,
}

impl Host {
    pub(super) fn new(
        index: HostIndex,
        peers: Vec<SocketAddr>,
        punctuality: Punctuality,
        now: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            index,
            state: Mutex::new(HostState {
                standing: Standing::Unknown,
                uuid: None,
                peers,
                interfaces: Vec::new(),
                translates_errors: false,
                endpoint: None,
                active: now,
                asked: None,
                asking: false,
                silent: false,
                doubted_until: None,
                breaks: VecDeque::new(),
                breaking: false,
                due: now,
                late: false,
                reminded: false,
            }),
            punctuality,
            changed: Notify::new(),
        })
    }

    /// The number it has in the tables while it is in them.
    pub(super) fn index(&self) -> HostIndex {
        self.index
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HostState> {
        self.state.lock()
    }

    /// Its identity, if it told one. Cache managers older than 2000 have none.
    #[must_use]
    pub fn uuid(&self) -> Option<AfsUuid> {
        self.lock().uuid
    }

    /// Whether it wants errors as UAE codes (AFS-3 CLIENT_CAPABILITY_ERRORTRANS).
    #[must_use]
    pub fn translates_errors(&self) -> bool {
        self.lock().translates_errors
    }

    /// The addresses it calls from, and those it tells of. Only the first kind is certain.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let state = self.lock();
        let mut addresses: Vec<IpAddr> = Vec::new();
        let all = state.peers.iter().map(SocketAddr::ip);
        for address in all.chain(state.interfaces.iter().copied()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }
}

impl HostState {
    /// What to do with a call that comes now.
    pub(super) fn step(&mut self, config: &HostsConfig, now: Instant) -> Step {
        if self.standing == Standing::Gone {
            return Step::Again;
        }
        if self.is_behind(config, now) {
            return Step::Settle;
        }
        if self.must_be_told(now) {
            self.active = now;
            let pause = self.asked.map(|asked| asked + config.introduction_wait);
            return match pause {
                _ if self.asking => Step::Wait(now + config.told_limit),
                Some(until) if until > now => Step::Wait(until),
                _ => {
                    (self.asking, self.asked) = (true, Some(now));
                    let wait = Some(now + config.told_limit);
                    Step::Ask { wait }
                }
            };
        }
        // Of a host that is new, nothing says that it listens at all.
        let patience = config.introduction_wait;
        if self.asking {
            let until = self.asked.map_or(now, |asked| asked + patience);
            let over = self.silent || until <= now;
            return if over { Step::Serve } else { Step::Wait(until) };
        }
        let due = match self.standing {
            Standing::Ready => now.duration_since(self.active) >= config.verify_after,
            _ => match self.asked {
                Some(asked) if self.silent => now.duration_since(asked) >= config.ask_again_after,
                _ => true,
            },
        };
        self.active = now;
        if !due {
            return Step::Serve;
        }
        (self.asking, self.asked) = (true, Some(now));
        Step::Ask {
            wait: (!self.silent).then(|| now + patience),
        }
    }

    /// Whether it may trust what is no longer so. An answer to a call of it might reach it before it is told,
    /// when the path is cut just now, and begin something that builds on both: so no call is served before.
    pub(super) fn must_be_told(&self, now: Instant) -> bool {
        match self.standing {
            Standing::Down => true,
            Standing::Unknown => self.doubted_until.is_some_and(|until| now < until),
            Standing::Ready | Standing::Gone => false,
        }
    }

    /// Whether there are changes that it has not heard of and that may have been answered.
    pub(super) fn is_behind(&self, config: &HostsConfig, now: Instant) -> bool {
        // No change waits for longer.
        let overdue = self.breaking && now.duration_since(self.due) >= config.change_wait;
        self.late || overdue
    }

    /// Notes that it calls from this address too. Returns one that is forgotten for it.
    pub(super) fn add_peer(&mut self, peer: SocketAddr, first: bool) -> Option<SocketAddr> {
        self.peers.retain(|known| *known != peer);
        // Not the first one: it answered last, and breaks go there.
        let forgotten = (self.peers.len() >= ADDRESSES_MAX).then(|| self.peers.remove(1));
        let place = if first { 0 } else { self.peers.len() };
        self.peers.insert(place, peer);
        forgotten
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Host")
            .field("uuid", &state.uuid)
            .field("peers", &state.peers)
            .field("standing", &state.standing)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(now: Instant) -> Arc<Host> {
        let peers = vec!["192.0.2.1:7001".parse().unwrap()];
        Host::new(0, peers, Punctuality::default(), now)
    }

    fn config() -> HostsConfig {
        HostsConfig::new(AfsUuid::default())
    }

    #[test]
    fn a_new_host_is_waited_for_once() {
        let (now, config) = (Instant::now(), config());
        let host = host(now);
        let mut state = host.lock();
        let until = now + config.introduction_wait;
        assert_eq!(state.step(&config, now), Step::Ask { wait: Some(until) });
        assert_eq!(state.step(&config, now), Step::Wait(until));
        assert_eq!(state.step(&config, until), Step::Serve);
        (state.asking, state.silent) = (false, true);
        assert_eq!(state.step(&config, until), Step::Serve);
        let later = now + config.ask_again_after;
        assert_eq!(state.step(&config, later), Step::Ask { wait: None });
    }

    #[test]
    fn a_host_that_has_rested_is_asked_again() {
        let (now, config) = (Instant::now(), config());
        let host = host(now);
        let mut state = host.lock();
        state.standing = Standing::Ready;
        let soon = now + config.verify_after / 2;
        assert_eq!(state.step(&config, soon), Step::Serve);
        assert_eq!(
            state.step(&config, soon + config.verify_after / 2),
            Step::Serve
        );
        let late = soon + config.verify_after * 2;
        assert!(matches!(state.step(&config, late), Step::Ask { .. }));
    }

    #[test]
    fn who_has_not_heard_waits() {
        let (now, config) = (Instant::now(), config());
        let host = host(now);
        let mut state = host.lock();
        state.standing = Standing::Ready;
        (state.breaking, state.due) = (true, now);
        assert_eq!(state.step(&config, now), Step::Serve, "changes wait for it");
        let overdue = now + config.change_wait;
        assert_eq!(state.step(&config, overdue), Step::Settle);
        (state.breaking, state.late) = (false, true);
        assert_eq!(state.step(&config, now), Step::Settle);
        state.late = false;
        state.standing = Standing::Down;
        let limit = now + config.told_limit;
        assert_eq!(state.step(&config, now), Step::Ask { wait: Some(limit) });
        assert_eq!(state.step(&config, now), Step::Wait(limit));
        (state.asking, state.silent) = (false, true);
        let again = now + config.introduction_wait;
        assert_eq!(state.step(&config, now), Step::Wait(again));
        assert!(matches!(state.step(&config, again), Step::Ask { .. }));
        state.standing = Standing::Gone;
        assert_eq!(state.step(&config, now), Step::Again);
    }

    #[test]
    fn addresses_are_bounded_and_the_first_stays() {
        let host = host(Instant::now());
        let mut state = host.lock();
        for port in 1..=100 {
            let peer = SocketAddr::from(([192, 0, 2, 2], port));
            let full = state.peers.len() == ADDRESSES_MAX;
            assert_eq!(state.add_peer(peer, false).is_some(), full);
            assert_eq!(state.peers.last(), Some(&peer));
        }
        assert_eq!(state.peers.len(), ADDRESSES_MAX);
        assert_eq!(state.peers[0], "192.0.2.1:7001".parse().unwrap());
    }
}
