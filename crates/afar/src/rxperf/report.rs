//! What is reported, and how it reads. The fields are the JSON.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::path::PathReport;
use crate::units::{grouped, short};

/// Payload and calls over a time, and the rates that follow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// Payload in both directions.
    pub(crate) bytes: u64,
    /// Calls finished.
    pub(crate) calls: u64,
    /// Time it took.
    pub(crate) seconds: f64,
    /// 10^6 bits of payload a second.
    pub(crate) mbit_per_s: f64,
    /// 10^6 bytes of payload a second.
    pub(crate) mb_per_s: f64,
    /// Calls a second.
    pub(crate) calls_per_s: f64,
}

/// What a client is about to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "start")]
pub(crate) struct Start {
    pub(crate) command: String,
    pub(crate) server: SocketAddr,
    pub(crate) threads: usize,
    pub(crate) connections: usize,
    /// Calls of each thread; absent if only time limits them.
    pub(crate) times: Option<u64>,
    pub(crate) duration_s: Option<f64>,
    /// Payload of each call from client to server.
    pub(crate) request_bytes: u64,
    /// Payload of each call from server to client.
    pub(crate) reply_bytes: u64,
}

/// A part of a run, reported while it goes on. Bytes to send count when they are handed to Rx.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "interval")]
pub(crate) struct Interval {
    /// When it ended, from the start of the run.
    pub(crate) at_s: f64,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// The path to the server; absent in a server's reports.
    pub(crate) path: Option<PathReport>,
}

/// A whole run of a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "result")]
pub(crate) struct RunReport {
    pub(crate) command: String,
    pub(crate) server: SocketAddr,
    /// Whether it was stopped before it was done.
    pub(crate) interrupted: bool,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// Each thread's part.
    pub(crate) threads: Vec<Rate>,
    /// Jain's index of the threads' throughput: 1 if all are equal, 1/n if one has it all.
    pub(crate) jain_index: f64,
    pub(crate) path: PathReport,
    /// Counters of the endpoint, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counters: Option<Counters>,
}

/// Counters by name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counters(pub(crate) Vec<(&'static str, u64)>);

/// A server is ready.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "listening")]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) service: u16,
}

/// One call of a client, ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "transfer")]
pub(crate) struct Transfer {
    pub(crate) client: SocketAddr,
    /// Payload received.
    pub(crate) received_bytes: u64,
    /// Payload sent.
    pub(crate) sent_bytes: u64,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
}

