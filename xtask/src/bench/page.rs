//! The page and its charts, made from the results alone.

mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cell::section as cell_section;
use super::chart::{Chart, Line};
use super::contender::Contender;
use super::figures::Figures;
use super::mount::section as mount_section;
use super::oob::section as oob_section;
use super::rows::{self, Goal, Row, Work};
use super::sample::Results;
use super::shown;
use super::stats::{Stats, Verdict};
use super::store::{CHART as STORE_CHART, chart as store_chart, section as store_section};
use super::telemetry::section as telemetry_section;
use crate::{output, sh};

/// Where everything is kept.
#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
}

impl Place {
    /// The folder that was asked for; else the project's, or the target folder for what is not to be
    /// published.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn open(asked: Option<&Path>, quick: bool) -> Result<Self> {
        let folder = match asked {
            Some(folder) => folder.to_path_buf(),
            None if quick => sh::target().join("bench"),
            None => sh::root().join("docs"),
        };
        let place = Self { folder };
        fs::create_dir_all(place.beside())
            .with_context(|| format!("making {}", place.beside().display()))?;
        Ok(place)
    }

    /// The page.
    pub(super) fn page(&self) -> PathBuf {
        self.folder.join("benchmarks.md")
    }

    /// The folder of results and charts.
    pub(super) fn beside(&self) -> PathBuf {
        self.folder.join("benchmarks")
    }

    /// The results.
    pub(super) fn results(&self) -> PathBuf {
        self.beside().join("rx.json")
    }

    /// The results of whole cells.
    pub(super) fn cell_results(&self) -> PathBuf {
        self.beside().join("cell.json")
    }

    /// The results of mounts.
    pub(super) fn mount_results(&self) -> PathBuf {
        self.beside().join("mount.json")
    }

    /// The results of files out of band.
    pub(super) fn oob_results(&self) -> PathBuf {
        self.beside().join("oob.json")
    }

    /// The results of the store.
    pub(super) fn store_results(&self) -> PathBuf {
        self.beside().join("store.json")
    }

    /// What counting costs.
    pub(super) fn telemetry_results(&self) -> PathBuf {
        self.beside().join("telemetry.json")
    }
}

/// Writes the page and says what it says.
///
/// # Errors
/// A file cannot be written.
pub(super) fn finish(place: &Place, summary: &[String]) -> Result<()> {
    write(place)?;
    for line in summary {
        output::line(line);
    }
    output::line(&format!("written: {}", place.page().display()));
    Ok(())
}

