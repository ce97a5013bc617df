//! What a metric is called, what it measures, and in which unit.

/// What a metric's numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution, shown as counts up to several bounds.
    Histogram,
    /// A distribution, shown as some of its percentiles: fewer lines than a histogram.
    Summary,
}

/// The unit of a metric's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    None,
    /// Seconds. Counters and distributions count nanoseconds, and are shown in seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// The description of a metric: a constant of the program, whose name is checked when it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desc {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
}

impl Desc {
    /// A counter, whose name ends in `_total`, after its unit.
    ///
    /// # Panics
    /// When the name is not one that Prometheus takes, or does not end as it has to.
    #[must_use]
    pub const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Self {
        let Some(stem) = without(name, "_total") else {
            panic!("the name of a counter ends in _total");
        };
        Self::new(name, stem, Kind::Counter, unit, help)
    }

    /// A gauge, whose name ends in its unit.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, name.as_bytes(), Kind::Gauge, unit, help)
    }

    /// A histogram, whose name ends in its unit.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub const fn histogram(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, name.as_bytes(), Kind::Histogram, unit, help)
    }

    /// A summary, whose name ends in its unit.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    #[must_use]
    pub const fn summary(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self::new(name, name.as_bytes(), Kind::Summary, unit, help)
    }

    const fn new(
        name: &'static str,
        stem: &[u8],
        kind: Kind,
        unit: Unit,
        help: &'static str,
    ) -> Self {
        assert!(is_name(name), "a name is of a-z, 0-9 and _");
        assert!(!help.is_empty(), "a metric has a help text");
        let ends = match unit {
            Unit::None => true,
            Unit::Seconds => ends_with(stem, b"_seconds"),
            Unit::Bytes => ends_with(stem, b"_bytes"),
        };
        assert!(ends, "a name ends in its unit");
        Self {
            name,
            kind,
            unit,
            help,
        }
    }

    /// Its name, with the unit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What its numbers mean.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Their unit.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// What it tells, in a sentence.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        self.help
    }
}

/// Whether a metric or label may have this name: lower case, as those of this project are.
pub(crate) const fn is_name(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while at < name.len() {
        if !matches!(name[at], b'a'..=b'z' | b'_' | b'0'..=b'9') {
            return false;
        }
        at += 1;
    }
    !name.is_empty() && !name[0].is_ascii_digit()
}

const fn ends_with(text: &[u8], end: &[u8]) -> bool {
    if text.len() < end.len() {
        return false;
    }
    let (_, last) = text.split_at(text.len() - end.len());
    let mut at = 0;
    while at < end.len() {
        if last[at] != end[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn without<'a>(text: &'a str, end: &str) -> Option<&'a [u8]> {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    if !ends_with(text, end) {
        return None;
    }
    Some(text.split_at(text.len() - end.len()).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_prometheus_takes() {
        for (name, fits) in [
            ("afar_calls", true),
            ("a9", true),
            ("9a", false),
            ("", false),
            ("afar-calls", false),
            ("Calls", false),
            ("ü", false),
        ] {
            assert_eq!(is_name(name), fits, "{name}");
        }
    }

    #[test]
    fn a_name_ends_in_its_unit() {
        let made =
            |name, unit| std::panic::catch_unwind(|| Desc::counter(name, unit, "Help.")).is_ok();
        assert!(made("a_total", Unit::None));
        assert!(made("a_bytes_total", Unit::Bytes));
        assert!(!made("a_total", Unit::Bytes));
        assert!(!made("a_bytes", Unit::Bytes));
        assert!(!made("a_seconds_total", Unit::Bytes));
    }
}
