//! What a file server counts of its volumes, clients and files, and tells of hosts when
//! it is asked. What it counts of operations, `files::Stats` has.
//!
//! A call is counted once, when it ends: its steps note in a [`Tally`] what they do.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_net::{Identity, Local};
use afar_rpc::{Served, rxafs};
use afar_telemetry::{
    Cells, Collect, Desc, Distribution, Lookup, Registry, Row, Table, TableConfig, Unit, Watch,
};
use afar_types::{Fid, VolumeId};

use crate::disks::Disks;
use crate::hosts::{HostStats, Hosts};
use crate::volumes::Volumes;

/// Volumes with a row of their own. One is up to 10 KB.
const VOLUMES: usize = 512;
/// Clients with a row of their own. One is about 500 bytes.
const CLIENTS: usize = 1024;
/// Files with a row of their own, while somebody looks.
const FILES: usize = 1024;

/// Operations of RXAFS.
const OPERATIONS: usize = rxafs::OPERATIONS.len();

const VOLUME_READ: Desc = Desc::summary(
    "afar_volume_read_seconds",
    Unit::Seconds,
    "Time of calls that read in a volume.",
);
const VOLUME_WRITE: Desc = Desc::summary(
    "afar_volume_write_seconds",
    Unit::Seconds,
    "Time of calls that changed something in a volume.",
);
const VOLUME_ERRORS: Desc = Desc::counter(
    "afar_volume_errors_total",
    Unit::None,
    "Calls in a volume that ended with an error.",
);
const VOLUME_READ_BYTES: Desc = Desc::counter(
    "afar_volume_read_bytes_total",
    Unit::Bytes,
    "Bytes of files sent to clients.",
);
const VOLUME_WRITTEN_BYTES: Desc = Desc::counter(
    "afar_volume_written_bytes_total",
    Unit::Bytes,
    "Bytes of files received from clients.",
);
const VOLUME_CALLBACKS: Desc = Desc::counter(
    "afar_volume_callbacks_total",
    Unit::None,
    "Callback promises made on files of a volume.",
);
const VOLUME_BREAKS: Desc = Desc::counter(
    "afar_volume_callback_breaks_total",
    Unit::None,
    "Callback promises that calls in a volume broke.",
);

const CLIENT_CALLS: Desc = Desc::counter(
    "afar_client_calls_total",
    Unit::None,
    "Calls of a client to the file server, by operation.",
);
const CLIENT_ERRORS: Desc = Desc::counter(
    "afar_client_errors_total",
    Unit::None,
    "Calls of a client that ended with an abort code.",
);
const CLIENT_TIME: Desc = Desc::counter(
    "afar_client_served_seconds_total",
    Unit::Seconds,
    "Time spent on a client's calls.",
);
const CLIENT_RECEIVED: Desc = Desc::counter(
    "afar_client_received_bytes_total",
    Unit::Bytes,
    "Bytes of a client's requests, with their data.",
);
const CLIENT_SENT: Desc = Desc::counter(
    "afar_client_sent_bytes_total",
    Unit::Bytes,
    "Bytes of replies to a client, with their data.",
);

const FILE_READ: Desc = Desc::summary(
    "afar_file_read_seconds",
    Unit::Seconds,
    "Time of fetches of a file's data, while somebody looks at files.",
);
const FILE_WRITE: Desc = Desc::summary(
    "afar_file_write_seconds",
    Unit::Seconds,
    "Time of stores of a file's data, while somebody looks at files.",
);
const FILE_READ_BYTES: Desc = Desc::counter(
    "afar_file_read_bytes_total",
    Unit::Bytes,
    "Bytes of a file sent to clients, while somebody looks at files.",
);
const FILE_WRITTEN_BYTES: Desc = Desc::counter(
    "afar_file_written_bytes_total",
    Unit::Bytes,
    "Bytes of a file received from clients, while somebody looks at files.",
);

/// What the steps of a call have done so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The volume that was entered last, and whether to change something.
    pub(crate) volume: Option<(VolumeId, bool)>,
    /// The file whose data was asked for.
    pub(crate) file: Option<Fid>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) callbacks: u64,
    pub(crate) breaks: u64,
}

