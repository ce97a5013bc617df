//! How many calls wait for leases at a time. All others are left to the holders, whose batches the waiting ones wait for.

use std::collections::HashMap;
use std::net::IpAddr;

use afar_net::AbortCode;
use afar_types::error::VBUSY;
use parking_lot::Mutex;

/// The part of them that one address may have.
const OF_ONE: usize = 4;

/// The calls that wait.
#[derive(Debug)]
pub(super) struct Waits {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Waits {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            held: Mutex::default(),
        }
    }

    /// A place for a call from this address; it ends when the result is dropped.
    ///
    /// # Errors
    /// VBUSY.
    pub(super) fn begin(&self, address: IpAddr) -> Result<Waiting<'_>, AbortCode> {
        let mut held = self.held.lock();
        let own = held.by_address.get(&address).copied().unwrap_or_default();
        if held.all >= self.most || own >= self.most.div_ceil(OF_ONE) {
            return Err(AbortCode(VBUSY));
        }
        held.all += 1;
        held.by_address.insert(address, own + 1);
        Ok(Waiting {
            waits: self,
            address,
        })
    }
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waiting<'w> {
    waits: &'w Waits,
    address: IpAddr,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut held = self.waits.held.lock();
        held.all -= 1;
        let own = held.by_address.get(&self.address).copied();
        match own.unwrap_or_default().saturating_sub(1) {
            0 => held.by_address.remove(&self.address),
            own => held.by_address.insert(self.address, own),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_has_a_part_of_all() {
        let waits = Waits::new(8);
        let address = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        let mut waiting = Vec::new();
        for last in 0..4 {
            waiting.push(waits.begin(address(last)).unwrap());
            waiting.push(waits.begin(address(last)).unwrap());
            assert!(waits.begin(address(last)).is_err());
        }
        assert!(waits.begin(address(9)).is_err());
        waiting.pop();
        assert!(waits.begin(address(9)).is_ok());
        drop(waiting);
        assert!(waits.held.lock().by_address.is_empty());
        assert_eq!(waits.held.lock().all, 0);
    }
}
