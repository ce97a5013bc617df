//! Makes what viewers are shown of what the registry has.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_net::{Endpoint, Local, PeerStats};
use afar_telemetry::{Family, Registry, Value, Watches};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::rows::Rows;
use crate::view::{Number, PROCESSES, Row, Snapshot, Table, Times, View};

/// A metric of the table of files.
const FILES: &str = "afar_file_read_bytes_total";
/// A metric that each row of the table of volumes has.
const VOLUMES: &str = "afar_volume_errors_total";
/// How long an endpoint has to tell of its paths.
const PATHS_LIMIT: Duration = Duration::from_secs(1);
/// How long files are counted for a viewer that does not say how often it looks, and for any.
const LEASE: Duration = Duration::from_secs(15);
const LEASE_MAX: Duration = Duration::from_secs(600);

/// What viewers are shown, and how long for.
#[derive(Debug)]
pub(crate) struct Views {
    registry: Registry,
    cell: String,
    /// Where the clients of the file server call.
    endpoints: Vec<Endpoint>,
    started: Instant,
    lease: Arc<Mutex<Lease>>,
}

/// Files are counted until then.
#[derive(Debug)]
struct Lease {
    until: Instant,
    watches: Option<Watches>,
}

impl Views {
    /// Of a server of this cell, whose clients call at these endpoints.
    pub(crate) fn new(registry: &Registry, cell: String, endpoints: Vec<Endpoint>) -> Self {
        let started = Instant::now();
        Self {
            registry: registry.clone(),
            cell,
            endpoints,
            started,
            lease: Arc::new(Mutex::new(Lease {
                until: started,
                watches: None,
            })),
        }
    }

    /// A viewer looks at this, and will look again: `query` is what its request says of that.
    pub(crate) fn looks(&self, view: View, query: &str) {
        if view != View::Files {
            return;
        }
        let told = query
            .split('&')
            .find_map(|word| word.strip_prefix("lease="));
        let told = told.and_then(|seconds| seconds.parse().ok());
        let lease = told.map_or(LEASE, Duration::from_secs).min(LEASE_MAX);
        let until = Instant::now() + lease;
        let mut kept = self.lease.lock();
        kept.until = kept.until.max(until);
        if kept.watches.is_none() {
            kept.watches = Some(self.registry.watch(FILES));
            tokio::spawn(end(Arc::downgrade(&self.lease), kept.until));
        }
    }

