//! What each table shows.

use afar_server::view::{Number, Row, View};

use super::rates::{Change, is_rest};
use super::units::Unit;

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Text, as it came.
    Text(String),
    /// A number in the base unit.
    Number(f64),
    /// Nothing is known.
    Unknown,
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Unknown, Self::Number)
    }
}

/// A column of a table.
pub(super) struct Column {
    /// Its name in JSON, with the unit.
    pub(super) key: &'static str,
    /// Its heading.
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    /// Where there is too little room, those with the greatest number go first.
    pub(super) rank: u8,
    read: fn(&Change<'_>) -> Cell,
}

impl Column {
    /// What it shows of a row.
    pub(super) fn cell(&self, change: &Change<'_>) -> Cell {
        (self.read)(change)
    }
}

/// A column of text.
const fn text(
    key: &'static str,
    title: &'static str,
    rank: u8,
    read: fn(&Change<'_>) -> Cell,
) -> Column {
    number(key, title, Unit::Text, rank, read)
}

const fn number(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    rank: u8,
    read: fn(&Change<'_>) -> Cell,
) -> Column {
    Column {
        key,
        title,
        unit,
        rank,
        read,
    }
}

fn label(change: &Change<'_>, name: &str) -> Cell {
    let label = change.now.labels.get(name);
    label.map_or(Cell::Unknown, |label| Cell::Text(label.clone()))
}

/// A label, or this text in the row that stands for all that have none.
fn label_or(change: &Change<'_>, name: &str, rest: &str) -> Cell {
    match is_rest(change.now) {
        true => Cell::Text(rest.to_owned()),
        false => label(change, name),
    }
}

/// A counter with one more label, for these values of it, in a second.
fn rate_of(change: &Change<'_>, metric: &str, values: &[&str]) -> Cell {
    rate(change, |row| {
        let counts = values.iter().map(|value| row.count_by(metric, value));
        counts.fold(0, u64::wrapping_add)
    })
}

fn rate(change: &Change<'_>, read: impl Fn(&Row) -> u64) -> Cell {
    change.per_second(read).into()
}

/// A percentile of new times, in seconds.
fn percentile(change: &Change<'_>, names: &[&str], percent: f64) -> Cell {
    let times = change.times(names).filter(|times| times.count() != 0);
    times.map(|times| seconds(times.percentile(percent))).into()
}

#[expect(clippy::cast_precision_loss, reason = "a time to be shown")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a number to be shown")]
fn float(count: u64) -> f64 {
    count as f64
}

/// The columns of a table.
pub(super) fn columns(view: View) -> &'static [Column] {
    match view {
        View::Volumes => VOLUMES,
        View::Clients => CLIENTS,
        View::Files => FILES,
        View::Disks => DISKS,
        View::Calls => CALLS,
        View::Mounts => MOUNTS,
    }
}

/// The column by which a table is sorted if nothing else is said.
pub(super) const fn default_sort(view: View) -> &'static str {
    match view {
        View::Volumes | View::Clients | View::Files => "calls_per_second",
        View::Mounts => "operations_per_second",
        View::Calls => "seconds",
        View::Disks => "syncs_per_second",
    }
}

const VOLUME_READ: &str = "afar_volume_read_seconds";
const VOLUME_WRITE: &str = "afar_volume_write_seconds";
const VOLUME_TIMES: &[&str] = &[VOLUME_READ, VOLUME_WRITE];

/// How many times a distribution has.
fn counted(row: &Row, name: &str) -> u64 {
    row.times(name).count()
}

const VOLUMES: &[Column] = &[
    text("partition", "PARTITION", 1, |c| label(c, "partition")),
    text("volume", "VOLUME", 2, |c| label(c, "volume")),
    text("name", "NAME", 0, |c| label_or(c, "name", "(other)")),
    number("calls_per_second", "CALLS/s", Unit::Count, 3, |c| {
        let calls = |row: &Row| counted(row, VOLUME_READ) + counted(row, VOLUME_WRITE);
        rate(c, calls)
    }),
    number("reads_per_second", "READS/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, VOLUME_READ))
    }),
    number("writes_per_second", "WRITES/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, VOLUME_WRITE))
    }),
    number("read_bytes_per_second", "READ B/s", Unit::Bytes, 0, |c| {
        rate(c, |row| row.count("afar_volume_read_bytes_total"))
    }),
    number(
        "written_bytes_per_second",
        "WRITE B/s",
        Unit::Bytes,
        0,
        |c| rate(c, |row| row.count("afar_volume_written_bytes_total")),
    ),
    number("p50_seconds", "P50", Unit::Seconds, 1, |c| {
        percentile(c, VOLUME_TIMES, 50.0)
    }),
    number("p99_seconds", "P99", Unit::Seconds, 0, |c| {
        percentile(c, VOLUME_TIMES, 99.0)
    }),
    number("callbacks_per_second", "CALLBACKS/s", Unit::Count, 3, |c| {
        rate(c, |row| row.count("afar_volume_callbacks_total"))
    }),
    number(
        "callback_breaks_per_second",
        "BREAKS/s",
        Unit::Count,
        4,
        |c| rate(c, |row| row.count("afar_volume_callback_breaks_total")),
    ),
    number("errors_per_second", "ERRORS/s", Unit::Count, 5, |c| {
        rate(c, |row| row.count("afar_volume_errors_total"))
    }),
];

