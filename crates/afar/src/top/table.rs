//! Rows in an order, filtered.

use std::cmp::Ordering;

use afar_server::view::View;
use anyhow::bail;
use serde_json::{Map, Value};

use super::columns::{Cell, Column, columns, default_sort};
use super::rates::{Between, is_empty_rest};
use super::units::{Unit, shown};

/// A table with what there was between two snapshots.
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    /// A cell for each column.
    pub(super) rows: Vec<Vec<Cell>>,
    /// When, in seconds since 1970.
    time: f64,
}

/// By which column rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// Its number.
    pub(super) column: usize,
    /// Whether the least number or the last text comes first.
    pub(super) reverse: bool,
}

impl Order {
    /// By the column with this name or heading, or by the usual one.
    ///
    /// # Errors
    /// There is no such column.
    pub(super) fn new(view: View, name: Option<&str>, reverse: bool) -> anyhow::Result<Self> {
        let columns = columns(view);
        let name = name.unwrap_or_else(|| default_sort(view));
        let is_named = |text: &str| text.eq_ignore_ascii_case(name);
        // READS for READS/s.
        let heads = |column: &&Column| is_named(column.title.split('/').next().unwrap_or_default());
        let exact = |column: &&Column| is_named(column.key) || is_named(column.title);
        let mut found = columns.iter().position(|column| exact(&column));
        found = found.or_else(|| columns.iter().position(|column| heads(&column)));
        match found {
            Some(column) => Ok(Self { column, reverse }),
            None => {
                let keys: Vec<&str> = columns.iter().map(|column| column.key).collect();
                bail!(
                    "the table of {} has no column {name:?}; it has {}",
                    view.name(),
                    keys.join(", ")
                )
            }
        }
    }
}

impl Table {
    /// Of what there was between two snapshots.
    pub(super) fn of(view: View, between: &Between) -> Self {
        let columns = columns(view);
        let rows = between.now.rows.iter().filter(|row| !is_empty_rest(row));
        let rows = rows.map(|row| {
            let change = between.row(row);
            columns.iter().map(|column| column.cell(&change)).collect()
        });
        Self {
            columns,
            rows: rows.collect(),
            time: between.now.time,
        }
    }

    /// Keeps the rows that have this text in a cell, in capital letters or not.
    pub(super) fn filter(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = text.to_lowercase();
        self.rows.retain(|row| {
            let mut texts = row.iter().filter_map(|cell| match cell {
                Cell::Text(text) => Some(shown(text).to_lowercase()),
                Cell::Number(_) | Cell::Unknown => None,
            });
            texts.any(|cell| cell.contains(&text))
        });
    }

    /// Puts the greatest numbers first, and texts in their order; rows that are equal by that stay in the
    /// order of their texts, so that no row jumps about.
    pub(super) fn sort(&mut self, order: &Order) {
        self.rows.sort_by(|one, other| {
            let (this, that) = (one.get(order.column), other.get(order.column));
            let by_column = match (this, that) {
                (Some(this), Some(that)) => compare(this, that),
                _ => Ordering::Equal,
            };
            let by_column = match order.reverse {
                true => by_column.reverse(),
                false => by_column,
            };
            by_column.then_with(|| {
                let texts = |row: &Vec<Cell>| -> Vec<String> {
                    let texts = row.iter().filter_map(|cell| match cell {
                        Cell::Text(text) => Some(text.clone()),
                        Cell::Number(_) | Cell::Unknown => None,
                    });
                    texts.collect()
                };
                texts(one).cmp(&texts(other))
            })
        });
    }

    /// One object for each row.
    ///
    /// # Errors
    /// None that can be: the format of the library.
    pub(super) fn json(&self) -> anyhow::Result<String> {
        let mut lines = String::new();
        for row in &self.rows {
            let mut object = Map::new();
            object.insert("time".to_owned(), self.time.into());
            for (column, cell) in self.columns.iter().zip(row) {
                let value = match cell {
                    Cell::Text(text) => Value::from(text.as_str()),
                    Cell::Number(number) => Value::from(*number),
                    Cell::Unknown => Value::Null,
                };
                object.insert(column.key.to_owned(), value);
            }
            lines.push_str(&serde_json::to_string(&object)?);
            lines.push('\n');
        }
        Ok(lines)
    }
}

/// Which of two cells of a column comes first.
fn compare(one: &Cell, other: &Cell) -> Ordering {
    match (one, other) {
        (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
        (Cell::Number(one), Cell::Number(other)) => other.total_cmp(one),
        (Cell::Unknown, Cell::Unknown) => Ordering::Equal,
        // What is unknown comes last.
        (Cell::Unknown, _) => Ordering::Greater,
        (_, Cell::Unknown) => Ordering::Less,
        (Cell::Text(_), Cell::Number(_)) => Ordering::Greater,
        (Cell::Number(_), Cell::Text(_)) => Ordering::Less,
    }
}

impl Column {
    /// Whether it has numbers, which stand at the right.
    pub(super) fn is_number(&self) -> bool {
        self.unit != Unit::Text
    }
}

#[cfg(test)]
pub(super) mod tests;
