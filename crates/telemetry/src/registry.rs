//! Metrics by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::collect::{Activity, Cells, Collect, Family, Labels, Value};
use crate::counter::{Counter, Gauge};
use crate::desc::{Desc, Kind, is_name};
use crate::histogram::Histogram;
use crate::table::{Row, Table, TableConfig};

/// Series of a name, at most. Further ones are one.
const SERIES_MAX: usize = 1000;
/// The value of the labels of that one.
const REST: &str = "(other)";

/// The metrics of a server. Its clones are the same registry.
///
/// Registering takes a lock and is for the start of a program; what it gives is updated without.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    named: BTreeMap<&'static str, Named>,
    collectors: Vec<Arc<dyn Collect>>,
}

/// All series of a name.
struct Named {
    desc: Desc,
    series: BTreeMap<Labels, Metric>,
}

#[derive(Clone)]
enum Metric {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Metric {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Counter(Counter::default()),
            Kind::Gauge => Self::Gauge(Gauge::default()),
            Kind::Histogram | Kind::Summary => Self::Histogram(Histogram::default()),
        }
    }

    fn read(&self) -> Value {
        match self {
            Self::Counter(counter) => Value::Count(counter.get()),
            #[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
            Self::Gauge(gauge) => Value::Level(gauge.get() as f64),
            Self::Histogram(histogram) => Value::Distribution(histogram.read()),
        }
    }
}

