//! Who calls: finding the host of an address, and asking those that are new.
//!
//! A new address is asked who it is (TellMeAboutYourself, or WhoAreYou of cache managers that do
//! not know that). Three answers are possible. The identity is new: then the host has to drop the
//! promises it may hold from before this server started (InitCallBackState3). It is that of a known
//! host: then the address is added to that host's, and takes the place of the one that was known so
//! far if that one does not answer any more (ProbeUuid), as after a change of a NAT's port. Or none
//! comes: then the caller is served without any promise, and asked again after a while.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_net::Endpoint;
use afar_rpc::RpcError;
use afar_types::{AfsUuid, CAPABILITY_ERROR_TRANSLATION, InterfaceAddr};
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::breaks::callback_client;
use super::config::count;
use super::host::{Host, Standing, Step};

/// What a host says of itself.
#[derive(Debug, Clone)]
struct Answer {
    uuid: Option<AfsUuid>,
    interfaces: Vec<IpAddr>,
    translates_errors: bool,
    /// How long it took.
    round_trip: Duration,
}

impl Answer {
    fn new(host: &InterfaceAddr, capabilities: &[u32]) -> Self {
        let flags = capabilities.first().copied().unwrap_or(0);
        Self {
            uuid: Some(host.uuid),
            interfaces: host.addresses().map(IpAddr::from).collect(),
            translates_errors: flags & CAPABILITY_ERROR_TRANSLATION != 0,
            round_trip: Duration::ZERO,
        }
    }
}

