//! Callers: finding the host of an address, and asking new ones for their identity.
//!
//! A new address is asked who it is (TellMeAboutYourself, or WhoAreYou of cache managers that do
//! not know that). Three answers are possible. The identity is new: then the host has to drop the
//! promises it may hold from before this server started (InitCallBackState3). It is that of a known
//! host: then that one is asked at its own addresses (ProbeUuid), since everybody can claim to be it.
//! Or none comes: then the caller is served without any promise, and asked again after a while, unless it may
//! trust what it was promised before: then it is not served (spec: afs-rpc#breaks).
//!
//! Of a known host, the new address takes the place of the old one if nobody answers there, as after
//! a change of a NAT's port. If the old one answers, and says that the new address is one of its own,
//! it is added. If it does not say so, the caller is a host by itself without an identity: it gets
//! promises where it is, and nothing of the host whose identity it claims, which it may not give up
//! either. So machines that were copied with their identity are served well, too.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_net::{AbortCode, Endpoint, is_wanted};
use afar_rpc::RpcError;
use afar_types::error::VBUSY;
use afar_types::{AfsUuid, CAPABILITY_ERROR_TRANSLATION, InterfaceAddr};
use tokio::time::{Instant, timeout, timeout_at};

use super::breaks::callback_client;
use super::config::count;
use super::host::{Host, Standing, Step};
use super::questions::Question;
use super::{Shared, State};

/// How often the server checks whether a host that has missed breaks can be asked, while many others of its
/// machine are.
const ASKED_LATER: Duration = Duration::from_millis(50);

/// What a host says of itself.
#[derive(Debug, Clone)]
struct Answer {
    uuid: Option<AfsUuid>,
    interfaces: Vec<IpAddr>,
    translates_errors: bool,
}

/// What the host at an address told.
#[derive(Debug)]
struct Told {
    endpoint: Endpoint,
    peer: SocketAddr,
    answer: Answer,
    /// It has dropped all promises.
    reset: bool,
}

/// What becomes of an address whose host says that it is one that is known at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Nobody is at the other address any more.
    Moved,
    /// The host at the other address says that this is its own, too.
    Shared,
    /// It does not.
    Denied,
}

impl Answer {
    fn new(host: &InterfaceAddr, capabilities: &[u32]) -> Self {
        let flags = capabilities.first().copied().unwrap_or(0);
        Self {
            uuid: Some(host.uuid),
            interfaces: host.addresses().map(IpAddr::from).collect(),
            translates_errors: flags & CAPABILITY_ERROR_TRANSLATION != 0,
        }
    }
}

impl Shared {
    /// See [`Hosts::identify`](super::Hosts::identify).
    pub(super) async fn identify(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        peer: SocketAddr,
    ) -> Result<Arc<Host>, AbortCode> {
        let limit = Instant::now() + self.config.told_limit;
        let is_over = || limit <= Instant::now() || !is_wanted();
        loop {
            let host = self.host_at(peer);
            let changed = host.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, so that no answer comes unseen in between.
            changed.as_mut().enable();
            let (step, must_be_told) = {
                let mut state = host.lock();
                if state.endpoint.is_none() {
                    state.endpoint = Some(endpoint.clone());
                }
                let now = Instant::now();
                (state.step(&self.config, now), state.must_be_told(now))
            };
            let until = match step {
                Step::Serve => return Ok(Arc::clone(&host)),
                Step::Again => continue,
                Step::Settle => {
                    self.settle(&host).await;
                    continue;
                }
                Step::Wait(until) => until,
                Step::Ask { wait } => {
                    let standing = host.lock().standing;
                    let known = standing != Standing::Unknown;
                    let Some(question) = self.questions.begin(peer.ip(), known) else {
                        // It is asked when it calls again.
                        host.take_question_back();
                        if !must_be_told {
                            return Ok(Arc::clone(&host));
                        }
                        if is_over() {
                            return Err(AbortCode(VBUSY));
                        }
                        tokio::time::sleep(ASKED_LATER).await;
                        continue;
                    };
                    let (shared, asked, endpoint) =
                        (Arc::clone(self), Arc::clone(&host), endpoint.clone());
                    // A task of its own: others may wait for it when this caller has gone.
                    tokio::spawn(async move {
                        shared.introduce(question, asked, endpoint, peer).await;
                    });
                    match wait {
                        Some(until) => until,
                        None => return Ok(Arc::clone(&host)),
                    }
                }
            };
            if must_be_told {
                let _changed = timeout_at(until.min(limit), changed).await;
                let still = host.lock().must_be_told(Instant::now());
                if still && is_over() {
                    return Err(AbortCode(VBUSY));
                }
            } else if timeout_at(until, changed).await.is_err() {
                let mut state = host.lock();
                if state.standing != Standing::Gone {
                    state.silent |= state.asking;
                    drop(state);
                    return Ok(Arc::clone(&host));
                }
            }
        }
    }

