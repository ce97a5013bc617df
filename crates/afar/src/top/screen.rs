//! The picture: what is shown, as cells of a terminal. It depends on nothing but its arguments.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::layout::{Layout, width};
use super::rates::Between;
use super::state::{KEYS, State};
use super::table::Table;
use super::units::{long, shown};

/// Lines that are no rows: the head, the heading, the keys.
const OTHERS: u16 = 3;

/// Everything that is shown.
pub(super) struct Picture<'p> {
    pub(super) state: &'p State,
    pub(super) between: &'p Between,
    /// Rows in their order.
    pub(super) table: &'p Table,
    /// Seconds between two looks.
    pub(super) interval: f64,
    /// Why the last look failed.
    pub(super) error: Option<&'p str>,
}

/// How many rows are shown in so many lines.
pub(super) fn page(height: u16) -> usize {
    height.saturating_sub(OTHERS).into()
}

/// Draws.
pub(super) fn draw(picture: &Picture<'_>, area: Rect, buffer: &mut Buffer) {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    line(buffer, area, 0, &head(picture), bold);
    if area.height > 1 {
        line(buffer, area, area.height - 1, &foot(picture), Style::new());
    }
    if picture.state.help {
        return help(area, buffer);
    }
    let layout = Layout::of(picture.table, Some(area.width.into()));
    line(buffer, area, 1, &layout.heading(picture.table), reversed);
    if let Some((at, width)) = layout.place(picture.state.order.column)
        && area.height > 2
    {
        let (at, width) = (u16::try_from(at), u16::try_from(width));
        let (at, width) = (at.unwrap_or(u16::MAX), width.unwrap_or(u16::MAX));
        let place = Rect::new(area.x.saturating_add(at), area.y + 1, width, 1);
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        buffer.set_style(place.intersection(area), style);
    }
    let rows = picture.table.rows.iter().skip(picture.state.skipped);
    for (number, row) in (2..area.height.saturating_sub(1)).zip(rows) {
        line(
            buffer,
            area,
            number,
            &layout.line(picture.table, row),
            Style::new(),
        );
    }
}

/// Writes a line over the whole width.
fn line(buffer: &mut Buffer, area: Rect, number: u16, text: &str, style: Style) {
    if number >= area.height {
        return;
    }
    let y = area.y + number;
    let blanks = usize::from(area.width).saturating_sub(width(text));
    let text = format!("{text}{}", " ".repeat(blanks));
    buffer.set_stringn(area.x, y, text, area.width.into(), style);
}

/// Which server, since when, how often, how much.
fn head(picture: &Picture<'_>) -> String {
    let Picture { state, between, .. } = picture;
    let now = &between.now;
    let mut parts = vec![
        format!("afar top {}", state.view.name()),
        shown(&now.cell),
        format!("up {}", long(now.uptime)),
        format!("every {} s", picture.interval),
        format!("{} rows", picture.table.rows.len()),
    ];
    if now.beyond > 0 {
        parts.push(format!("and {} more", now.beyond));
    }
    if state.frozen {
        parts.push("FROZEN".to_owned());
    }
    parts.join("   ")
}

/// What is wrong, the filter, or the keys.
fn foot(picture: &Picture<'_>) -> String {
    let State {
        editing, filter, ..
    } = picture.state;
    match picture.error {
        _ if *editing => format!("/{filter}_"),
        Some(error) => shown(error),
        None if !filter.is_empty() => format!("filter: {filter}   / change   Esc clear   ? help"),
        None => {
            "q quit   ? help   < > sort   r reverse   / filter   Space freeze   Tab next".to_owned()
        }
    }
}

fn help(area: Rect, buffer: &mut Buffer) {
    let widest = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (number, (key, text)) in (2..area.height.saturating_sub(1)).zip(KEYS) {
        let text = format!("  {key:<widest$}  {text}");
        line(buffer, area, number, &text, Style::new());
    }
}

#[cfg(test)]
mod tests;