const CLIENT_CALLS: &str = "afar_client_calls_total";
const CLIENT_ERRORS: &str = "afar_client_errors_total";

/// Calls of some operations in a second.
fn operations(change: &Change<'_>, names: &[&str]) -> Cell {
    if matches!(
        change.now.numbers.get(CLIENT_CALLS),
        Some(Number::Count(_)) | None
    ) {
        return Cell::Unknown;
    }
    rate_of(change, CLIENT_CALLS, names)
}

const CLIENTS: &[Column] = &[
    text("address", "ADDRESS", 0, |c| {
        label_or(c, "address", "(other)")
    }),
    text("user", "USER", 0, |c| label_or(c, "user", "")),
    number("ports", "PORTS", Unit::Count, 9, |c| {
        c.now.level("ports").into()
    }),
    number("calls_per_second", "CALLS/s", Unit::Count, 0, |c| {
        match c.now.numbers.contains_key(CLIENT_CALLS) {
            true => rate(c, |row| row.count(CLIENT_CALLS)),
            false => Cell::Unknown,
        }
    }),
    number("fetch_per_second", "FETCH", Unit::Count, 0, |c| {
        operations(c, &["fetch_data", "fetch_data64"])
    }),
    number("store_per_second", "STORE", Unit::Count, 0, |c| {
        operations(c, &["store_data", "store_data64"])
    }),
    number("status_per_second", "STATUS", Unit::Count, 0, |c| {
        operations(c, &["fetch_status", "bulk_status", "inline_bulk_status"])
    }),
    number("store_status_per_second", "SSTATUS", Unit::Count, 4, |c| {
        operations(c, &["store_status"])
    }),
    number("create_file_per_second", "MKFILE", Unit::Count, 3, |c| {
        operations(c, &["create_file"])
    }),
    number("remove_file_per_second", "RMFILE", Unit::Count, 3, |c| {
        operations(c, &["remove_file"])
    }),
    number("make_dir_per_second", "MKDIR", Unit::Count, 5, |c| {
        operations(c, &["make_dir"])
    }),
    number("remove_dir_per_second", "RMDIR", Unit::Count, 5, |c| {
        operations(c, &["remove_dir"])
    }),
    number("rename_per_second", "RENAME", Unit::Count, 4, |c| {
        operations(c, &["rename"])
    }),
    number("lookup_per_second", "LOOKUP", Unit::Count, 8, |c| {
        operations(c, &["lookup"])
    }),
    number("link_per_second", "LINK", Unit::Count, 7, |c| {
        operations(c, &["link"])
    }),
    number("symlink_per_second", "SYMLINK", Unit::Count, 7, |c| {
        operations(c, &["symlink", "dfs_symlink"])
    }),
    number("lock_per_second", "LOCK", Unit::Count, 6, |c| {
        let locks = ["set_lock", "extend_lock", "release_lock"];
        let old = ["old_set_lock", "old_extend_lock", "old_release_lock"];
        operations(c, &[locks, old].concat())
    }),
    number("errors_per_second", "ERRORS", Unit::Count, 6, |c| {
        match c.now.numbers.contains_key(CLIENT_ERRORS) {
            true => rate(c, |row| row.count(CLIENT_ERRORS)),
            false => Cell::Unknown,
        }
    }),
    number(
        "received_bytes_per_second",
        "RECV B/s",
        Unit::Bytes,
        1,
        |c| rate(c, |row| row.count("afar_client_received_bytes_total")),
    ),
    number("sent_bytes_per_second", "SENT B/s", Unit::Bytes, 1, |c| {
        rate(c, |row| row.count("afar_client_sent_bytes_total"))
    }),
    number("window_bytes", "WINDOW", Unit::Bytes, 2, |c| {
        c.now.level("window_bytes").into()
    }),
    number("rtt_seconds", "RTT", Unit::Seconds, 1, |c| {
        c.now.level("rtt_seconds").into()
    }),
];