impl Registry {
    /// A counter with these labels: a new one, or the one that is there already.
    ///
    /// # Panics
    /// When the description is not that of a counter, or another metric has the name.
    #[must_use]
    pub fn counter(&self, desc: &Desc, labels: &[(&'static str, &str)]) -> Counter {
        match self.metric(desc, labels) {
            Metric::Counter(counter) => counter,
            _ => panic!("{} is not a counter", desc.name()),
        }
    }

    /// A gauge with these labels: a new one, or the one that is there already.
    ///
    /// # Panics
    /// When the description is not that of a gauge, or another metric has the name.
    #[must_use]
    pub fn gauge(&self, desc: &Desc, labels: &[(&'static str, &str)]) -> Gauge {
        match self.metric(desc, labels) {
            Metric::Gauge(gauge) => gauge,
            _ => panic!("{} is not a gauge", desc.name()),
        }
    }

    /// A histogram with these labels, shown as one or as a summary: a new one, or the one that is
    /// there already.
    ///
    /// # Panics
    /// When the description is not that of a distribution, or another metric has the name.
    #[must_use]
    pub fn histogram(&self, desc: &Desc, labels: &[(&'static str, &str)]) -> Histogram {
        match self.metric(desc, labels) {
            Metric::Histogram(histogram) => histogram,
            _ => panic!("{} is not a distribution", desc.name()),
        }
    }

    fn metric(&self, desc: &Desc, labels: &[(&'static str, &str)]) -> Metric {
        assert!(
            labels.iter().all(|(name, _)| is_name(name)),
            "a label's name is of a-z, 0-9 and _"
        );
        let mut inner = self.0.lock();
        let named = inner.named.entry(desc.name()).or_insert_with(|| Named {
            desc: *desc,
            series: BTreeMap::new(),
        });
        assert!(named.desc == *desc, "{} has two meanings", desc.name());
        let full = named.series.len() >= SERIES_MAX;
        let with = |value: fn(&str) -> String| -> Labels {
            let labels = labels.iter();
            labels.map(|(name, text)| (*name, value(text))).collect()
        };
        let mut labels = with(str::to_owned);
        if full && !named.series.contains_key(&labels) {
            labels = with(|_| REST.to_owned());
        }
        let new = || Metric::new(desc.kind());
        named.series.entry(labels).or_insert_with(new).clone()
    }

    /// A table whose keys have these labels: their values in the order of the names in the
    /// configuration.
    #[must_use]
    pub fn table<K, R>(
        &self,
        config: TableConfig,
        labels: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        R: Row + Sync,
    {
        let table = Table::new(config, Box::new(labels));
        self.collector(table.clone());
        table
    }

    /// Has something else told as well.
    pub fn collector(&self, collector: impl Collect + 'static) {
        self.0.lock().collectors.push(Arc::new(collector));
    }

    /// What there can be, by name, whether or not anything was counted.
    #[must_use]
    pub fn describe(&self) -> Vec<Desc> {
        let inner = self.0.lock();
        let named = inner.named.values().map(|named| named.desc);
        let others = inner.collectors.iter();
        let others = others.flat_map(|collector| collector.describe());
        let all = named.chain(others).map(|desc| (desc.name(), desc));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// All metrics as they are now, by name.
    #[must_use]
    pub fn collect(&self) -> Vec<Family> {
        let mut cells = Cells::default();
        // Collectors may take their time, and register something.
        let collectors = {
            let inner = self.0.lock();
            for named in inner.named.values() {
                for (labels, metric) in &named.series {
                    let labels: Vec<(&'static str, &str)> =
                        labels.iter().map(|(n, v)| (*n, v.as_str())).collect();
                    cells.add(&named.desc, &labels, metric.read());
                }
            }
            inner.collectors.clone()
        };
        for collector in collectors {
            collector.collect(&mut cells);
        }
        cells.families()
    }

    /// What goes on at the moment, the oldest first.
    #[must_use]
    pub fn activities(&self) -> Activities {
        let collectors = self.0.lock().collectors.clone();
        let mut found = Activities::default();
        for collector in collectors {
            found.beyond += collector.activities(&mut found.list);
        }
        found.list.sort_by_key(|activity| activity.began);
        found
    }

    /// Has the table with this metric count, if it does so only while somebody looks. It forgets everything
    /// when the last one looks away.
    #[must_use]
    pub fn watch(&self, metric: &str) -> Watches {
        let collectors = self.0.lock().collectors.clone();
        let mut collectors = collectors.iter();
        let has = |collector: &&Arc<dyn Collect>| {
            let mut descs = collector.describe().into_iter();
            descs.any(|desc| desc.name() == metric)
        };
        let watched = collectors.find(has).and_then(|found| found.watch_all());
        Watches(watched)
    }
}

/// What goes on at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activities {
    /// As much of it as there was room for.
    pub list: Vec<Activity>,
    /// How much more there is.
    pub beyond: usize,
}

/// Somebody looks at a table, until this is dropped.
pub struct Watches(Option<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watches").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.describe().iter().map(Desc::name).collect();
        f.debug_tuple("Registry").field(&names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Unit;

    const CALLS: Desc = Desc::counter("calls_total", Unit::None, "Calls.");
    const OPEN: Desc = Desc::gauge("open", Unit::None, "Open things.");

    #[test]
    fn the_same_labels_are_the_same_metric() {
        let registry = Registry::default();
        registry.counter(&CALLS, &[("a", "x")]).inc();
        registry.counter(&CALLS, &[("a", "x")]).inc();
        registry.counter(&CALLS, &[("a", "y")]).inc();
        let families = registry.collect();
        let counts: Vec<_> = families[0].series.iter().map(|s| s.value.clone()).collect();
        assert_eq!(counts, [Value::Count(2), Value::Count(1)]);
    }

    #[test]
    fn registries_share_nothing() {
        let (one, other) = (Registry::default(), Registry::default());
        one.counter(&CALLS, &[]).inc();
        assert_eq!(other.counter(&CALLS, &[]).get(), 0);
    }

    #[test]
    fn series_are_bounded_in_number_and_the_sum_is_right() {
        let registry = Registry::default();
        for n in 0..3000 {
            registry.counter(&CALLS, &[("a", &n.to_string())]).inc();
        }
        let families = registry.collect();
        assert_eq!(families[0].series.len(), SERIES_MAX + 1);
        let sum = families[0].series.iter().map(|series| match series.value {
            Value::Count(count) => count,
            _ => 0,
        });
        assert_eq!(sum.sum::<u64>(), 3000);
    }

    #[test]
    #[should_panic(expected = "two meanings")]
    fn a_name_has_one_meaning() {
        let registry = Registry::default();
        let _first = registry.counter(&CALLS, &[]);
        let _second = registry.counter(&Desc::counter("calls_total", Unit::None, "Other."), &[]);
    }

    #[test]
    fn a_table_counts_while_its_metric_is_watched() {
        #[derive(Clone, Default)]
        struct Count(u64);
        impl Row for Count {
            const DESCS: &'static [Desc] = &[CALLS];
            fn merge(&mut self, other: &Self) {
                self.0 += other.0;
            }
            fn tell(&self, cells: &mut Cells) {
                cells.count(&CALLS, &[], self.0);
            }
        }
        let registry = Registry::default();
        let config = TableConfig {
            labels: &["a"],
            rows: 8,
            watched_only: true,
        };
        let table: Table<u8, Count> = registry.table(config, |key: &u8| vec![key.to_string()]);
        let other = registry.watch("open");
        assert!(!table.is_counting());
        let (one, two) = (registry.watch("calls_total"), registry.watch("calls_total"));
        table.update(&1, 1, |row| row.0 += 1);
        drop((one, other));
        assert_eq!(table.snapshot().rows.len(), 1);
        drop(two);
        assert!(!table.is_counting() && table.snapshot().rows.is_empty());
    }

    #[test]
    fn what_goes_on_is_told_the_oldest_first() {
        struct Going(std::time::Instant, &'static str);
        impl Collect for Going {
            fn describe(&self) -> Vec<Desc> {
                Vec::new()
            }
            fn collect(&self, _: &mut Cells) {}
            fn activities(&self, list: &mut Vec<Activity>) -> usize {
                list.push(Activity::new(&[("what", self.1)], self.0, None));
                2
            }
        }
        let registry = Registry::default();
        let now = std::time::Instant::now();
        registry.collector(Going(now + std::time::Duration::from_secs(1), "new\n"));
        registry.collector(Going(now, "old"));
        let found = registry.activities();
        let names: Vec<_> = found.list.iter().map(|a| a.labels[0].1.as_str()).collect();
        assert_eq!((names, found.beyond), (vec!["old", "new\\n"], 4));
    }

    #[test]
    fn what_there_can_be_is_told_before_anything_is_counted() {
        struct Nothing;
        impl Collect for Nothing {
            fn describe(&self) -> Vec<Desc> {
                vec![OPEN]
            }
            fn collect(&self, _: &mut Cells) {}
        }
        let registry = Registry::default();
        let _calls = registry.counter(&CALLS, &[]);
        registry.collector(Nothing);
        assert_eq!(registry.describe(), [CALLS, OPEN]);
    }
}
