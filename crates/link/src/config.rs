//! What a link is: the options as given, and the settings they come to.

use std::{net::Ipv4Addr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    path::Shape,
    units::{self, PerDirection},
};

/// The two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// The end for servers, 10.99.X.1.
    Srv,
    /// The end for clients, 10.99.X.2.
    Cli,
}

impl Side {
    /// Both, in the order of everything that is kept for each.
    pub const BOTH: [Self; 2] = [Self::Srv, Self::Cli];

    /// As namespaces and directions are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Srv => "srv",
            Self::Cli => "cli",
        }
    }
}

/// The options of a link, as a user gives them. `X[,Y]` is one value for both directions, or `X`
/// from srv to cli and `Y` from cli to srv.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Round-trip time, half of it each way [default: 12.5ms]
    #[arg(long, value_name = "T", value_parser = units::duration, conflicts_with = "delay")]
    pub rtt: Option<Duration>,
    /// One-way delays, instead of --rtt
    #[arg(long, value_name = "X[,Y]", value_parser = durations)]
    pub delay: Option<PerDirection<Duration>>,
    /// Bits per second of IP packets: 30mbit, 1gbit, unlimited [default: unlimited]
    #[arg(long, value_name = "X[,Y]", value_parser = rates)]
    pub rate: Option<PerDirection<Option<u64>>>,
    /// Size of the queue, in bytes; more is dropped at the tail [default: 1 BDP, at least 64KiB]
    #[arg(long, value_name = "X[,Y]", value_parser = byte_counts)]
    pub queue: Option<PerDirection<u64>>,
    /// Share of packets lost at random: 0.1% or 0.001
    #[arg(long, value_name = "P[,P]", value_parser = probabilities)]
    pub loss: Option<PerDirection<f64>>,
    /// Share of packets that arrive late by --reorder-delay
    #[arg(long, value_name = "P[,P]", value_parser = probabilities)]
    pub reorder: Option<PerDirection<f64>>,
    /// Delay of reordered packets [default: 4 packet times, at least 1ms]
    #[arg(long, value_name = "X[,Y]", value_parser = durations)]
    pub reorder_delay: Option<PerDirection<Duration>>,
    /// Let the delay vary by up to this much either way, keeping the order
    #[arg(long, value_name = "X[,Y]", value_parser = durations)]
    pub jitter: Option<PerDirection<Duration>>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "P[,P]", value_parser = probabilities)]
    pub duplicate: Option<PerDirection<f64>>,
    /// Share of packets that arrive with a bit flipped after the IP header
    #[arg(long, value_name = "P[,P]", value_parser = probabilities)]
    pub corrupt: Option<PerDirection<f64>>,
    /// MTU of the devices at both ends
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
        value_parser = clap::value_parser!(u16).range(576..))]
    pub mtu: u16,
    /// Drop larger packets silently on the path
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..))]
    pub path_mtu: Option<u32>,
    /// Mark ECN-capable packets when the queue holds more bytes than this
    #[arg(long, value_name = "X[,Y]", value_parser = byte_counts)]
    pub ecn_mark: Option<PerDirection<u64>>,
    /// Seed: links with the same seed treat the n-th packet alike
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Deliver neighbouring datagrams of one UDP super-packet together, as UDP GRO would
    #[arg(long)]
    pub udp_gro: bool,
    /// Under load, wake up at most this often [default: 1/64 of the delay, 20us to 100us]
    #[arg(long, value_name = "T", value_parser = units::duration)]
    pub quantum: Option<Duration>,
    /// Use the addresses 10.99.X.1 (srv) and 10.99.X.2 (cli) [default: the first free X]
    #[arg(long, value_name = "X", value_parser = clap::value_parser!(u8).range(1..=254))]
    pub subnet: Option<u8>,
}

fn durations(text: &str) -> std::result::Result<PerDirection<Duration>, String> {
    units::per_direction(text, units::duration)
}