/// The tables of a file server.
#[derive(Debug)]
pub(crate) struct Metrics {
    volumes: Table<VolumeId, VolumeRow>,
    clients: Table<Client, ClientRow>,
    files: Table<Fid, FileRow>,
}

impl Metrics {
    /// Shown by this registry, which keeps neither volumes nor hosts.
    pub(crate) fn new(registry: &Registry, volumes: &Arc<Volumes>, hosts: &Arc<Hosts>) -> Self {
        registry.collector(HostCounts(Arc::downgrade(hosts)));
        registry.collector(Disks::of(volumes));
        let known = Arc::downgrade(volumes);
        let table = |labels, rows, watched_only| TableConfig {
            labels,
            rows,
            watched_only,
        };
        Self {
            volumes: registry.table(
                table(&["volume", "name", "partition"], VOLUMES, false),
                move |id| volume_labels(&known, *id),
            ),
            clients: registry.table(
                table(&["address", "user"], CLIENTS, false),
                |client: &Client| vec![client.address.to_string(), client.identity.to_string()],
            ),
            files: registry.table(
                table(&["volume", "vnode", "uniquifier"], FILES, true),
                |fid: &Fid| {
                    let numbers = [fid.volume.0, fid.vnode.0, fid.uniquifier.0];
                    numbers.map(|number| number.to_string()).into()
                },
            ),
        }
    }

    /// Counts what a call did, which took so long and failed or not.
    pub(crate) fn ended(&self, tally: &Tally, took: Duration, failed: bool) {
        if let Some((volume, changes)) = tally.volume {
            let file = tally.file.unwrap_or_default();
            afar_probes::io_done(&afar_probes::Io {
                volume: volume.0,
                file: [file.vnode.0, file.uniquifier.0],
                changes,
                failed,
                took,
                read: tally.read_bytes,
                written: tally.written_bytes,
            });
            self.volumes.update(&volume, 1, |row| {
                if failed {
                    row.errors += 1;
                } else if changes {
                    row.writes.record_duration(took);
                } else {
                    row.reads.record_duration(took);
                }
                row.read_bytes += tally.read_bytes;
                row.written_bytes += tally.written_bytes;
                row.callbacks += tally.callbacks;
                row.breaks += tally.breaks;
            });
        }
        if self.files.is_counting()
            && let Some(file) = tally.file
        {
            let changes = tally.volume.is_some_and(|(_, changes)| changes);
            self.files.update(&file, 1, |row| {
                let times = if changes {
                    &mut row.writes
                } else {
                    &mut row.reads
                };
                times.record_duration(took);
                row.read_bytes += tally.read_bytes;
                row.written_bytes += tally.written_bytes;
            });
        }
    }

    /// Counts a call for its client.
    pub(crate) fn served(&self, served: &Served<'_>) {
        let peer = served.caller.peer;
        // Each program of this machine's administrator has an address of its own at the local socket.
        let address = match Local::is_given(peer) {
            true => Ipv4Addr::LOCALHOST.into(),
            false => peer.ip(),
        };
        let client = ClientRef {
            address,
            identity: &served.caller.identity,
        };
        self.clients.update(&client, 1, |row| {
            let calls = served.row.and_then(|number| row.calls.get_mut(number));
            if let Some(calls) = calls {
                *calls += 1;
            }
            row.errors += u64::from(served.result.is_err());
            row.received += served.received_bytes;
            row.sent += served.sent_bytes;
            row.time = row.time.saturating_add(served.took);
        });
    }

    /// Has files counted until this is dropped.
    pub(crate) fn watch_files(&self) -> FilesWatch {
        FilesWatch(self.files.watch())
    }
}

/// Number, name and partition. A volume that is gone has a number only.
fn volume_labels(volumes: &Weak<Volumes>, id: VolumeId) -> Vec<String> {
    let found = volumes.upgrade().and_then(|volumes| {
        let volume = volumes.find(id).ok()?;
        let partition = volumes.name_of(volume.partition())?;
        Some((volume.state().ok()?.name, partition.to_string()))
    });
    let (name, partition) = found.unwrap_or_default();
    vec![id.0.to_string(), name, partition]
}

#[derive(Debug, Clone, Default)]
struct VolumeRow {
    reads: Distribution,
    writes: Distribution,
    errors: u64,
    read_bytes: u64,
    written_bytes: u64,
    callbacks: u64,
    breaks: u64,
}

