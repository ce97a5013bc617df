//! How many connections there may be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::network;

/// Connections at once.
const ALL: usize = 256;
/// Of them from one address.
const EACH: usize = 16;

/// Counts who is within.
#[derive(Debug, Default)]
pub(super) struct Gate {
    within: Mutex<HashMap<IpAddr, usize>>,
}

/// Somebody within; gone when dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    /// Lets one more in, if there is room for this address.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Pass> {
        let address = network(address);
        let mut within = self.within.lock();
        let all: usize = within.values().sum();
        let each = within.get(&address).copied().unwrap_or(0);
        if all >= ALL || each >= EACH {
            return None;
        }
        within.insert(address, each + 1);
        Some(Pass {
            gate: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut within = self.gate.within.lock();
        if let Some(count) = within.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                within.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_the_room() {
        let gate = Arc::new(Gate::default());
        let address = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut passes: Vec<Pass> = (0..).map_while(|_| gate.enter(address(1))).collect();
        assert_eq!(passes.len(), EACH);
        passes.pop();
        assert!(gate.enter(address(1)).is_some());
        for number in 2..=u8::MAX {
            passes.extend((0..EACH).map_while(|_| gate.enter(address(number))));
        }
        assert_eq!(passes.len(), ALL);
        passes.clear();
        assert!(gate.within.lock().is_empty());
    }
}
