//! What a mount shows of itself, in the folder `.afar` at its top.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_cache::Cache;
use afar_fuse::{Readers, Report, Text};
use afar_telemetry::{Cells, Collect, Desc, Registry, Unit, render_prometheus};

use super::table;

/// The name of the file with the metrics.
const STATS: &str = "stats";
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
    registry.collector(Program {
        started: SystemTime::now(),
    });
    registry
}

/// The files of the folder.
pub(super) fn reports(registry: &Registry) -> Vec<Report> {
    let all = registry.clone();
    let stats = move || -> Text {
        let registry = all.clone();
        Box::new(move || render_prometheus(&registry))
    };
    vec![Report {
        name: STATS,
        open: Box::new(stats),
    }]
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
        let [report] = reports(&registry).try_into().unwrap();
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
    }
}
