//! `afar metrics`: what file servers elsewhere, also OpenAFS's, tell of themselves, as text for Prometheus.
//!
//! `xstat` knows what the words of a server's collections mean.

mod xstat;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use afar_doctor::Threads;
use afar_net::{Endpoint, RxNull};
use afar_rpc::{afsvol, rxafs};
use afar_telemetry::{Cells, Collect, Desc, Registry, Unit, render_prometheus};
use afar_types::DiskPartition64;
use afar_xdr::XdrString;
use anyhow::Context;
use tokio::time::timeout;

use crate::fetch::session;
use crate::output;
use crate::top::server_address;

/// The UDP port of volume servers.
const VOLUMES: u16 = 7005;
/// How long a server has for each answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Versions of `xstat` are not looked at: servers answer all alike.
const VERSION: i32 = 2;
/// Servers that are asked at a time.
const AT_A_TIME: usize = 32;

const UP: Desc = Desc::gauge("afs_up", Unit::None, "1 if the file server answered.");
const STARTED: Desc = Desc::gauge(
    "afs_start_time_seconds",
    Unit::Seconds,
    "When the file server started, in seconds since 1970.",
);
const CALLS: Desc = Desc::counter("afs_calls_total", Unit::None, "Calls, by operation.");
const ERRORS: Desc = Desc::counter(
    "afs_call_errors_total",
    Unit::None,
    "Calls that failed or are under way, by operation.",
);
const TIME: Desc = Desc::counter(
    "afs_call_seconds_total",
    Unit::Seconds,
    "Time of calls that succeeded, by operation.",
);
const FETCHED: Desc = Desc::counter(
    "afs_fetched_bytes_total",
    Unit::Bytes,
    "Bytes of files sent to clients, in steps of 1024.",
);
const STORED: Desc = Desc::counter(
    "afs_stored_bytes_total",
    Unit::Bytes,
    "Bytes of files received from clients, in steps of 1024.",
);
const PACKETS: Desc = Desc::counter(
    "afs_packets_total",
    Unit::None,
    "Rx packets received, sent, and data packets sent again.",
);
const HOSTS: Desc = Desc::gauge("afs_hosts", Unit::None, "Clients that the server knows.");
const PROMISES: Desc = Desc::gauge("afs_callbacks", Unit::None, "Callback promises that stand.");
const CALLBACKS: Desc = Desc::counter(
    "afs_callback_events_total",
    Unit::None,
    "Callback promises made, broken, given up, expired and evicted, and calls that broke some.",
);
const WAITING: Desc = Desc::gauge(
    "afs_calls_waiting",
    Unit::None,
    "Calls that wait for a thread.",
);
const IDLE: Desc = Desc::gauge("afs_threads_idle", Unit::None, "Threads without a call.");
const SIZE: Desc = Desc::gauge(
    "afs_partition_size_bytes",
    Unit::Bytes,
    "Size of a partition.",
);
const FREE: Desc = Desc::gauge(
    "afs_partition_free_bytes",
    Unit::Bytes,
    "Free space of a partition.",
);

/// Show what file servers elsewhere, also OpenAFS's, count, as text for Prometheus.
///
/// Asks each server what `xstat_fs_test`, `rxdebug` and `vos partinfo` ask, which needs no rights there, and prints one
/// set of metrics with the label `server`. A server of afar tells more at its own port for metrics.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  afar metrics fs1.example.org fs2.example.org
  afar metrics fs1.example.org >/var/lib/prometheus/node-exporter/afs.prom

Exit status: 0 all servers answered, 1 some did not, 2 wrong usage.")]
pub(crate) struct MetricsArgs {
    /// File server, with its port if that is not 7000
    #[arg(value_name = "HOST[:PORT]", required = true)]
    servers: Vec<String>,
}

/// What is known of a server.
#[derive(Debug, Default)]
struct Told {
    server: String,
    full: Option<xstat::Full>,
    callbacks: Vec<i32>,
    threads: Option<Threads>,
    partitions: Vec<(String, DiskPartition64)>,
}

/// Asks, and prints.
pub(crate) fn run(args: &MetricsArgs) -> anyhow::Result<ExitCode> {
    let runtime = session::runtime()?;
    let told = runtime.block_on(ask_all(&args.servers))?;
    let silent: Vec<&str> = told
        .iter()
        .filter(|told| told.full.is_none())
        .map(|told| told.server.as_str())
        .collect();
    for server in &silent {
        output::note(&format!("{server} does not answer what xstat_fs_test asks"));
    }
    let code = ExitCode::from(u8::from(!silent.is_empty()));
    let registry = Registry::default();
    registry.collector(All(told));
    output::document(render_prometheus(&registry).as_bytes()).context("writing the metrics")?;
    Ok(code)
}

async fn ask_all(servers: &[String]) -> anyhow::Result<Vec<Told>> {
    let own = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let endpoint =
        Endpoint::bind(own, afar_net::Config::default()).context("cannot open a socket")?;
    let mut all = Vec::new();
    for some in servers.chunks(AT_A_TIME) {
        let mut asked = Vec::new();
        for server in some {
            let address = server_address(server)?;
            let (endpoint, server) = (endpoint.clone(), server.clone());
            asked.push(tokio::spawn(async move {
                ask(&endpoint, server, address).await
            }));
        }
        for told in asked {
            all.push(told.await?);
        }
    }
    endpoint.shutdown().await;
    Ok(all)
}

