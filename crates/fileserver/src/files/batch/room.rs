//! How much of batches goes on at a time.
// spec: batches#bounds

use std::collections::HashMap;
use std::net::IpAddr;

use afar_net::AbortCode;
use afar_types::PtsId;
use afar_types::error::VBUSY;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes that the batches of one address may take.
const OF_ONE: usize = 16 << 20;
/// Bytes that all batches may take.
const OF_ALL: usize = 128 << 20;
/// The part of these that callers without an identity may take.
const OF_ANONYMOUS: usize = OF_ALL / 2;
/// Bytes that a batch takes beside what comes: its results and statuses.
const ANSWER: usize = 1 << 20;
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
    anonymous: usize,
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
    pub(super) fn room(
        &self,
        address: IpAddr,
        person: PtsId,
        length: usize,
    ) -> Result<Room<'_>, AbortCode> {
        let bytes = COPIES * length + ANSWER;
        let mut held = self.held.lock();
        let own = held.by_address.get(&address).copied().unwrap_or_default();
        let anonymous = match person == PtsId::ANONYMOUS {
            true => bytes,
            false => 0,
        };
        if own + bytes > OF_ONE
            || held.all + bytes > OF_ALL
            || anonymous > 0 && held.anonymous + anonymous > OF_ANONYMOUS
        {
            return Err(AbortCode(VBUSY));
        }
        held.all += bytes;
        held.anonymous += anonymous;
        held.by_address.insert(address, own + bytes);
        Ok(Room {
            batches: self,
            address,
            bytes,
            anonymous,
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
    /// Those that are a caller's without an identity.
    anonymous: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut held = self.batches.held.lock();
        held.all = held.all.saturating_sub(self.bytes);
        held.anonymous = held.anonymous.saturating_sub(self.anonymous);
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

    fn address(last: u8) -> IpAddr {
        IpAddr::from(Ipv4Addr::new(192, 0, 2, last))
    }

    /// Takes all that so many addresses can have.
    fn fill(
        batches: &Batches,
        addresses: impl Iterator<Item = u8>,
        person: PtsId,
    ) -> Vec<Room<'_>> {
        let mut rooms = Vec::new();
        for own in addresses {
            while let Ok(more) = batches.room(address(own), person, 1 << 20) {
                rooms.push(more);
            }
            let held = batches.held.lock();
            let own = held.by_address.get(&address(own));
            assert!(own.copied().unwrap_or_default() <= OF_ONE);
        }
        rooms
    }

    #[test]
    fn an_address_and_all_of_them_have_so_much_and_give_it_back() {
        let batches = Batches::default();
        let full = fill(&batches, 0..50, PtsId(7));
        let another = batches.room(address(99), PtsId(7), 1 << 20);
        assert_eq!(another.err(), Some(AbortCode(VBUSY)));
        assert!(batches.held.lock().all <= OF_ALL);
        assert!(batches.held.lock().by_address.len() >= OF_ALL / OF_ONE);
        drop(full);
        assert_eq!(batches.held.lock().all, 0);
        assert!(batches.held.lock().by_address.is_empty());
    }

    #[test]
    fn callers_without_an_identity_leave_room_to_others() {
        let batches = Batches::default();
        let strangers = fill(&batches, 0..50, PtsId::ANONYMOUS);
        assert!(!strangers.is_empty());
        assert!(batches.held.lock().all <= OF_ANONYMOUS);
        let known = fill(&batches, 100..150, PtsId(7));
        assert!(known.len() >= strangers.len());
        drop((strangers, known));
        assert_eq!(batches.held.lock().anonymous, 0);
    }
}
