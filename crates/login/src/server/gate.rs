//! How many connections there may be, and how many may be begun.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::limits::network;

/// Connections at once.
const ALL: usize = 256;
/// Of them from one address.
const EACH: usize = 16;
/// Of all, those that only addresses get from which somebody has logged in: or strangers with a few
/// addresses would keep everybody out.
const KEPT: usize = 64;
/// Connections an address may begin at once, and after that one each so often. Beginning one costs the
/// server a signature, whatever follows.
const BURST: u32 = 64;
const PAUSE: Duration = Duration::from_millis(125);
/// Addresses that are remembered for this.
const ADDRESSES: usize = 16 << 10;

/// Counts who is within, and who comes how often.
#[derive(Debug, Default)]
pub(super) struct Gate {
    addresses: Mutex<HashMap<IpAddr, Visits>>,
}

#[derive(Clone, Copy, Debug)]
struct Visits {
    within: usize,
    /// When all that it has begun is paid for; each connection adds a pause.
    paid: Instant,
}

/// Somebody within; gone when dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    /// Lets one more in, if there is room for this address; `is_known` is asked where there is only
    /// room for known ones.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
        is_known: impl FnOnce() -> bool,
    ) -> Option<Pass> {
        let address = network(address);
        let mut addresses = self.addresses.lock();
        let all: usize = addresses.values().map(|visits| visits.within).sum();
        if all >= ALL || (all >= ALL - KEPT && !is_known()) {
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
        let paid = visits.paid.max(now) + PAUSE;
        if visits.within >= EACH || paid > now + PAUSE * BURST {
            return None;
        }
        *visits = Visits {
            within: visits.within + 1,
            paid,
        };
        Some(Pass {
            gate: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(visits) = self.gate.addresses.lock().get_mut(&self.address) {
            visits.within -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let gate = Arc::new(Gate::default());
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
        let gate = Arc::new(Gate::default());
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
        let gate = Arc::new(Gate::default());
        let mut now = Instant::now();
        for number in 0..2 * u32::try_from(ADDRESSES).unwrap() {
            gate.enter(IpAddr::V4(number.into()), now, || false);
            now += Duration::from_millis(1);
        }
        assert!(gate.addresses.lock().len() <= ADDRESSES);
        assert!(gate.enter(address(1), now + PAUSE, || false).is_some());
    }
}
