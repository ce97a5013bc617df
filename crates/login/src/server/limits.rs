//! How often somebody may try: the more attempts fail, the longer the next one has to wait.
//!
//! Each attempt counts as a failed one when it begins, as what a client gets during it lets it try
//! one password; a success takes that back. Three counts are kept, and the strictest decides:
//!
//! - of a user and an address: strict, for those who guess;
//! - of an address: for those who guess at many users;
//! - of a user, from everywhere: for those who guess from many addresses. It does not count for
//!   addresses from which the user has logged in lately, or others could lock him out.
//!
//! Counts are halved with each hour. An address of IPv6 is its network of 64 bits, as a host may have
//! all of them. Memory is bounded: the tables forget whoever has waited longest.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use afar_tls::network;
use parking_lot::Mutex;

/// How counts make one wait.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Attempts without a wait.
    free: u32,
    /// The longest wait. The first one is a second, each next one twice as long.
    wait_max: Duration,
}

// spec: login#attempts
const USER_AND_ADDRESS: Rule = Rule {
    free: 5,
    wait_max: Duration::from_secs(15 * 60),
};
const ADDRESS: Rule = Rule {
    free: 60,
    wait_max: Duration::from_secs(5 * 60),
};
const USER: Rule = Rule {
    free: 60,
    wait_max: Duration::from_secs(60),
};

/// After so long, half of the failures are forgotten.
const HALF_LIFE: Duration = Duration::from_secs(3600);
/// For so long an address is one from which a user logs in.
const WELCOME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Entries of a table.
const ENTRIES: usize = 16 << 10;

/// The counts of a login service.
#[derive(Debug, Default)]
pub(super) struct Limits {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    pairs: Table<(String, IpAddr)>,
    addresses: Table<IpAddr>,
    users: Table<String>,
    /// When a user last logged in from an address.
    welcome: HashMap<(String, IpAddr), Instant>,
}

impl Limits {
    /// Whether `user` may be tried from `address` now; if so it counts as a failure until
    /// [`succeeded`](Self::succeeded) says otherwise. Else how long to wait.
    pub(super) fn begin(&self, user: &str, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut tables = self.tables.lock();
        let pair = (user.to_owned(), network(address));
        let welcome = tables.welcome.get(&pair);
        let welcome = welcome.is_some_and(|&at| now.saturating_duration_since(at) < WELCOME);
        let waits = [
            tables.pairs.wait(&pair, USER_AND_ADDRESS, now),
            tables.addresses.wait(&pair.1, ADDRESS, now),
            if welcome {
                Duration::ZERO
            } else {
                tables.users.wait(&pair.0, USER, now)
            },
        ];
        let wait = waits.into_iter().max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        tables.addresses.count(pair.1, now);
        if !welcome {
            tables.users.count(pair.0.clone(), now);
        }
        tables.pairs.count(pair, now);
        Ok(())
    }

    /// Whether somebody has logged in from this address lately.
    pub(super) fn is_known(&self, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let tables = self.tables.lock();
        let mut welcome = tables.welcome.iter();
        welcome
            .any(|((_, from), &at)| *from == address && now.saturating_duration_since(at) < WELCOME)
    }

    /// Takes back the count of an attempt, and forgets the failures of this user from here.
    pub(super) fn succeeded(&self, user: &str, address: IpAddr, now: Instant) {
        let mut tables = self.tables.lock();
        let pair = (user.to_owned(), network(address));
        tables.addresses.discount(&pair.1);
        tables.users.discount(&pair.0);
        tables.pairs.entries.remove(&pair);
        if tables.welcome.len() >= ENTRIES && !tables.welcome.contains_key(&pair) {
            forget_half(&mut tables.welcome, |at| *at);
        }
        tables.welcome.insert(pair, now);
    }
}

#[derive(Debug)]
struct Table<K> {
    entries: HashMap<K, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the last one was; the count is as of then.
    last: Instant,
}