/// All that a server did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "summary")]
pub(crate) struct Summary {
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// Calls that ended otherwise.
    pub(crate) failed: u64,
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Rate {
    pub(crate) fn new(bytes: u64, calls: u64, time: Duration) -> Self {
        // A clock too coarse to see the time pass must not make a rate infinite: JSON has no such
        // number.
        let seconds = time.as_secs_f64().max(1e-9);
        let mb_per_s = bytes as f64 / seconds / 1e6;
        Self {
            bytes,
            calls,
            seconds,
            mbit_per_s: mb_per_s * 8.0,
            mb_per_s,
            calls_per_s: calls as f64 / seconds,
        }
    }
}

/// Jain's fairness index of some shares, `(Σx)² / (n Σx²)`; 1 if there is nothing to share.
pub(crate) fn jain_index(shares: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = shares.len() as f64;
    let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| {
        (sum + share, squares + share * share)
    });
    if squares > 0.0 {
        sum * sum / (count * squares)
    } else {
        1.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mb, mbit, calls) = (
            short(self.mb_per_s),
            short(self.mbit_per_s),
            short(self.calls_per_s),
        );
        write!(f, "{mb} MB/s ({mbit} Mbit/s), {calls} calls/s")
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: ", self.command, self.server)?;
        let count = |f: &mut fmt::Formatter<'_>, count, what| {
            write!(f, "{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        count(f, self.threads as u64, "thread")?;
        f.write_str(" over ")?;
        count(f, self.connections as u64, "connection")?;
        f.write_str(", each ")?;
        match self.times {
            Some(times) => count(f, times, "call")?,
            None => f.write_str("calling")?,
        }
        if let Some(seconds) = self.duration_s {
            write!(f, " for at most {} s", short(seconds))?;
        }
        write!(
            f,
            ", a call sends {} and receives {} bytes",
            grouped(self.request_bytes),
            grouped(self.reply_bytes)
        )
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8.2} s  {}", self.at_s, self.rate)?;
        if let Some(path) = &self.path {
            write!(
                f,
                ", rtt {} ms, cwnd {}, lost {}",
                millis(path.rtt_smoothed_s),
                grouped(path.cwnd_bytes),
                grouped(path.lost)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.threads.len() > 1 {
            for (number, rate) in self.threads.iter().enumerate() {
                let (bytes, calls) = (grouped(rate.bytes), grouped(rate.calls));
                writeln!(f, "thread {number:3}: {bytes} bytes, {calls} calls: {rate}")?;
            }
            writeln!(f, "Jain's index {:.4}", self.jain_index)?;
        }
        if let Some(counters) = &self.counters {
            for (name, count) in &counters.0 {
                writeln!(f, "{name:24} {}", grouped(*count))?;
            }
        }
        writeln!(f, "{}", self.path)?;
        write!(
            f,
            "{}{}: {} bytes in {} calls in {} s: {}",
            self.command,
            if self.interrupted {
                " (interrupted)"
            } else {
                ""
            },
            grouped(self.rate.bytes),
            grouped(self.rate.calls),
            short(self.rate.seconds),
            self.rate
        )
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = match self.window_packets {
            0 => String::new(),
            packets => format!("; peer window {} packets", grouped(packets.into())),
        };
        writeln!(
            f,
            "path: rtt min {} ms, smoothed {} ms; {} cwnd {} bytes; mtu {} bytes{}{}",
            millis(self.rtt_min_s),
            millis(self.rtt_smoothed_s),
            self.congestion,
            grouped(self.cwnd_bytes),
            grouped(self.mtu_bytes),
            window,
            if self.peer_is_afar { ", afar" } else { "" }
        )?;
        let each = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), short);
        write!(
            f,
            "packets: {} sent, {} resent, {} lost, {} of them spuriously, {} marked; \
             datagrams per syscall {} sent, {} received",
            grouped(self.data_sent),
            grouped(self.data_resent),
            grouped(self.lost),
            grouped(self.spurious),
            grouped(self.ecn_ce),
            each(self.datagrams_per_send),
            each(self.datagrams_per_recv)
        )
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "listening on {}, service {}; Ctrl-C ends it",
            self.address, self.service
        )
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: received {} and sent {} bytes in {} s: {}",
            self.client,
            grouped(self.received_bytes),
            grouped(self.sent_bytes),
            short(self.rate.seconds),
            self.rate
        )?;
        self.error
            .as_ref()
            .map_or(Ok(()), |error| write!(f, "; failed: {error}"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "served {} calls, {} failed, {} bytes in {} s",
            grouped(self.rate.calls),
            grouped(self.failed),
            grouped(self.rate.bytes),
            short(self.rate.seconds)
        )
    }
}

fn millis(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |seconds| short(seconds * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_si_and_finite() {
        let rate = Rate::new(125_000_000, 10, Duration::from_secs(2));
        assert_eq!(
            (rate.mb_per_s, rate.mbit_per_s, rate.calls_per_s),
            (62.5, 500.0, 5.0)
        );
        assert!(
            Rate::new(u64::MAX, u64::MAX, Duration::ZERO)
                .mbit_per_s
                .is_finite()
        );
        assert_eq!(rate.to_string(), "62.50 MB/s (500.0 Mbit/s), 5.000 calls/s");
    }

    #[test]
    fn jain_index_is_one_for_equal_shares_and_less_otherwise() {
        assert_eq!(jain_index([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain_index([1.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert_eq!(jain_index([0.0; 2].into_iter()), 1.0);
    }
}
