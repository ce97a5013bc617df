//! A path that lets little UDP through: what Rx moves there, and TLS on TCP.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cell::{Cell, Copied, FETCHED, Way};
use super::plan::Plan;
use super::tcp;
use super::tree::{Content, Tree};
use crate::bench::cell::gathered::Figures;
use crate::bench::figures::Goal;
use crate::bench::link::{End, Place};
use crate::bench::rows::Direction;
use crate::openafs::netns::DEVICE;
use crate::sh;

/// How often the server's counter is read.
const GLANCE: Duration = Duration::from_millis(50);
/// What the devices of both ends send: TCP and all else, UDP, and how many packets of UDP wait.
const SHAPE: [&str; 5] = [
    "qdisc add dev {} root handle 1: htb default 10",
    "class add dev {} parent 1: classid 1:10 htb rate 1gbit",
    "class add dev {} parent 1: classid 1:20 htb rate 5mbit",
    "qdisc add dev {} parent 1:20 pfifo limit 100",
    "filter add dev {} parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff flowid 1:20",
];

/// Reads over a cable that is limited so.
///
/// # Errors
/// It cannot be limited, or as of any other row.
pub(super) fn measure(
    place: &Place,
    afar: &Path,
    large: u32,
    plan: &Plan,
    figures: &mut Figures,
) -> Result<()> {
    let tree = Tree::make(large, Content::Noise)?;
    let mut cell = Cell::up(place, afar, Way::Clear)?;
    cell.fill(&tree, large)?;
    shape(place)?;
    // Once, as it shows no more than that UDP is limited.
    let slow = cell.read(&tree, 0)?;
    figures.add(
        "Rx clear, the small files, measured once",
        "Mbit/s",
        None,
        slow.rate,
    );
    for _ in 0..plan.runs {
        cell.turn_to(Way::Tls)?;
        let (copied, steady) = watched(&cell, || cell.read(&tree, large))?;
        figures.add("TLS, with its start by Rx", "Mbit/s", None, copied.rate);
        figures.add("TLS, once it is connected", "Mbit/s", None, steady);
        if plan.has_iperf {
            let tcp = tcp::better(tcp::measure(place, Direction::Recv, copied.seconds)?);
            figures.add("the better iperf3", "Mbit/s", None, tcp.rate);
            figures.add(
                "TLS, once it is connected / iperf3",
                "",
                Some(Goal::AtLeast(0.97)),
                steady / tcp.rate,
            );
        }
    }
    Ok(())
}

fn shape(place: &Place) -> Result<()> {
    for end in [End::Server, End::Client] {
        for words in SHAPE {
            let words = words.replace("{}", DEVICE);
            let mut command = place.command(end, Path::new("tc"));
            sh::capture(command.args(words.split_whitespace()))?;
        }
    }
    Ok(())
}

/// Copies while the server's counter is read: what was copied, and the rate in Mbit/s from the first bytes out of band to
/// the last.
fn watched(cell: &Cell<'_>, copy: impl FnOnce() -> Result<Copied>) -> Result<(Copied, f64)> {
    let done = AtomicBool::new(false);
    let (copied, seen) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = Vec::new();
            while !done.load(Ordering::Relaxed) {
                // The next look may succeed.
                if let Ok(Some(bytes)) = cell.count(FETCHED) {
                    seen.push((Instant::now(), bytes));
                }
                thread::sleep(GLANCE);
            }
            seen
        });
        let copied = copy();
        done.store(true, Ordering::Relaxed);
        (copied, watching.join().unwrap_or_default())
    });
    let copied = copied?;
    let steady = steady(&seen).context("too little was seen of the transfer")?;
    Ok((copied, steady))
}

/// The rate in Mbit/s from when a counter begins to grow until it grows no more.
fn steady(seen: &[(Instant, f64)]) -> Option<f64> {
    let least = seen.first()?.1;
    let most = seen.last()?.1;
    let from = seen.iter().find(|(_, bytes)| *bytes > least)?;
    let to = seen.iter().find(|(_, bytes)| *bytes >= most)?;
    let seconds = to.0.duration_since(from.0).as_secs_f64();
    (seconds > 0.0).then(|| (to.1 - from.1) * 8e-6 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_time_in_which_something_comes() {
        let begin = Instant::now();
        let counts = [0.0, 0.0, 1e6, 2e6, 3e6, 3e6, 3e6];
        let seen: Vec<_> = (0..).zip(counts).collect();
        let seen: Vec<_> = seen
            .into_iter()
            .map(|(second, bytes)| (begin + Duration::from_secs(second), bytes))
            .collect();
        assert_eq!(steady(&seen), Some(8.0));
        assert_eq!(steady(&seen[..2]), None);
        assert_eq!(steady(&[]), None);
    }
}
