//! What a file server tells of the disks of its partitions.

use std::sync::{Arc, Weak};

use afar_telemetry::{Cells, Collect, Desc, Unit};

use crate::space::DiskSpace;
use crate::volumes::Volumes;

const SIZE: Desc = Desc::gauge(
    "afar_partition_size_bytes",
    Unit::Bytes,
    "Size of the file system that a partition is on, without what is reserved for root.",
);
const FREE: Desc = Desc::gauge(
    "afar_partition_free_bytes",
    Unit::Bytes,
    "Free space of the file system that a partition is on.",
);
const READ: Desc = Desc::histogram(
    "afar_partition_read_seconds",
    Unit::Seconds,
    "Time of the system's calls that read data of a partition.",
);
const WRITE: Desc = Desc::histogram(
    "afar_partition_write_seconds",
    Unit::Seconds,
    "Time of the system's calls that write data and the log of a partition.",
);
const SYNC: Desc = Desc::histogram(
    "afar_partition_sync_seconds",
    Unit::Seconds,
    "Time of the system's calls that wait until what was written is on a partition's disk.",
);
const ERRORS: Desc = Desc::counter(
    "afar_partition_errors_total",
    Unit::None,
    "Reads, writes and syncs of a partition that failed, and records that were not as they were written.",
);

/// Tells of the disks when it is asked.
pub(crate) struct Disks(Weak<Volumes>);

impl Disks {
    pub(crate) fn of(volumes: &Arc<Volumes>) -> Self {
        Self(Arc::downgrade(volumes))
    }
}

impl Collect for Disks {
    fn describe(&self) -> Vec<Desc> {
        vec![SIZE, FREE, READ, WRITE, SYNC, ERRORS]
    }

    fn collect(&self, cells: &mut Cells) {
        let Some(volumes) = self.0.upgrade() else {
            return;
        };
        for (id, partition) in volumes.partitions() {
            let id = id.to_string();
            let times = partition.disk_times();
            for (desc, taken) in [
                (&READ, times.reads()),
                (&WRITE, times.writes()),
                (&SYNC, times.syncs()),
            ] {
                cells.distribution(desc, &[("partition", &id)], taken);
            }
            let stats = partition.segment_stats();
            for (operation, errors) in [
                ("read", stats.read_errors_io),
                ("write", stats.append_errors),
                ("sync", stats.sync_errors),
                (
                    "checksum",
                    stats.read_errors_checksum + stats.read_errors_decompress,
                ),
            ] {
                let labels = [("partition", id.as_str()), ("operation", operation)];
                cells.count(&ERRORS, &labels, errors);
            }
            let space = match DiskSpace::of(partition.path()) {
                Ok(space) => space,
                Err(error) => {
                    tracing::debug!(%id, %error, "looking at a partition's disk");
                    continue;
                }
            };
            for (desc, kib) in [(&SIZE, space.total), (&FREE, space.free)] {
                #[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
                cells.level(desc, &[("partition", &id)], kib as f64 * 1024.0);
            }
        }
    }
}