impl Shared {
    /// See [`Hosts::identify`](super::Hosts::identify).
    pub(super) async fn identify(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        peer: SocketAddr,
    ) -> Arc<Host> {
        loop {
            let host = self.host_at(peer);
            let changed = host.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, so that no answer comes unseen in between.
            changed.as_mut().enable();
            let step = {
                let mut state = host.lock();
                if state.endpoint.is_none() {
                    state.endpoint = Some(endpoint.clone());
                }
                state.step(&self.config, Instant::now())
            };
            let until = match step {
                Step::Serve => return Arc::clone(&host),
                Step::Again => continue,
                Step::Settle => {
                    // Whether it was told or the limit has passed, it is looked at again.
                    let _told = timeout(self.config.break_limit, changed).await;
                    continue;
                }
                Step::Wait(until) => until,
                Step::Ask { wait } => {
                    let (shared, asked, endpoint) =
                        (Arc::clone(self), Arc::clone(&host), endpoint.clone());
                    // A task of its own: others may wait for it when this caller has gone.
                    tokio::spawn(async move { shared.introduce(asked, endpoint, peer).await });
                    match wait {
                        Some(until) => until,
                        None => return Arc::clone(&host),
                    }
                }
            };
            if timeout_at(until, changed).await.is_err() {
                let mut state = host.lock();
                if state.standing != Standing::Gone {
                    state.silent |= state.asking;
                    drop(state);
                    return Arc::clone(&host);
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
            (state.registry.add(vec![peer], now), to_tell)
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

    /// Asks a host who it is and enters the answer into the tables.
    async fn introduce(self: Arc<Self>, host: Arc<Host>, endpoint: Endpoint, peer: SocketAddr) {
        // A flood of forged addresses must not become a flood of questions.
        let _question = self.questions.acquire().await;
        let (standing, alone) = {
            let state = self.state.lock();
            let alone = !state.registry.shares_machine(peer.ip());
            (host.lock().standing, alone)
        };
        // From a machine that nobody has called from, it is most likely new: both in one round
        // trip. A known host's other address then drops its promises for nothing.
        let early = standing == Standing::Down || (standing == Standing::Unknown && alone);
        let (answer, reset) = if early {
            tokio::join!(self.ask(&endpoint, peer), self.reset(&endpoint, peer))
        } else {
            (self.ask(&endpoint, peer).await, false)
        };
        match answer {
            Some(answer) => self.enter(&host, &endpoint, peer, answer, reset).await,
            None if standing == Standing::Ready => self.mark_down(&host),
            None => {}
        }
        host.end_question();
    }

    /// Who is there? `None` if nobody answers, or nothing that is a cache manager.
    async fn ask(&self, endpoint: &Endpoint, peer: SocketAddr) -> Option<Answer> {
        let client = callback_client(endpoint, peer);
        let question = async {
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
                round_trip: Duration::ZERO,
            })
        };
        let begun = Instant::now();
        let answer: Result<Answer, RpcError> = timeout(self.config.introduction_limit, question)
            .await
            .ok()?;
        answer
            .inspect_err(|error| tracing::debug!(%peer, %error, "a caller did not say who it is"))
            .ok()
            .map(|answer| Answer {
                round_trip: begun.elapsed(),
                ..answer
            })
    }

    /// Makes a host drop all promises of this server. Returns whether it has.
    async fn reset(&self, endpoint: &Endpoint, peer: SocketAddr) -> bool {
        let client = callback_client(endpoint, peer);
        let order = async {
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

    /// Enters what the host at an address says of itself. `reset`: it has dropped all promises.
    async fn enter(
        self: &Arc<Self>,
        host: &Arc<Host>,
        endpoint: &Endpoint,
        peer: SocketAddr,
        answer: Answer,
        reset: bool,
    ) {
        let known = answer.uuid.and_then(|uuid| {
            let state = self.state.lock();
            state.registry.with_uuid(uuid).cloned()
        });
        match known {
            Some(known) if !Arc::ptr_eq(&known, host) => {
                self.enter_address(&known, host, endpoint, peer, answer, reset)
                    .await;
            }
            Some(_) if host.lock().standing == Standing::Ready => {
                host.lock().describe(endpoint, &answer);
            }
            _ => {
                let host = self.host_for(host, peer, answer.uuid);
                if reset || self.reset(endpoint, peer).await {
                    self.admit(&host, endpoint, &answer);
                }
                host.end_question();
            }
        }
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
        drop(known);
        host
    }

    /// From now on the host may hold promises.
    fn admit(&self, host: &Arc<Host>, endpoint: &Endpoint, answer: &Answer) {
        let mut state = self.state.lock();
        if !state.registry.knows(host) {
            return;
        }
        if let Some(uuid) = answer.uuid {
            state.registry.set_uuid(uuid, host);
        }
        state.table.open_host(host.index());
        let mut known = host.lock();
        (known.standing, known.silent) = (Standing::Ready, false);
        known.describe(endpoint, answer);
    }

    /// A known host calls from another address, so far taken for `newcomer`.
    async fn enter_address(
        self: &Arc<Self>,
        known: &Arc<Host>,
        newcomer: &Arc<Host>,
        endpoint: &Endpoint,
        peer: SocketAddr,
        answer: Answer,
        reset: bool,
    ) {
        let (former, patience) = {
            let state = known.lock();
            let former = state.peers.first().copied();
            (former, state.patience(&self.config))
        };
        let former_answers = match (former, answer.uuid) {
            (Some(former), Some(uuid)) => {
                let client = callback_client(endpoint, former);
                let probe = timeout(patience, client.probe_uuid(uuid));
                matches!(probe.await, Ok(Ok(_)))
            }
            _ => false,
        };
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            if !state.registry.knows(known) {
                return;
            }
            // The newcomer may be a host of standing whose address another took over.
            let others = {
                let mut newcomer = newcomer.lock();
                newcomer.peers.retain(|other| *other != peer);
                newcomer.peers.len()
            };
            state.registry.set_peer(peer, known);
            if others == 0 {
                state.registry.remove(newcomer, &mut state.table);
            }
            let mut host = known.lock();
            let mut forgotten = host.add_peer(peer, !former_answers);
            if let Some(former) = former
                && !former_answers
            {
                host.peers.retain(|other| *other != former);
                forgotten = forgotten.or(Some(former));
            }
            host.describe(endpoint, &answer);
            drop(host);
            for address in forgotten
                .into_iter()
                .chain(former.filter(|_| !former_answers))
            {
                state.registry.forget_peer(address, known);
            }
        }
        if known.lock().standing == Standing::Down && (reset || self.reset(endpoint, peer).await) {
            self.admit(known, endpoint, &answer);
        }
        known.changed.notify_waiters();
        newcomer.changed.notify_waiters();
    }
}

impl Host {
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
    fn describe(&mut self, endpoint: &Endpoint, answer: &Answer) {
        self.uuid = answer.uuid;
        self.interfaces.clone_from(&answer.interfaces);
        self.translates_errors = answer.translates_errors;
        self.note_round_trip(answer.round_trip);
        self.endpoint = Some(endpoint.clone());
    }
}
