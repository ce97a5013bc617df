//! Calls that are being served: while one host's call is at a vnode, no other host gets a lease of it.

use std::collections::{BTreeMap, BTreeSet};

use afar_types::{AfsUuid, Fid};

/// Names a call between [`enter`](super::Server::enter) and [`leave`](super::Server::leave).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitId(u64);

/// The host, and the life and the session of the call's note; None: a caller without a note. Calls of one host with
/// notes of two sessions are strangers to each other: one of them may have been under way since a restart.
pub(super) type By = Option<(AfsUuid, (u64, u64))>;

#[derive(Debug)]
struct Visit {
    by: By,
    fids: BTreeSet<Fid>,
}

/// A vnode that calls are at.
#[derive(Debug)]
struct Place {
    calls: usize,
    /// Whose calls these are; None as soon as they are of two, and until the last of them has left. So what one of
    /// them asks in between does not depend on how many there are.
    by: By,
}

/// As many as the server has calls in progress: it bounds them.
#[derive(Debug, Default)]
pub(super) struct Visits {
    last: u64,
    visits: BTreeMap<u64, Visit>,
    places: BTreeMap<Fid, Place>,
}

impl Visits {
    pub(super) fn begin(&mut self, by: By, fids: &[Fid]) -> VisitId {
        self.last += 1;
        let fids: BTreeSet<Fid> = fids.iter().copied().collect();
        for &fid in &fids {
            let place = self.places.entry(fid).or_insert(Place { calls: 0, by });
            place.calls += 1;
            if place.by != by {
                place.by = None;
            }
        }
        self.visits.insert(self.last, Visit { by, fids });
        VisitId(self.last)
    }

    /// Whether this call is at the vnode, and no other host's was since it began.
    pub(super) fn is_alone(&self, id: VisitId, host: AfsUuid, fid: Fid) -> bool {
        let visit = self.visits.get(&id.0);
        let visit = visit.filter(|visit| visit.fids.contains(&fid));
        let place = self.places.get(&fid);
        visit.zip(place).is_some_and(|(visit, place)| {
            let its = visit.by.is_some_and(|(by, _)| by == host);
            its && place.by == visit.by
        })
    }

    pub(super) fn end(&mut self, id: VisitId) {
        let Some(visit) = self.visits.remove(&id.0) else {
            return;
        };
        for fid in visit.fids {
            if let Some(place) = self.places.get_mut(&fid) {
                place.calls -= 1;
                if place.calls == 0 {
                    self.places.remove(&fid);
                }
            }
        }
    }
}