impl Row for VolumeRow {
    const DESCS: &'static [Desc] = &[
        VOLUME_READ,
        VOLUME_WRITE,
        VOLUME_ERRORS,
        VOLUME_READ_BYTES,
        VOLUME_WRITTEN_BYTES,
        VOLUME_CALLBACKS,
        VOLUME_BREAKS,
    ];

    fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.callbacks += other.callbacks;
        self.breaks += other.breaks;
    }

    fn tell(&self, cells: &mut Cells) {
        cells.distribution(&VOLUME_READ, &[], self.reads.clone());
        cells.distribution(&VOLUME_WRITE, &[], self.writes.clone());
        for (desc, count) in [
            (&VOLUME_ERRORS, self.errors),
            (&VOLUME_READ_BYTES, self.read_bytes),
            (&VOLUME_WRITTEN_BYTES, self.written_bytes),
            (&VOLUME_CALLBACKS, self.callbacks),
            (&VOLUME_BREAKS, self.breaks),
        ] {
            cells.count(desc, &[], count);
        }
    }
}

/// A client: its address without the port, and who it has proved to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    address: IpAddr,
    identity: Identity,
}

/// The same, to look it up. Its fields have the same order, and so it has the same hash.
#[derive(Hash)]
struct ClientRef<'c> {
    address: IpAddr,
    identity: &'c Identity,
}

impl Lookup<Client> for ClientRef<'_> {
    fn is(&self, client: &Client) -> bool {
        self.address == client.address && *self.identity == client.identity
    }

    fn to_key(&self) -> Client {
        Client {
            address: self.address,
            identity: self.identity.clone(),
        }
    }
}

#[derive(Debug, Clone)]
struct ClientRow {
    calls: [u64; OPERATIONS],
    errors: u64,
    received: u64,
    sent: u64,
    time: Duration,
}

impl Default for ClientRow {
    fn default() -> Self {
        Self {
            calls: [0; OPERATIONS],
            errors: 0,
            received: 0,
            sent: 0,
            time: Duration::ZERO,
        }
    }
}

impl Row for ClientRow {
    const DESCS: &'static [Desc] = &[
        CLIENT_CALLS,
        CLIENT_ERRORS,
        CLIENT_TIME,
        CLIENT_RECEIVED,
        CLIENT_SENT,
    ];

    fn merge(&mut self, other: &Self) {
        for (calls, more) in self.calls.iter_mut().zip(&other.calls) {
            *calls += more;
        }
        self.errors += other.errors;
        self.received += other.received;
        self.sent += other.sent;
        self.time = self.time.saturating_add(other.time);
    }

    fn tell(&self, cells: &mut Cells) {
        let rows = rxafs::OPERATIONS.iter().zip(&self.calls);
        for (operation, calls) in rows.filter(|(_, calls)| **calls != 0) {
            cells.count(&CLIENT_CALLS, &[("operation", operation.name)], *calls);
        }
        let time = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        for (desc, count) in [
            (&CLIENT_ERRORS, self.errors),
            (&CLIENT_TIME, time),
            (&CLIENT_RECEIVED, self.received),
            (&CLIENT_SENT, self.sent),
        ] {
            cells.count(desc, &[], count);
        }
    }
}

