//! Rows made of families of metrics, for what viewers are shown and for the page.

use std::collections::BTreeMap;

use afar_telemetry::{Distribution, Family, Series, Value};

use crate::view::Table;

/// Rows by the values of the labels that tell them apart.
pub(crate) type Rows = BTreeMap<Vec<String>, Counted>;

/// What is counted of one row.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// The names of the labels whose values tell it from other rows.
    pub(crate) labels: Vec<&'static str>,
    /// Its numbers, by metric.
    pub(crate) numbers: BTreeMap<&'static str, Value>,
    /// Counters with one more label, by metric: each with the value of that label.
    pub(crate) parts: BTreeMap<&'static str, Vec<(String, u64)>>,
}

impl Table {
    /// Whether a family is of this table.
    pub(crate) fn has(&self, family: &Family) -> bool {
        family.desc.name().starts_with(self.prefix)
    }

    /// Puts the numbers of a family of this table into its rows.
    pub(crate) fn add(&self, rows: &mut Rows, family: Family) {
        let name = family.desc.name();
        for Series { labels, value } in family.series {
            let (key, more): (Vec<_>, Vec<_>) =
                (labels.into_iter()).partition(|(label, _)| self.labels.contains(label));
            let (labels, key): (Vec<_>, Vec<_>) = key.into_iter().unzip();
            let row = rows.entry(key).or_default();
            row.labels = labels;
            match (more.into_iter().next(), value) {
                (Some((_, part)), Value::Count(count)) => {
                    row.parts.entry(name).or_default().push((part, count));
                }
                (_, value) => _ = row.numbers.insert(name, value),
            }
        }
    }
}

impl Counted {
    /// A counter; 0 if there is none of this name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        match self.numbers.get(name) {
            Some(Value::Count(count)) => *count,
            _ => 0,
        }
    }

    /// What rises and falls; 0 if there is none of this name.
    pub(crate) fn level(&self, name: &str) -> f64 {
        match self.numbers.get(name) {
            Some(Value::Level(level)) => *level,
            _ => 0.0,
        }
    }

    /// A distribution of times.
    pub(crate) fn times(&self, name: &str) -> Option<&Distribution> {
        match self.numbers.get(name) {
            Some(Value::Distribution(times)) => Some(times),
            _ => None,
        }
    }
}
