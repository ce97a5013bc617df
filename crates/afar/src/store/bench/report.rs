//! What is measured, and how it is told.

use std::fmt;

use serde::Serialize;

use crate::units::short;

/// A row there is.
#[derive(Serialize)]
pub(super) struct Listed {
    pub(super) row: &'static str,
    pub(super) title: &'static str,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:16} {}", self.row, self.title)
    }
}

/// What is wanted of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// A figure, measured once or several times.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    name: String,
    unit: &'static str,
    median: f64,
    values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

impl Figure {
    pub(super) fn new(name: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            unit,
            median: median(&values),
            values,
            goal: None,
            met: None,
        }
    }

    pub(super) fn goal(mut self, goal: Goal) -> Self {
        self.met = Some(goal.is_met(self.median));
        self.goal = Some(goal);
        self
    }

    pub(super) fn at_least(self, least: f64) -> Self {
        self.goal(Goal::AtLeast(least))
    }

    pub(super) fn at_most(self, most: f64) -> Self {
        self.goal(Goal::AtMost(most))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {:44} {:>10} {:8}",
            self.name,
            short(self.median),
            self.unit
        )?;
        let bounds = self
            .values
            .iter()
            .fold((f64::MAX, f64::MIN), |(least, most), value| {
                (least.min(*value), most.max(*value))
            });
        if self.values.len() > 1 {
            write!(f, " [{}..{}]", short(bounds.0), short(bounds.1))?;
        }
        if let (Some(goal), Some(met)) = (self.goal, self.met) {
            write!(f, "  {goal}: {}", if met { "met" } else { "missed" })?;
        }
        Ok(())
    }
}

/// Figures that belong together.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    row: String,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    figures: Vec<Figure>,
}

impl Row {
    pub(super) fn new(row: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            row: row.into(),
            title: title.into(),
            skipped: None,
            figures: Vec::new(),
        }
    }

    pub(super) fn with(mut self, figure: Figure) -> Self {
        self.figures.push(figure);
        self
    }

    /// Says why it was not measured.
    pub(super) fn skipped(mut self, why: impl Into<String>) -> Self {
        self.skipped = Some(why.into());
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.row, self.title)?;
        if let Some(why) = &self.skipped {
            write!(f, "\n  skipped: {why}")?;
        }
        for figure in &self.figures {
            write!(f, "\n{}", figure.to_string().trim_end())?;
        }
        Ok(())
    }
}

/// The middle of the values, or of the two in the middle their mean; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => 0.0,
        Some(upper) if sorted.len() % 2 == 1 => *upper,
        Some(upper) => sorted[middle - 1].midpoint(*upper),
    }
}

/// The value that so many in a thousand do not exceed; 0 of none.
pub(super) fn permille(values: &[f64], part: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * part).div_ceil(1_000).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_ends_of_values() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(permille(&values, 990), 198.0);
        assert_eq!(permille(&values, 500), 100.0);
        assert_eq!(permille(&[7.0], 990), 7.0);
    }

    #[test]
    fn goals_are_told_with_the_figure() {
        let figure = Figure::new("time", "ms", vec![3.0, 5.0, 4.0]).at_most(4.0);
        let text = figure.to_string();
        assert!(
            text.contains("[3.000..5.000]") && text.ends_with("at most 4: met"),
            "{text}"
        );
        let json = serde_json::to_value(figure.at_least(4.5)).unwrap();
        assert_eq!(json["goal"]["at_least"], 4.5);
        assert_eq!(json["met"], false);
    }
}