/// Somebody looks at files: as long as this is kept, calls are counted for each file.
#[derive(Debug)]
pub struct FilesWatch(#[expect(dead_code, reason = "held")] Watch<Fid, FileRow>);

#[derive(Debug, Clone, Default)]
struct FileRow {
    reads: Distribution,
    writes: Distribution,
    read_bytes: u64,
    written_bytes: u64,
}

impl Row for FileRow {
    const DESCS: &'static [Desc] = &[FILE_READ, FILE_WRITE, FILE_READ_BYTES, FILE_WRITTEN_BYTES];

    fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    fn tell(&self, cells: &mut Cells) {
        if self.reads.count() + self.writes.count() == 0 {
            return;
        }
        cells.distribution(&FILE_READ, &[], self.reads.clone());
        cells.distribution(&FILE_WRITE, &[], self.writes.clone());
        cells.count(&FILE_READ_BYTES, &[], self.read_bytes);
        cells.count(&FILE_WRITTEN_BYTES, &[], self.written_bytes);
    }
}

/// Tells of hosts and promises.
struct HostCounts(Weak<Hosts>);

/// Takes one number out of all.
type ReadHosts = fn(&HostStats) -> u64;

/// What is told of hosts that rises and falls.
const HOST_LEVELS: &[(Desc, ReadHosts)] = &[
    (
        Desc::gauge(
            "afar_hosts",
            Unit::None,
            "Clients that the file server knows.",
        ),
        |stats| stats.hosts,
    ),
    (
        Desc::gauge(
            "afar_hosts_down",
            Unit::None,
            "Clients that did not answer a callback break and have not called since.",
        ),
        |stats| stats.hosts_down,
    ),
    (
        Desc::gauge(
            "afar_hosts_unknown",
            Unit::None,
            "Clients without an identity, which get no callback promises.",
        ),
        |stats| stats.hosts_unknown,
    ),
    (
        Desc::gauge(
            "afar_callbacks",
            Unit::None,
            "Callback promises that stand.",
        ),
        |stats| stats.promises,
    ),
    (
        Desc::gauge(
            "afar_callback_files",
            Unit::None,
            "Files and volumes with a callback promise.",
        ),
        |stats| stats.files,
    ),
];

/// What is told of hosts that only grows.
const HOST_COUNTERS: &[(Desc, ReadHosts)] = &[
    (
        Desc::counter(
            "afar_callbacks_promised_total",
            Unit::None,
            "Callback promises made.",
        ),
        |stats| stats.promised,
    ),
    (
        Desc::counter(
            "afar_callbacks_broken_total",
            Unit::None,
            "Callback promises broken because of a change.",
        ),
        |stats| stats.broken,
    ),
    (
        Desc::counter(
            "afar_callbacks_expired_total",
            Unit::None,
            "Callback promises that expired.",
        ),
        |stats| stats.expired,
    ),
    (
        Desc::counter(
            "afar_callbacks_evicted_total",
            Unit::None,
            "Callback promises broken to make room.",
        ),
        |stats| stats.evicted,
    ),
    (
        Desc::counter(
            "afar_callbacks_given_up_total",
            Unit::None,
            "Callback promises that clients gave up.",
        ),
        |stats| stats.given_up,
    ),
    (
        Desc::counter(
            "afar_callback_break_calls_total",
            Unit::None,
            "Calls that told a client of callback breaks, and that it answered.",
        ),
        |stats| stats.break_calls,
    ),
    (
        Desc::counter(
            "afar_callback_breaks_late_total",
            Unit::None,
            "Callback breaks that a change did not wait for, because the client was slow.",
        ),
        |stats| stats.breaks_late,
    ),
    (
        Desc::counter(
            "afar_callback_breaks_failed_total",
            Unit::None,
            "Clients that did not answer a callback break.",
        ),
        |stats| stats.breaks_failed,
    ),
    (
        Desc::counter(
            "afar_host_resets_total",
            Unit::None,
            "Clients that were told to drop all callback promises.",
        ),
        |stats| stats.resets,
    ),
    (
        Desc::counter(
            "afar_hosts_forgotten_total",
            Unit::None,
            "Clients forgotten because they were idle, or to make room.",
        ),
        |stats| stats.hosts_forgotten,
    ),
];

impl Collect for HostCounts {
    fn describe(&self) -> Vec<Desc> {
        let all = HOST_LEVELS.iter().chain(HOST_COUNTERS);
        all.map(|(desc, _)| *desc).collect()
    }

    fn collect(&self, cells: &mut Cells) {
        let Some(stats) = self.0.upgrade().map(|hosts| hosts.stats()) else {
            return;
        };
        for (desc, read) in HOST_LEVELS {
            #[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
            cells.level(desc, &[], read(&stats) as f64);
        }
        for (desc, read) in HOST_COUNTERS {
            cells.count(desc, &[], read(&stats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn a_client_is_found_by_its_reference() {
        let hasher = RandomState::new();
        for identity in [
            Identity::Anonymous,
            Identity::User("a".into()),
            Identity::Superuser,
        ] {
            let client = ClientRef {
                address: IpAddr::from([10, 0, 0, 1]),
                identity: &identity,
            };
            let key = client.to_key();
            assert!(client.is(&key));
            assert_eq!(hasher.hash_one(&client), hasher.hash_one(&key));
        }
    }
}
