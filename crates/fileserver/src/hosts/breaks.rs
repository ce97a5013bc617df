//! Breaking promises: who waits for whom.
//!
//! Each host has a queue of promises to break and at most one call under way, which takes up to 50
//! of them; what comes meanwhile goes with the next. A change waits at a [`Gate`] until every host
//! has answered, or is overdue; also at those of earlier changes of the same file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, CallError, Endpoint, RxNull};
use afar_rpc::{RpcCause, RpcError, rxafscb};
use afar_types::{CallBacks, Fid, Fids};
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::config::count;
use super::gate::Gate;
use super::host::{Break, Host, HostState, Standing};
use super::table::HostIndex;

/// How long a host that does not answer counts among those that are called at a time.
pub(super) const SLOT_TIME: Duration = Duration::from_millis(100);

/// Addresses of a host that are tried before it counts as down.
const ADDRESSES_TRIED: usize = 3;

/// How often a host that is down is tried again, each time after twice as long: for about an hour.
const REMINDERS: u32 = 12;

/// Promises of a host that are forgotten under one lock.
const SLICE: usize = 1024;

impl Shared {
    /// Breaks promises that are in the table no more: `broken` says whose and of what. Returns when
    /// all hosts have answered that are not overdue, and `earlier` gates are open.
    pub(super) async fn break_all(
        self: &Arc<Self>,
        broken: Vec<(HostIndex, Fid)>,
        gate: Arc<Gate>,
        earlier: Vec<Arc<Gate>>,
    ) {
        count(&self.counters.broken, broken.len());
        self.start_breaks(broken, &gate);
        let all = async {
            gate.wait().await;
            for gate in earlier {
                gate.wait().await;
            }
        };
        // Every host has a limit of its own. This one is for thousands of them on a machine that
        // is too slow for its clients, and for hosts that take one call after the other: a change
        // is never held up for longer. Those that have not heard by then are behind, and not served.
        if timeout(self.config.change_wait, all).await.is_err() {
            tracing::warn!("a change did not wait for all breaks: too many are in progress");
        }
    }

    /// Puts breaks into their hosts' queues, and sees to it that they are worked on. The gate opens
    /// when they are done.
    pub(super) fn start_breaks(
        self: &Arc<Self>,
        mut broken: Vec<(HostIndex, Fid)>,
        gate: &Arc<Gate>,
    ) {
        broken.sort_unstable();
        broken.dedup();
        for promises in broken.chunk_by(|one, other| one.0 == other.0) {
            let host = self.state.lock().registry.number(promises[0].0).cloned();
            if let Some(host) = host
                && queue(&host, promises, gate)
            {
                self.spawn_breaker(host);
            }
        }
        gate.arrive();
    }

