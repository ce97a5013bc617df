//! What peers make an endpoint hold, and whose it is.
//!
//! One number counts all memory that calls of peers take: what arrived and is not read, what is to be
//! sent or not acknowledged, and a part for the program that serves the call. It is kept for each
//! address without its port and for each user, so that neither takes more than a part of what is
//! left. A quarter is for callers that have shown a ticket or come from an address that has taken
//! answers before: no number of strangers can take that.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Identity;

/// Bytes that a call which runs counts for at least. So much it may always have, as otherwise calls that
/// wait for each other's memory would never end.
pub(crate) const CALL_FLOOR: u64 = 64 << 10;
/// Addresses that are remembered for having taken answers.
const KNOWN_MAX: usize = 16_384;
/// How long they are.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Where packets come from, as shares go: an IPv4 address, or the first 64 bits of an IPv6 address, which
/// one host may choose the rest of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl From<SocketAddr> for Source {
    fn from(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V6(ip) => Self(IpAddr::V6((ip.to_bits() >> 64 << 64).into())),
            ip @ IpAddr::V4(_) => Self(ip),
        }
    }
}

/// Whose a call is. Names are those of the protection database; servers and administrators, who have
/// none, are not limited by who they are.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    pub(crate) source: Source,
    pub(crate) user: Option<Arc<str>>,
    /// Whether the caller has proved who it is.
    pub(crate) is_named: bool,
    /// Whether it has, or calls from an address that has taken answers before.
    pub(crate) is_known: bool,
}

impl Owners {
    fn new(address: SocketAddr, identity: &Identity) -> Self {
        let is_named = *identity != Identity::Anonymous;
        Self {
            source: address.into(),
            user: identity.name().cloned(),
            is_named,
            is_known: is_named,
        }
    }

    /// Each of them.
    pub(crate) fn each(&self) -> impl Iterator<Item = Owner> {
        let user = self.user.clone().map(Owner::User);
        std::iter::once(Owner::Source(self.source)).chain(user)
    }
}

/// An address or a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Source(Source),
    User(Arc<str>),
}

/// What one owner has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    memory: u64,
    connections: usize,
    strangers: usize,
}

/// The account of an endpoint.
#[derive(Debug)]
pub(crate) struct Account {
    memory_max: u64,
    memory: u64,
    /// Of that, what those that are known count for.
    memory_known: u64,
    connections_max: usize,
    connections: usize,
    /// Nobody is listed who has nothing.
    held: BTreeMap<Owner, Held>,
    /// Addresses that have taken answers, and when they last did.
    known: BTreeMap<Source, Instant>,
}

/// Whether somebody who has `own` of `most`, of which `taken` are taken by all, may have one more: an
/// eighth as many as are free beside them, or `least` in any case. What asks for everything leaves most of
/// it to others.
pub(crate) fn has_room(most: usize, taken: usize, own: usize, least: usize) -> bool {
    let free = most.saturating_sub(taken);
    free > 0 && own < (free / 8).max(least)
}

/// Of `most`, what strangers may take.
pub(crate) const fn for_strangers(most: usize) -> usize {
    most - most / 4
}