impl Failures {
    fn now(self, now: Instant) -> u32 {
        let halvings = now.saturating_duration_since(self.last).as_secs() / HALF_LIFE.as_secs();
        u32::try_from(halvings)
            .ok()
            .and_then(|halvings| self.count.checked_shr(halvings))
            .unwrap_or(0)
    }
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Table<K> {
    /// How long this one has to wait.
    fn wait(&self, key: &K, rule: Rule, now: Instant) -> Duration {
        let Some(failures) = self.entries.get(key) else {
            return Duration::ZERO;
        };
        let Some(over) = failures.now(now).checked_sub(rule.free) else {
            return Duration::ZERO;
        };
        let wait = Duration::from_secs(1)
            .saturating_mul(1_u32.checked_shl(over).unwrap_or(u32::MAX))
            .min(rule.wait_max);
        (failures.last + wait).saturating_duration_since(now)
    }

    fn count(&mut self, key: K, now: Instant) {
        if self.entries.len() >= ENTRIES && !self.entries.contains_key(&key) {
            forget_half(&mut self.entries, |failures| failures.last);
        }
        let failures = self.entries.entry(key).or_insert(Failures {
            count: 0,
            last: now,
        });
        failures.count = failures.now(now).saturating_add(1);
        failures.last = now;
    }

    fn discount(&mut self, key: &K) {
        if let Some(failures) = self.entries.get_mut(key) {
            failures.count = failures.count.saturating_sub(1);
        }
    }
}

/// Forgets the older half.
fn forget_half<K: Hash + Eq + Clone, V>(entries: &mut HashMap<K, V>, at: impl Fn(&V) -> Instant) {
    let mut times: Vec<Instant> = entries.values().map(&at).collect();
    let middle = times.len() / 2;
    if middle == 0 {
        return;
    }
    let (_, &mut middle, _) = times.select_nth_unstable(middle);
    entries.retain(|_, value| at(value) > middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn elsewhere(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    #[test]
    fn the_sixth_attempt_waits_and_each_one_after_it_twice_as_long() {
        let limits = Limits::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            assert_eq!(limits.begin("alice", HOME, now), Ok(()));
        }
        for seconds in [1, 2, 4, 8] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(limits.begin("alice", HOME, now), Err(wait));
            let early = now + wait - Duration::from_millis(1);
            assert!(limits.begin("alice", HOME, early).is_err());
            now += wait;
            assert_eq!(limits.begin("alice", HOME, now), Ok(()));
        }
        assert_eq!(limits.begin("bob", HOME, now), Ok(()), "another user");
        assert_eq!(limits.begin("alice", elsewhere(1), now), Ok(()));
        for _ in 0..30 {
            while let Err(wait) = limits.begin("alice", HOME, now) {
                assert!(wait <= USER_AND_ADDRESS.wait_max);
                now += wait;
            }
        }
    }

    #[test]
    fn a_success_is_no_failure_and_time_heals() {
        let limits = Limits::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(limits.begin("alice", HOME, now), Ok(()));
            limits.succeeded("alice", HOME, now);
        }
        for _ in 0..5 {
            limits.begin("alice", HOME, now).unwrap();
        }
        assert!(limits.begin("alice", HOME, now).is_err());
        now += HALF_LIFE;
        assert_eq!(limits.begin("alice", HOME, now), Ok(()));
    }

    #[test]
    fn guessing_from_everywhere_does_not_lock_the_user_out_at_home() {
        let limits = Limits::default();
        let now = Instant::now();
        limits.begin("alice", HOME, now).unwrap();
        limits.succeeded("alice", HOME, now);
        let tried = (0..10_000).filter(|&number| {
            let tried = limits.begin("alice", elsewhere(number), now);
            tried.is_ok()
        });
        assert_eq!(tried.count(), USER.free as usize);
        assert_eq!(limits.begin("alice", HOME, now), Ok(()));
        assert!(limits.is_known(HOME, now) && !limits.is_known(elsewhere(1), now));
        assert!(!limits.is_known(HOME, now + WELCOME));
    }

    #[test]
    fn guessing_at_everybody_from_one_network_is_seen() {
        let limits = Limits::default();
        let now = Instant::now();
        let tried = (0..1000_u16).filter(|&number| {
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, number, 0, 0, number);
            let tried = limits.begin(&format!("user{number}"), address.into(), now);
            tried.is_ok()
        });
        assert_eq!(tried.count(), ADDRESS.free as usize);
    }

    #[test]
    fn tables_stay_small() {
        let limits = Limits::default();
        let mut now = Instant::now();
        for number in 0..3 * u32::try_from(ENTRIES).unwrap() {
            now += Duration::from_millis(1);
            let (user, address) = (format!("user{number}"), elsewhere(number));
            limits.begin(&user, address, now).unwrap();
            limits.succeeded(&user, address, now);
            limits.begin(&user, address, now).unwrap();
        }
        let tables = limits.tables.lock();
        assert!(tables.pairs.entries.len() <= ENTRIES);
        assert!(tables.addresses.entries.len() <= ENTRIES);
        assert!(tables.users.entries.len() <= ENTRIES);
        assert!(tables.welcome.len() <= ENTRIES);
    }
}