    fn spawn_breaker(self: &Arc<Self>, host: Arc<Host>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime nobody can be called; the host hears of it when it calls.
            self.mark_down(&host);
            host.lock().breaking = false;
            return;
        };
        let shared = Arc::clone(self);
        runtime.spawn(async move { shared.work_on(host).await });
    }

    /// Works on a host's breaks until there are none.
    async fn work_on(self: Arc<Self>, host: Arc<Host>) {
        loop {
            let batch: Vec<Break> = {
                let mut state = host.lock();
                let number = state.breaks.len().min(Fids::MAX);
                if number == 0 {
                    debug_assert!(state.breaking, "two work on the breaks of a host");
                    (state.breaking, state.late) = (false, false);
                    break;
                }
                state.due = state.breaks[0].since;
                state.breaks.drain(..number).collect()
            };
            let (fids, gates): (Vec<Fid>, Vec<Option<Arc<Gate>>>) =
                batch.into_iter().map(|one| (one.fid, one.gate)).unzip();
            let mut gates: Vec<Arc<Gate>> = gates.into_iter().flatten().collect();
            let answered = self.deliver(&host, fids, &mut gates).await;
            if !answered {
                self.mark_down(&host);
            }
            gates.drain(..).for_each(|gate| gate.arrive());
        }
        host.changed.notify_waiters();
    }

    /// Tells a host of broken promises. Returns whether it has answered. When it is overdue,
    /// those who wait for it, and for what is in its queue, are let go first.
    async fn deliver(&self, host: &Host, fids: Vec<Fid>, gates: &mut Vec<Arc<Gate>>) -> bool {
        let (endpoint, peers) = {
            let state = host.lock();
            let endpoint = state.endpoint.clone().or_else(|| self.endpoint());
            (endpoint, state.peers.clone())
        };
        let (Some(endpoint), Ok(fids)) = (endpoint, Fids::new(fids)) else {
            return false;
        };
        let slot = self.slots.acquire().await;
        let begun = Instant::now();
        let call = self.tell_one_of(host, &endpoint, &peers, &fids);
        tokio::pin!(call);
        let soon = timeout(SLOT_TIME, &mut call).await;
        // A host that is slow does not keep those behind it from being told.
        drop(slot);
        let wait = self.config.break_wait;
        let in_time = match soon {
            Ok(answered) => Ok(answered),
            Err(_) => timeout_at(begun + wait, &mut call).await,
        };
        if let Ok(answered) = in_time {
            if answered {
                host.punctuality.answered(begun.elapsed(), wait);
            }
            return answered;
        }
        count(&self.counters.breaks_late, 1);
        if !gates.is_empty() {
            host.punctuality.late();
        }
        {
            let mut state = host.lock();
            state.late = true;
            // What is queued behind this call would be late as well.
            gates.extend(state.breaks.iter_mut().filter_map(|one| one.gate.take()));
        }
        gates.drain(..).for_each(|gate| gate.arrive());
        let answered = call.await;
        if answered {
            self.try_again(host, &endpoint).await;
        }
        answered
    }

    /// A host that was late is back: whether it is quick again is seen before the next change.
    async fn try_again(&self, host: &Host, endpoint: &Endpoint) {
        let Some(peer) = host.lock().peers.first().copied() else {
            return;
        };
        let (begun, wait) = (Instant::now(), self.config.break_wait);
        let client = callback_client(endpoint, peer);
        if let Ok(Ok(_)) = timeout(wait, client.probe()).await {
            host.punctuality.answered(begun.elapsed(), wait);
        }
    }

    /// Tries the addresses of a host, the usual one first. The one that answers is the usual one
    /// from then on.
    async fn tell_one_of(
        &self,
        host: &Host,
        endpoint: &Endpoint,
        peers: &[SocketAddr],
        fids: &Fids,
    ) -> bool {
        for &peer in peers.iter().take(ADDRESSES_TRIED) {
            let client = callback_client(endpoint, peer);
            // spec: afs-rpc#breaks
            // As OpenAFS sends it. The list may say of each fid that its promise is dropped; Linux's
            // client refuses every break that does.
            let call = async || {
                let first = client.call_back(fids.clone(), CallBacks::default()).await;
                match first {
                    // Linux's client aborts a call now and then that it carries out. One that hears answers, so it is
                    // told once more before it counts as down: it does not always drop all it has then.
                    Err(error) if is_aborted(&error) => {
                        client.call_back(fids.clone(), CallBacks::default()).await
                    }
                    first => first,
                }
            };
            let begun = Instant::now();
            let told = matches!(timeout(self.config.break_limit, call()).await, Ok(Ok(_)));
            afar_probes::cb_break(peer, fids.len(), begun.elapsed(), told);
            if told {
                count(&self.counters.break_calls, 1);
                let mut state = host.lock();
                if let Some(place) = state.peers.iter().position(|known| *known == peer) {
                    // The next break goes there first.
                    state.peers.swap(0, place);
                }
                return true;
            }
        }
        false
    }

    /// A host did not answer: it has no promises any more, and must drop those it has before its
    /// next call is served. So later changes have nothing to do with it.
    // spec: afs-rpc#breaks
    pub(super) fn mark_down(self: &Arc<Self>, host: &Arc<Host>) {
        count(&self.counters.breaks_failed, 1);
        // From here on it gets no new promises. Until it is `Down` its calls wait, as it is late.
        host.lock().late = true;
        let gates = loop {
            let mut tables = self.state.lock();
            let known = tables.registry.knows(host);
            if known && tables.table.shut_host(host.index(), SLICE) == SLICE {
                continue;
            }
            debug_assert!(!known || tables.table.held(host.index()) == 0);
            // Under the lock of the tables, so that it is not admitted in between.
            break host.lock().fall();
        };
        gates.into_iter().for_each(|gate| gate.arrive());
        host.changed.notify_waiters();
        self.start_reminding(host);
    }

    /// Has a host that is down tried again and again.
    pub(super) fn start_reminding(self: &Arc<Self>, host: &Arc<Host>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut state = host.lock();
        if state.standing == Standing::Down && !std::mem::replace(&mut state.reminded, true) {
            let (shared, host) = (Arc::clone(self), Arc::clone(host));
            runtime.spawn(async move { shared.remind(host).await });
        }
    }

    /// Tells a host that is down to drop all it has, when it hears again. A client that needs only what it has kept
    /// does not call, and would trust that for hours.
    async fn remind(self: Arc<Self>, host: Arc<Host>) {
        let mut pause = self.config.remind_after;
        for _ in 0..REMINDERS {
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
            let _turn = self.reminders.acquire().await;
            let telling = self.tell_if_down(&host);
            // Others wait for their turn.
            if let Ok(Ok(false)) = timeout(self.config.break_limit, telling).await {
                break;
            }
        }
        host.lock().reminded = false;
    }

    /// Tells a host that is down to drop all it has, as if it had called. Returns whether it was down.
    ///
    /// # Errors
    /// It was not told.
    pub(super) async fn tell_if_down(self: &Arc<Self>, host: &Host) -> Result<bool, AbortCode> {
        let (standing, endpoint, peer) = {
            let state = host.lock();
            let peer = state.peers.first().copied();
            (state.standing, state.endpoint.clone(), peer)
        };
        let endpoint = endpoint.or_else(|| self.endpoint());
        match (standing, endpoint, peer) {
            (Standing::Down, Some(endpoint), Some(peer)) => {
                self.identify(&endpoint, peer).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl HostState {
    /// It counts as down. Returns who waits for it in vain.
    fn fall(&mut self) -> Vec<Arc<Gate>> {
        if self.standing != Standing::Gone {
            self.standing = Standing::Down;
        }
        // It is asked again at once when it calls.
        (self.asked, self.silent, self.late) = (None, false, false);
        let breaks = self.breaks.drain(..);
        breaks.filter_map(|one| one.gate).collect()
    }
}

/// Puts promises to break into a host's queue. Returns whether a task is to be started for them.
fn queue(host: &Host, promises: &[(HostIndex, Fid)], gate: &Arc<Gate>) -> bool {
    let mut state = host.lock();
    match state.standing {
        // It has to drop all it has before it is served: there is nothing to tell.
        Standing::Down | Standing::Gone => return false,
        Standing::Unknown | Standing::Ready => {}
    }
    let since = Instant::now();
    if !state.breaking {
        state.due = since;
    }
    let all = promises.iter().map(|&(_, fid)| Break {
        fid,
        since,
        gate: None,
    });
    state.breaks.extend(all);
    // A change that is answered while this host does not know of it: no call of the host is served
    // until it does.
    state.late |= !host.punctuality.is_waited_for();
    if !state.late
        && let Some(last) = state.breaks.back_mut()
    {
        gate.expect_another();
        last.gate = Some(Arc::clone(gate));
    }
    !std::mem::replace(&mut state.breaking, true)
}

/// Whether the other side has ended a call itself.
fn is_aborted(error: &RpcError) -> bool {
    matches!(error.cause, RpcCause::Call(CallError::Aborted(_)))
}

/// A host's callback service, at the address it calls from.
// spec: security#levels-that-peers-ask-for
pub(super) fn callback_client(endpoint: &Endpoint, peer: SocketAddr) -> rxafscb::Client {
    rxafscb::Client::new(endpoint.connect(peer, rxafscb::SERVICE, Arc::new(RxNull)))
}
