//! Samples of what a server counts, and what came between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

use afar_telemetry::{Activities, Distribution, Registry};

use crate::rows::{Counted, Rows};
use crate::view::{CLIENTS, Table, VOLUMES};

/// Load by operation.
pub(super) const OPERATIONS: Table = Table {
    prefix: "afar_rpc_",
    labels: &["interface", "operation"],
};
const TABLES: [Table; 3] = [OPERATIONS, VOLUMES, CLIENTS];

/// What a server had counted at a moment.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) taken: Instant,
    tables: BTreeMap<&'static str, Rows>,
    /// What is one number.
    pub(super) single: Counted,
    pub(super) active: Activities,
}

impl Sample {
    /// Reads the registry. It may block for a moment.
    pub(super) fn take(registry: &Registry) -> Self {
        let mut sample = Self {
            taken: Instant::now(),
            tables: BTreeMap::new(),
            single: Counted::default(),
            active: registry.activities(),
        };
        for family in registry.collect() {
            if let Some(table) = TABLES.iter().find(|table| table.has(&family)) {
                let rows = sample.tables.entry(table.prefix).or_default();
                table.add(rows, family);
                continue;
            }
            let name = family.desc.name();
            let values = family.series.into_iter().map(|series| series.value);
            let single = &mut sample.single.numbers;
            single.extend(values.map(|value| (name, value)));
        }
        sample
    }

    pub(super) fn rows(&self, table: &Table) -> impl Iterator<Item = (&Vec<String>, &Counted)> {
        self.tables.get(table.prefix).into_iter().flatten()
    }
}

/// A row of the newer of two samples beside the same of the older, if it had one.
pub(super) struct Change<'s> {
    pub(super) now: &'s Counted,
    pub(super) then: Option<&'s Counted>,
    pub(super) seconds: f64,
}

impl Change<'_> {
    /// How much a counter has grown in a second.
    pub(super) fn rate(&self, name: &str) -> f64 {
        self.per_second(grown(
            self.now.count(name),
            self.then.map_or(0, |then| then.count(name)),
        ))
    }

    pub(super) fn per_second(&self, count: u64) -> f64 {
        if self.seconds <= 0.0 {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate to be shown")]
        let count = count as f64;
        short(count / self.seconds)
    }

    /// The times that were counted in between.
    pub(super) fn times(&self, name: &str) -> Distribution {
        let Some(now) = self.now.times(name) else {
            return Distribution::default();
        };
        match self.then.and_then(|then| then.times(name)) {
            Some(then) => now.since(then),
            None => now.clone(),
        }
    }
}

impl<'s> Change<'s> {
    /// By operation, how many calls came in between, and all.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&'s str, u64, u64)> {
        let then = self.then;
        self.now
            .parts
            .values()
            .flatten()
            .map(move |(operation, count)| {
                let mut then = then
                    .into_iter()
                    .flat_map(|then| then.parts.values().flatten());
                let then = then.find(|(name, _)| name == operation);
                let new = grown(*count, then.map_or(0, |(_, count)| *count));
                (operation.as_str(), new, *count)
            })
    }
}

/// How much was counted since. A row that lost its place and has one again began at 0.
fn grown(now: u64, then: u64) -> u64 {
    if now < then { now } else { now - then }
}

/// To three decimals.
pub(super) fn short(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Two samples, of which the older may be missing.
pub(super) struct Pair<'a> {
    now: &'a Sample,
    then: Option<&'a Sample>,
    pub(super) seconds: f64,
}

impl<'a> Pair<'a> {
    pub(super) fn new(now: &'a Sample, then: Option<&'a Sample>) -> Self {
        let span = then.map(|then| now.taken.saturating_duration_since(then.taken));
        Self {
            now,
            then,
            seconds: span.unwrap_or_default().as_secs_f64(),
        }
    }

    pub(super) fn changes(
        &self,
        table: &'static Table,
    ) -> impl Iterator<Item = (&'a [String], Change<'a>)> {
        let then = self.then.and_then(|then| then.tables.get(table.prefix));
        let seconds = self.seconds;
        self.now.rows(table).map(move |(key, now)| {
            let then = then.and_then(|rows| rows.get(key));
            (key.as_slice(), Change { now, then, seconds })
        })
    }
}