fn rates(text: &str) -> std::result::Result<PerDirection<Option<u64>>, String> {
    units::per_direction(text, units::rate)
}

fn byte_counts(text: &str) -> std::result::Result<PerDirection<u64>, String> {
    units::per_direction(text, units::bytes)
}

fn probabilities(text: &str) -> std::result::Result<PerDirection<f64>, String> {
    units::per_direction(text, units::probability)
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rtt: None,
            delay: None,
            rate: None,
            queue: None,
            loss: None,
            reorder: None,
            reorder_delay: None,
            jitter: None,
            duplicate: None,
            corrupt: None,
            mtu: 1500,
            path_mtu: None,
            ecn_mark: None,
            seed: 1,
            udp_gro: false,
            quantum: None,
            subnet: None,
        }
    }
}

/// The settings of a link, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkConfig {
    /// Name of the link.
    pub name: String,
    /// The X in 10.99.X.0/24.
    pub subnet: u8,
    /// MTU of both devices.
    pub mtu: u16,
    /// `srv` to `cli`, then `cli` to `srv`.
    pub shapes: [Shape; 2],
    /// Seed of all randomness.
    pub seed: u64,
    /// Hand over UDP datagrams in groups.
    pub udp_gro: bool,
    /// Under load, the emulator wakes up at most this often.
    pub quantum: Duration,
}

impl LinkConfig {
    /// Completes the options of a link.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`], or [`Error::BadOption`] if options contradict each other.
    pub fn new(name: &str, subnet: u8, options: &Options) -> Result<Self> {
        check_name(name)?;
        if options.jitter.is_some_and(|jitter| {
            jitter
                .into_array()
                .into_iter()
                .zip(options.delays())
                .any(|(jitter, delay)| jitter > delay)
        }) {
            return Err(Error::BadOption(
                "--jitter must not exceed the one-way delay".to_owned(),
            ));
        }
        if options
            .path_mtu
            .is_some_and(|path_mtu| path_mtu >= u32::from(options.mtu))
        {
            return Err(Error::BadOption(
                "--path-mtu must be below --mtu, or nothing is ever dropped for it".to_owned(),
            ));
        }
        let shapes = options.shapes();
        let delay = shapes[0].delay.min(shapes[1].delay);
        let quantum = options.quantum.unwrap_or_else(|| {
            (delay / 64).clamp(Duration::from_micros(20), Duration::from_micros(100))
        });
        if quantum > Duration::from_millis(10) {
            return Err(Error::BadOption(
                "--quantum must not exceed 10ms".to_owned(),
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            subnet,
            mtu: options.mtu,
            shapes,
            seed: options.seed,
            udp_gro: options.udp_gro,
            quantum,
        })
    }

    /// The namespace of one side.
    pub fn namespace(&self, side: Side) -> String {
        namespace(&self.name, side)
    }

    /// The address of one side.
    pub fn address(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.subnet, if side == Side::Srv { 1 } else { 2 })
    }
}

/// The namespace of one side of a link.
pub fn namespace(link: &str, side: Side) -> String {
    format!("{link}-{}", side.name())
}

/// Checks that a name can be that of a link: it becomes part of file names.
///
/// # Errors
///
/// [`Error::BadName`].
pub fn check_name(name: &str) -> Result<()> {
    let good = (1..=32).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if good {
        Ok(())
    } else {
        Err(Error::BadName(name.to_owned()))
    }
}

impl Options {
    /// The one-way delays.
    fn delays(&self) -> [Duration; 2] {
        let half = self.rtt.unwrap_or(Duration::from_micros(12_500)) / 2;
        self.delay.map_or([half; 2], PerDirection::into_array)
    }

