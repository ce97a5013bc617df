//! How a table fits a width: which columns, how wide, and what is in each cell.

use ratatui::text::Span;

use super::columns::Cell;
use super::table::Table;
use super::units::{Unit, short, shown};

/// Between two columns.
const GAP: usize = 2;
/// The least that a column of text is cut to.
const TEXT_LEAST: usize = 8;
/// The most that a column of text takes where there is no bound.
const TEXT_MOST: usize = 64;

/// The columns of a table that have room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Numbers of columns and their widths.
    pub(super) columns: Vec<(usize, usize)>,
}

/// How many cells of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A cell as it is shown.
pub(super) fn cell_text(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Text(text) => shown(text),
        Cell::Number(number) => short(*number, unit),
        Cell::Unknown => "-".to_owned(),
    }
}

impl Layout {
    /// In so many cells of a terminal, if that is bounded.
    pub(super) fn of(table: &Table, room: Option<usize>) -> Self {
        let natural = |number: usize| {
            let column = &table.columns[number];
            let cells = table.rows.iter().filter_map(|row| row.get(number));
            let widths = cells.map(|cell| width(&cell_text(cell, column.unit)));
            let widest = widths.max().unwrap_or(0).min(TEXT_MOST);
            // A column of numbers has the same width whatever is in it, so that nothing jumps.
            let least = if column.is_number() { 6 } else { 0 };
            widest.max(width(column.title)).max(least)
        };
        let mut columns: Vec<(usize, usize)> = (0..table.columns.len())
            .map(|number| (number, natural(number)))
            .collect();
        let Some(room) = room else {
            return Self { columns };
        };
        let least = |(number, width): &(usize, usize)| match table.columns[*number].is_number() {
            true => *width,
            false => (*width).min(TEXT_LEAST),
        };
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        // First texts are cut a little, then columns go, those of the highest rank first.
        loop {
            let widths: Vec<usize> = columns.iter().map(least).collect();
            if total(&widths) <= room {
                break;
            }
            let worst = columns.iter().enumerate();
            let worst = worst.max_by_key(|(at, (number, _))| (table.columns[*number].rank, *at));
            match worst {
                Some((at, _)) if columns.len() > 1 => columns.remove(at),
                _ => break,
            };
        }
        let widths: Vec<usize> = columns.iter().map(|(_, width)| *width).collect();
        let mut excess = total(&widths).saturating_sub(room);
        while excess > 0 {
            let texts = columns.iter_mut().filter(|(number, width)| {
                !table.columns[*number].is_number() && *width > TEXT_LEAST
            });
            let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) else {
                break;
            };
            *widest -= 1;
            excess -= 1;
        }
        Self { columns }
    }

    /// The heading.
    pub(super) fn heading(&self, table: &Table) -> String {
        let cells = self.columns.iter().map(|(number, width)| {
            let column = &table.columns[*number];
            fit(column.title, *width, column.is_number())
        });
        cells.collect::<Vec<_>>().join("  ")
    }

    /// A row.
    pub(super) fn line(&self, table: &Table, row: &[Cell]) -> String {
        let cells = self.columns.iter().map(|(number, width)| {
            let column = &table.columns[*number];
            let text = row.get(*number).map(|cell| cell_text(cell, column.unit));
            fit(&text.unwrap_or_default(), *width, column.is_number())
        });
        cells.collect::<Vec<_>>().join("  ")
    }

    /// Where a column is, in cells from the left, and how wide, if it is shown.
    pub(super) fn place(&self, column: usize) -> Option<(usize, usize)> {
        let at = self
            .columns
            .iter()
            .position(|(number, _)| *number == column)?;
        let before = self.columns.iter().take(at).map(|(_, width)| width + GAP);
        let (_, width) = self.columns.get(at)?;
        Some((before.sum(), *width))
    }
}

/// A text in exactly so many cells, cut with an ellipsis.
fn fit(text: &str, room: usize, right: bool) -> String {
    let mut text = text.to_owned();
    if width(&text) > room {
        while width(&text) + 1 > room && text.pop().is_some() {}
        if room > 0 {
            text.push('…');
        }
    }
    let blanks = " ".repeat(room.saturating_sub(width(&text)));
    match right {
        true => blanks + &text,
        false => text + &blanks,
    }
}

/// A table as text, as wide as it is; `beyond` more rows had no room on the server.
pub(super) fn text(table: &Table, beyond: u64) -> String {
    let layout = Layout::of(table, None);
    let rows = table.rows.iter().map(|row| layout.line(table, row));
    let mut text = String::new();
    for line in std::iter::once(layout.heading(table)).chain(rows) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if beyond > 0 {
        text.push_str(&format!("(and {beyond} more)\n"));
    }
    text
}
