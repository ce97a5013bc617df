//! What viewers of a server are shown, such as `afar top`: rows by volume, client or file, and the calls
//! that are being served, as JSON.
//!
//! Numbers are those since the server's start (of files, since somebody began to look), and rates come of two
//! snapshots. All there is comes from the registry, which the metrics show too.

use std::collections::BTreeMap;

use afar_telemetry::{Distribution, Parts};
use serde::{Deserialize, Serialize};

/// The name of the socket in a server's run directory at which it answers viewers, and shows its metrics.
pub const SOCKET: &str = "metrics.sock";

/// A family of metrics that is a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// How their names begin.
    pub(crate) prefix: &'static str,
    /// The labels that tell its rows apart.
    pub(crate) labels: &'static [&'static str],
}

/// Load by volume.
pub(crate) const VOLUMES: Table = Table {
    prefix: "afar_volume_",
    labels: &["volume", "name", "partition"],
};
/// Load by client and user.
pub(crate) const CLIENTS: Table = Table {
    prefix: "afar_client_",
    labels: &["address", "user"],
};
/// Load by file.
const FILES: Table = Table {
    prefix: "afar_file_",
    labels: &["volume", "vnode", "uniquifier"],
};
/// The disks of partitions.
const DISKS: Table = Table {
    prefix: "afar_partition_",
    labels: &["partition"],
};
/// Requests to a mount by process.
pub(crate) const PROCESSES: Table = Table {
    prefix: "afar_process_",
    labels: &["pid", "name", "user"],
};

/// A table that can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Load by volume.
    Volumes,
    /// Load by client and user.
    Clients,
    /// Load by file, which is counted only while somebody looks.
    Files,
    /// The disks of partitions.
    Disks,
    /// The calls that are being served.
    Calls,
    /// Requests to mounts by process, which are counted only while somebody looks. Servers have no such table.
    Mounts,
}

impl View {
    /// Those of a server.
    pub const SERVER: [Self; 5] = [
        Self::Volumes,
        Self::Clients,
        Self::Files,
        Self::Calls,
        Self::Disks,
    ];
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Volumes,
        Self::Clients,
        Self::Files,
        Self::Calls,
        Self::Disks,
        Self::Mounts,
    ];

    /// Its name, in the request and in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Clients => "clients",
            Self::Files => "files",
            Self::Disks => "disks",
            Self::Calls => "calls",
            Self::Mounts => "mounts",
        }
    }

    /// The path of its snapshot at the socket.
    #[must_use]
    pub fn path(self) -> String {
        format!("/top/{}", self.name())
    }

    /// Its metrics; none if it is not a table of metrics.
    pub(crate) const fn table(self) -> Option<Table> {
        match self {
            Self::Volumes => Some(VOLUMES),
            Self::Clients => Some(CLIENTS),
            Self::Files => Some(FILES),
            Self::Disks => Some(DISKS),
            Self::Calls => None,
            Self::Mounts => Some(PROCESSES),
        }
    }
}

/// A table at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The server's cell.
    pub cell: String,
    /// The server's version.
    pub version: String,
    /// When it was made, in seconds since 1970.
    pub time: f64,
    /// The same in seconds since the server's start, by a clock that nobody sets.
    pub uptime: f64,
    /// The rows.
    pub rows: Vec<Row>,
    /// How many more rows there are, for which there was no room.
    pub beyond: u64,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is about. Values are harmless to show.
    pub labels: BTreeMap<String, String>,
    /// Its numbers, by the names of the metrics they come from.
    pub numbers: BTreeMap<String, Number>,
}

/// A number of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// Of a counter: of seconds, it counts nanoseconds.
    Count(u64),
    /// Something that rises and falls.
    Level(f64),
    /// A distribution of times.
    Times(Times),
    /// A counter with one more label: by that.
    By(BTreeMap<String, u64>),
}