    fn shapes(&self) -> [Shape; 2] {
        let delays = self.delays();
        let rtt = delays[0] + delays[1];
        let rates = self.rate.map_or([None; 2], PerDirection::into_array);
        let shares =
            |given: Option<PerDirection<f64>>| given.map_or([0.0, 0.0], PerDirection::into_array);
        let (loss, reorder) = (shares(self.loss), shares(self.reorder));
        let (duplicate, corrupt) = (shares(self.duplicate), shares(self.corrupt));
        let jitter = self
            .jitter
            .map_or([Duration::ZERO; 2], PerDirection::into_array);
        [0, 1].map(|i| Shape {
            rate: rates[i],
            queue_bytes: self.queue.map_or_else(
                || default_queue(rates[i], rtt),
                |queue| queue.into_array()[i],
            ),
            delay: delays[i],
            jitter: jitter[i],
            loss: loss[i],
            reorder: reorder[i],
            reorder_delay: self.reorder_delay.map_or_else(
                || default_reorder_delay(rates[i], self.mtu),
                |delay| delay.into_array()[i],
            ),
            duplicate: duplicate[i],
            corrupt: corrupt[i],
            path_mtu: self.path_mtu,
            ecn_mark_bytes: self.ecn_mark.map(|mark| mark.into_array()[i]),
        })
    }
}

/// One bandwidth-delay product, but not below 64 KiB, which is one super-packet.
fn default_queue(rate: Option<u64>, rtt: Duration) -> u64 {
    let product = u128::from(rate.unwrap_or(0)) * rtt.as_nanos() / 8_000_000_000;
    u64::try_from(product).unwrap_or(u64::MAX).max(64 * 1024)
}

/// Four packet times, enough to be overtaken by three, but not below 1 ms.
fn default_reorder_delay(rate: Option<u64>, mtu: u16) -> Duration {
    let packets = rate.map_or(0, |rate| 4 * 8 * u64::from(mtu) * 1_000_000_000 / rate);
    Duration::from_nanos(packets).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_completed() {
        let rate = Some(PerDirection {
            srv_to_cli: Some(1_000_000_000),
            cli_to_srv: Some(1_000_000),
        });
        let config = LinkConfig::new(
            "w1",
            7,
            &Options {
                rate,
                ..Options::default()
            },
        )
        .unwrap();
        assert_eq!(config.shapes[0].delay, Duration::from_micros(6_250));
        assert_eq!(config.shapes[0].queue_bytes, 1_562_500);
        assert_eq!(config.shapes[1].queue_bytes, 65_536);
        assert_eq!(config.shapes[0].reorder_delay, Duration::from_millis(1));
        assert_eq!(config.shapes[1].reorder_delay, Duration::from_millis(48));
        assert_eq!(config.quantum, Duration::from_nanos(97_656));
        assert_eq!(config.address(Side::Cli), Ipv4Addr::new(10, 99, 7, 2));
        assert_eq!(config.namespace(Side::Srv), "w1-srv");
    }

    #[test]
    fn names_that_would_leave_their_directory_are_refused() {
        for name in ["", "../x", "a/b", ".", "-x", "a b", "é", &"x".repeat(33)] {
            assert!(matches!(check_name(name), Err(Error::BadName(_))), "{name}");
        }
        for name in ["w1", "A_b-3", &"x".repeat(32)] {
            check_name(name).unwrap();
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let jitter = Some(PerDirection::both(Duration::from_millis(7)));
        let late = Options {
            jitter,
            ..Options::default()
        };
        assert!(matches!(
            LinkConfig::new("w", 1, &late),
            Err(Error::BadOption(_))
        ));
        let no_hole = Options {
            path_mtu: Some(1500),
            ..Options::default()
        };
        assert!(matches!(
            LinkConfig::new("w", 1, &no_hole),
            Err(Error::BadOption(_))
        ));
    }

    #[test]
    fn settings_survive_their_file() {
        let loss = Some(PerDirection::both(0.001));
        let config = LinkConfig::new(
            "w1",
            7,
            &Options {
                loss,
                ..Options::default()
            },
        )
        .unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<LinkConfig>(&text).unwrap(), config);
    }
}
