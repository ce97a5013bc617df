//! Calls that are being served: while one host's call is at a vnode, no other host gets a lease of it.

use std::collections::BTreeMap;

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
    /// What it is at, and whether another host's call was there in the meantime.
    fids: Vec<(Fid, bool)>,
}

/// As many as the server has calls in progress: it bounds them.
#[derive(Debug, Default)]
pub(super) struct Visits {
    last: u64,
    visits: BTreeMap<u64, Visit>,
    /// The visits at a vnode.
    at: BTreeMap<Fid, Vec<u64>>,
}

impl Visits {
    pub(super) fn begin(&mut self, by: By, fids: &[Fid]) -> VisitId {
        self.last += 1;
        let mut places: Vec<(Fid, bool)> = Vec::with_capacity(fids.len());
        for &fid in fids {
            if places.iter().any(|&(known, _)| known == fid) {
                continue;
            }
            let at = self.at.entry(fid).or_default();
            let mut disturbed = false;
            for other in at.iter() {
                let Some(visit) = self.visits.get_mut(other) else {
                    continue;
                };
                if visit.by.is_none() || visit.by != by {
                    disturbed = true;
                    mark(&mut visit.fids, fid);
                }
            }
            at.push(self.last);
            places.push((fid, disturbed));
        }
        let fids = places;
        self.visits.insert(self.last, Visit { by, fids });
        VisitId(self.last)
    }

    /// Whether this call is at the vnode, and no other host's was since it began.
    pub(super) fn is_alone(&self, id: VisitId, host: AfsUuid, fid: Fid) -> bool {
        let visit = self.visits.get(&id.0);
        visit.is_some_and(|visit| {
            let its = visit.by.is_some_and(|(by, _)| by == host);
            its && visit.fids.contains(&(fid, false))
        })
    }

    pub(super) fn end(&mut self, id: VisitId) {
        for (fid, _) in self
            .visits
            .remove(&id.0)
            .into_iter()
            .flat_map(|visit| visit.fids)
        {
            if let Some(at) = self.at.get_mut(&fid) {
                at.retain(|&other| other != id.0);
                if at.is_empty() {
                    self.at.remove(&fid);
                }
            }
        }
    }
}

fn mark(fids: &mut [(Fid, bool)], fid: Fid) {
    for place in fids.iter_mut().filter(|place| place.0 == fid) {
        place.1 = true;
    }
}
