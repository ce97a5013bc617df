//! The same commands in two cells, and what differs.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::Row;
use crate::differences::{Difference, without_unchanged_release};
use crate::ids::Ids;
use crate::place::Ran;
use crate::side::Side;

/// Runs all rows on both sides at once, and fails with all that differ.
pub(crate) fn compare(rows: &[Row], theirs: Side, ours: Side, differences: &[Difference]) {
    let all = |side: Side| rows.iter().map(|row| timed(&side, row)).collect();
    let (expected, found): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| all(theirs));
        let found = all(ours);
        (expected.join().unwrap(), found)
    });
    let mut used = vec![false; differences.len()];
    let mut report = String::new();
    let mut differing = 0;
    let mut ids = Ids::default();
    for ((row, (expected, before)), (found, after)) in rows.iter().zip(expected).zip(found) {
        let mut expected = row.normalised(expected);
        let mut found = row.normalised(found);
        without_unchanged_release(row.line, &mut expected, &mut found);
        if std::env::var_os("AFAR_TEST_SHOW").is_some() {
            let times = (before, after);
            eprintln!("$ {} # {times:.1?}\n{}", row.line, show(&expected));
        }
        for (difference, used) in differences.iter().zip(&mut used) {
            if expected != found && difference.is_of(row.line) {
                *used |= difference.allow(&mut expected);
            }
        }
        ids.translate(&mut expected, &found);
        if expected != found {
            differing += 1;
            let (expected, found) = (show(&expected), show(&found));
            let line = row.line;
            write!(
                report,
                "$ {line}\n--- OpenAFS\n{expected}--- afar\n{found}\n"
            )
            .unwrap();
        }
    }
    for (difference, _) in differences.iter().zip(used).filter(|(_, used)| !used) {
        differing += 1;
        writeln!(report, "not there, so take it away: {difference:?}").unwrap();
    }
    assert_eq!(differing, 0, "of {} rows:\n{report}", rows.len());
}

fn timed(side: &Side, row: &Row) -> (Ran, Duration) {
    let begun = Instant::now();
    let ran = side.run(row);
    (ran, begun.elapsed())
}

impl Row {
    /// Masks applied.
    fn normalised(&self, ran: Ran) -> Ran {
        // OpenAFS's com_err returns the carriage after a line, as a terminal in raw mode wants it.
        let text = |text: String| {
            let text = text.replace("\n\r", "\n");
            self.masks.iter().fold(text, |text, mask| mask.apply(&text))
        };
        Ran {
            code: ran.code,
            out: text(ran.out),
            err: text(ran.err),
        }
    }
}

fn show(ran: &Ran) -> String {
    let mut text = ran.out.clone();
    for line in ran.err.lines() {
        writeln!(text, "(stderr) {line}").unwrap();
    }
    writeln!(text, "[{:?}]", ran.code).unwrap();
    text
}