    /// The host that calls from there; a new one if there is none.
    fn host_at(self: &Arc<Self>, peer: SocketAddr) -> Arc<Host> {
        let now = Instant::now();
        let (host, unwanted) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            if let Some(host) = state.registry.at(peer) {
                return Arc::clone(host);
            }
            let config = &self.config;
            let mut unwanted = Vec::new();
            if now.duration_since(state.tidied) >= config.forget_after / 8 {
                state.tidied = now;
                unwanted = state.registry.idle(&state.table, now, config.forget_after);
            }
            if state.registry.len() >= config.hosts_max && unwanted.is_empty() {
                unwanted = state.registry.least_wanted(&state.table);
            }
            let mut to_tell = Vec::new();
            count(&self.counters.hosts_forgotten, unwanted.len());
            for host in unwanted {
                if state.table.held(host.index()) > 0 {
                    let known = host.lock();
                    to_tell.push((known.endpoint.clone(), known.peers.first().copied()));
                }
                state.registry.remove(&host, &mut state.table);
            }
            let host = state.registry.add(vec![peer], now);
            host.lock().doubted_until = self.doubted_until(now);
            (host, to_tell)
        };
        for forgotten in unwanted {
            if let (Some(endpoint), Some(peer)) = forgotten {
                let shared = Arc::clone(self);
                // It trusts promises that nobody remembers.
                tokio::spawn(async move { shared.reset(&endpoint, peer).await });
            }
        }
        host
    }

    /// Until when a host that calls for the first time now may trust what it was promised by this server's
    /// earlier life.
    fn doubted_until(&self, now: Instant) -> Option<Instant> {
        (self.lost_promises).then(|| now + self.config.doubt_after_crash)
    }

    /// See [`Hosts::settle`](super::Hosts::settle).
    pub(super) async fn settle(&self, host: &Host) {
        loop {
            let changed = host.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !host.lock().is_behind(&self.config, Instant::now()) {
                return;
            }
            // The loop checks the host again, whether the host was told or the limit has passed.
            let _told = timeout(self.config.break_limit, changed).await;
        }
    }

    /// Asks a host who it is and enters the answer into the tables.
    async fn introduce(
        self: Arc<Self>,
        question: Question,
        host: Arc<Host>,
        endpoint: Endpoint,
        peer: SocketAddr,
    ) {
        let (standing, alone) = {
            let state = self.state.lock();
            let alone = !state.registry.shares_machine(peer.ip());
            (host.lock().standing, alone)
        };
        // From a machine that nobody has called from, it is most likely new: both in one round
        // trip. A known host's other address then drops its promises for nothing.
        let early = standing == Standing::Down || (standing == Standing::Unknown && alone);
        let asked = async {
            if early {
                tokio::join!(self.ask(&endpoint, peer), self.reset(&endpoint, peer))
            } else {
                (self.ask(&endpoint, peer).await, false)
            }
        };
        let (answer, reset) = tokio::select! {
            asked = asked => asked,
            () = question.ended() => (None, false),
        };
        // A host that has answered no longer takes a place.
        drop(question);
        match answer {
            Some(answer) => {
                let told = Told {
                    endpoint,
                    peer,
                    answer,
                    reset,
                };
                self.enter(&host, told).await;
            }
            None if standing == Standing::Ready => self.mark_down(&host),
            None => {}
        }
        host.end_question();
    }

    /// Asks the host for its identity; `None` if there is no answer, or none of a cache manager.
    async fn ask(&self, endpoint: &Endpoint, peer: SocketAddr) -> Option<Answer> {
        let client = callback_client(endpoint, peer);
        let question = async {
            // spec: afs-rpc#identity-of-a-client
            match client.tell_me_about_yourself().await {
                Ok(reply) => return Ok(Answer::new(&reply.host, &reply.capabilities)),
                Err(error) if error.is_unknown_operation() => {}
                Err(error) => return Err(error),
            }
            match client.who_are_you().await {
                Ok(reply) => return Ok(Answer::new(&reply.host, &[])),
                Err(error) if error.is_unknown_operation() => {}
                Err(error) => return Err(error),
            }
            client.probe().await.map(|_| Answer {
                uuid: None,
                interfaces: Vec::new(),
                translates_errors: false,
            })
        };
        let answer: Result<Answer, RpcError> = timeout(self.config.introduction_limit, question)
            .await
            .ok()?;
        answer
            .inspect_err(|error| tracing::debug!(%peer, %error, "a caller did not identify itself"))
            .ok()
    }

    /// Makes a host drop all promises of this server. Returns whether it has.
    async fn reset(&self, endpoint: &Endpoint, peer: SocketAddr) -> bool {
        let client = callback_client(endpoint, peer);
        let order = async {
            // spec: afs-rpc#unknown-operations
            match client.init_call_back_state3(self.config.server).await {
                Err(error) if error.is_unknown_operation() => {
                    client.init_call_back_state().await.is_ok()
                }
                done => done.is_ok(),
            }
        };
        let done = timeout(self.config.introduction_limit, order).await;
        let done = done.unwrap_or(false);
        if done {
            count(&self.counters.resets, 1);
        }
        done
    }

    /// Enters what the host at an address says of itself.
    async fn enter(self: &Arc<Self>, host: &Arc<Host>, told: Told) {
        let other = told.answer.uuid.and_then(|uuid| {
            let state = self.state.lock();
            let known = state.registry.with_uuid(uuid).cloned();
            known.filter(|known| !Arc::ptr_eq(known, host))
        });
        if let Some(known) = other {
            match self.check(&known, &told).await {
                Claim::Denied => {
                    let answer = Answer {
                        uuid: None,
                        ..told.answer
                    };
                    self.enter_alone(host, Told { answer, ..told }).await;
                }
                claim => self.enter_address(&known, host, &told, claim).await,
            }
        } else {
            self.enter_alone(host, told).await;
        }
    }

    /// Enters a host of which no other address is known.
    async fn enter_alone(self: &Arc<Self>, host: &Arc<Host>, told: Told) {
        let host = self.host_for(host, told.peer, told.answer.uuid);
        let is_known = {
            let mut known = host.lock();
            let is_known = known.standing == Standing::Ready && known.uuid == told.answer.uuid;
            if is_known {
                known.describe(&told);
            }
            is_known
        };
        if !is_known && (told.reset || self.reset(&told.endpoint, told.peer).await) {
            self.admit(&host, &told);
        }
        host.end_question();
    }

    /// Asks a known host at its own addresses whether it is still there, and whether that of the one
    /// that claims to be it is another of them.
    async fn check(&self, known: &Host, told: &Told) -> Claim {
        let uuid = told.answer.uuid.unwrap_or_default();
        let peers = known.lock().peers.clone();
        let mut former = peers.into_iter().filter(|former| *former != told.peer);
        let ask = |former: Option<SocketAddr>| async move {
            let Some(former) = former else {
                return Claim::Moved;
            };
            let wait = self.config.break_wait;
            let client = callback_client(&told.endpoint, former);
            if !matches!(timeout(wait, client.probe_uuid(uuid)).await, Ok(Ok(_))) {
                return Claim::Moved;
            }
            let answer = timeout(wait, self.ask(&told.endpoint, former)).await;
            let address = told.peer.ip().to_canonical();
            let own = |answer: Answer| answer.interfaces.contains(&address);
            // A cache manager has the same port at all its addresses.
            if former.port() == told.peer.port() && answer.ok().flatten().is_some_and(own) {
                Claim::Shared
            } else {
                Claim::Denied
            }
        };
        let (first, second, third) = (former.next(), former.next(), former.next());
        let claims = tokio::join!(ask(first), ask(second), ask(third));
        let claims = [claims.0, claims.1, claims.2];
        let told = |claim| claims.contains(&claim).then_some(claim);
        told(Claim::Shared)
            .or_else(|| told(Claim::Denied))
            .unwrap_or(Claim::Moved)
    }

    /// The host to enter an identity for: another than the one that was at the address if that
    /// had another identity, which then has this address no more.
    fn host_for(&self, host: &Arc<Host>, peer: SocketAddr, uuid: Option<AfsUuid>) -> Arc<Host> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let others = {
            let mut known = host.lock();
            if known.uuid.is_none() || known.uuid == uuid {
                return Arc::clone(host);
            }
            known.peers.retain(|other| *other != peer);
            known.peers.len()
        };
        state.registry.forget_peer(peer, host);
        if others == 0 {
            state.registry.remove(host, &mut state.table);
        }
        let now = Instant::now();
        let host = state.registry.add(vec![peer], now);
        // It has been asked.
        let mut known = host.lock();
        (known.asking, known.asked) = (true, Some(now));
        known.doubted_until = self.doubted_until(now);
        drop(known);
        host
    }

    /// From now on the host may hold promises.
    fn admit(&self, host: &Arc<Host>, told: &Told) {
        let mut state = self.state.lock();
        // It may have been forgotten while it was asked.
        if !state.registry.knows(host) {
            return;
        }
        if let Some(uuid) = told.answer.uuid {
            state.registry.set_uuid(uuid, host);
        }
        state.table.open_host(host.index());
        // It has just answered.
        let answered = Duration::ZERO;
        (host.punctuality).answered(answered, self.config.break_wait);
        let mut known = host.lock();
        (known.standing, known.silent) = (Standing::Ready, false);
        known.describe(told);
    }

    /// A known host calls from another address, so far taken for `newcomer`.
    async fn enter_address(
        self: &Arc<Self>,
        known: &Arc<Host>,
        newcomer: &Arc<Host>,
        told: &Told,
        claim: Claim,
    ) {
        let held = {
            let mut state = self.state.lock();
            let state = &mut *state;
            if !state.registry.knows(known) {
                return;
            }
            // It may have been a host by itself, and trust what it was promised as such.
            let held = state.table.held(newcomer.index()) > 0;
            state.take_over(known, newcomer, told, claim);
            held
        };
        let down = known.lock().standing == Standing::Down;
        if down || held {
            if told.reset || self.reset(&told.endpoint, told.peer).await {
                self.admit(known, told);
            } else if !down {
                self.mark_down(known);
            }
        }
        known.changed.notify_waiters();
        newcomer.changed.notify_waiters();
    }
}