    /// A snapshot as JSON; `None` if there is none, which the log explains.
    pub(crate) async fn json(&self, view: View) -> Option<Vec<u8>> {
        let paths = match view {
            View::Clients => self.paths().await,
            _ => BTreeMap::new(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut snapshot = Snapshot {
            cell: self.cell.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: now.unwrap_or_default().as_secs_f64(),
            uptime: self.started.elapsed().as_secs_f64(),
            rows: Vec::new(),
            beyond: 0,
        };
        let registry = self.registry.clone();
        let made = tokio::task::spawn_blocking(move || {
            let families = registry.collect();
            let names = match view {
                View::Files | View::Calls => names(&families),
                _ => BTreeMap::new(),
            };
            match view.table() {
                Some(table) => snapshot.rows = rows(families, table),
                None => calls(&registry, &mut snapshot),
            }
            match view {
                View::Clients => add_paths(&mut snapshot.rows, &paths),
                View::Files | View::Calls => add_names(&mut snapshot.rows, &names),
                View::Volumes | View::Disks | View::Mounts => {}
            }
            serde_json::to_vec(&snapshot)
        });
        match made.await {
            Ok(Ok(text)) => Some(text),
            Ok(Err(error)) => {
                tracing::error!(%error, "a snapshot for viewers could not be written");
                None
            }
            Err(error) => {
                tracing::error!(%error, "a snapshot for viewers could not be made");
                None
            }
        }
    }

    /// The paths to clients, by address: of several ports of a machine, the busiest.
    async fn paths(&self) -> BTreeMap<IpAddr, Path> {
        let mut paths = BTreeMap::<IpAddr, Path>::new();
        for endpoint in &self.endpoints {
            // An endpoint that is too busy to tell is left out.
            let peers = timeout(PATHS_LIMIT, endpoint.peers()).await;
            for stats in peers.unwrap_or_default() {
                // As the table of clients has it.
                let address = match Local::is_given(stats.address) {
                    true => Ipv4Addr::LOCALHOST.into(),
                    false => stats.address.ip().to_canonical(),
                };
                let path = paths.entry(address).or_default();
                path.ports += 1;
                let load =
                    |stats: &PeerStats| stats.bytes_sent.saturating_add(stats.bytes_received);
                if path.stats.is_none_or(|known| load(&known) < load(&stats)) {
                    path.stats = Some(stats);
                }
            }
        }
        paths
    }
}

/// What is known of the paths to an address.
#[derive(Default)]
struct Path {
    ports: u64,
    stats: Option<PeerStats>,
}

/// Ends the counting of files when the lease is over.
async fn end(lease: Weak<Mutex<Lease>>, mut until: Instant) {
    loop {
        sleep_until(until).await;
        let Some(lease) = lease.upgrade() else {
            return;
        };
        let mut lease = lease.lock();
        if lease.until <= Instant::now() {
            lease.watches = None;
            return;
        }
        until = lease.until;
    }
}

/// The rows of a table of metrics.
fn rows(families: Vec<Family>, table: Table) -> Vec<Row> {
    let mut rows = Rows::new();
    for family in families {
        if table.has(&family) {
            table.add(&mut rows, family);
        }
    }
    let shown = rows.into_iter().map(|(key, row)| {
        let numbers = row.numbers.into_iter().map(|(name, value)| {
            let number = match value {
                Value::Count(count) => Number::Count(count),
                Value::Level(level) => Number::Level(level),
                Value::Distribution(times) => Number::Times(Times::from(&times)),
            };
            (name.to_owned(), number)
        });
        let parts = row.parts.into_iter();
        let parts =
            parts.map(|(name, counts)| (name.to_owned(), Number::By(counts.into_iter().collect())));
        let labels = row.labels.into_iter().map(str::to_owned);
        Row {
            labels: labels.zip(key).collect(),
            numbers: numbers.chain(parts).collect(),
        }
    });
    shown.collect()
}

/// What a mount is asked by processes, and what these wait for, as JSON. `began` is when the mount did.
///
/// # Errors
/// None that can be: the format of the library.
pub fn mount_snapshot(
    registry: &Registry,
    began: std::time::Instant,
) -> Result<Vec<u8>, serde_json::Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut rows = rows(registry.collect(), PROCESSES);
    let mut under_way = Snapshot::default();
    calls(registry, &mut under_way);
    // The oldest first: of several requests of a process it is the one that is shown.
    for waiting in under_way.rows.into_iter().filter(is_waiting) {
        let same = |row: &&mut Row| {
            let mut labels = PROCESSES.labels.iter();
            labels.all(|name| row.label(name) == waiting.label(name))
        };
        match rows.iter_mut().find(same) {
            Some(row) if row.labels.contains_key("server") => {}
            Some(row) => {
                row.labels.extend(waiting.labels);
                row.numbers.extend(waiting.numbers);
            }
            None => rows.push(waiting),
        }
    }
    serde_json::to_vec(&Snapshot {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: now.unwrap_or_default().as_secs_f64(),
        uptime: began.elapsed().as_secs_f64(),
        rows,
        beyond: under_way.beyond,
        ..Snapshot::default()
    })
}

/// Whether a request waits for a server.
fn is_waiting(row: &Row) -> bool {
    !row.label("server").is_empty()
}

/// The calls that are being served.
fn calls(registry: &Registry, snapshot: &mut Snapshot) {
    let found = registry.activities();
    let now = std::time::Instant::now();
    snapshot.beyond = found.beyond as u64;
    snapshot.rows = (found.list.into_iter())
        .map(|activity| {
            let labels = activity.labels.into_iter();
            let mut row = Row {
                labels: labels
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
                ..Row::default()
            };
            let waits = activity.waits.unwrap_or_default().to_owned();
            row.labels.insert("waits".to_owned(), waits);
            let age = now.saturating_duration_since(activity.began).as_secs_f64();
            row.numbers.insert("seconds".to_owned(), Number::Level(age));
            row
        })
        .collect();
}

/// What is known of the path to each client.
fn add_paths(rows: &mut [Row], paths: &BTreeMap<IpAddr, Path>) {
    for row in rows {
        let address = row.label("address").parse::<IpAddr>();
        let path = address
            .ok()
            .and_then(|address| paths.get(&address.to_canonical()));
        let Some(Path {
            ports,
            stats: Some(stats),
        }) = path
        else {
            continue;
        };
        let numbers = &mut row.numbers;
        numbers.insert("ports".to_owned(), Number::Count(*ports));
        numbers.insert(
            "window_bytes".to_owned(),
            Number::Count(stats.congestion_window),
        );
        if let Some(rtt) = stats.rtt_smoothed {
            numbers.insert("rtt_seconds".to_owned(), Number::Level(rtt.as_secs_f64()));
        }
    }
}

/// The names of volumes by their numbers, which the table of volumes knows.
fn names(families: &[Family]) -> BTreeMap<String, String> {
    let volumes = families
        .iter()
        .filter(|family| family.desc.name() == VOLUMES);
    let names = volumes
        .flat_map(|family| &family.series)
        .filter_map(|series| {
            let label = |name| series.labels.iter().find(|(label, _)| *label == name);
            Some((label("volume")?.1.clone(), label("name")?.1.clone()))
        });
    names.collect()
}

/// Puts the names of volumes into the rows that are of one.
fn add_names(rows: &mut [Row], names: &BTreeMap<String, String>) {
    for row in rows {
        let volume = match row.label("volume") {
            "" => match row.label("kind") {
                "fid" | "volume" => row.label("subject"),
                _ => "",
            },
            volume => volume,
        };
        let volume = volume.split('.').next().unwrap_or_default();
        if let Some(name) = names.get(volume) {
            row.labels.insert("name".to_owned(), name.clone());
        }
    }
}

#[cfg(test)]
mod tests;
