//! What happened between two snapshots.

use std::collections::{BTreeMap, BTreeSet};

use afar_server::view::{Number, Row, Snapshot, Times};
use afar_telemetry::Distribution;

/// The value of the labels of the row that stands for all that have none.
const REST: &str = "(other)";
/// Labels by which rows differ. Others may change, such as the name of a volume.
const KEYS: [&str; 7] = [
    "volume",
    "vnode",
    "uniquifier",
    "address",
    "user",
    "mount",
    "pid",
];

/// Two snapshots of a table, one after the other.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// The newer one.
    pub(super) now: Snapshot,
    /// Rows of the older one, by what tells them apart, and the seconds since then.
    before: Option<(BTreeMap<Vec<String>, Row>, f64)>,
}

impl Between {
    /// Takes the next snapshot.
    pub(super) fn next(&mut self, snapshot: Snapshot) {
        let before = std::mem::replace(&mut self.now, snapshot);
        let seconds = self.now.uptime - before.uptime;
        if seconds == 0.0 && before.time != 0.0 {
            // The server has shown the same again.
            return;
        }
        // A server that started again counts from 0, and a first look has nothing before it.
        let counts = seconds > 0.0 && before.time != 0.0;
        self.before = counts.then(|| (self.older(before.rows), seconds));
    }

    /// The rows before. Those that have lost their place are part of the rest now, and so of the rest before.
    fn older(&self, rows: Vec<Row>) -> BTreeMap<Vec<String>, Row> {
        let known: BTreeSet<Vec<String>> = self.now.rows.iter().map(key).collect();
        let (mut older, mut lost) = (BTreeMap::new(), Vec::new());
        for row in rows {
            let key = key(&row);
            match known.contains(&key) {
                true => {
                    older.insert(key, row);
                }
                false => lost.push(row),
            }
        }
        let rest = self.now.rows.iter().find(|row| is_rest(row)).map(key);
        if let Some(rest) = rest
            && let Some(rest) = older.get_mut(&rest)
        {
            lost.iter().for_each(|row| merge(rest, row));
        }
        older
    }

    /// A row of the newer snapshot, with what it was before.
    pub(super) fn row<'b>(&'b self, row: &'b Row) -> Change<'b> {
        let before = self.before.as_ref();
        Change {
            now: row,
            before: before.and_then(|(rows, _)| rows.get(&key(row))),
            seconds: before.map(|(_, seconds)| *seconds),
        }
    }
}

fn key(row: &Row) -> Vec<String> {
    let mut key: Vec<String> = KEYS.map(|label| row.label(label).to_owned()).into();
    // A volume may move to another partition; a disk has nothing else.
    if row.label("volume").is_empty() {
        key.push(row.label("partition").to_owned());
    }
    key
}

/// Whether a row stands for all that have none.
pub(super) fn is_rest(row: &Row) -> bool {
    ["volume", "address", "pid"]
        .iter()
        .any(|name| row.label(name) == REST)
}

/// Whether a row stands for others, of which there are none.
pub(super) fn is_empty_rest(row: &Row) -> bool {
    let is_nothing = |number: &Number| match number {
        Number::Count(count) => *count == 0,
        Number::Level(_) => true,
        Number::Times(times) => times.counts.is_empty(),
        Number::By(counts) => counts.values().all(|count| *count == 0),
    };
    is_rest(row) && row.numbers.values().all(is_nothing)
}

/// Adds a row's numbers to another's.
fn merge(to: &mut Row, row: &Row) {
    for (name, more) in &row.numbers {
        match (to.numbers.get_mut(name), more) {
            (Some(Number::Count(count)), Number::Count(more)) => *count = count.wrapping_add(*more),
            (Some(Number::By(counts)), Number::By(more)) => {
                for (value, more) in more {
                    let count = counts.entry(value.clone()).or_default();
                    *count = count.wrapping_add(*more);
                }
            }
            (Some(Number::Times(times)), Number::Times(more)) => {
                let mut whole = times.distribution();
                whole.merge(&more.distribution());
                *times = Times::from(&whole);
            }
            (Some(_), _) => {}
            (None, more) => {
                to.numbers.insert(name.clone(), more.clone());
            }
        }
    }
}

/// A row, and what it was before.
pub(super) struct Change<'b> {
    pub(super) now: &'b Row,
    before: Option<&'b Row>,
    seconds: Option<f64>,
}

