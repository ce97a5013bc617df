//! Which hosts there are: by number, by address, by identity.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afar_types::AfsUuid;
use tokio::time::Instant;

use super::host::{Host, Standing};
use super::punctuality::{self, Punctuality};
use super::table::{HostIndex, Table};

/// Hosts. A host is in here as long as the table of promises may know its number.
#[derive(Debug, Default)]
pub(super) struct Registry {
    by_number: Vec<Option<Arc<Host>>>,
    free: Vec<HostIndex>,
    by_peer: HashMap<SocketAddr, Arc<Host>>,
    machines: HashMap<IpAddr, Machine>,
    by_uuid: HashMap<AfsUuid, Arc<Host>>,
}

/// The address of a machine, whatever the port.
#[derive(Debug, Default)]
struct Machine {
    /// How many of the ports call.
    ports: usize,
    punctuality: Arc<punctuality::Machine>,
}

impl Registry {
    pub(super) fn len(&self) -> usize {
        self.by_number.len() - self.free.len()
    }

    /// All hosts, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.by_number.iter().flatten()
    }

    pub(super) fn number(&self, index: HostIndex) -> Option<&Arc<Host>> {
        self.by_number.get(index as usize)?.as_ref()
    }

    /// Whether it is this very host that has its number.
    pub(super) fn knows(&self, host: &Arc<Host>) -> bool {
        self.number(host.index())
            .is_some_and(|known| Arc::ptr_eq(known, host))
    }

    pub(super) fn at(&self, peer: SocketAddr) -> Option<&Arc<Host>> {
        self.by_peer.get(&peer)
    }

    pub(super) fn with_uuid(&self, uuid: AfsUuid) -> Option<&Arc<Host>> {
        self.by_uuid.get(&uuid)
    }

    /// Whether calls come from other ports of that machine too.
    pub(super) fn shares_machine(&self, address: IpAddr) -> bool {
        let machine = self.machines.get(&address);
        machine.is_some_and(|machine| machine.ports > 1)
    }

    /// A new host that calls from there.
    pub(super) fn add(&mut self, peers: Vec<SocketAddr>, now: Instant) -> Arc<Host> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.by_number.push(None);
            // Numbers are bounded by the configuration and by memory, far below.
            HostIndex::try_from(self.by_number.len() - 1).unwrap_or(HostIndex::MAX)
        });
        let first = peers
            .first()
            .map(|peer| self.machines.entry(peer.ip()).or_default());
        let machine = first.map(|machine| Arc::clone(&machine.punctuality));
        let punctuality = Punctuality::new(machine.unwrap_or_default());
        let host = Host::new(index, peers.clone(), punctuality, now);
        for peer in peers {
            self.set_peer(peer, &host);
        }
        debug_assert!(self.number(index).is_none(), "host {index} is another");
        self.by_number[index as usize] = Some(Arc::clone(&host));
        host
    }

    /// From now on calls from there are this host's.
    pub(super) fn set_peer(&mut self, peer: SocketAddr, host: &Arc<Host>) {
        if self.by_peer.insert(peer, Arc::clone(host)).is_none() {
            self.machines.entry(peer.ip()).or_default().ports += 1;
        }
        self.check();
    }

    /// Calls from there are not this host's any more.
    pub(super) fn forget_peer(&mut self, peer: SocketAddr, host: &Arc<Host>) {
        // It may be another host's by now.
        if self.at(peer).is_some_and(|known| Arc::ptr_eq(known, host)) {
            self.by_peer.remove(&peer);
            if let Some(machine) = self.machines.get_mut(&peer.ip()) {
                machine.ports -= 1;
                if machine.ports == 0 {
                    self.machines.remove(&peer.ip());
                }
            }
        }
        self.check();
    }

    /// Ports that call are those of machines.
    fn check(&self) {
        let (peers, machines) = (self.by_peer.len(), self.machines.len());
        debug_assert!(machines <= peers, "{machines} machines of {peers}");
        debug_assert_eq!(machines == 0, peers == 0, "{peers} peers");
    }

    /// This identity is this host's.
    pub(super) fn set_uuid(&mut self, uuid: AfsUuid, host: &Arc<Host>) {
        self.by_uuid.insert(uuid, Arc::clone(host));
    }

    /// Takes a host out, with its promises.
    pub(super) fn remove(&mut self, host: &Arc<Host>, table: &mut Table) {
        if !self.knows(host) {
            return;
        }
        // Before its number is another's, which must not have its promises.
        table.shut_host(host.index(), usize::MAX);
        debug_assert_eq!(table.held(host.index()), 0, "host {}", host.index());
        let (peers, uuid) = {
            let mut state = host.lock();
            state.standing = Standing::Gone;
            (std::mem::take(&mut state.peers), state.uuid)
        };
        for peer in peers {
            self.forget_peer(peer, host);
        }
        // Another host may have claimed it since.
        if let Some(uuid) = uuid
            && self
                .with_uuid(uuid)
                .is_some_and(|known| Arc::ptr_eq(known, host))
        {
            self.by_uuid.remove(&uuid);
        }
        self.by_number[host.index() as usize] = None;
        self.free.push(host.index());
        debug_assert!(self.free.len() <= self.by_number.len());
        host.changed.notify_waiters();
    }

    /// Hosts to forget so that there is room: a sixty-fourth of all.
    pub(super) fn least_wanted(&self, table: &Table) -> Vec<Arc<Host>> {
        let mut candidates: Vec<_> = self
            .iter()
            .filter_map(|host| {
                let state = host.lock();
                let holds = table.held(host.index()) > 0;
                let wanted = (state.standing != Standing::Unknown, holds);
                // The task that works for it would go on with a host that is in no table.
                (!state.asking && !state.breaking)
                    .then(|| ((wanted, state.active), Arc::clone(host)))
            })
            .collect();
        candidates.sort_unstable_by_key(|(key, host)| Reverse((*key, host.index())));
        let kept = candidates.len() - candidates.len().min(self.len() / 64 + 1);
        candidates
            .split_off(kept)
            .into_iter()
            .map(|(_, host)| host)
            .collect()
    }

    /// Hosts that hold no promise and have not called for so long.
    pub(super) fn idle(&self, table: &Table, now: Instant, limit: Duration) -> Vec<Arc<Host>> {
        self.iter()
            .filter(|host| {
                let state = host.lock();
                now.duration_since(state.active) >= limit
                    && table.held(host.index()) == 0
                    && !state.asking
                    && !state.breaking
            })
            .cloned()
            .collect()
    }
}
