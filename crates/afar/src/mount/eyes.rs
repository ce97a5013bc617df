//! What a mount shows of itself, in the folder `.afar` at its top.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_cache::Cache;
use afar_fuse::{Readers, Report, Text};
use afar_rpc::asked;
use afar_server::mount_snapshot;
use afar_telemetry::{Cells, Collect, Desc, Registry, Unit, render_prometheus};

use super::table;

/// The name of the file with the metrics.
const STATS: &str = "stats";
/// The name of the file for `afar top mounts`.
const TOP: &str = "top";
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
pub(super) fn reports(registry: &Registry) -> Vec<Report> {
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
    use super::*;

    #[test]
    fn stats_are_metrics_as_they_are_when_they_are_read() {
        let registry = Registry::default();
        registry.collector(Program {
            started: UNIX_EPOCH + Duration::from_millis(1500),
        });
        let [report, top] = reports(&registry).try_into().unwrap();
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
