//! Tables of sessions and figures for the page.

use std::fmt::{self, Write};

use super::{Figures, Row};
use crate::bench::machine::Session;
use crate::bench::shown;

/// A section of the page: what was measured between what is said of it. Nothing if nothing was.
pub(in crate::bench) fn section(introduction: &str, results: &Figures, method: &str) -> String {
    let mut out = String::new();
    if !results.rows.is_empty() {
        out.push_str(introduction);
        // Writing to a string does not fail.
        all(&mut out, results).ok();
        out.push_str(method);
    }
    out
}

fn all(out: &mut String, results: &Figures) -> fmt::Result {
    sessions(out, &results.sessions)?;
    out.push_str("\n| | | | unit | goal | |\n|---|---|---|---|---|---|\n");
    results.rows.iter().try_for_each(|row| figures(out, row))
}

/// A table of the sessions that measured something.
pub(in crate::bench) fn sessions(out: &mut String, sessions: &[Session]) -> fmt::Result {
    writeln!(
        out,
        "\n| measured (UTC) | commit | machine | software | command |\n|---|---|---|---|---|"
    )?;
    for s in sessions {
        writeln!(
            out,
            "| {} | {} | {} × {}, {:.0} MHz, {:.0} GiB | Linux {}, {} | `cargo xtask {}` |",
            s.id,
            s.commit,
            s.processors,
            s.processor,
            s.clock_mhz,
            s.memory_gib,
            s.kernel,
            s.afar,
            s.options
        )?;
    }
    Ok(())
}

/// A row of figures: a line for each.
pub(in crate::bench) fn figures(out: &mut String, row: &Row) -> fmt::Result {
    if let Some(why) = &row.skipped {
        writeln!(out, "| {} | skipped: {why} | – | | | |", row.title)?;
    }
    for (number, figure) in row.figures.iter().enumerate() {
        let title = if number == 0 { &row.title } else { "" };
        let Some(found) = figure.stats() else {
            continue;
        };
        writeln!(
            out,
            "| {title} | {} | {} | {} | {} | {} |",
            figure.name,
            shown::stats(&found, digits),
            figure.unit,
            figure.goal.map(|goal| goal.shown()).unwrap_or_default(),
            figure.verdict()
        )?;
    }
    Ok(())
}

/// A number with enough digits, small ones included.
pub(in crate::bench) fn digits(value: f64) -> String {
    if value < 0.1 {
        format!("{value:.4}")
    } else {
        shown::figure(value)
    }
}
