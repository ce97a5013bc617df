//! How many connections there may be, and how many may be begun.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many connections a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Connections at once.
    pub all: usize,
    /// Of them from one address; one of IPv6 stands for its network of 64 bits.
    pub each: usize,
    /// Of all, those that only known addresses get: or strangers with a few addresses would keep
    /// everybody out.
    pub kept: usize,
    /// Connections an address may begin at once, and after that one each `pause`. Beginning one costs
    /// the server a signature, whatever follows.
    pub burst: u32,
    /// See `burst`.
    pub pause: Duration,
}

/// Addresses that are remembered for this.
const ADDRESSES: usize = 16 << 10;

/// Counts who is within, and who comes how often.
#[derive(Debug)]
pub struct Gate {
    limits: GateLimits,
    visitors: Mutex<Visitors>,
}

#[derive(Debug, Default)]
struct Visitors {
    /// The sum of those within.
    all: usize,
    addresses: HashMap<IpAddr, Visits>,
}

#[derive(Clone, Copy, Debug)]
struct Visits {
    within: usize,
    /// When all that it has begun is paid for; each connection adds a pause.
    paid: Instant,
}

/// A connection within; it is gone when this is dropped.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    /// With nobody within.
    #[must_use]
    pub fn new(limits: GateLimits) -> Self {
        Self {
            limits,
            visitors: Mutex::default(),
        }
    }

    /// Lets one more in, if there is room for this address; `is_known` is asked where there is only
    /// room for known ones.
    pub fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
        is_known: impl FnOnce() -> bool,
    ) -> Option<Pass> {
        let GateLimits {
            all: most,
            each,
            kept,
            burst,
            pause,
        } = self.limits;
        let address = network(address);
        let mut visitors = self.visitors.lock();
        let Visitors { all, addresses } = &mut *visitors;
        if *all >= most || (*all >= most.saturating_sub(kept) && !is_known()) {
            return None;
        }
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&address) {
            addresses.retain(|_, visits| visits.within > 0 || visits.paid > now);
            if addresses.len() >= ADDRESSES {
                return None;
            }
        }
        let visits = addresses.entry(address).or_insert(Visits {
            within: 0,
            paid: now,
        });
        let paid = visits.paid.max(now) + pause;
        if visits.within >= each || paid > now + pause * burst {
            return None;
        }
        *visits = Visits {
            within: visits.within + 1,
            paid,
        };
        *all += 1;
        Some(Pass {
            gate: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut visitors = self.gate.visitors.lock();
        if let Some(visits) = visitors.addresses.get_mut(&self.address) {
            visits.within -= 1;
            visitors.all -= 1;
        }
    }
}

/// Whom an address stands for: one of IPv6 for its network of 64 bits.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 256;
    const EACH: usize = 16;
    const KEPT: usize = 64;
    const BURST: u32 = 64;
    const PAUSE: Duration = Duration::from_millis(125);

    fn gate() -> Arc<Gate> {
        Arc::new(Gate::new(GateLimits {
            all: ALL,
            each: EACH,
            kept: KEPT,
            burst: BURST,
            pause: PAUSE,
        }))
    }

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// As many as there is room for.
    fn fill(gate: &Arc<Gate>, number: u8, now: Instant, known: bool) -> Vec<Pass> {
        let enter = |_| gate.enter(address(number), now, || known);
        (0..=ALL).map_while(enter).collect()
    }

    #[test]
    fn nobody_takes_all_the_room() {
        let gate = gate();
        let now = Instant::now();
        let mut passes = fill(&gate, 1, now, false);
        assert_eq!(passes.len(), EACH);
        passes.pop();
        assert!(gate.enter(address(1), now, || false).is_some());
        for number in 2..=u8::MAX {
            passes.extend(fill(&gate, number, now, false));
        }
        assert_eq!(passes.len(), ALL - KEPT, "strangers do not get the rest");
        assert_eq!(fill(&gate, 1, now, true).len(), 1, "its share is its share");
        let known: Vec<_> = (2..=u8::MAX)
            .flat_map(|number| fill(&gate, number, now, true))
            .collect();
        assert_eq!(known.len(), KEPT);
        drop((known, passes));
        assert!(gate.enter(address(2), now, || false).is_some());
    }

    #[test]
    fn addresses_that_come_all_the_time_are_slowed_down() {
        let gate = gate();
        let mut now = Instant::now();
        let enter = |number, now| gate.enter(address(number), now, || false).is_some();
        let come = (0..1000).filter(|_| enter(1, now)).count();
        assert_eq!(come, BURST as usize);
        assert!(enter(2, now), "others are not");
        now += PAUSE;
        assert!(enter(1, now) && !enter(1, now));
        now += PAUSE * BURST;
        let come = (0..1000).filter(|_| enter(1, now)).count();
        assert_eq!(come, BURST as usize);
    }

    #[test]
    fn the_table_stays_small() {
        let gate = gate();
        let mut now = Instant::now();
        for number in 0..2 * u32::try_from(ADDRESSES).unwrap() {
            gate.enter(IpAddr::V4(number.into()), now, || false);
            now += Duration::from_millis(1);
        }
        assert!(gate.visitors.lock().addresses.len() <= ADDRESSES);
        assert!(gate.enter(address(1), now + PAUSE, || false).is_some());
    }
}
