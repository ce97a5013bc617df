//! Results: JSON lines that the page is made from.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::lines;
use super::link::Noise;
use super::machine::Session;
use super::process::Cpu;
use super::stats::Stats;

/// What one contender did in one run of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) row: String,
    /// The session it belongs to.
    pub(super) session: String,
    pub(super) run: u32,
    pub(super) contender: Contender,
    #[serde(flatten)]
    pub(super) measured: Measured,
    pub(super) noise: Noise,
    /// Why it failed, if it did; the value is 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The figures of a sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// In the row's unit.
    pub(super) value: f64,
    /// Payload.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Processor time of the side that sent the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<Cpu>,
    /// And of the side that received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receiver: Option<Cpu>,
    /// Jain's index among the flows, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) jain: Option<f64>,
    /// What else the programs told.
    pub(super) detail: serde_json::Value,
}

impl Measured {
    /// Payload over a time, with the rate as the value.
    pub(super) fn rate(bytes: u64, seconds: f64, detail: serde_json::Value) -> Self {
        Self {
            value: bytes as f64 * 8e-6 / seconds.max(1e-9),
            bytes,
            seconds,
            detail,
            ..Self::default()
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Session(Session),
    Sample(Box<Sample>),
}

/// All results there are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Results {
    pub(super) sessions: Vec<Session>,
    pub(super) samples: Vec<Sample>,
}

impl Results {
    /// Reads them; none if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read or is of another form.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let mut results = Self::default();
        for line in lines::read(path)? {
            match line {
                Line::Session(session) => results.sessions.push(session),
                Line::Sample(sample) => results.samples.push(*sample),
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
        let samples = self.samples.iter().cloned();
        let samples = samples.map(|sample| Line::Sample(Box::new(sample)));
        lines::write(path, sessions.chain(samples))
    }

    /// Puts a row's new samples in the place of its old ones, and forgets sessions of which
    /// nothing is left.
    pub(super) fn replace(&mut self, row: &str, session: &Session, samples: Vec<Sample>) {
        self.samples.retain(|sample| sample.row != row);
        self.samples.extend(samples);
        if !self.sessions.iter().any(|old| old.id == session.id) {
            self.sessions.push(session.clone());
        }
        let used: BTreeSet<&str> = self.samples.iter().map(|s| s.session.as_str()).collect();
        self.sessions
            .retain(|session| used.contains(session.id.as_str()));
    }

    /// A row's samples of a contender, in the order of the runs.
    pub(super) fn of<'a>(
        &'a self,
        row: &'a str,
        contender: Contender,
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.row == row && sample.contender == contender)
    }

    /// What a row's values say for a contender; none if it was not measured.
    pub(super) fn stats(&self, row: &str, contender: Contender) -> Option<Stats> {
        Stats::of(self.of(row, contender).map(|sample| sample.measured.value))
    }

    /// The TCP of the two that does better in a row, by the median.
    pub(super) fn better_tcp(&self, row: &str) -> Option<Contender> {
        let median = |tcp| self.stats(row, tcp).map(|stats| stats.median);
        [Contender::Cubic, Contender::Bbr]
            .into_iter()
            .filter(|tcp| median(*tcp).is_some())
            .max_by(|a, b| {
                median(*a)
                    .partial_cmp(&median(*b))
                    .unwrap_or(std::cmp::Ordering::Equal)
            })
    }

    /// How many times another's value afar's is, run by run.
    pub(super) fn ratio(&self, row: &str, other: Contender) -> Option<Stats> {
        let others: Vec<&Sample> = self.of(row, other).collect();
        let last = others.last()?;
        // A contender too slow to be measured in each run stands for the runs after it.
        Stats::of(self.of(row, Contender::Afar).filter_map(|ours| {
            let theirs = others.iter().find(|s| s.run == ours.run).unwrap_or(last);
            (theirs.measured.value > 0.0).then(|| ours.measured.value / theirs.measured.value)
        }))
    }
}

/// Jain's fairness index: 1 if all shares are equal, 1/n if one has everything.
pub(super) fn jain_index(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        sum * sum / (shares.len() as f64 * squares)
    } else {
        0.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;

    /// A session of a machine that is not.
    pub(in crate::bench) fn session(id: &str) -> Session {
        Session {
            id: id.to_owned(),
            commit: "abc".to_owned(),
            processor: "Testium".to_owned(),
            processors: 2,
            memory_gib: 8.0,
            clock_mhz: 2000.0,
            kernel: "6.0".to_owned(),
            iperf: "iperf 3.12".to_owned(),
            afar: "afar 0.1.0".to_owned(),
            options: "bench rx".to_owned(),
        }
    }

    /// A sample of a value.
    pub(in crate::bench) fn sample(
        row: &str,
        contender: Contender,
        run: u32,
        value: f64,
    ) -> Sample {
        Sample {
            row: row.to_owned(),
            session: "s1".to_owned(),
            run,
            contender,
            measured: Measured {
                value,
                ..Measured::default()
            },
            noise: Noise::default(),
            error: None,
        }
    }

    #[test]
    fn ratios_are_those_of_runs_against_the_better_tcp() {
        let mut results = Results::default();
        for (run, ours, cubic, bbr) in [(1, 90.0, 100.0, 50.0), (2, 40.0, 80.0, 50.0)] {
            results
                .samples
                .push(sample("a", Contender::Afar, run, ours));
            results
                .samples
                .push(sample("a", Contender::Cubic, run, cubic));
            results.samples.push(sample("a", Contender::Bbr, run, bbr));
        }
        assert_eq!(results.better_tcp("a"), Some(Contender::Cubic));
        let ratio = results.ratio("a", Contender::Cubic).unwrap();
        assert_eq!((ratio.least, ratio.most), (0.5, 0.9));
        assert_eq!(results.ratio("a", Contender::Openafs), None);
    }

    #[test]
    fn results_survive_being_stored_and_rows_are_replaced() {
        let path = std::env::temp_dir().join(format!("afar-bench-{}.json", std::process::id()));
        let mut results = Results::default();
        results.replace(
            "a",
            &session("s1"),
            vec![sample("a", Contender::Afar, 1, 1.0)],
        );
        results.store(&path).unwrap();
        assert_eq!(Results::load(&path).unwrap(), results);
        fs::remove_file(&path).unwrap();
        let newer = Sample {
            session: "s2".to_owned(),
            ..sample("a", Contender::Afar, 1, 2.0)
        };
        results.replace("a", &session("s2"), vec![newer]);
        assert_eq!(results.sessions, [session("s2")]);
        assert_eq!(results.stats("a", Contender::Afar).unwrap().median, 2.0);
    }

    #[test]
    fn jain_index_tells_equal_from_unequal() {
        assert_eq!(jain_index(&[2.0, 2.0]), 1.0);
        assert_eq!(jain_index(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
