//! What is counted of leases.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_telemetry::{Cells, Collect, Desc, Unit};

use super::Leases;

/// Since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) granted: AtomicU64,
    pub(super) recalled: AtomicU64,
    pub(super) revoked: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) late: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

const HELD: Desc = Desc::gauge("afar_leases", Unit::None, "Leases that clients hold.");
const HOSTS: Desc = Desc::gauge(
    "afar_lease_hosts",
    Unit::None,
    "Clients with leases, or that had some a moment ago.",
);

/// Takes one number out of all.
type Read = fn(&Counts) -> &AtomicU64;

const COUNTERS: &[(Desc, Read)] = &[
    (
        Desc::counter(
            "afar_leases_granted_total",
            Unit::None,
            "Leases granted, without those of what their holders made.",
        ),
        |counts| &counts.granted,
    ),
    (
        Desc::counter(
            "afar_leases_recalled_total",
            Unit::None,
            "Calls to clients that recalled leases.",
        ),
        |counts| &counts.recalled,
    ),
    (
        Desc::counter(
            "afar_leases_revoked_total",
            Unit::None,
            "Leases that clients did not give back in time.",
        ),
        |counts| &counts.revoked,
    ),
    (
        Desc::counter(
            "afar_leases_waited_total",
            Unit::None,
            "Times that a call waited for a lease of another client.",
        ),
        |counts| &counts.waited,
    ),
    (
        Desc::counter(
            "afar_leases_late_total",
            Unit::None,
            "Changes under a lease that was over, refused because somebody else had changed the file.",
        ),
        |counts| &counts.late,
    ),
];

/// Tells of leases.
pub(super) struct Shown(pub(super) Weak<Leases>);

impl Collect for Shown {
    fn describe(&self) -> Vec<Desc> {
        let counters = COUNTERS.iter().map(|(desc, _)| *desc);
        [HELD, HOSTS].into_iter().chain(counters).collect()
    }

    fn collect(&self, cells: &mut Cells) {
        let Some(leases) = self.0.upgrade() else {
            return;
        };
        let (held, hosts) = leases.standing();
        for (desc, number) in [(HELD, held), (HOSTS, hosts)] {
            #[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
            cells.level(&desc, &[], number as f64);
        }
        for (desc, read) in COUNTERS {
            cells.count(desc, &[], read(&leases.counts).load(Ordering::Relaxed));
        }
    }
}
