//! How much of batches goes on at a time.
// spec: batches#bounds

use std::collections::HashMap;
use std::net::IpAddr;

use afar_net::AbortCode;
use afar_types::error::VBUSY;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes that the batches of one address may take.
const OF_ONE: usize = 8 << 20;
/// Bytes that all batches may take.
const OF_ALL: usize = 64 << 20;
/// Bytes that a batch takes beside what comes: its results and statuses.
const ANSWER: usize = 256 << 10;
/// What comes is there as it came, as operations, and packed.
const COPIES: usize = 3;
/// Batches that the committers have at a time: single changes wait for no more of them.
const AT_A_TIME: usize = 2;

/// The batches under way.
#[derive(Debug)]
pub(crate) struct Batches {
    held: Mutex<Held>,
    turns: Semaphore,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
            turns: Semaphore::new(AT_A_TIME),
        }
    }
}

impl Batches {
    /// Takes room for a batch of so many bytes.
    pub(super) fn room(&self, address: IpAddr, length: usize) -> Result<Room<'_>, AbortCode> {
        let bytes = COPIES * length + ANSWER;
        let mut held = self.held.lock();
        let own = held.by_address.get(&address).copied().unwrap_or_default();
        if own + bytes > OF_ONE || held.all + bytes > OF_ALL {
            return Err(AbortCode(VBUSY));
        }
        held.all += bytes;
        held.by_address.insert(address, own + bytes);
        Ok(Room {
            batches: self,
            address,
            bytes,
        })
    }

    /// Waits until the committers may have one more.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.turns.acquire().await.ok()
    }
}

/// Room that a batch has; it ends when this is dropped.
pub(super) struct Room<'b> {
    batches: &'b Batches,
    address: IpAddr,
    bytes: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut held = self.batches.held.lock();
        held.all = held.all.saturating_sub(self.bytes);
        let left = held.by_address.get(&self.address).copied();
        match left.unwrap_or_default().saturating_sub(self.bytes) {
            0 => held.by_address.remove(&self.address),
            left => held.by_address.insert(self.address, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_and_all_of_them_have_so_much_and_give_it_back() {
        let batches = Batches::default();
        let address = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        let large = 1 << 20;
        let mut rooms = Vec::new();
        for own in 0.. {
            match batches.room(address(own), large) {
                Ok(first) => rooms.push(first),
                Err(code) => {
                    assert_eq!(code, AbortCode(VBUSY));
                    break;
                }
            }
            while let Ok(more) = batches.room(address(own), large) {
                rooms.push(more);
            }
            assert!(batches.held.lock().by_address[&address(own)] <= OF_ONE);
        }
        assert!(batches.held.lock().all <= OF_ALL);
        assert!(batches.held.lock().by_address.len() > 8);
        drop(rooms);
        assert_eq!(batches.held.lock().all, 0);
        assert!(batches.held.lock().by_address.is_empty());
    }
}
