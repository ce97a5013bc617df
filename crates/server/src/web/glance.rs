//! What the page shows: a server at a glance, from samples of what it counts.
//!
//! It is bounded, however much the server counts: of each table come the busiest rows.

use std::time::Instant;

use afar_telemetry::{Activities, Distribution};
use serde::Serialize;

use super::sample::{Change, OPERATIONS, Pair, Sample, short};
use super::servers::Server;
use crate::view::{CLIENTS, VOLUMES};

/// Rows of a table that are shown.
const ROWS: usize = 25;
/// Operations that are shown.
const OPERATIONS_SHOWN: usize = 40;
/// Calls being served that are shown.
const ACTIVE: usize = 20;

/// What does not change while a server runs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct About {
    /// The cell's name.
    pub(super) cell: String,
    /// The server's address.
    pub(super) server: String,
    /// Its version.
    pub(super) version: &'static str,
    /// What it does.
    pub(super) roles: Vec<&'static str>,
}

/// A server at a glance. Times are in seconds, rates are those between two samples.
#[derive(Debug, Serialize)]
pub(super) struct Glance<'a> {
    #[serde(flatten)]
    about: &'a About,
    uptime: f64,
    /// Seconds between the samples; 0 if there is one only.
    span: f64,
    totals: Totals,
    hosts: HostCounts,
    promises: Promises,
    /// The file servers of the cell, with what lies on their partitions.
    servers: &'a [Server],
    active: Vec<Active<'a>>,
    /// How many more calls are being served.
    active_beyond: usize,
    volumes: Vec<Volume<'a>>,
    clients: Vec<Client<'a>>,
    operations: Vec<Operation<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct Totals {
    calls: f64,
    errors: f64,
    p50: f64,
    p99: f64,
    read_bytes: f64,
    written_bytes: f64,
}

#[derive(Debug, Serialize)]
struct HostCounts {
    known: f64,
    down: f64,
    unknown: f64,
}

#[derive(Debug, Serialize)]
struct Promises {
    standing: f64,
    files: f64,
    made: f64,
    broken: f64,
    expired: f64,
    given_up: f64,
    evicted: f64,
    late: f64,
    failed: f64,
}

#[derive(Debug, Serialize)]
struct Active<'a> {
    interface: &'a str,
    operation: &'a str,
    peer: &'a str,
    user: &'a str,
    subject: &'a str,
    waits: &'a str,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Volume<'a> {
    volume: &'a str,
    name: &'a str,
    partition: &'a str,
    reads: f64,
    writes: f64,
    errors: f64,
    read_bytes: f64,
    written_bytes: f64,
    callbacks: f64,
    breaks: f64,
    p50: f64,
    p99: f64,
    total: u64,
}

#[derive(Debug, Serialize)]
struct Client<'a> {
    address: &'a str,
    user: &'a str,
    calls: f64,
    /// The operation that it calls most.
    mostly: &'a str,
    /// How many of its calls are served at a time, on average.
    load: f64,
    errors: f64,
    sent_bytes: f64,
    received_bytes: f64,
    total: u64,
}

#[derive(Debug, Serialize)]
struct Operation<'a> {
    interface: &'a str,
    operation: &'a str,
    calls: f64,
    errors: f64,
    received_bytes: f64,
    sent_bytes: f64,
    p50: f64,
    p99: f64,
    total: u64,
}

/// The server at a glance from two samples, of which the older may be missing.
pub(super) fn glance<'a>(
    about: &'a About,
    now: &'a Sample,
    then: Option<&'a Sample>,
    servers: &'a [Server],
    uptime: f64,
) -> Glance<'a> {
    let pair = Pair::new(now, then);
    let single = Change {
        now: &now.single,
        then: then.map(|then| &then.single),
        seconds: pair.seconds,
    };
    let (totals, operations) = pair.operations(&single);
    Glance {
        about,
        uptime: uptime.floor(),
        span: short(pair.seconds),
        totals,
        hosts: HostCounts {
            known: now.single.level("afar_hosts"),
            down: now.single.level("afar_hosts_down"),
            unknown: now.single.level("afar_hosts_unknown"),
        },
        promises: promises(&single),
        servers,
        active: active(&now.active, now.taken),
        active_beyond: now.active.list.len().saturating_sub(ACTIVE) + now.active.beyond,
        volumes: pair.volumes(),
        clients: pair.clients(),
        operations,
    }
}

fn promises(single: &Change<'_>) -> Promises {
    Promises {
        standing: single.now.level("afar_callbacks"),
        files: single.now.level("afar_callback_files"),
        made: single.rate("afar_callbacks_promised_total"),
        broken: single.rate("afar_callbacks_broken_total"),
        expired: single.rate("afar_callbacks_expired_total"),
        given_up: single.rate("afar_callbacks_given_up_total"),
        evicted: single.rate("afar_callbacks_evicted_total"),
        late: single.rate("afar_callback_breaks_late_total"),
        failed: single.rate("afar_callback_breaks_failed_total"),
    }
}

