//! What a cache holds, and what its servers have out of band, as metrics.

use std::sync::{Arc, Weak};

use afar_cell::{OobServer, OobTransfers};
use afar_telemetry::{Cells, Collect, Desc, Registry, Unit};

use crate::model::changes_here::ChangesHere;
use crate::model::pending_volume::PendingVolume;
use crate::ops::cache::{Cache, Inner};
use crate::ops::leased::left;
use crate::table::prefetched::{Kind, Tally};

const USED: Desc = Desc::gauge(
    "afar_cache_used_bytes",
    Unit::Bytes,
    "Bytes that the cache's data takes on the disk.",
);
const LIMIT: Desc = Desc::gauge(
    "afar_cache_limit_bytes",
    Unit::Bytes,
    "Bytes that the cache's data may take.",
);
const UNSTORED: Desc = Desc::gauge(
    "afar_cache_unstored_bytes",
    Unit::Bytes,
    "Bytes that were written and are not stored at a server yet.",
);
const UNSTORED_FILES: Desc = Desc::gauge(
    "afar_cache_unstored_files",
    Unit::None,
    "Files with something written that is not stored at a server yet.",
);
const CHANGES: Desc = Desc::counter(
    "afar_mount_changes_total",
    Unit::None,
    "Changes that the mount made itself under leases, by what became of them: made, sent late, refused by the server.",
);
const BATCHES: Desc = Desc::counter(
    "afar_mount_batches_total",
    Unit::None,
    "Batches of such changes that servers have run.",
);
const WAITING: Desc = Desc::gauge(
    "afar_mount_unsent_changes",
    Unit::None,
    "Such changes that are not at their server yet.",
);
const WAITING_BYTES: Desc = Desc::gauge(
    "afar_mount_unsent_bytes",
    Unit::Bytes,
    "Bytes of such changes.",
);
const LEASES: Desc = Desc::gauge(
    "afar_mount_leases",
    Unit::None,
    "Files and directories that servers have leased to the mount.",
);
const OOB_CONNECTIONS: Desc = Desc::gauge(
    "afar_mount_oob_connections",
    Unit::None,
    "Connections to file servers for data out of band.",
);
const OOB_BYTES: Desc = Desc::counter(
    "afar_mount_oob_bytes_total",
    Unit::Bytes,
    "Bytes of files that came and went out of band.",
);
const OOB_TRANSFERS: Desc = Desc::counter(
    "afar_mount_oob_transfers_total",
    Unit::None,
    "Transfers out of band, by how they ended.",
);
const PREFETCHED: Desc = Desc::counter(
    "afar_mount_prefetched_total",
    Unit::None,
    "Statuses and directories that were asked for before a program did.",
);
const PREFETCHED_USED: Desc = Desc::counter(
    "afar_mount_prefetched_used_total",
    Unit::None,
    "Those of them that a program used within ten seconds.",
);
const PREFETCHED_BYTES: Desc = Desc::counter(
    "afar_mount_prefetched_bytes_total",
    Unit::Bytes,
    "Bytes of small files that were fetched before a program read the file.",
);
const PREFETCHED_USED_BYTES: Desc = Desc::counter(
    "afar_mount_prefetched_used_bytes_total",
    Unit::Bytes,
    "Those of them whose file a program read within ten seconds.",
);

/// Tells of a cache as long as there is one.
struct Told(Weak<Inner>);

impl Cache {
    /// Changes that the cache made itself, and what became of them so far.
    #[must_use]
    pub fn changes_here(&self) -> ChangesHere {
        changes_here(&self.0)
    }

    /// Changes that the cache made itself, or an earlier process with it, and that their servers do not have yet: the
    /// volumes of which there are some.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingVolume> {
        let since = self.0.begun.elapsed().unwrap_or_default();
        let mut pending = left::waiting(&self.0.left.lock(), since);
        pending.extend(self.0.unsent.pending());
        pending
    }

    /// Has a registry show what the cache holds. It does not keep the cache alive.
    pub fn tell(&self, registry: &Registry) {
        registry.collector(Told(Arc::downgrade(&self.0)));
    }
}

