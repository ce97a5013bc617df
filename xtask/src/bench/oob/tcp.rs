//! iperf3 on the same link.

use std::time::Duration;

use anyhow::Result;

use crate::bench::contender::Contender;
use crate::bench::link::Place;
use crate::bench::process::Cpu;
use crate::bench::rows::Direction;
use crate::bench::traffic::{self, Amount};

/// The least and the most seconds that iperf3 runs.
const SECONDS: (u64, u64) = (4, 30);

/// One connection of iperf3.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tcp {
    pub(super) name: &'static str,
    /// Mbit/s.
    pub(super) rate: f64,
    /// Processor seconds of the client for each 10⁹ bytes, and of the server.
    pub(super) client: f64,
    pub(super) server: f64,
}

/// Both kinds of TCP, each for as long as afar's transfer took, so that the start weighs as much.
///
/// # Errors
/// Those of iperf3.
pub(super) fn measure(place: &Place, direction: Direction, seconds: f64) -> Result<[Tcp; 2]> {
    let seconds = Duration::try_from_secs_f64(seconds)?.as_secs();
    let seconds = u32::try_from(seconds.clamp(SECONDS.0, SECONDS.1))?;
    let one = |contender, name| {
        let measured =
            traffic::tcp_transfer(place, contender, direction, Amount::Seconds(seconds))?;
        let cost = |cpu: Option<Cpu>| {
            let cpu = cpu.unwrap_or_default();
            (cpu.user_s + cpu.system_s) / (measured.bytes as f64 * 1e-9)
        };
        let (sender, receiver) = (cost(measured.sender), cost(measured.receiver));
        let (client, server) = match direction {
            Direction::Send => (sender, receiver),
            Direction::Recv => (receiver, sender),
        };
        Ok::<_, anyhow::Error>(Tcp {
            name,
            rate: measured.value,
            client,
            server,
        })
    };
    Ok([
        one(Contender::Cubic, "iperf3, CUBIC")?,
        one(Contender::Bbr, "iperf3, BBR")?,
    ])
}

/// The faster of both.
pub(super) fn better([one, other]: [Tcp; 2]) -> Tcp {
    if one.rate > other.rate { one } else { other }
}