impl Account {
    pub(crate) fn new(memory_max: u64, connections_max: usize) -> Self {
        Self {
            memory_max,
            memory: 0,
            memory_known: 0,
            connections_max,
            connections: 0,
            held: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Bytes that all calls count for.
    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether more than half of the memory is taken.
    pub(crate) const fn is_tight(&self) -> bool {
        self.memory > self.memory_max / 2
    }

    /// The owners of a call that comes from that address.
    pub(crate) fn owners(&self, address: SocketAddr, identity: &Identity) -> Owners {
        let mut owners = Owners::new(address, identity);
        owners.is_known |= self.known.contains_key(&owners.source);
        owners
    }

    /// A peer at that address has acknowledged a whole answer.
    pub(crate) fn learn(&mut self, source: Source, now: Instant) {
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&source) {
            self.known.insert(source, now);
        }
    }

    /// Forgets addresses of which nothing was heard for long.
    pub(crate) fn keep_house(&mut self, now: Instant) {
        self.known
            .retain(|_, at| now.saturating_duration_since(*at) < KNOWN_FOR);
    }

    /// Bytes that are left for all; for strangers less.
    fn free(&self, is_known: bool) -> u64 {
        let most = match is_known {
            true => self.memory_max,
            false => self.memory_max - self.memory_max / 4,
        };
        most.saturating_sub(self.memory)
    }

    /// Whether there is memory for another call. For those that are known there is a quarter of it, also when
    /// strangers got large answers at once, and more memory than was free.
    pub(crate) fn has_floor(&self, owners: &Owners) -> bool {
        let is_kept = owners.is_known && self.memory_known + CALL_FLOOR <= self.memory_max / 4;
        is_kept || self.free(owners.is_known) >= CALL_FLOOR
    }

    /// Bytes that these owners may have, and what they may take beyond what they have. Half of all memory is for what
    /// each call counts for at least. Of what is free of the other half, each owner may have half as much
    /// as is free beside theirs, and a stranger an eighth.
    pub(crate) fn share(&self, owners: &Owners) -> (u64, u64) {
        let free = self
            .free(owners.is_known)
            .saturating_sub(self.memory_max / 2);
        let share = free / if owners.is_known { 2 } else { 8 };
        if self.memory < share / 2 {
            // Nobody has more than all have.
            return (share, share - self.memory);
        }
        let own = |owner: Owner| self.held.get(&owner).map_or(0, |held| held.memory);
        let most = owners.each().map(own).max().unwrap_or_default();
        (share, share.saturating_sub(most))
    }

    /// Bytes that are left for calls that this side makes.
    pub(crate) const fn left(&self) -> u64 {
        self.memory_max.saturating_sub(self.memory)
    }

    /// Counts a call for `now` bytes instead of `before`.
    pub(crate) fn recount(&mut self, owners: Option<&Owners>, before: u64, now: u64) {
        self.memory = self.memory.saturating_sub(before).saturating_add(now);
        if owners.is_some_and(|owners| owners.is_known) {
            self.memory_known = self.memory_known.saturating_sub(before).saturating_add(now);
        }
        for owner in owners.into_iter().flat_map(Owners::each) {
            self.change(owner, |held| {
                held.memory = held.memory.saturating_sub(before).saturating_add(now);
            });
        }
    }

    /// Whether another connection of clients has room at all.
    pub(crate) const fn has_connection(&self) -> bool {
        self.connections < self.connections_max
    }

    /// Whether that address may open another connection.
    pub(crate) fn may_connect(&self, source: Source) -> bool {
        let held = self.held.get(&Owner::Source(source));
        let own = held.map_or(0, |held| held.connections);
        has_room(self.connections_max, self.connections, own, 64)
    }

    pub(crate) fn connected(&mut self, source: Source) {
        self.connections += 1;
        self.change(Owner::Source(source), |held| held.connections += 1);
    }

    pub(crate) fn disconnected(&mut self, source: Source) {
        self.connections = self.connections.saturating_sub(1);
        self.change(Owner::Source(source), |held| {
            held.connections = held.connections.saturating_sub(1);
        });
    }

    /// Calls of that address that wait for it to show that it is there.
    pub(crate) fn strangers(&self, source: Source) -> usize {
        let held = self.held.get(&Owner::Source(source));
        held.map_or(0, |held| held.strangers)
    }

    pub(crate) fn stranger_came(&mut self, source: Source) {
        self.change(Owner::Source(source), |held| held.strangers += 1);
    }

    pub(crate) fn stranger_left(&mut self, source: Source) {
        self.change(Owner::Source(source), |held| {
            held.strangers = held.strangers.saturating_sub(1);
        });
    }

    /// Looks whether the sums are those of these calls, each with its owners, what it counts for and whether it
    /// is a stranger's, and of clients' connections from these addresses.
    #[cfg(test)]
    pub(crate) fn check<'a>(
        &self,
        calls: impl Iterator<Item = (Option<&'a Owners>, u64, Option<u64>)>,
        connections: impl Iterator<Item = Source>,
    ) {
        let mut expected = Self::new(self.memory_max, self.connections_max);
        for (owners, charged, stranger) in calls {
            expected.recount(owners, 0, charged);
            if let (Some(owners), Some(_)) = (owners, stranger) {
                expected.stranger_came(owners.source);
            }
        }
        connections.for_each(|source| expected.connected(source));
        let sums = |account: &Self| (account.memory, account.memory_known, account.connections);
        assert_eq!(sums(self), sums(&expected));
        assert_eq!(self.held, expected.held);
    }

    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Held)) {
        let held = self.held.entry(owner.clone()).or_default();
        change(held);
        if (held.memory, held.connections, held.strangers) == (0, 0, 0) {
            self.held.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(account: &Account, ip: &str, port: u16) -> Owners {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        account.owners(address, &Identity::Anonymous)
    }

    #[test]
    fn ports_and_the_lower_half_of_ipv6_make_no_other_source() {
        let source = |ip: &str, port| Source::from(SocketAddr::new(ip.parse().unwrap(), port));
        assert_eq!(source("192.0.2.1", 1), source("192.0.2.1", 2));
        assert_ne!(source("192.0.2.1", 1), source("192.0.2.2", 1));
        assert_eq!(source("::ffff:192.0.2.1", 1), source("192.0.2.1", 2));
        assert_eq!(source("2001:db8::1", 1), source("2001:db8::2:3", 1));
        assert_ne!(source("2001:db8::1", 1), source("2001:db8:0:1::1", 1));
    }

    #[test]
    fn strangers_leave_a_quarter_to_those_that_are_known() {
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant cannot be made in another way"
        )]
        let now = Instant::now();
        let mut account = Account::new(16 << 20, 100);
        let source = owners(&account, "192.0.2.1", 1).source;
        account.learn(source, now);
        for index in 0..10_000_u32 {
            let ip = format!("10.0.{}.{}", index >> 8, index & 255);
            let stranger = owners(&account, &ip, 1);
            if account.has_floor(&stranger) {
                let (_, room) = account.share(&stranger);
                account.recount(Some(&stranger), 0, CALL_FLOOR.max(room));
            }
        }
        assert!(account.memory() <= 12 << 20, "{}", account.memory());
        assert!(account.has_floor(&owners(&account, "192.0.2.1", 2)));
        account.keep_house(now + 2 * KNOWN_FOR);
        assert!(!account.has_floor(&owners(&account, "192.0.2.1", 2)));
    }

    #[test]
    fn a_user_has_one_share_at_many_addresses() {
        let mut account = Account::new(64 << 20, 100);
        let user = |account: &Account, ip: &str, name: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), 1);
            account.owners(address, &Identity::User(name.into()))
        };
        let ann = user(&account, "192.0.2.1", "ann");
        account.recount(Some(&ann), 0, 12 << 20);
        assert_eq!(account.share(&user(&account, "192.0.2.2", "ann")).1, 0);
        let bob = user(&account, "192.0.2.2", "bob");
        assert!(account.share(&bob).1 > 5 << 20);
        account.recount(Some(&bob), 0, 1 << 20);
        account.recount(Some(&bob), 1 << 20, 0);
        assert_eq!(account.memory(), 12 << 20);
        assert_eq!(account.held.len(), 2, "nobody is listed who has nothing");
    }
}