/// The oldest of the calls that are being served.
fn active(active: &Activities, now: Instant) -> Vec<Active<'_>> {
    let shown = active.list.iter().take(ACTIVE).map(|call| {
        let label = |name| {
            let mut labels = call.labels.iter();
            labels
                .find(|(label, _)| *label == name)
                .map_or("", |(_, value)| value.as_str())
        };
        Active {
            interface: label("interface"),
            operation: label("operation"),
            peer: label("peer"),
            user: label("user"),
            subject: label("subject"),
            waits: call.waits.unwrap_or_default(),
            seconds: now.saturating_duration_since(call.began).as_secs_f64(),
        }
    });
    shown.collect()
}

impl<'a> Pair<'a> {
    fn operations(&self, single: &Change<'_>) -> (Totals, Vec<Operation<'a>>) {
        let mut totals = Totals {
            read_bytes: single.rate("afar_fetched_bytes_total"),
            written_bytes: single.rate("afar_stored_bytes_total"),
            ..Totals::default()
        };
        let mut all = Distribution::default();
        let shown = self.changes(&OPERATIONS).map(|(key, change)| {
            let times = change.times("afar_rpc_duration_seconds");
            let total = change.now.times("afar_rpc_duration_seconds");
            let operation = Operation {
                interface: part(key, 0),
                operation: part(key, 1),
                calls: change.per_second(times.count()),
                errors: change.rate("afar_rpc_errors_total"),
                received_bytes: change.rate("afar_rpc_received_bytes_total"),
                sent_bytes: change.rate("afar_rpc_sent_bytes_total"),
                p50: seconds(times.percentile(50.0)),
                p99: seconds(times.percentile(99.0)),
                total: total.map_or(0, Distribution::count)
                    + change.now.count("afar_rpc_errors_total"),
            };
            totals.calls += operation.calls;
            totals.errors += operation.errors;
            all.merge(&times);
            operation
        });
        let shown = shown.collect();
        totals.calls = short(totals.calls);
        totals.errors = short(totals.errors);
        totals.p50 = seconds(all.percentile(50.0));
        totals.p99 = seconds(all.percentile(99.0));
        let busiest = busiest(shown, OPERATIONS_SHOWN, |row| {
            (row.calls + row.errors, row.total)
        });
        (totals, busiest)
    }

    fn volumes(&self) -> Vec<Volume<'a>> {
        let shown = self.changes(&VOLUMES).map(|(key, change)| {
            let reads = change.times("afar_volume_read_seconds");
            let writes = change.times("afar_volume_write_seconds");
            let mut times = reads.clone();
            times.merge(&writes);
            let total = |name| change.now.times(name).map_or(0, Distribution::count);
            Volume {
                volume: part(key, 0),
                name: part(key, 1),
                partition: part(key, 2),
                reads: change.per_second(reads.count()),
                writes: change.per_second(writes.count()),
                errors: change.rate("afar_volume_errors_total"),
                read_bytes: change.rate("afar_volume_read_bytes_total"),
                written_bytes: change.rate("afar_volume_written_bytes_total"),
                callbacks: change.rate("afar_volume_callbacks_total"),
                breaks: change.rate("afar_volume_callback_breaks_total"),
                p50: seconds(times.percentile(50.0)),
                p99: seconds(times.percentile(99.0)),
                total: total("afar_volume_read_seconds")
                    + total("afar_volume_write_seconds")
                    + change.now.count("afar_volume_errors_total"),
            }
        });
        // There is always a row of all others.
        let used = shown.filter(|row| row.total > 0);
        busiest(used.collect(), ROWS, |row| {
            (row.reads + row.writes + row.errors, row.total)
        })
    }

    fn clients(&self) -> Vec<Client<'a>> {
        let shown = self.changes(&CLIENTS).map(|(key, change)| {
            let mut calls = 0;
            let (mut mostly, mut most, mut total) = ("", (0, 0), 0);
            for (operation, new, all) in change.calls() {
                calls += new;
                total += all;
                if (new, all) > most {
                    (mostly, most) = (operation, (new, all));
                }
            }
            Client {
                address: part(key, 0),
                user: part(key, 1),
                calls: change.per_second(calls),
                mostly,
                // Nanoseconds in a second.
                load: short(change.rate("afar_client_served_seconds_total") / 1e9),
                errors: change.rate("afar_client_errors_total"),
                sent_bytes: change.rate("afar_client_sent_bytes_total"),
                received_bytes: change.rate("afar_client_received_bytes_total"),
                total,
            }
        });
        let used = shown.filter(|row| row.total > 0);
        busiest(used.collect(), ROWS, |row| (row.calls, row.total))
    }
}

/// Nanoseconds in seconds.
#[expect(clippy::cast_precision_loss, reason = "a time to be shown")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A label of a row.
fn part(key: &[String], number: usize) -> &str {
    key.get(number).map_or("", String::as_str)
}

/// The busiest rows: those with the highest rate, and of idle ones those that were used most.
fn busiest<T>(mut rows: Vec<T>, most: usize, rank: impl Fn(&T) -> (f64, u64)) -> Vec<T> {
    rows.sort_by(|one, other| {
        let ((rate, total), (other_rate, other_total)) = (rank(one), rank(other));
        other_rate.total_cmp(&rate).then(other_total.cmp(&total))
    });
    rows.truncate(most);
    rows
}