const FILE_READ: &str = "afar_file_read_seconds";
const FILE_WRITE: &str = "afar_file_write_seconds";
const FILE_TIMES: &[&str] = &[FILE_READ, FILE_WRITE];

fn file_calls(row: &Row) -> u64 {
    counted(row, FILE_READ) + counted(row, FILE_WRITE)
}

fn file_bytes(row: &Row) -> u64 {
    let written = row.count("afar_file_written_bytes_total");
    row.count("afar_file_read_bytes_total")
        .wrapping_add(written)
}

const FILES: &[Column] = &[
    text("fid", "FILE", 0, |c| {
        let fid = ["volume", "vnode", "uniquifier"].map(|name| c.now.label(name));
        Cell::Text(match is_rest(c.now) {
            true => "(other)".to_owned(),
            false => fid.join("."),
        })
    }),
    text("name", "VOLUME", 1, |c| label(c, "name")),
    number("calls_per_second", "CALLS/s", Unit::Count, 2, |c| {
        rate(c, file_calls)
    }),
    number("reads_per_second", "READS/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, FILE_READ))
    }),
    number("writes_per_second", "WRITES/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, FILE_WRITE))
    }),
    number("bytes_per_second", "B/s", Unit::Bytes, 0, |c| {
        rate(c, file_bytes)
    }),
    number("mean_bytes", "AVG B", Unit::Bytes, 1, |c| {
        let bytes = c.per_second(file_bytes);
        let calls = c.per_second(file_calls).filter(|calls| *calls > 0.0);
        bytes.zip(calls).map(|(bytes, calls)| bytes / calls).into()
    }),
    number("mean_seconds", "AVG", Unit::Seconds, 0, |c| {
        let times = c.times(FILE_TIMES).filter(|times| times.count() != 0);
        times.map(|times| seconds(times.mean())).into()
    }),
    number("max_seconds", "MAX", Unit::Seconds, 0, |c| {
        let times = c.times(FILE_TIMES).filter(|times| times.count() != 0);
        times.map(|times| seconds(times.max())).into()
    }),
];

const DISK_READ: &str = "afar_partition_read_seconds";
const DISK_WRITE: &str = "afar_partition_write_seconds";
const DISK_SYNC: &str = "afar_partition_sync_seconds";

const DISKS: &[Column] = &[
    text("partition", "PARTITION", 0, |c| label(c, "partition")),
    number("reads_per_second", "READS/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, DISK_READ))
    }),
    number("read_p50_seconds", "READ P50", Unit::Seconds, 2, |c| {
        percentile(c, &[DISK_READ], 50.0)
    }),
    number("read_p99_seconds", "READ P99", Unit::Seconds, 0, |c| {
        percentile(c, &[DISK_READ], 99.0)
    }),
    number("writes_per_second", "WRITES/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, DISK_WRITE))
    }),
    number("write_p99_seconds", "WRITE P99", Unit::Seconds, 1, |c| {
        percentile(c, &[DISK_WRITE], 99.0)
    }),
    number("syncs_per_second", "SYNCS/s", Unit::Count, 0, |c| {
        rate(c, |row| counted(row, DISK_SYNC))
    }),
    number("sync_p50_seconds", "SYNC P50", Unit::Seconds, 2, |c| {
        percentile(c, &[DISK_SYNC], 50.0)
    }),
    number("sync_p99_seconds", "SYNC P99", Unit::Seconds, 0, |c| {
        percentile(c, &[DISK_SYNC], 99.0)
    }),
    number("errors", "ERRORS", Unit::Count, 1, |c| {
        Cell::Number(float(c.now.count("afar_partition_errors_total")))
    }),
    number("free_bytes", "FREE", Unit::Bytes, 1, |c| {
        c.now.level("afar_partition_free_bytes").into()
    }),
    number("size_bytes", "SIZE", Unit::Bytes, 3, |c| {
        c.now.level("afar_partition_size_bytes").into()
    }),
];

