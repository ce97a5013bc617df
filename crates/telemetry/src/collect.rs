//! What a registry hands to whatever shows it.
//!
//! Label values may come from the network. They are made harmless here, for all that show them: what
//! would move a cursor, change the direction of text or be invisible is escaped, and long values are
//! cut.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::desc::Desc;
use crate::histogram::Distribution;

/// Bytes of a label value that are shown.
const LABEL_MAX: usize = 128;

/// The number or distribution of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a counter, in nanoseconds if its unit is seconds.
    Count(u64),
    /// Of a gauge, in its unit.
    Level(f64),
    /// Of a histogram or summary, in nanoseconds if its unit is seconds.
    Distribution(Distribution),
}

impl Value {
    /// Adds another one of the same metric.
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(sum), Self::Count(more)) => *sum = sum.wrapping_add(more),
            (Self::Level(sum), Self::Level(more)) => *sum += more,
            (Self::Distribution(whole), Self::Distribution(more)) => whole.merge(&more),
            (own, other) => *own = other,
        }
    }
}

/// Names and values of labels, in their order.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A metric with certain labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Names of labels and their values, which are harmless to show.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: Value,
}

/// A metric with all its series, in the order of their labels. No two have the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// What it is.
    pub desc: Desc,
    /// By labels.
    pub series: Vec<Series>,
}

/// Something that tells metrics when it is asked.
pub trait Collect: Send + Sync {
    /// What it tells.
    fn describe(&self) -> Vec<Desc>;

    /// Tells it. It is called now and then, on a thread that may block for a moment.
    fn collect(&self, cells: &mut Cells);

    /// Adds what goes on at the moment, if it knows of such; returns how much more there is.
    fn activities(&self, list: &mut Vec<Activity>) -> usize {
        let _ = list;
        0
    }

    /// Has it count what it counts only while somebody looks, until the guard is dropped; `None` if there is
    /// no such thing.
    fn watch_all(&self) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

/// Something that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// What it is: names and values, which are harmless to show.
    pub labels: Vec<(&'static str, String)>,
    /// When it began.
    pub began: Instant,
    /// What it waits for, as far as that is known.
    pub waits: Option<&'static str>,
}

impl Activity {
    /// With values that may come from anywhere.
    #[must_use]
    pub fn new(
        labels: &[(&'static str, &str)],
        began: Instant,
        waits: Option<&'static str>,
    ) -> Self {
        let labels = labels.iter();
        Self {
            labels: labels.map(|(name, text)| (*name, harmless(text))).collect(),
            began,
            waits,
        }
    }
}

/// Where metrics are told.
#[derive(Debug, Default)]
pub struct Cells {
    families: BTreeMap<&'static str, (Desc, BTreeMap<Labels, Value>)>,
    /// Labels of all that is told at the moment.
    common: Labels,
}

impl Cells {
    /// Tells a counter with these labels.
    pub fn count(&mut self, desc: &Desc, labels: &[(&'static str, &str)], count: u64) {
        self.add(desc, labels, Value::Count(count));
    }

    /// Tells a gauge with these labels.
    pub fn level(&mut self, desc: &Desc, labels: &[(&'static str, &str)], level: f64) {
        self.add(desc, labels, Value::Level(level));
    }

    /// Tells a histogram or summary with these labels.
    pub fn distribution(
        &mut self,
        desc: &Desc,
        labels: &[(&'static str, &str)],
        distribution: Distribution,
    ) {
        self.add(desc, labels, Value::Distribution(distribution));
    }

    pub(crate) fn add(&mut self, desc: &Desc, labels: &[(&'static str, &str)], value: Value) {
        let mut all = self.common.clone();
        all.extend(labels.iter().map(|(name, value)| (*name, harmless(value))));
        let (_, series) = self
            .families
            .entry(desc.name())
            .or_insert_with(|| (*desc, BTreeMap::new()));
        match series.entry(all) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            // Two that look the same to whoever reads them are one.
            Entry::Occupied(mut known) => known.get_mut().merge(value),
        }
    }

    /// Has all that is told next have these labels as well.
    pub(crate) fn common(&mut self, names: &[&'static str], values: &[String]) {
        let values = values.iter().map(|value| harmless(value));
        self.common = names.iter().copied().zip(values).collect();
    }

    /// All that was told.
    pub(crate) fn families(self) -> Vec<Family> {
        let families = self.families.into_values().map(|(desc, series)| Family {
            desc,
            series: series
                .into_iter()
                .map(|(labels, value)| Series { labels, value })
                .collect(),
        });
        families.collect()
    }
}

/// A value as it may be shown. Values that differ stay different.
pub(crate) fn harmless(value: &str) -> String {
    let mut shown = String::with_capacity(value.len());
    for (at, letter) in value.char_indices() {
        if at + letter.len_utf8() > LABEL_MAX {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            shown.push_str(&format!("…{:016x}", hasher.finish()));
            break;
        }
        if letter == '\\' || is_harmful(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Whether a letter does something to a terminal, or hides.
#[must_use]
pub fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            // Marks of direction, invisible letters, separators of lines.
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Unit;

    #[test]
    fn harmless_values_stay_as_they_are() {
        for value in [
            "",
            "root.cell",
            "10.0.0.1",
            "Zoë",
            "a b",
            "naïve \"x\"",
            "日本",
        ] {
            assert_eq!(harmless(value), value);
        }
    }

    #[test]
    fn what_moves_a_cursor_is_escaped() {
        assert_eq!(harmless("a\u{1b}[2J"), "a\\u{1b}[2J");
        assert_eq!(harmless("a\nb\0"), "a\\nb\\u{0}");
        assert_eq!(harmless("\u{202e}gpj.exe\u{9b}"), "\\u{202e}gpj.exe\\u{9b}");
        // What looks like an escape is something else.
        assert_ne!(harmless("a\\u{1b}"), harmless("a\u{1b}"));
    }

    #[test]
    fn long_values_are_cut_and_stay_different() {
        let long = |end: &str| harmless(&("ü".repeat(1000) + end));
        assert!(long("a").len() < 160);
        assert_ne!(long("a"), long("b"));
        assert_eq!(harmless(&"x".repeat(LABEL_MAX)), "x".repeat(LABEL_MAX));
    }

    #[test]
    fn what_looks_the_same_is_one_series() {
        const CALLS: Desc = Desc::counter("a_total", Unit::None, "Help.");
        let mut cells = Cells::default();
        cells.count(&CALLS, &[("b", "x")], 1);
        cells.common(&["b"], &["x".to_owned()]);
        cells.count(&CALLS, &[], 2);
        cells.count(&CALLS, &[("c", "y")], 4);
        let families = cells.families();
        let values: Vec<_> = families[0].series.iter().map(|s| s.value.clone()).collect();
        assert_eq!(values, [Value::Count(3), Value::Count(4)]);
    }
}
