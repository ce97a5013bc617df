//! Instructions for each packet, where the machine has no counters for them: callgrind runs
//! the program and counts what it executes in user space.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::link::{End, Place};
use super::process::Process;
use super::rows::Direction;
use super::sample::Measured;
use super::traffic;

const PORT: u16 = 17_109;
/// An Rx packet as it fits Ethernet, so that packets are those of a real link.
const PACKET_BYTES: &str = "1444";
/// Two sizes: their difference is free of what starting and ending costs.
const SMALL: u64 = 8 << 20;
const LARGE: u64 = 40 << 20;
/// Callgrind is some fifty times slower than the processor.
const LIMIT: Duration = Duration::from_secs(300);

/// Counts on the side that sends, or on the one that receives; on the loopback device.
///
/// # Errors
/// valgrind is missing or the program fails in it.
pub(super) fn count(place: &Place, afar: &Path, direction: Direction) -> Result<Measured> {
    let server = traffic::start_afar_server(place, afar, PORT, &["-m", PACKET_BYTES])?;
    let small = run(place, afar, direction, SMALL)?;
    let large = run(place, afar, direction, LARGE)?;
    drop(server);
    let instructions = large.instructions.saturating_sub(small.instructions);
    let packets = large.packets.saturating_sub(small.packets).max(1);
    Ok(Measured {
        value: instructions as f64 / packets as f64,
        bytes: LARGE - SMALL,
        detail: json!({ "instructions": instructions, "packets": packets }),
        ..Measured::default()
    })
}

struct Counted {
    instructions: u64,
    packets: u64,
}

fn run(place: &Place, afar: &Path, direction: Direction, bytes: u64) -> Result<Counted> {
    let name = match direction {
        Direction::Send => "send",
        Direction::Recv => "recv",
    };
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command
        .arg(afar)
        .args(["rxperf", "client", "-c", name, "-T", "1", "--json", "-D"]);
    command.args(["-s", place.address(End::Server), "-p", &PORT.to_string()]);
    command.args(["-m", PACKET_BYTES, "-b", &bytes.to_string()]);
    let ended = Process::start(command)?.succeed(LIMIT)?;
    let said: Value = ended
        .out
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .context("`afar rxperf client` has no result")?;
    let counter = match direction {
        Direction::Send => "datagrams_sent",
        Direction::Recv => "datagrams_received",
    };
    Ok(Counted {
        instructions: collected(&ended.err).context("callgrind does not tell what it counted")?,
        packets: said["counters"][counter]
            .as_u64()
            .context("`afar rxperf client -D` does not tell its datagrams")?,
    })
}

/// The sum in callgrind's `==1== Collected : 123`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read() {
        let text = "==9== Events    : Ir\n==9== Collected : 229104\n==9==\n";
        assert_eq!(collected(text), Some(229_104));
        assert_eq!(collected("==9== Events : Ir"), None);
    }
}
