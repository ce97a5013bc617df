//! Where changes wait until all hosts concerned know of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use afar_types::{Fid, Uniquifier, VnodeId, VolumeId};
use tokio::sync::Notify;

use super::table::whole_volume;

/// Fids in [`Underway`] from which on it is looked for those whose gates are open.
const TIDIED_FROM: usize = 256;

/// Where a change waits until all hosts concerned have arrived.
#[derive(Debug)]
pub(super) struct Gate {
    missing: AtomicUsize,
    open: Notify,
}

impl Gate {
    /// One that waits for one arrival.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            missing: AtomicUsize::new(1),
            open: Notify::new(),
        })
    }

    /// It has to wait for one arrival more.
    pub(super) fn expect_another(&self) {
        debug_assert!(!self.is_open(), "those that waited have gone on");
        self.missing.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn arrive(&self) {
        // What was done before the arrival is seen by who waits.
        let missing = self.missing.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(missing > 0, "more arrive than are expected");
        if missing == 1 {
            self.open.notify_waiters();
        }
    }

    fn is_open(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    pub(super) async fn wait(&self) {
        let open = self.open.notified();
        tokio::pin!(open);
        // Before the look: an arrival in between would be missed.
        open.as_mut().enable();
        if !self.is_open() {
            open.await;
        }
    }
}

/// The gates of promises that are in the table no more and of which hosts may not have heard yet.
/// A client that changes the same file again finds nothing to break, and still has to wait for them: its reply
/// would tell it of a file of which others trust what was before.
#[derive(Debug, Default)]
pub(super) struct Underway {
    gates: BTreeMap<Fid, Vec<Weak<Gate>>>,
    tidied: usize,
}

impl Underway {
    /// Hosts are being told of this fid.
    pub(super) fn add(&mut self, fid: Fid, gate: &Arc<Gate>) {
        let gates = self.gates.entry(fid).or_default();
        gates.retain(|known| known.as_ptr() != Arc::as_ptr(gate) && is_shut(known));
        gates.push(Arc::downgrade(gate));
        if self.gates.len() > TIDIED_FROM.max(2 * self.tidied) {
            self.gates.retain(|_, gates| gates.iter().any(is_shut));
            self.tidied = self.gates.len();
        }
    }

    /// Those to wait for by who changes this file.
    pub(super) fn of(&self, fid: Fid) -> Vec<Arc<Gate>> {
        let both = [fid, whole_volume(fid.volume)];
        let gates = both.iter().filter_map(|fid| self.gates.get(fid)).flatten();
        gates.filter_map(shut).collect()
    }

    /// Those to wait for by who changes all of a volume.
    pub(super) fn of_volume(&self, volume: VolumeId) -> Vec<Arc<Gate>> {
        let last = Fid {
            volume,
            vnode: VnodeId(u32::MAX),
            uniquifier: Uniquifier(u32::MAX),
        };
        let all = self.gates.range(whole_volume(volume)..=last);
        all.flat_map(|(_, gates)| gates).filter_map(shut).collect()
    }
}

fn shut(gate: &Weak<Gate>) -> Option<Arc<Gate>> {
    gate.upgrade().filter(|gate| !gate.is_open())
}

fn is_shut(gate: &Weak<Gate>) -> bool {
    shut(gate).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_found_by_file_and_volume_until_they_open() {
        let mut underway = Underway::default();
        let (file, volume) = (Gate::new(), Gate::new());
        underway.add(Fid::new(7, 2, 1), &file);
        underway.add(whole_volume(VolumeId(7)), &volume);
        let counts = |underway: &Underway| {
            let of = [(7, 2, 1), (7, 2, 2), (8, 2, 1)].map(|(v, n, u)| Fid::new(v, n, u));
            (
                of.map(|fid| underway.of(fid).len()),
                underway.of_volume(VolumeId(7)).len(),
            )
        };
        assert_eq!(counts(&underway), ([2, 1, 0], 2));
        volume.arrive();
        assert_eq!(counts(&underway), ([1, 0, 0], 1));
        drop(file);
        assert_eq!(counts(&underway), ([0, 0, 0], 0));
    }

    #[test]
    fn open_gates_do_not_pile_up() {
        let mut underway = Underway::default();
        let gate = Gate::new();
        for vnode in 0..100_000 {
            underway.add(Fid::new(7, vnode, 1), &Gate::new());
            underway.add(Fid::new(8, 1, 1), &gate);
        }
        assert!(underway.gates.len() <= TIDIED_FROM + 1);
        assert!(!underway.of(Fid::new(8, 1, 1)).is_empty());
    }
}