/// What a server tells in time.
async fn ask(endpoint: &Endpoint, server: String, address: SocketAddr) -> Told {
    let mut told = Told {
        server,
        ..Told::default()
    };
    let at = |port, service| {
        let address = SocketAddr::new(address.ip(), port);
        endpoint.connect(address, service, Arc::new(RxNull))
    };
    let files = rxafs::Client::new(at(address.port(), rxafs::SERVICE));
    let Ok(Ok(full)) = timeout(LIMIT, files.get_x_stats(VERSION, 2)).await else {
        return told;
    };
    told.full = xstat::Full::parse(&full.data);
    // Servers that tell less are as good.
    if let Ok(Ok(reply)) = timeout(LIMIT, files.get_x_stats(VERSION, 3)).await {
        told.callbacks = reply.data.into_vec();
    }
    if let Ok(looks) = afar_doctor::threads(address, 1, Duration::ZERO).await {
        told.threads = looks.first().copied();
    }
    let volumes = afsvol::Client::new(at(VOLUMES, afsvol::SERVICE));
    if let Ok(Ok(partitions)) = timeout(LIMIT, partitions(&volumes)).await {
        told.partitions = partitions;
    }
    told
}

/// Partitions by their names.
async fn partitions(volumes: &afsvol::Client) -> anyhow::Result<Vec<(String, DiskPartition64)>> {
    let listed = volumes.x_list_partitions().await?.partitions;
    let mut found = Vec::new();
    for partition in listed.into_vec() {
        let name = partition.to_string();
        let told = volumes.partition_info64(XdrString::new(name.as_str())?);
        found.push((name, told.await?.partition));
    }
    Ok(found)
}

/// All servers, for the registry.
struct All(Vec<Told>);

impl Collect for All {
    fn describe(&self) -> Vec<Desc> {
        vec![
            UP, STARTED, CALLS, ERRORS, TIME, FETCHED, STORED, PACKETS, HOSTS, PROMISES, CALLBACKS,
            WAITING, IDLE, SIZE, FREE,
        ]
    }

    fn collect(&self, cells: &mut Cells) {
        for told in &self.0 {
            told.tell(cells);
        }
    }
}

impl Told {
    fn tell(&self, cells: &mut Cells) {
        let server = ("server", self.server.as_str());
        cells.level(&UP, &[server], f64::from(u8::from(self.full.is_some())));
        let Some(full) = &self.full else {
            return;
        };
        cells.level(&STARTED, &[server], level(full.started));
        for operation in &full.operations {
            let labels = [server, ("operation", operation.name)];
            cells.count(&CALLS, &labels, operation.calls);
            cells.count(&ERRORS, &labels, operation.errors);
            cells.count(&TIME, &labels, operation.micros.saturating_mul(1000));
        }
        cells.count(&FETCHED, &[server], full.fetched_kib * 1024);
        cells.count(&STORED, &[server], full.stored_kib * 1024);
        for (kind, packets) in ["received", "sent", "resent"].into_iter().zip(full.packets) {
            cells.count(&PACKETS, &[server, ("kind", kind)], packets);
        }
        cells.level(&HOSTS, &[server], level(full.hosts));
        if let Some(standing) = xstat::word(&self.callbacks, xstat::STANDING) {
            cells.level(&PROMISES, &[server], level(standing));
        }
        for (event, place) in xstat::CALLBACKS {
            if let Some(count) = xstat::word(&self.callbacks, place) {
                cells.count(&CALLBACKS, &[server, ("event", event)], count);
            }
        }
        if let Some(threads) = self.threads {
            cells.level(&WAITING, &[server], threads.waiting.into());
            cells.level(&IDLE, &[server], threads.idle.into());
        }
        for (name, partition) in &self.partitions {
            let labels = [server, ("partition", name.as_str())];
            cells.level(&SIZE, &labels, bytes(partition.total()));
            cells.level(&FREE, &labels, bytes(partition.free));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
fn level(number: u64) -> f64 {
    number as f64
}

/// Bytes of so many KiB.
#[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
fn bytes(kib: i64) -> f64 {
    kib.max(0) as f64 * 1024.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_metric() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin/eyes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `afs_"));
        let listed: BTreeSet<String> = rows
            .map(|row| {
                let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`'));
                let name = format!("afs_{}", cells.next().unwrap());
                format!("{name} {}", cells.next().unwrap())
            })
            .collect();
        let told = All(Vec::new()).describe().into_iter();
        let told = told.map(|desc| {
            let kind = format!("{:?}", desc.kind()).to_lowercase();
            format!("{} {kind}", desc.name())
        });
        assert_eq!(listed, told.collect());
    }

    #[test]
    fn a_server_that_does_not_answer_is_down() {
        let registry = Registry::default();
        registry.collector(All(vec![Told {
            server: "fs1.example.org".to_owned(),
            ..Told::default()
        }]));
        let text = render_prometheus(&registry);
        assert!(
            text.contains("afs_up{server=\"fs1.example.org\"} 0\n"),
            "{text}"
        );
        assert_eq!(
            text.lines().filter(|line| !line.starts_with('#')).count(),
            1
        );
    }
}
