//! The text format as Prometheus's own checker sees it, where that is installed.

use std::io::Write;
use std::process::{Command, Stdio};

use afar_telemetry::{Cells, Desc, Registry, Row, TableConfig, Unit, render_prometheus};

const CALLS: Desc = Desc::counter("afar_example_calls_total", Unit::None, "Calls served.");
const SENT: Desc = Desc::counter("afar_example_sent_bytes_total", Unit::Bytes, "Bytes sent.");
const OPEN: Desc = Desc::gauge(
    "afar_example_open",
    Unit::None,
    "Open \\ things\nof two lines.",
);
const TOOK: Desc = Desc::histogram("afar_example_took_seconds", Unit::Seconds, "Time of calls.");
const WAIT: Desc = Desc::summary(
    "afar_example_wait_seconds",
    Unit::Seconds,
    "Time of waiting.",
);

#[derive(Clone, Default)]
struct Sent(u64);

impl Row for Sent {
    const DESCS: &'static [Desc] = &[SENT];

    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }

    fn tell(&self, cells: &mut Cells) {
        cells.count(&SENT, &[], self.0);
    }
}

/// A registry with one of each, and with names that an attacker might have.
fn registry() -> Registry {
    let registry = Registry::default();
    let hostile = [
        "",
        "plain",
        "quote\" back\\slash",
        "new\nline",
        "x\"} 1\nforged_total{a=\"",
        "\u{1b}[2J\u{7}\0",
        "\u{202e}\u{feff}",
        "日本語",
    ];
    for name in hostile {
        registry.counter(&CALLS, &[("user", name)]).inc();
        registry
            .histogram(&TOOK, &[("user", name)])
            .record(12_345_678);
        registry.histogram(&WAIT, &[("user", name)]).record(1);
    }
    registry.gauge(&OPEN, &[]).set(-3);
    let config = TableConfig {
        labels: &["client"],
        rows: 4,
        watched_only: false,
    };
    let table = registry.table(config, |key: &String| vec![key.clone()]);
    for name in hostile {
        table.update(&name.to_owned(), 1, |row: &mut Sent| row.0 += 1);
    }
    let long = "z".repeat(100_000);
    (0..2).for_each(|_| registry.counter(&CALLS, &[("user", &long)]).inc());
    registry
}

#[test]
fn promtool_finds_nothing_wrong() {
    let text = render_prometheus(&registry());
    let Ok(mut checker) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        println!("skipped: there is no promtool (Debian's package prometheus has it)");
        return;
    };
    checker
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = checker.wait_with_output().unwrap();
    let says = [output.stdout, output.stderr].concat();
    let says = String::from_utf8_lossy(&says);
    assert!(
        output.status.success() && says.trim().is_empty(),
        "{says}\n{text}"
    );
}

#[test]
fn no_name_forges_a_line() {
    let text = render_prometheus(&registry());
    for line in text.lines() {
        assert!(
            line.starts_with("# ") || line.starts_with("afar_example_"),
            "{line:?}"
        );
        assert!(line.chars().all(|letter| !letter.is_control()), "{line:?}");
        assert!(line.len() < 1000, "{line:?}");
    }
}