impl Collect for Told {
    fn describe(&self) -> Vec<Desc> {
        vec![
            USED,
            LIMIT,
            UNSTORED,
            UNSTORED_FILES,
            CHANGES,
            BATCHES,
            WAITING,
            WAITING_BYTES,
            LEASES,
            OOB_CONNECTIONS,
            OOB_BYTES,
            OOB_TRANSFERS,
            PREFETCHED,
            PREFETCHED_USED,
            PREFETCHED_BYTES,
            PREFETCHED_USED_BYTES,
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "levels to be shown")]
    fn collect(&self, cells: &mut Cells) {
        let Some(cache) = self.0.upgrade() else {
            return;
        };
        let usage = cache.storage.usage();
        let files = cache.all_dirty().len();
        for (desc, level) in [
            (&USED, usage.taken as f64),
            (&LIMIT, usage.limit as f64),
            (&UNSTORED, usage.written as f64),
            (&UNSTORED_FILES, files as f64),
        ] {
            cells.level(desc, &[], level);
        }
        tell_changes(&cache, cells);
        tell_oob(&cache.client.oob_servers(), cells);
        for (kind, tally) in cache.prefetched.tallies() {
            tell_prefetched(kind, tally, cells);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "levels to be shown")]
fn tell_changes(cache: &Inner, cells: &mut Cells) {
    let seen = changes_here(cache);
    for (result, count) in [
        ("made", seen.made),
        ("late", seen.late),
        ("refused", seen.refused),
    ] {
        cells.count(&CHANGES, &[("result", result)], count);
    }
    cells.count(&BATCHES, &[], seen.batches);
    let sites = cache.leases.all();
    let leases: usize = sites.iter().map(|site| site.lock().leases().count()).sum();
    cells.level(&WAITING, &[], seen.waiting as f64);
    cells.level(&WAITING_BYTES, &[], seen.bytes as f64);
    cells.level(&LEASES, &[], leases as f64);
}

fn changes_here(cache: &Inner) -> ChangesHere {
    ChangesHere {
        bytes: cache.journal.bytes(),
        ..cache.unsent.seen()
    }
}

fn tell_prefetched(kind: Kind, tally: Tally, cells: &mut Cells) {
    let what = match kind {
        Kind::Status => "status",
        Kind::Directory => "directory",
        Kind::Data => {
            cells.count(&PREFETCHED_BYTES, &[], tally.asked);
            cells.count(&PREFETCHED_USED_BYTES, &[], tally.used);
            return;
        }
    };
    cells.count(&PREFETCHED, &[("what", what)], tally.asked);
    cells.count(&PREFETCHED_USED, &[("what", what)], tally.used);
}

#[expect(clippy::cast_precision_loss, reason = "levels to be shown")]
fn tell_oob(servers: &[OobServer], cells: &mut Cells) {
    let connections: u64 = servers.iter().map(|server| server.connections).sum();
    cells.level(&OOB_CONNECTIONS, &[], connections as f64);
    type Transfers = fn(&OobServer) -> OobTransfers;
    let operations: [(&str, Transfers); 2] = [
        ("fetch", |server| server.fetches),
        ("store", |server| server.stores),
    ];
    for (operation, transfers) in operations {
        let sum = |of: fn(OobTransfers) -> u64| {
            let all = servers.iter().map(|server| of(transfers(server)));
            all.sum::<u64>()
        };
        let operation = ("operation", operation);
        cells.count(&OOB_BYTES, &[operation], sum(|it| it.bytes));
        for (result, count) in [
            ("done", sum(|it| it.done)),
            ("aborted", sum(|it| it.aborted)),
            ("rx", sum(|it| it.by_rx)),
            ("given_up", sum(|it| it.given_up)),
        ] {
            cells.count(&OOB_TRANSFERS, &[operation, ("result", result)], count);
        }
    }
}