impl Change<'_> {
    /// A number in a second; `None` at the first look.
    pub(super) fn per_second(&self, read: impl Fn(&Row) -> u64) -> Option<f64> {
        let seconds = self.seconds?;
        let (now, before) = (read(self.now), self.before.map_or(0, read));
        // A row that began again has counted all of it since.
        #[expect(clippy::cast_precision_loss, reason = "a rate to be shown")]
        let counted = now.checked_sub(before).unwrap_or(now) as f64;
        Some(counted / seconds)
    }

    /// The times that were added to some distributions of the row; `None` at the first look.
    pub(super) fn times(&self, names: &[&str]) -> Option<Distribution> {
        self.seconds?;
        let mut whole = Distribution::default();
        for name in names {
            let now = self.now.times(name);
            let before = self.before.map(|row| row.times(name)).unwrap_or_default();
            whole.merge(&now.since(&before));
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(volume: &str, count: u64, times: &[u64]) -> Row {
        let mut distribution = Distribution::default();
        times.iter().for_each(|time| distribution.record(*time));
        let numbers = [
            ("a", Number::Count(count)),
            ("t", Number::Times(Times::from(&distribution))),
            ("by", Number::By(BTreeMap::from([("x".to_owned(), count)]))),
        ];
        Row {
            labels: BTreeMap::from([("volume".to_owned(), volume.to_owned())]),
            numbers: numbers
                .map(|(name, number)| (name.to_owned(), number))
                .into(),
        }
    }

    fn snapshot(uptime: f64, rows: Vec<Row>) -> Snapshot {
        Snapshot {
            uptime,
            time: 1000.0 + uptime,
            rows,
            ..Snapshot::default()
        }
    }

    fn rate(between: &Between, volume: &str) -> Option<f64> {
        let mut rows = between.now.rows.iter();
        let row = rows.find(|row| row.label("volume") == volume).unwrap();
        let change = between.row(row);
        let by = change.per_second(|row| row.count_by("by", "x"));
        let rate = change.per_second(|row| row.count("a"));
        assert_eq!(by, rate);
        rate
    }

    #[test]
    fn rates_are_those_between_two_snapshots() {
        let mut between = Between::default();
        between.next(snapshot(10.0, vec![row("1", 100, &[1000])]));
        assert_eq!(
            (rate(&between, "1"), between.before.is_some()),
            (None, false)
        );
        between.next(snapshot(
            12.0,
            vec![row("1", 104, &[1000, 9000, 9000]), row("2", 6, &[])],
        ));
        assert_eq!(
            (rate(&between, "1"), rate(&between, "2")),
            (Some(2.0), Some(3.0))
        );
        let times = between.row(&between.now.rows[0]).times(&["t"]).unwrap();
        assert_eq!((times.count(), times.mean()), (2, 9000));
        // The server's text of the same moment says nothing new.
        between.next(between.now.clone());
        assert_eq!(rate(&between, "1"), Some(2.0));
    }

    #[test]
    fn a_server_that_starts_again_has_no_rates_at_first() {
        let mut between = Between::default();
        between.next(snapshot(1000.0, vec![row("1", 100, &[])]));
        between.next(snapshot(3.0, vec![row("1", 7, &[])]));
        assert_eq!(rate(&between, "1"), None);
        between.next(snapshot(5.0, vec![row("1", 9, &[])]));
        assert_eq!(rate(&between, "1"), Some(1.0));
        // Files are counted from 0 when somebody looks again.
        between.next(snapshot(6.0, vec![row("1", 4, &[])]));
        assert_eq!(rate(&between, "1"), Some(4.0));
    }

    #[test]
    fn a_row_that_loses_its_place_adds_no_load_to_the_rest() {
        let mut between = Between::default();
        let before = vec![row("1", 1_000_000, &[5; 100]), row(REST, 50, &[])];
        between.next(snapshot(10.0, before));
        let now = vec![row("2", 10, &[]), row(REST, 1_000_060, &[5; 103])];
        between.next(snapshot(11.0, now));
        assert_eq!(
            (rate(&between, REST), rate(&between, "2")),
            (Some(10.0), Some(10.0))
        );
        let times = between.row(&between.now.rows[1]).times(&["t"]).unwrap();
        assert_eq!(times.count(), 3);
        assert!(!is_empty_rest(&row(REST, 1, &[])));
        assert!(is_empty_rest(&row(REST, 0, &[])) && !is_empty_rest(&row("1", 0, &[])));
    }
}
