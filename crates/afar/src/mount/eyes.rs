//! What a mount shows of itself, in the folder `.afar` at its top.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_cache::{Cache, Conflict, PendingVolume};
use afar_fuse::{Readers, Report, Text};
use afar_rpc::asked;
use afar_server::mount_snapshot;
use afar_telemetry::{Cells, Collect, Desc, Registry, Unit, render_prometheus};

use super::table;

/// The name of the file with the metrics.
const STATS: &str = "stats";
/// The name of the file for `afar top mounts`.
const TOP: &str = "top";
/// The name of the file with what waits to be sent.
const PENDING: &str = "pending";
/// The name of the file for `afar fs conflicts`.
const CONFLICTS_NAME: &str = "conflicts";
/// Where that is in a mount.
pub(crate) const CONFLICTS: &str = ".afar/conflicts";
/// A metric of the table of processes.
const PROCESSES: &str = "afar_process_hits_total";
/// How often to look whether a mount that has readers was detached.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long readers have to go when the mount ends, and how often to look whether they have.
const LEAVE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

const BUILD: Desc = Desc::gauge("afar_build_info", Unit::None, "1, with afar's version.");
const STARTED: Desc = Desc::gauge(
    "afar_start_time_seconds",
    Unit::Seconds,
    "When the mount began, in seconds since 1970.",
);

/// Tells of the program.
struct Program {
    started: SystemTime,
}

impl Collect for Program {
    fn describe(&self) -> Vec<Desc> {
        vec![BUILD, STARTED]
    }

    fn collect(&self, cells: &mut Cells) {
        cells.level(&BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        cells.level(&STARTED, &[], started.as_secs_f64());
    }
}

/// The metrics of a mount with this cache.
pub(super) fn registry(cache: &Cache) -> Registry {
    let registry = Registry::default();
    cache.tell(&registry);
    asked::tell(&registry);
    registry.collector(Program {
        started: SystemTime::now(),
    });
    registry
}

/// The files of the folder.
pub(super) fn reports(cache: &Cache, registry: &Registry) -> Vec<Report> {
    let mut reports = of_registry(registry);
    let (waiting, refused) = (cache.clone(), cache.clone());
    let pending = move || -> Text {
        let cache = waiting.clone();
        Box::new(move || pending_text(&cache.pending()))
    };
    let conflicts = move || -> Text {
        let cache = refused.clone();
        Box::new(move || match cache.conflicts() {
            Ok(conflicts) => conflicts_text(&conflicts),
            Err(error) => {
                tracing::error!(%error, "the record of conflicts cannot be read");
                format!("the record of conflicts cannot be read: {error}\n")
            }
        })
    };
    reports.push(Report {
        name: PENDING,
        open: Box::new(pending),
    });
    reports.push(Report {
        name: CONFLICTS_NAME,
        open: Box::new(conflicts),
    });
    reports
}

/// What waits to be sent, a line for each volume.
fn pending_text(pending: &[PendingVolume]) -> String {
    match pending {
        [] => "nothing waits to be sent\n".to_owned(),
        volumes => volumes.iter().map(|it| format!("{it}\n")).collect(),
    }
}

/// Changes that could not be made, a line for each.
fn conflicts_text(conflicts: &[Conflict]) -> String {
    conflicts.iter().map(|it| format!("{it}\n")).collect()
}

/// Those with metrics.
fn of_registry(registry: &Registry) -> Vec<Report> {
    let began = Instant::now();
    let (all, watched) = (registry.clone(), registry.clone());
    let stats = move || -> Text {
        let registry = all.clone();
        Box::new(move || render_prometheus(&registry))
    };
    let top = move || -> Text {
        let registry = watched.clone();
        // Processes are counted as long as it is open.
        let watches = registry.watch(PROCESSES);
        Box::new(move || {
            let _counted = &watches;
            snapshot(&registry, began)
        })
    };
    vec![
        Report {
            name: STATS,
            open: Box::new(stats),
        },
        Report {
            name: TOP,
            open: Box::new(top),
        },
    ]
}

fn snapshot(registry: &Registry, began: Instant) -> String {
    let made = mount_snapshot(registry, began).map(String::from_utf8);
    if let Ok(Ok(text)) = made {
        return text;
    }
    tracing::error!("a snapshot of the mount could not be written");
    String::new()
}

/// Ends what readers of the mount at this place read once it is detached: they would keep it for ever. It
/// does not return.
pub(super) async fn follow(place: &Path, readers: Readers) {
    let Ok(Some(mounted)) = table::at(place) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !readers.are_there() {
            continue;
        }
        let device = mounted.device.clone();
        let look = tokio::task::spawn_blocking(move || table::is_mounted(&device));
        if let Ok(Ok(false)) = look.await {
            readers.end(false);
        }
    }
}

/// Has readers go, and gives them a moment to do so.
pub(super) async fn dismiss(readers: &Readers) {
    readers.end(true);
    let gone = async {
        while readers.are_there() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    // Those that do not go hold the mount up as any open file does.
    tokio::time::timeout(LEAVE, gone).await.ok();
}

#[cfg(test)]
mod tests {
    use afar_cache::Errno;
    use afar_types::{Fid, UnixTime, VolumeId};

    use super::*;

    #[test]
    fn what_waits_has_a_line_for_each_volume() {
        assert_eq!(pending_text(&[]), "nothing waits to be sent\n");
        let one = PendingVolume {
            cell: "a.example".parse().unwrap(),
            volume: VolumeId(5),
            changes: 12,
            bytes: 3456,
            oldest: Duration::from_secs(2),
            failing: None,
        };
        let other = PendingVolume {
            volume: VolumeId(6),
            failing: Some(Errno::ETIMEDOUT),
            ..one.clone()
        };
        let text = pending_text(&[one, other]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(
            lines[0],
            "a.example 5: 12 changes, 3456 bytes, the first waits for 2 s"
        );
        assert!(lines[1].contains("sending failed: "), "{text}");
    }

    #[test]
    fn conflicts_have_a_line_each_whatever_their_names() {
        assert_eq!(conflicts_text(&[]), "");
        let conflict = Conflict {
            time: UnixTime(7),
            cell: "a.example".parse().unwrap(),
            fid: Fid::new(5, 1, 1),
            verb: "mkdir".to_owned(),
            name: b"a\nb".to_vec(),
            why: "x".to_owned(),
            kept: None,
        };
        let text = conflicts_text(&[conflict.clone(), conflict]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(CONFLICTS.ends_with(CONFLICTS_NAME));
    }

    #[test]
    fn stats_are_metrics_as_they_are_when_they_are_read() {
        let registry = Registry::default();
        registry.collector(Program {
            started: UNIX_EPOCH + Duration::from_millis(1500),
        });
        let [report, top] = of_registry(&registry).try_into().unwrap();
        assert_eq!(report.name, "stats");
        let text = (report.open)();
        assert!(
            text().contains("\nafar_start_time_seconds 1.5\n"),
            "{}",
            text()
        );
        const MORE: Desc = Desc::counter("more_total", Unit::None, "More.");
        registry.counter(&MORE, &[]).inc();
        assert!(text().contains("\nmore_total 1\n"));
        assert_eq!(top.name, "top");
        let text = (top.open)();
        assert!(text().starts_with("{\"cell\":\"\""), "{}", text());
    }
}