impl State {
    /// An address that was the newcomer's is a known host's.
    fn take_over(&mut self, known: &Arc<Host>, newcomer: &Arc<Host>, told: &Told, claim: Claim) {
        // The newcomer may be a host of standing whose address another took over.
        let others = {
            let mut newcomer = newcomer.lock();
            newcomer.peers.retain(|other| *other != told.peer);
            newcomer.peers.len()
        };
        self.registry.set_peer(told.peer, known);
        if others == 0 {
            self.registry.remove(newcomer, &mut self.table);
        }
        let mut host = known.lock();
        let moved = claim == Claim::Moved;
        let mut forgotten = if moved {
            std::mem::take(&mut host.peers)
        } else {
            Vec::new()
        };
        forgotten.extend(host.add_peer(told.peer, moved));
        host.describe(told);
        drop(host);
        for address in forgotten {
            if address != told.peer {
                self.registry.forget_peer(address, known);
            }
        }
    }
}

impl Host {
    /// It was not asked after all.
    fn take_question_back(&self) {
        {
            let mut state = self.lock();
            (state.asking, state.asked) = (false, None);
        }
        self.changed.notify_waiters();
    }

    /// It has answered, or did not.
    fn end_question(&self) {
        {
            let mut state = self.lock();
            state.asking = false;
            state.silent = state.standing != Standing::Ready;
        }
        self.changed.notify_waiters();
    }
}

impl super::host::HostState {
    /// Takes over what a host says of itself.
    fn describe(&mut self, told: &Told) {
        self.uuid = told.answer.uuid;
        self.interfaces.clone_from(&told.answer.interfaces);
        self.translates_errors = told.answer.translates_errors;
        self.endpoint = Some(told.endpoint.clone());
    }
}
