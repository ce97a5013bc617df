use std::collections::BTreeMap;

use afar_server::view::{Number, Row, Snapshot, Times};
use afar_telemetry::Distribution;

use super::*;
use crate::top::layout;

/// Two snapshots of a server, two seconds apart: `rows` of volumes, by name, with the reads between them.
pub(in crate::top) fn between(rows: &[(&str, u64)]) -> Between {
    let mut between = Between::default();
    for (uptime, share) in [(100.0, 0), (102.0, 1)] {
        let rows = rows.iter().zip(536_870_912_u64..);
        let rows = rows.map(|((name, reads), id)| volume(id, name, share * reads));
        between.next(Snapshot {
            cell: "example.org".to_owned(),
            version: "0.1.0".to_owned(),
            time: 1_800_000_000.5 + uptime,
            uptime,
            rows: rows.collect(),
            beyond: 0,
        });
    }
    between
}

fn volume(id: u64, name: &str, reads: u64) -> Row {
    let mut times = Distribution::default();
    (0..reads).for_each(|_| times.record(1_500_000));
    let labels = [
        ("volume", id.to_string()),
        ("name", name.to_owned()),
        ("partition", "/vicepa".to_owned()),
    ];
    let numbers = [
        (
            "afar_volume_read_seconds",
            Number::Times(Times::from(&times)),
        ),
        ("afar_volume_read_bytes_total", Number::Count(reads * 4096)),
        ("afar_volume_errors_total", Number::Count(reads / 10)),
    ];
    Row {
        labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
        numbers: numbers
            .map(|(name, number)| (name.to_owned(), number))
            .into(),
    }
}

fn names(table: &Table) -> Vec<&str> {
    let rows = table.rows.iter().filter_map(|row| match &row[2] {
        Cell::Text(name) => Some(name.as_str()),
        Cell::Number(_) | Cell::Unknown => None,
    });
    rows.collect()
}

fn order(name: &str, reverse: bool) -> Order {
    Order::new(View::Volumes, Some(name), reverse).unwrap()
}

#[test]
fn rows_are_sorted_the_greatest_first_and_texts_by_letter() {
    let between = between(&[("b", 10), ("a", 10), ("c", 400)]);
    let mut table = Table::of(View::Volumes, &between);
    table.sort(&Order::new(View::Volumes, None, false).unwrap());
    assert_eq!(names(&table), ["c", "b", "a"]);
    table.sort(&order("reads", true));
    assert_eq!(names(&table), ["b", "a", "c"]);
    table.sort(&order("NAME", false));
    assert_eq!(names(&table), ["a", "b", "c"]);
    table.sort(&order("p99_seconds", false));
    assert_eq!(names(&table).len(), 3);
}

#[test]
fn columns_are_found_by_their_names() {
    assert_eq!(order("READS/s", false), order("reads_per_second", false));
    assert_eq!(order("reads", false), order("reads_per_second", false));
    let error = Order::new(View::Calls, Some("reads"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the table of calls has no column \"reads\"; it has seconds, operation, peer, user, subject, name, waits"
    );
}

#[test]
fn rows_are_filtered_by_what_is_seen_of_them() {
    let between = between(&[("user.ann", 1), ("user.\u{1b}[2J", 1), ("root.cell", 1)]);
    for (text, count) in [
        ("", 3),
        ("USER", 2),
        ("u{1b}", 1),
        ("/vicepa", 3),
        ("536870914", 1),
        ("x", 0),
    ] {
        let mut table = Table::of(View::Volumes, &between);
        table.filter(text);
        assert_eq!(table.rows.len(), count, "{text}");
    }
}

#[test]
fn text_has_a_line_for_each_row() {
    let between = between(&[("root.cell", 400), ("idle", 0), ("bad\u{1b}[2J\nname", 3)]);
    let mut table = Table::of(View::Volumes, &between);
    table.sort(&order("reads", false));
    let text = layout::text(&table, 7);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(lines[0][..4], ["PARTITION", "VOLUME", "NAME", "CALLS/s"]);
    let first = [
        "/vicepa",
        "536870912",
        "root.cell",
        "200",
        "200",
        "0",
        "800K",
        "0",
        "1.5ms",
        "1.5ms",
        "0",
        "0",
        "20",
    ];
    assert_eq!(lines[1], first);
    assert_eq!(lines[2][2], "bad\\u{1b}[2J\\nname");
    assert_eq!(lines[3][..4], ["/vicepa", "536870913", "idle", "0"]);
    // Nothing was counted of which there is a percentile.
    assert_eq!(lines[3][8..10], ["-", "-"]);
    assert_eq!(lines[4].join(" "), "(and 7 more)");
}

#[test]
fn json_has_an_object_for_each_row_in_base_units() {
    let between = between(&[("root.cell", 400), ("bad\u{1b}\n", 0)]);
    let mut table = Table::of(View::Volumes, &between);
    table.sort(&order("reads", false));
    let text = table.json().unwrap();
    let lines: Vec<BTreeMap<String, Value>> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let first = |key: &str| lines[0][key].as_f64().unwrap();
    assert_eq!(
        (first("reads_per_second"), first("read_bytes_per_second")),
        (200.0, 819_200.0)
    );
    assert!((0.0014..0.0016).contains(&first("p50_seconds")), "{text}");
    assert!(first("time") > 1_800_000_000.0);
    assert_eq!(lines[0]["name"], "root.cell");
    assert_eq!(lines[1]["p50_seconds"], Value::Null);
    assert_eq!(lines[0].len(), table.columns.len() + 1);
}

#[test]
fn the_first_look_has_no_rates() {
    let mut first = Between::default();
    first.next(between(&[("a", 5)]).now);
    let table = Table::of(View::Volumes, &first);
    assert!(table.rows[0][3..].iter().all(|cell| *cell == Cell::Unknown));
}

#[test]
fn clients_are_shown_by_operation_with_their_path() {
    let client = |fetches: u64| Row {
        labels: [("address", "192.0.2.7"), ("user", "ann")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        numbers: [
            (
                "afar_client_calls_total",
                Number::By(BTreeMap::from([
                    ("fetch_data64".to_owned(), fetches),
                    ("fetch_data".to_owned(), fetches),
                    ("rename".to_owned(), 7),
                ])),
            ),
            ("window_bytes", Number::Count(65_536)),
            ("rtt_seconds", Number::Level(0.23)),
            ("ports", Number::Count(2)),
        ]
        .map(|(name, number)| (name.to_owned(), number))
        .into(),
    };
    let mut between = Between::default();
    for (uptime, fetches) in [(1.0, 10), (3.0, 30)] {
        between.next(Snapshot {
            time: uptime,
            uptime,
            rows: vec![client(fetches)],
            ..Snapshot::default()
        });
    }
    let table = Table::of(View::Clients, &between);
    let text = layout::text(&table, 0);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = ["192.0.2.7", "ann", "2", "20", "20", "0", "0", "0"];
    assert_eq!(lines[1][..8], row, "{text}");
    assert!(text.contains("64K") && text.contains("230ms"), "{text}");
}
