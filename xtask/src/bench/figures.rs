//! Rows of named figures, kept as JSON lines: what `afar store bench` reports, and what is measured
//! of whole cells.

pub(super) mod tables;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::lines;
use super::machine::Session;
use super::stats::{Stats, Verdict};

/// Rows in the order they are shown in, by the start of their names.
const ORDER: [&str; 20] = [
    "attach",
    "remove",
    "clone",
    "compress",
    "create",
    "rename",
    "link",
    "unlink",
    "fetch",
    "store",
    "clients",
    "stock",
    "release",
    "callbacks",
    "locations",
    "read",
    "write",
    "packed",
    "limited",
    "aes",
];

/// Figures that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) row: String,
    /// The session it belongs to; not in what the program reports.
    #[serde(default)]
    pub(super) session: String,
    pub(super) title: String,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    pub(super) figures: Vec<Figure>,
}

/// A figure, measured once or several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) values: Vec<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goal: Option<Goal>,
}

/// What is wanted of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(super) fn shown(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
        }
    }

    fn judge(self, stats: &Stats) -> Verdict {
        match self {
            Self::AtLeast(least) => stats.judge(least, f64::INFINITY),
            Self::AtMost(most) => stats.judge(f64::NEG_INFINITY, most),
        }
    }
}

impl Figure {
    pub(super) fn stats(&self) -> Option<Stats> {
        Stats::of(self.values.iter().copied())
    }

    /// Whether its goal is met, in a word; nothing if there is none.
    pub(super) fn verdict(&self) -> &'static str {
        let Some(goal) = self.goal else {
            return "";
        };
        let verdict = self
            .stats()
            .map_or(Verdict::Miss, |stats| goal.judge(&stats));
        verdict.word()
    }
}

impl Row {
    pub(super) fn is_of(&self, kind: &str) -> bool {
        let rest = self.row.strip_prefix(kind);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// The number at the end of the name, if there is one.
    pub(super) fn number(&self) -> Option<u64> {
        self.row.rsplit('-').next()?.parse().ok()
    }

    fn place(&self) -> (usize, u64, &str) {
        let kind = ORDER.iter().position(|kind| self.is_of(kind));
        let kind = kind.unwrap_or(ORDER.len());
        (kind, self.number().unwrap_or(0), &self.row)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Session(Session),
    Row(Row),
}

/// All results of a subject there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) sessions: Vec<Session>,
    pub(super) rows: Vec<Row>,
}

impl Figures {
    /// Reads them; none if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read or is of another form.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let mut results = Self::default();
        for line in lines::read(path)? {
            match line {
                Line::Session(session) => results.sessions.push(session),
                Line::Row(row) => results.rows.push(row),
            }
        }
        Ok(results)
    }

    /// Writes them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(&self, path: &Path) -> Result<()> {
        let sessions = self.sessions.iter().cloned().map(Line::Session);
        let rows = self.rows.iter().cloned().map(Line::Row);
        lines::write(path, sessions.chain(rows))
    }

    /// Puts a row in the place of the one of its name, and forgets sessions of which nothing is
    /// left.
    pub(super) fn replace(&mut self, session: &Session, mut row: Row) {
        row.session.clone_from(&session.id);
        self.rows.retain(|old| old.row != row.row);
        self.rows.push(row);
        self.rows
            .sort_by(|one, other| one.place().cmp(&other.place()));
        if !self.sessions.iter().any(|old| old.id == session.id) {
            self.sessions.push(session.clone());
        }
        let used: BTreeSet<&str> = self.rows.iter().map(|row| row.session.as_str()).collect();
        self.sessions
            .retain(|session| used.contains(session.id.as_str()));
    }

    /// The verdicts as lines for a terminal.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            if let Some(why) = &row.skipped {
                lines.push(format!("{:18} skipped: {why}", row.row));
            }
            for figure in row.figures.iter().filter(|figure| figure.goal.is_some()) {
                let (Some(goal), Some(stats)) = (figure.goal, figure.stats()) else {
                    continue;
                };
                lines.push(format!(
                    "{:18} {:48} {:>10.3} {:5} {}: {}",
                    row.row,
                    figure.name,
                    stats.median,
                    figure.unit,
                    goal.shown(),
                    figure.verdict()
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;
    use crate::bench::sample::tests::session;

    pub(in crate::bench) fn row(name: &str, value: f64) -> Row {
        let line = format!(
            r#"{{"row":"{name}","title":"some {name}","figures":[{{"name":"time","unit":"ms",
            "median":1,"values":[{value}],"goal":{{"at_most":2.0}},"met":true}}]}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn rows_are_kept_in_order_and_replaced() {
        let mut results = Figures::default();
        for name in ["create", "attach-1000", "attach-10", "clone"] {
            results.replace(&session("s1"), row(name, 1.0));
        }
        let names: Vec<&str> = results.rows.iter().map(|row| row.row.as_str()).collect();
        assert_eq!(names, ["attach-10", "attach-1000", "clone", "create"]);
        results.replace(&session("s2"), row("clone", 3.0));
        assert_eq!(results.sessions.len(), 2);
        assert!(
            results.summary()[2].ends_with("≤ 2: miss"),
            "{:?}",
            results.summary()
        );
        let path = std::env::temp_dir().join(format!("afar-store-{}", std::process::id()));
        results.store(&path).unwrap();
        assert_eq!(Figures::load(&path).unwrap(), results);
        fs::remove_file(&path).unwrap();
    }
}
