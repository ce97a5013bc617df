//! Works on many small files: how long each takes on a mount, beside the same in a folder of this machine.
//!
//! `task` is what is done, `data` the files it is done with.

mod data;
mod task;

use std::borrow::Cow;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;

use super::client::Kind;
use super::rows::{Plan, Row, What, link, tried};
use super::server::Server;
use super::work::Amounts;
use crate::bench::cell::gathered::Figures;
use crate::bench::figures::Goal;
use crate::bench::link::Setup;
use crate::output;
pub(super) use task::Task;

/// Round trips in milliseconds, and the rate of all links in Mbit/s.
const ROUND_TRIPS: [f64; 3] = [12.5, 50.0, 230.0];
const RATE: u32 = 100;
/// Slow clients get this share of the files.
const SLOW_SHARE: u32 = 10;
/// A mount may take so many round trips beside what the link needs for the data, and so many times as long in all.
const FREE_ROUND_TRIPS: f64 = 6.0;
const OF_LIMIT: f64 = 1.5;
/// The clients that are compared.
const KINDS: [Kind; 6] = [
    Kind::Afar,
    Kind::AfarThrough,
    Kind::Afsd,
    Kind::Sshfs,
    Kind::Rclone,
    Kind::Bindfs,
];

/// What is measured.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    let of_task = |task: Task| {
        ROUND_TRIPS.into_iter().map(move |rtt_ms| Row {
            name: Cow::Owned(format!("small-{}-{rtt_ms:.0}", task.word())),
            title: Cow::Owned(format!("{}, {rtt_ms} ms, {RATE} Mbit/s", task.title())),
            link: link(rtt_ms, RATE),
            what: What::Small(task),
        })
    };
    Task::value_variants().iter().copied().flat_map(of_task)
}

/// What a link takes at least, beside what a machine takes by itself.
fn limit(local: Duration, bytes: u64, link: Setup) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let sent = bytes as f64 * 8e-6 / f64::from(link.rate_mbit);
    local.as_secs_f64() + sent + FREE_ROUND_TRIPS * link.rtt_ms * 1e-3
}

/// Measures a row; returns the figures, and what was not measured.
///
/// # Errors
/// The files cannot be made, or afar's mount fails.
pub(super) fn measure(
    task: Task,
    server: &mut Server<'_>,
    link: Setup,
    plan: &Plan,
) -> Result<(Figures, Vec<String>)> {
    let mut figures = Figures::default();
    if let Some(why) = task.missing() {
        return Ok((figures, vec![why]));
    }
    let all = task.files();
    let fast = if plan.quick { all.div_ceil(10) } else { all };
    let amounts = Amounts {
        fast,
        slow: fast.div_ceil(SLOW_SHARE),
    };
    let kinds = KINDS.iter().filter(|kind| plan.clients.contains(kind));
    let (here, missing): (Vec<Kind>, Vec<Kind>) = kinds.partition(|kind| kind.missing().is_none());
    let mut skipped: Vec<_> = missing.into_iter().filter_map(Kind::why_skipped).collect();
    for (number, run) in (0..plan.runs).enumerate() {
        for files in amounts.both() {
            // Each file is several round trips to it.
            let amount = |kind: Kind| match kind {
                Kind::Sshfs | Kind::Rclone => amounts.slow,
                kind => amounts.of(kind),
            };
            let of_amount = |kind: &&Kind| amount(**kind) == files;
            let clients: Vec<Kind> = here.iter().filter(of_amount).copied().collect();
            if clients.is_empty() {
                continue;
            }
            if number == 0 {
                task.prepare(server, files)?;
            }
            let local = task.locally(server, files)?;
            let limit = limit(local.time, local.bytes, link);
            let seconds = local.time.as_secs_f64();
            figures.add(
                &format!("a local folder, {files} files"),
                "s",
                None,
                seconds,
            );
            figures.add(&format!("the limit, {files} files"), "s", None, limit);
            for kind in clients {
                let measured = tried(kind, || task.mounted(server, kind, files, run));
                let Some(seconds) = measured? else {
                    skipped.push(format!("{} failed in run {}", kind.shown(), run + 1));
                    continue;
                };
                let name = kind.shown();
                output::note(&format!("  {name}, {files} files: {seconds:.2} s"));
                let goal = (kind == Kind::Afar).then_some(Goal::AtMost(OF_LIMIT));
                figures.add(&format!("{name}, {files} files"), "s", None, seconds);
                figures.add(&format!("{name} / the limit"), "", goal, seconds / limit);
            }
        }
    }
    Ok((figures, skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_has_the_link_in_it() {
        let taken = limit(Duration::from_secs(2), 12_500_000, link(50.0, 100));
        assert!((taken - 3.3).abs() < 1e-9, "{taken}");
    }
}