const CALLS: &[Column] = &[
    number("seconds", "AGE", Unit::Seconds, 0, |c| {
        c.now.level("seconds").into()
    }),
    text("operation", "OPERATION", 0, |c| {
        match (c.now.label("interface"), c.now.label("operation")) {
            ("", "") => Cell::Unknown,
            (interface, operation) => Cell::Text(format!("{interface}.{operation}")),
        }
    }),
    text("peer", "PEER", 0, |c| label(c, "peer")),
    text("user", "USER", 1, |c| label(c, "user")),
    text("subject", "ABOUT", 1, |c| {
        let (kind, subject) = (c.now.label("kind"), c.now.label("subject"));
        Cell::Text(match kind {
            "" => return Cell::Unknown,
            "fid" => subject.to_owned(),
            _ => format!("{kind} {subject}"),
        })
    }),
    text("name", "VOLUME", 2, |c| label(c, "name")),
    text("waits", "WAITS FOR", 0, |c| label(c, "waits")),
];

const PROCESS_OPERATIONS: &str = "afar_process_operations_total";
const PROCESS_HITS: &str = "afar_process_hits_total";
const PROCESS_MISSES: &str = "afar_process_misses_total";

/// Requests of some kinds by a process in a second.
fn requests(change: &Change<'_>, names: &[&str]) -> Cell {
    rate_of(change, PROCESS_OPERATIONS, names)
}

const MOUNTS: &[Column] = &[
    text("pid", "PID", 0, |c| label_or(c, "pid", "(other)")),
    text("name", "PROCESS", 0, |c| label_or(c, "name", "")),
    text("uid", "UID", 3, |c| label_or(c, "user", "")),
    text("mount", "MOUNT", 4, |c| label(c, "mount")),
    number("operations_per_second", "OPS/s", Unit::Count, 0, |c| {
        rate(c, |row| row.count(PROCESS_OPERATIONS))
    }),
    number("lookup_per_second", "LOOKUP", Unit::Count, 1, |c| {
        requests(c, &["lookup"])
    }),
    number("status_per_second", "STATUS", Unit::Count, 1, |c| {
        requests(
            c,
            &[
                "getattr",
                "access",
                "readlink",
                "statfs",
                "getxattr",
                "listxattr",
            ],
        )
    }),
    number("list_per_second", "LIST", Unit::Count, 2, |c| {
        requests(c, &["opendir", "readdir", "releasedir"])
    }),
    number("open_per_second", "OPEN", Unit::Count, 1, |c| {
        requests(c, &["open", "create"])
    }),
    number("read_per_second", "READ", Unit::Count, 0, |c| {
        requests(c, &["read"])
    }),
    number("write_per_second", "WRITE", Unit::Count, 0, |c| {
        requests(c, &["write"])
    }),
    number("close_per_second", "CLOSE", Unit::Count, 3, |c| {
        requests(c, &["flush", "release", "fsync", "fsyncdir"])
    }),
    number("change_per_second", "CHANGE", Unit::Count, 2, |c| {
        let names = [
            "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link",
        ];
        requests(c, &[&names[..], &["setattr", "setxattr"]].concat())
    }),
    number("lock_per_second", "LOCK", Unit::Count, 5, |c| {
        requests(c, &["getlk", "setlk"])
    }),
    number("errors_per_second", "ERRORS", Unit::Count, 4, |c| {
        rate(c, |row| row.count("afar_process_errors_total"))
    }),
    number("read_bytes_per_second", "READ B/s", Unit::Bytes, 0, |c| {
        rate(c, |row| row.count("afar_process_read_bytes_total"))
    }),
    number(
        "written_bytes_per_second",
        "WRITE B/s",
        Unit::Bytes,
        0,
        |c| rate(c, |row| row.count("afar_process_written_bytes_total")),
    ),
    number("hit_percent", "HIT %", Unit::Count, 1, |c| {
        let hits = c.per_second(|row| row.count(PROCESS_HITS));
        let all = c.per_second(|row| row.count(PROCESS_HITS) + row.count(PROCESS_MISSES));
        let all = all.filter(|all| *all > 0.0);
        hits.zip(all).map(|(hits, all)| 100.0 * hits / all).into()
    }),
    text("waits", "WAITS FOR", 0, |c| label(c, "server")),
    text("waits_operation", "WITH", 2, |c| {
        match c.now.label("server") {
            "" => Cell::Unknown,
            _ => label(c, "operation"),
        }
    }),
    number("waits_seconds", "SINCE", Unit::Seconds, 0, |c| {
        match c.now.label("server") {
            "" => Cell::Unknown,
            _ => c.now.level("seconds").into(),
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_names_of_their_own_and_tables_an_order() {
        for view in View::ALL {
            let columns = columns(view);
            let mut keys: Vec<&str> = columns.iter().map(|column| column.key).collect();
            assert!(keys.contains(&default_sort(view)));
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), columns.len(), "{view:?}");
            assert_eq!(columns[0].rank.min(1), columns[0].rank);
        }
    }
}
