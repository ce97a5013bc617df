use afar_telemetry::{Activity, Cells, Collect, Desc, Distribution, Table, TableConfig, Unit};

use super::*;

const ERRORS: Desc = Desc::counter(VOLUMES, Unit::None, "Errors.");
const TIMES: Desc = Desc::summary("afar_volume_read_seconds", Unit::Seconds, "Times.");
const CALLS: Desc = Desc::counter("afar_client_calls_total", Unit::None, "Calls.");
const BYTES: Desc = Desc::counter(FILES, Unit::Bytes, "Bytes.");

#[derive(Debug, Clone, Default)]
struct Bytes(u64);

impl afar_telemetry::Row for Bytes {
    const DESCS: &'static [Desc] = &[BYTES];

    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }

    fn tell(&self, cells: &mut Cells) {
        cells.count(&BYTES, &[], self.0);
    }
}

/// A server with two volumes, a client and a call.
struct Server;

impl Collect for Server {
    fn describe(&self) -> Vec<Desc> {
        vec![ERRORS, TIMES, CALLS]
    }

    fn collect(&self, cells: &mut Cells) {
        let mut times = Distribution::default();
        for time in [5, 7] {
            times.record(time);
        }
        for (volume, name) in [("7", "root.cell"), ("8", "user.\u{1b}")] {
            let labels = [("volume", volume), ("name", name), ("partition", "/vicepa")];
            cells.count(&ERRORS, &labels, 3);
            cells.distribution(&TIMES, &labels, times.clone());
        }
        for (operation, count) in [("fetch_data64", 5), ("rename", 2)] {
            let labels = [
                ("address", "192.0.2.1"),
                ("user", "ann"),
                ("operation", operation),
            ];
            cells.count(&CALLS, &labels, count);
        }
    }

    fn activities(&self, list: &mut Vec<Activity>) -> usize {
        let labels = [
            ("operation", "fetch_data64"),
            ("kind", "fid"),
            ("subject", "7.2.1"),
        ];
        list.push(Activity::new(
            &labels,
            std::time::Instant::now(),
            Some("disk"),
        ));
        4
    }
}

fn views() -> (Views, Table<u32, Bytes>) {
    let registry = Registry::default();
    registry.collector(Server);
    let config = TableConfig {
        labels: &["volume", "vnode", "uniquifier"],
        rows: 8,
        watched_only: true,
    };
    let files = registry.table(config, |vnode: &u32| {
        vec!["7".to_owned(), vnode.to_string(), "1".to_owned()]
    });
    let views = Views::new(&registry, "a.example".to_owned(), Vec::new());
    (views, files)
}

async fn snapshot(views: &Views, view: View) -> Snapshot {
    serde_json::from_slice(&views.json(view).await.unwrap()).unwrap()
}

#[tokio::test]
async fn rows_have_the_numbers_of_their_labels() {
    let (views, _) = views();
    let volumes = snapshot(&views, View::Volumes).await;
    assert_eq!(
        (volumes.cell.as_str(), volumes.rows.len()),
        ("a.example", 2)
    );
    let row = &volumes.rows[1];
    assert_eq!(row.label("name"), "user.\\u{1b}");
    assert_eq!(row.count(VOLUMES), 3);
    assert_eq!(row.times("afar_volume_read_seconds").sum(), 12);
    let clients = snapshot(&views, View::Clients).await;
    assert_eq!(clients.rows.len(), 1);
    let row = &clients.rows[0];
    assert_eq!(row.count_by("afar_client_calls_total", "rename"), 2);
    assert_eq!(row.count("afar_client_calls_total"), 7);
    assert_eq!(row.label("operation"), "");
}

#[tokio::test]
async fn calls_are_told_with_what_they_wait_for_and_the_name_of_the_volume() {
    let (views, _) = views();
    let calls = snapshot(&views, View::Calls).await;
    assert_eq!((calls.rows.len(), calls.beyond), (1, 4));
    let row = &calls.rows[0];
    let labels = ["operation", "subject", "waits", "name"].map(|name| row.label(name));
    assert_eq!(labels, ["fetch_data64", "7.2.1", "disk", "root.cell"]);
    assert!(row.level("seconds").unwrap() < 60.0);
}

#[tokio::test(start_paused = true)]
async fn files_are_counted_while_somebody_asks_again_in_time() {
    let (views, files) = views();
    views.looks(View::Volumes, "lease=60");
    assert!(!files.is_counting());
    views.looks(View::Files, "x=1&lease=60");
    files.update(&5, 1, |row| row.0 += 1000);
    let rows = snapshot(&views, View::Files).await.rows;
    let row = rows.iter().find(|row| row.label("vnode") == "5").unwrap();
    assert_eq!((row.label("name"), row.count(FILES)), ("root.cell", 1000));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        views.looks(View::Files, "lease=60");
    }
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(files.is_counting());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!files.is_counting());
    // Whatever a viewer says, it ends.
    for (query, seconds) in [("", 16), ("lease=99999999999999", 601), ("lease=-1", 16)] {
        views.looks(View::Files, query);
        assert!(files.is_counting());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert!(!files.is_counting(), "{query}");
    }
}
