use afar_server::view::View;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::table::{Order, tests::between};

const ROWS: &[(&str, u64)] = &[
    ("root.cell", 400),
    ("user.ann", 30),
    (
        "bad\u{1b}[2J\u{202e}name.that.is.longer.than.there.is.room.for.it",
        3,
    ),
    ("日本語のボリューム", 2),
    ("idle", 0),
];

/// What is on a terminal of this size, line by line.
fn drawn(
    columns: u16,
    lines: u16,
    change: impl FnOnce(&mut State),
    error: Option<&str>,
) -> Vec<String> {
    let order = Order::new(View::Volumes, None, false).unwrap();
    let mut state = State::new(View::Volumes, order, String::new());
    change(&mut state);
    let between = between(ROWS);
    let mut table = Table::of(View::Volumes, &between);
    table.filter(&state.filter);
    table.sort(&state.order);
    let picture = Picture {
        state: &state,
        between: &between,
        table: &table,
        interval: 2.0,
        error,
    };
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal
        .draw(|frame| draw(&picture, frame.area(), frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    assert!(
        buffer
            .content()
            .iter()
            .all(|cell| !cell.symbol().contains(char::is_control))
    );
    let lines = (0..lines).map(|y| {
        let symbols = (0..columns).map(|x| buffer[(x, y)].symbol());
        symbols.collect::<String>().trim_end().to_owned()
    });
    lines.collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn eighty_columns_have_what_counts() {
    let lines = drawn(80, 12, |_| {}, None);
    assert_eq!(
        lines[0],
        "afar top volumes   example.org   up 1m42s   every 2 s   5 rows"
    );
    let heading = [
        "PARTITION",
        "NAME",
        "READS/s",
        "WRITES/s",
        "READ",
        "B/s",
        "WRITE",
        "B/s",
        "P50",
        "P99",
    ];
    assert_eq!(words(&lines[1]), heading, "{lines:#?}");
    let row = [
        "/vicepa",
        "root.cell",
        "200",
        "0",
        "800K",
        "0",
        "1.5ms",
        "1.5ms",
    ];
    assert_eq!(words(&lines[2]), row);
    assert!(
        lines[4].contains("bad\\u{1b}") && lines[4].contains('…'),
        "{lines:#?}"
    );
    assert_eq!(
        words(&lines[6]),
        ["/vicepa", "idle", "0", "0", "0", "0", "-", "-"]
    );
    assert!(
        lines[11].starts_with("q quit   ? help   < > sort"),
        "{lines:#?}"
    );
}

#[test]
fn two_hundred_columns_have_everything() {
    let lines = drawn(200, 12, |_| {}, None);
    let heading = words(&lines[1]).join(" ");
    assert_eq!(
        heading,
        "PARTITION VOLUME NAME CALLS/s READS/s WRITES/s READ B/s WRITE B/s P50 P99 CALLBACKS/s BREAKS/s ERRORS/s"
    );
    assert_eq!(words(&lines[2])[..3], ["/vicepa", "536870912", "root.cell"]);
    assert_eq!(words(&lines[2])[12], "20");
    assert!(lines[4].contains("\\u{202e}name"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    for columns in [0, 1, 2, 7, 8, 20, 40, 79] {
        for lines in [0, 1, 2, 3, 4] {
            drawn(columns, lines, |_| {}, Some("broken"));
            drawn(columns, lines, |state| state.help = true, None);
        }
    }
    drawn(1000, 3, |_| {}, None);
}

#[test]
fn what_is_scrolled_away_filtered_or_frozen_is_so() {
    let lines = drawn(80, 12, |state| state.skipped = 4, None);
    assert_eq!((words(&lines[2])[1], lines[3].as_str()), ("idle", ""));
    let lines = drawn(80, 12, |state| state.filter = "ann".to_owned(), None);
    assert_eq!(words(&lines[2])[1], "user.ann");
    assert!(
        lines[0].ends_with("1 rows") && lines[11].starts_with("filter: ann"),
        "{lines:#?}"
    );
    let lines = drawn(80, 12, |state| state.frozen = true, None);
    assert!(lines[0].ends_with("FROZEN"), "{lines:#?}");
    let editing = |state: &mut State| {
        state.editing = true;
        state.filter = "an".to_owned();
    };
    assert_eq!(drawn(80, 12, editing, None)[11], "/an_");
}

#[test]
fn help_lists_the_keys_and_an_error_is_shown() {
    let lines = drawn(80, 14, |state| state.help = true, None);
    assert!(
        lines[2].trim_start().starts_with('q') && lines[2].ends_with("quit"),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line.contains("freeze")));
    let lines = drawn(80, 12, |_| {}, Some("cannot ask\u{1b}[31m"));
    assert_eq!(lines[11], "cannot ask\\u{1b}[31m");
}