/// A distribution of times in nanoseconds: what [`Parts`] has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The bucket that `counts` begins with.
    pub first: usize,
    /// Values in each bucket from there on.
    pub counts: Vec<u64>,
    /// The sum of the values.
    pub sum: u64,
    /// The least of them.
    pub min: u64,
    /// The greatest of them.
    pub max: u64,
}

impl From<&Distribution> for Times {
    fn from(distribution: &Distribution) -> Self {
        let Parts {
            first,
            counts,
            sum,
            min,
            max,
        } = distribution.parts();
        Self {
            first,
            counts: counts.to_vec(),
            sum,
            min,
            max,
        }
    }
}

impl Times {
    /// The distribution; an empty one if these are the numbers of none.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let parts = Parts {
            first: self.first,
            counts: &self.counts,
            sum: self.sum,
            min: self.min,
            max: self.max,
        };
        Distribution::from_parts(&parts).unwrap_or_default()
    }
}

impl Row {
    /// A label; empty if it has none of this name.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// A counter; 0 if it has none of this name.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        match self.numbers.get(name) {
            Some(Number::Count(count)) => *count,
            Some(Number::By(counts)) => counts.values().fold(0, |sum, n| sum.wrapping_add(*n)),
            _ => 0,
        }
    }

    /// A counter with one more label, for this value of it; 0 if there is none.
    #[must_use]
    pub fn count_by(&self, name: &str, value: &str) -> u64 {
        match self.numbers.get(name) {
            Some(Number::By(counts)) => counts.get(value).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Something that rises and falls, if it is known.
    #[must_use]
    pub fn level(&self, name: &str) -> Option<f64> {
        match self.numbers.get(name) {
            Some(Number::Level(level)) => Some(*level),
            // JSON does not tell 1 from 1.0.
            #[expect(clippy::cast_precision_loss, reason = "a level to be shown")]
            Some(Number::Count(count)) => Some(*count as f64),
            _ => None,
        }
    }

    /// A distribution of times; an empty one if it has none of this name.
    #[must_use]
    pub fn times(&self, name: &str) -> Distribution {
        match self.numbers.get(name) {
            Some(Number::Times(times)) => times.distribution(),
            _ => Distribution::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_json() {
        let mut times = Distribution::default();
        for value in [900, 1000, 5_000_000] {
            times.record(value);
        }
        let mut row = Row::default();
        row.labels.insert("name".into(), "root.cell".into());
        let by = BTreeMap::from([("fetch".to_owned(), 3), ("store".to_owned(), 4)]);
        for (name, number) in [
            ("count", Number::Count(u64::MAX)),
            ("level", Number::Level(0.25)),
            ("whole", Number::Level(2.0)),
            ("times", Number::Times(Times::from(&times))),
            ("none", Number::Times(Times::from(&Distribution::default()))),
            ("by", Number::By(by)),
        ] {
            row.numbers.insert(name.to_owned(), number);
        }
        let again: Row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
        assert_eq!(again.label("name"), "root.cell");
        assert_eq!((again.count("count"), again.count("by")), (u64::MAX, 7));
        assert_eq!(again.count_by("by", "store"), 4);
        assert_eq!(
            (again.level("level"), again.level("whole")),
            (Some(0.25), Some(2.0))
        );
        assert_eq!(again.times("times").parts(), times.parts());
        assert_eq!(again.times("none").count(), 0);
        assert_eq!((again.count("x"), again.level("x")), (0, None));
        assert_eq!((again.label("x"), again.count_by("by", "x")), ("", 0));
    }

    #[test]
    fn numbers_that_cannot_be_are_no_distribution() {
        for text in [
            r#"{"first":18446744073709551615,"counts":[1],"sum":1,"min":1,"max":1}"#,
            r#"{"first":0,"counts":[18446744073709551615,1],"sum":1,"min":1,"max":1}"#,
        ] {
            let times: Times = serde_json::from_str(text).unwrap();
            assert_eq!(times.distribution().count(), 0);
        }
    }
}