/// Writes the page and the charts.
///
/// # Errors
/// A file cannot be written.
fn write(place: &Place) -> Result<()> {
    let results = &Results::load(&place.results())?;
    let store = &Figures::load(&place.store_results())?;
    let cell = &Figures::load(&place.cell_results())?;
    let mount = &Figures::load(&place.mount_results())?;
    let oob = &Figures::load(&place.oob_results())?;
    let telemetry = &Figures::load(&place.telemetry_results())?;
    let keep = |path: PathBuf, text: String| {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    for (name, chart) in charts(results) {
        keep(place.beside().join(name), chart.svg())?;
    }
    if let Some(chart) = store_chart(store) {
        keep(place.beside().join(STORE_CHART), chart.svg())?;
    }
    keep(
        place.page(),
        tables::page(results)
            + &store_section(store)
            + &cell_section(cell)
            + &mount_section(mount)
            + &oob_section(oob)
            + &telemetry_section(telemetry),
    )
}

/// The verdicts as lines for a terminal.
pub(super) fn summary(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows::all() {
        let Some(stats) = results.stats(&row.name, Contender::Afar) else {
            continue;
        };
        let mut line = format!(
            "{:18} {:>10} {:12}",
            row.name,
            shown::figure(stats.median),
            row.work.unit()
        );
        for goal in row.goals {
            let verdict = judge(results, &row, *goal);
            line += &format!("  {goal}: {} {}", verdict.shown, verdict.verdict.word());
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// What a goal is judged by, and how.
#[derive(Debug)]
struct Judged {
    /// What counts, as it is printed.
    shown: String,
    verdict: Verdict,
}

fn judge(results: &Results, row: &Row, goal: Goal) -> Judged {
    let failed = results
        .of(&row.name, Contender::Afar)
        .any(|sample| sample.error.is_some());
    let within = |stats: Option<Stats>, least: f64, most: f64, digits: usize| match stats {
        None => Judged {
            shown: "–".to_owned(),
            verdict: Verdict::Miss,
        },
        Some(stats) => Judged {
            shown: shown::stats(&stats, |value| format!("{value:.digits$}")),
            verdict: if failed {
                Verdict::Miss
            } else {
                stats.judge(least, most)
            },
        },
    };
    let at_least = |stats, least, digits| within(stats, least, f64::INFINITY, digits);
    let value = results.stats(&row.name, Contender::Afar);
    match goal {
        Goal::OfTcp(least) => {
            let tcp = results.better_tcp(&row.name);
            at_least(tcp.and_then(|tcp| results.ratio(&row.name, tcp)), least, 3)
        }
        Goal::OfOpenafs(least) => at_least(results.ratio(&row.name, Contender::Openafs), least, 1),
        Goal::AtLeast(least, _) => at_least(value, least, 0),
        Goal::Share(least, most) => within(value, least, most, 1),
        Goal::Jain(least) => {
            let samples = results.of(&row.name, Contender::Afar);
            at_least(Stats::of(samples.filter_map(|s| s.measured.jain)), least, 3)
        }
    }
}

const CHART_RTT: &str = "throughput-rtt.svg";
const CHART_LOSS: &str = "throughput-loss.svg";

fn charts(results: &Results) -> [(&'static str, Chart); 2] {
    let rtt = sweep(
        results,
        rows::SWEEP_RTT,
        rows::SWEEP_RTT_MS,
        "Throughput over round-trip time, 1 Gbit/s",
        "round-trip time, ms",
        |rtt| rtt,
    );
    let loss = sweep(
        results,
        rows::SWEEP_LOSS,
        rows::SWEEP_LOSS_PERCENT,
        "Throughput over random loss, 1 Gbit/s, 12.5 ms",
        "loss, %",
        |_| 12.5,
    );
    [(CHART_RTT, rtt), (CHART_LOSS, loss)]
}

fn sweep(
    results: &Results,
    prefix: &str,
    places: &[f64],
    title: &str,
    x_title: &str,
    rtt_ms: impl Fn(f64) -> f64,
) -> Chart {
    let measured = |contender: Contender, colour| Line {
        name: contender.to_string(),
        colour,
        reckoned: false,
        values: places
            .iter()
            .map(|place| results.stats(&format!("{prefix}{place}"), contender))
            .collect(),
    };
    let window = |place: &f64| {
        let rate = rows::OPENAFS_WINDOW_BYTES * 8e-6 / (rtt_ms(*place) * 1e-3);
        Stats::of(std::iter::once(rate.min(1000.0)))
    };
    Chart {
        title: title.to_owned(),
        x_title: x_title.to_owned(),
        y_title: "payload, Mbit/s".to_owned(),
        places: places.iter().map(ToString::to_string).collect(),
        y_range: (1.0, 1000.0),
        lines: vec![
            measured(Contender::Afar, "#0072b2"),
            measured(Contender::Bbr, "#009e73"),
            measured(Contender::Cubic, "#d55e00"),
            Line {
                name: "OpenAFS, limit".to_owned(),
                colour: "#777",
                reckoned: true,
                values: places.iter().map(window).collect(),
            },
        ],
    }
}

/// Rows of a kind that were measured.
fn measured<'a>(
    results: &'a Results,
    kind: impl Fn(&Work) -> bool + 'a,
) -> impl Iterator<Item = Row> + 'a {
    rows::all()
        .into_iter()
        .filter(move |row| kind(&row.work) && results.stats(&row.name, Contender::Afar).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample::tests::{sample, session};

    fn results(ours: f64) -> Results {
        let mut results = Results::default();
        let mut samples = vec![sample("12ms-send", Contender::Afar, 1, ours)];
        samples.push(sample("12ms-send", Contender::Cubic, 1, 100.0));
        samples.push(sample("12ms-send", Contender::Bbr, 1, 50.0));
        results.replace("12ms-send", &session("s1"), samples);
        results
    }

    fn row() -> Row {
        let mut rows = rows::all();
        rows.retain(|row| row.name == "12ms-send");
        rows.remove(0)
    }

    #[test]
    fn goals_are_judged() {
        let goal = Goal::OfTcp(0.97);
        assert_eq!(judge(&results(98.0), &row(), goal).verdict.word(), "pass");
        assert_eq!(judge(&results(96.0), &row(), goal).verdict.word(), "miss");
        let mut failed = results(98.0);
        failed.samples[0].error = Some("it broke".to_owned());
        assert_eq!(judge(&failed, &row(), goal).verdict.word(), "miss");
        assert_eq!(
            judge(&Results::default(), &row(), goal).verdict.word(),
            "miss"
        );
    }

    #[test]
    fn pages_show_what_was_measured() {
        let page = tables::page(&results(98.0));
        assert!(page.contains("12.5 ms, 1 Gbit/s, 1 GiB, send"), "{page}");
        assert!(page.contains("0.980") && page.contains("pass"), "{page}");
        assert!(page.contains("Testium") && page.contains("abc"));
        assert_eq!(summary(&results(98.0)).len(), 1);
    }
}
