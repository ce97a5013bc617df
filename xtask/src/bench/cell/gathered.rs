//! Figures as they are gathered, and what several rows are measured by.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::contender::Contender;
use crate::bench::figures::{Figure, Goal};
use crate::bench::link::Place;
use crate::bench::process::Cpu;
use crate::bench::rows::Direction;
use crate::bench::traffic::{self, Amount};

/// The slowest transfers take so long at most.
pub(in crate::bench) const LIMIT: Duration = Duration::from_secs(900);

/// Figures as they are gathered, run by run.
#[derive(Default)]
pub(in crate::bench) struct Figures(Vec<Figure>);

impl Figures {
    /// One more value of a figure.
    pub(in crate::bench) fn add(&mut self, name: &str, unit: &str, goal: Option<Goal>, value: f64) {
        match self.0.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => self.0.push(Figure {
                name: name.to_owned(),
                unit: unit.to_owned(),
                values: vec![value],
                goal,
            }),
        }
    }

    /// All of them.
    pub(in crate::bench) fn into_inner(self) -> Vec<Figure> {
        self.0
    }

    /// A rate, and its ratio to another.
    pub(super) fn against(&mut self, name: &str, rate: f64, other: (&str, f64), least: f64) {
        self.add(name, "Mbit/s", None, rate);
        self.add(other.0, "Mbit/s", None, other.1);
        let ratio = format!("{name} / {}", other.0);
        self.add(&ratio, "", Some(Goal::AtLeast(least)), rate / other.1);
    }
}

/// A rate in Mbit/s.
pub(in crate::bench) fn mbits(mib: u32, seconds: f64) -> f64 {
    f64::from(mib) * 8.388_608 / seconds
}

/// Processor seconds for each 10⁹ bytes.
pub(in crate::bench) fn per_gb(cpu: Cpu, mib: u32) -> f64 {
    (cpu.user_s + cpu.system_s) / (f64::from(mib) * 1.048_576e-3)
}

/// The better of TCP's two, in Mbit/s.
pub(in crate::bench) fn tcp(place: &Place, direction: Direction) -> Result<f64> {
    let mut best = 0.0_f64;
    for contender in [Contender::Cubic, Contender::Bbr] {
        let measured = traffic::tcp_transfer(place, contender, direction, Amount::Seconds(8))?;
        best = best.max(measured.value);
    }
    Ok(best)
}

/// How long the data took, as `afar cp --json` tells: without looking for the file.
pub(in crate::bench) fn said_seconds(said: &str) -> Result<f64> {
    let said: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
    let seconds = said.get("transfer_seconds").and_then(Value::as_f64);
    seconds.context("the copy told no time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_neighbours() {
        let mut figures = Figures::default();
        figures.against("a", 50.0, ("b", 100.0), 0.4);
        figures.against("a", 30.0, ("b", 100.0), 0.4);
        assert_eq!(figures.0[2].values, [0.5, 0.3]);
        assert!((mbits(1, 1.0) - 8.388_608).abs() < 1e-9);
    }

    #[test]
    fn costs_are_of_a_thousand_million_bytes() {
        let cpu = Cpu {
            user_s: 1.5,
            system_s: 0.5,
        };
        assert!((per_gb(cpu, 1000) - 2.0 / 1.048_576).abs() < 1e-9);
    }
}
