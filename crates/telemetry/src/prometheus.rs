//! The text format of Prometheus, version 0.0.4, which OpenMetrics' readers take too.

use std::fmt::Write;

use crate::collect::{Family, Series, Value};
use crate::desc::{Kind, Unit};
use crate::histogram::Distribution;
use crate::registry::Registry;

/// The percentiles of a summary, as the format calls them and in percent.
const QUANTILES: [(&str, f64); 3] = [("0.5", 50.0), ("0.9", 90.0), ("0.99", 99.0)];

/// All metrics of a registry as text for Prometheus.
#[must_use]
pub fn render_prometheus(registry: &Registry) -> String {
    let mut text = String::new();
    for family in registry.collect() {
        render(&mut text, &family);
    }
    text
}

fn render(text: &mut String, family: &Family) {
    let desc = &family.desc;
    let name = desc.name();
    let kind = match desc.kind() {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
    };
    let help = desc.help().replace('\\', "\\\\").replace('\n', "\\n");
    text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    for series in &family.series {
        let number = |count| number(desc.unit(), count);
        match &series.value {
            Value::Count(count) => line(text, name, "", series, None, &number(*count)),
            Value::Level(level) => line(text, name, "", series, None, &level.to_string()),
            Value::Distribution(distribution) => {
                if desc.kind() == Kind::Histogram {
                    buckets(text, name, series, distribution, desc.unit());
                } else {
                    for (quantile, percent) in QUANTILES {
                        let value = number(distribution.percentile(percent));
                        line(text, name, "", series, Some(("quantile", quantile)), &value);
                    }
                }
                line(
                    text,
                    name,
                    "_sum",
                    series,
                    None,
                    &number(distribution.sum()),
                );
                let count = distribution.count().to_string();
                line(text, name, "_count", series, None, &count);
            }
        }
    }
}

/// The counts up to several bounds, each four times the one before. A bound is one less than a power of
/// two, as the values up to it are counted exactly.
fn buckets(
    text: &mut String,
    name: &str,
    series: &Series,
    distribution: &Distribution,
    unit: Unit,
) {
    // From 16 µs to 17 s; bytes from 1 KiB to 16 GiB.
    let first = if unit == Unit::Seconds { 14 } else { 10 };
    for power in (first..=34).step_by(2) {
        let bound = number(unit, (1 << power) - 1);
        let count = distribution.below(power).to_string();
        line(text, name, "_bucket", series, Some(("le", &bound)), &count);
    }
    let count = distribution.count().to_string();
    line(text, name, "_bucket", series, Some(("le", "+Inf")), &count);
}

/// A number in its unit, exactly.
fn number(unit: Unit, count: u64) -> String {
    if unit != Unit::Seconds {
        return count.to_string();
    }
    let (seconds, nanoseconds) = (count / 1_000_000_000, count % 1_000_000_000);
    let text = format!("{seconds}.{nanoseconds:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn line(
    text: &mut String,
    name: &str,
    end: &str,
    series: &Series,
    more: Option<(&str, &str)>,
    value: &str,
) {
    text.push_str(name);
    text.push_str(end);
    let labels = series.labels.iter();
    let labels = labels
        .map(|(name, value)| (*name, value.as_str()))
        .chain(more);
    let mut mark = '{';
    for (name, value) in labels {
        // Writing to a string does not fail.
        let _written = write!(text, "{mark}{name}=\"{}\"", escaped(value));
        mark = ',';
    }
    if mark == ',' {
        text.push('}');
    }
    let _written = writeln!(text, " {value}");
}

/// The value of a label. What else could do harm is escaped already.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Desc;

    #[test]
    fn numbers_are_exact() {
        for (count, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (16_383, "0.000016383"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(number(Unit::Seconds, count), text);
        }
        assert_eq!(number(Unit::Bytes, u64::MAX), "18446744073709551615");
    }

    #[test]
    fn counters_and_gauges() {
        const CALLS: Desc = Desc::counter("a_calls_total", Unit::None, "Calls\\\nserved.");
        const TIME: Desc = Desc::counter("a_time_seconds_total", Unit::Seconds, "Time.");
        const FREE: Desc = Desc::gauge("a_free_bytes", Unit::Bytes, "Free.");
        let registry = Registry::default();
        registry
            .counter(&CALLS, &[("op", "x"), ("by", "a\"b\\c\nd\u{1b}")])
            .add(3);
        registry.counter(&TIME, &[]).add(250_000_000);
        registry.gauge(&FREE, &[]).set(-5);
        assert_eq!(
            render_prometheus(&registry),
            "# HELP a_calls_total Calls\\\\\\nserved.\n\
             # TYPE a_calls_total counter\n\
             a_calls_total{op=\"x\",by=\"a\\\"b\\\\\\\\c\\\\nd\\\\u{1b}\"} 3\n\
             # HELP a_free_bytes Free.\n\
             # TYPE a_free_bytes gauge\n\
             a_free_bytes -5\n\
             # HELP a_time_seconds_total Time.\n\
             # TYPE a_time_seconds_total counter\n\
             a_time_seconds_total 0.25\n"
        );
    }

    #[test]
    fn a_histogram_has_growing_counts_and_a_summary_percentiles() {
        const TOOK: Desc = Desc::histogram("a_took_seconds", Unit::Seconds, "Took.");
        const SIZE: Desc = Desc::summary("a_size_bytes", Unit::Bytes, "Size.");
        let registry = Registry::default();
        let took = registry.histogram(&TOOK, &[("op", "x")]);
        for micros in [10, 100, 100_000, 60_000_000] {
            took.record(micros * 1000);
        }
        registry.histogram(&SIZE, &[]).record(7);
        let text = render_prometheus(&registry);
        for line in [
            "a_took_seconds_bucket{op=\"x\",le=\"0.000016383\"} 1\n",
            "a_took_seconds_bucket{op=\"x\",le=\"0.000262143\"} 2\n",
            "a_took_seconds_bucket{op=\"x\",le=\"17.179869183\"} 3\n",
            "a_took_seconds_bucket{op=\"x\",le=\"+Inf\"} 4\n",
            "a_took_seconds_sum{op=\"x\"} 60.10011\n",
            "a_took_seconds_count{op=\"x\"} 4\n",
            "# TYPE a_size_bytes summary\n",
            "a_size_bytes{quantile=\"0.99\"} 7\n",
            "a_size_bytes_count 1\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
