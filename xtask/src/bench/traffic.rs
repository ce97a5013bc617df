//! Traffic of afar's rxperf and of iperf3, alone and side by side.
//!
//! iperf3 is always run in its reverse mode, with its ends where payload should go from and
//! to: only then does `-n` stop when the receiver has everything, and the figures are the
//! receiver's. So on both sides payload that arrived is divided by the time from the start
//! of the exchange, start-up included.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contender::Contender;
use super::link::{End, Place};
use super::process::{self, Ended, Process};
use super::rows::Direction;
use super::sample::{Measured, jain_index};

/// Ports that neither a server of AFS nor a test uses.
const AFAR_PORT: u16 = 17_009;
const IPERF_PORT: u16 = 15_201;
/// What is asked for where time ends it: more than fits into the time.
const ENDLESS_BYTES: u64 = 64 << 30;
/// What programs may need beyond the seconds they are given.
const SLACK: Duration = Duration::from_secs(30);

/// How much is moved.
#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    /// So many bytes, within the time given.
    Bytes(u64, Duration),
    /// What fits into so many seconds.
    Seconds(u32),
}

/// What `afar rxperf client --json` says at the end.
#[derive(Deserialize)]
struct Said {
    bytes: u64,
    seconds: f64,
    calls_per_s: f64,
    path: Value,
    counters: Option<Value>,
}

/// One call of afar's.
///
/// # Errors
/// It fails or takes too long.
pub(super) fn afar_transfer(
    place: &Place,
    afar: &Path,
    direction: Direction,
    amount: Amount,
) -> Result<Measured> {
    let server = start_afar_server(place, afar, AFAR_PORT, &[])?;
    let served = server.cpu();
    let bytes = match amount {
        Amount::Bytes(bytes, _) => bytes,
        Amount::Seconds(_) => ENDLESS_BYTES,
    };
    let client = afar_client(place, afar, AFAR_PORT, direction, bytes);
    let client = Process::start(client)?;
    let ended = match amount {
        Amount::Bytes(_, limit) => client.succeed(limit)?,
        Amount::Seconds(seconds) => {
            process::pause(Duration::from_secs(seconds.into()))?;
            client.finish()?
        }
    };
    let served = server.cpu() - served;
    let said = parse_result(&ended)?;
    let server_said = server.finish()?;
    let (sender, receiver) = match direction {
        Direction::Send => (ended.cpu, served),
        Direction::Recv => (served, ended.cpu),
    };
    let detail = json!({
        "client": { "path": said.path, "counters": said.counters },
        "server": last_of_type(&server_said.out, "transfer"),
    });
    Ok(Measured {
        sender: Some(sender),
        receiver: Some(receiver),
        ..Measured::rate(said.bytes, said.seconds, detail)
    })
}

/// Small calls of afar's, so many at a time.
///
/// # Errors
/// They fail or take too long.
pub(super) fn afar_rpc(
    place: &Place,
    afar: &Path,
    parallel: u32,
    seconds: u32,
) -> Result<Measured> {
    let server = start_afar_server(place, afar, AFAR_PORT, &[])?;
    let mut client = place.command(End::Client, afar);
    client.args([
        "rxperf", "client", "-c", "rpc", "-S", "3", "-R", "30", "--json", "-D",
    ]);
    client.args([
        "-s",
        place.address(End::Server),
        "-p",
        &AFAR_PORT.to_string(),
    ]);
    client.args([
        "-t",
        &parallel.to_string(),
        "--duration",
        &seconds.to_string(),
    ]);
    let limit = Duration::from_secs(seconds.into()) + SLACK;
    let ended = Process::start(client)?.succeed(limit)?;
    let served = server.cpu();
    let said = parse_result(&ended)?;
    Ok(Measured {
        value: said.calls_per_s,
        bytes: said.bytes,
        seconds: said.seconds,
        sender: Some(ended.cpu),
        receiver: Some(served),
        jain: None,
        detail: json!({ "client": { "path": said.path, "counters": said.counters } }),
    })
}

/// One TCP connection.
///
/// # Errors
/// It fails or takes too long.
pub(super) fn tcp_transfer(
    place: &Place,
    tcp: Contender,
    direction: Direction,
    amount: Amount,
) -> Result<Measured> {
    let (from, to) = match direction {
        Direction::Send => (End::Client, End::Server),
        Direction::Recv => (End::Server, End::Client),
    };
    let server = start_iperf_server(place, from)?;
    let (words, limit) = match amount {
        Amount::Bytes(bytes, limit) => (["-n".to_owned(), bytes.to_string()], limit),
        Amount::Seconds(seconds) => (
            ["-t".to_owned(), seconds.to_string()],
            SLACK + Duration::from_secs(seconds.into()),
        ),
    };
    let mut client = iperf_client(place, from, to, tcp)?;
    client.args(words);
    let ended = Process::start(client)?.wait(limit)?;
    let sent = server.cpu();
    let said = parse_iperf(&ended.out)?;
    Ok(Measured {
        sender: Some(sent),
        receiver: Some(ended.cpu),
        ..said
    })
}

/// Flows of afar beside as many of TCP CUBIC, from the server's end to the client's. The
/// value is afar's share in percent.
///
/// # Errors
/// A flow fails.
pub(super) fn fairness(place: &Place, afar: &Path, flows: u32, seconds: u32) -> Result<Measured> {
    let ports: Vec<u16> = (AFAR_PORT..).take(flows as usize).collect();
    let servers = ports
        .iter()
        .map(|port| start_afar_server(place, afar, *port, &[]))
        .collect::<Result<Vec<_>>>()?;
    let tcp_server = start_iperf_server(place, End::Server)?;
    let mut tcp = iperf_client(place, End::Server, End::Client, Contender::Cubic)?;
    tcp.args(["-P", &flows.to_string(), "-t", &seconds.to_string()]);
    let begin = Instant::now();
    let tcp = Process::start(tcp)?;
    let clients = ports
        .iter()
        .map(|port| {
            Process::start(afar_client(
                place,
                afar,
                *port,
                Direction::Recv,
                ENDLESS_BYTES,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let time = Duration::from_secs(seconds.into());
    process::pause(time.saturating_sub(begin.elapsed()))?;
    let ended = clients
        .into_iter()
        .map(Process::finish)
        .collect::<Result<Vec<_>>>()?;
    let tcp = parse_iperf(&tcp.wait(time + SLACK)?.out)?;
    let ours = ended.iter().map(parse_result).collect::<Result<Vec<_>>>()?;
    drop((servers, tcp_server));
    let rates: Vec<f64> = ours
        .iter()
        .map(|r| r.bytes as f64 * 8e-6 / r.seconds)
        .collect();
    let (sum, others) = (rates.iter().sum::<f64>(), tcp.value);
    Ok(Measured {
        value: 100.0 * sum / (sum + others),
        bytes: ours.iter().map(|r| r.bytes).sum(),
        seconds: f64::from(seconds),
        jain: Some(jain_index(&rates)),
        detail: json!({ "afar_mbit_per_s": rates, "tcp_mbit_per_s": others, "tcp": tcp.detail }),
        ..Measured::default()
    })
}

/// A server of afar's that listens.
///
/// # Errors
/// It does not.
pub(super) fn start_afar_server(
    place: &Place,
    afar: &Path,
    port: u16,
    more: &[&str],
) -> Result<Process> {
    let mut command = place.command(End::Server, afar);
    command.args(["rxperf", "server", "--json", "-v", "-p", &port.to_string()]);
    command.args(more);
    let mut server = Process::start(command)?;
    server.until_listening()?;
    Ok(server)
}

fn afar_client(place: &Place, afar: &Path, port: u16, way: Direction, bytes: u64) -> Command {
    let name = match way {
        Direction::Send => "send",
        Direction::Recv => "recv",
    };
    let mut client = place.command(End::Client, afar);
    client.args(["rxperf", "client", "-c", name, "-T", "1", "--json", "-D"]);
    client.args(["-s", place.address(End::Server), "-p", &port.to_string()]);
    client.args(["-b", &bytes.to_string()]);
    client
}

fn start_iperf_server(place: &Place, end: End) -> Result<Process> {
    let mut command = place.command(end, Path::new("iperf3"));
    command.args(["-s", "-1", "--forceflush", "-p", &IPERF_PORT.to_string()]);
    let mut server = Process::start(command)?;
    server.until_listening()?;
    Ok(server)
}

/// A client that payload comes to, without its amount.
fn iperf_client(place: &Place, from: End, to: End, tcp: Contender) -> Result<Command> {
    let congestion = tcp.tcp().context("not a TCP")?;
    let mut client = place.command(to, Path::new("iperf3"));
    client.args(["-c", place.address(from), "-p", &IPERF_PORT.to_string()]);
    client.args(["-R", "-J", "-C", congestion]);
    Ok(client)
}

fn parse_result(ended: &Ended) -> Result<Said> {
    let line = last_of_type(&ended.out, "result");
    serde_json::from_value(line).with_context(|| {
        format!(
            "`afar rxperf client` has no result: {}: {}",
            ended.status,
            ended.err.trim()
        )
    })
}

/// The last JSON line of a type; null if there is none.
fn last_of_type(text: &str, kind: &str) -> Value {
    text.lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|value| value["type"] == kind)
        .unwrap_or_default()
}

/// The receiver's figures in what `iperf3 -J` prints.
fn parse_iperf(text: &str) -> Result<Measured> {
    let said: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    if let Some(error) = said["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &said["end"];
    let received = &end["sum_received"];
    let (Some(bytes), Some(seconds)) = (received["bytes"].as_u64(), received["seconds"].as_f64())
    else {
        bail!("iperf3 tells nothing about what was received");
    };
    let detail = json!({
        "congestion": end["sender_tcp_congestion"],
        "retransmits": end["sum_sent"]["retransmits"],
        "cpu_percent": end["cpu_utilization_percent"],
    });
    Ok(Measured::rate(bytes, seconds, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_figures_of_iperf_count() {
        let text = r#"{"end":{"sum_sent":{"bytes":9,"seconds":1,"retransmits":3},
            "sum_received":{"bytes":1000000,"seconds":2.0},"sender_tcp_congestion":"bbr"}}"#;
        let measured = parse_iperf(text).unwrap();
        assert_eq!((measured.bytes, measured.value), (1_000_000, 4.0));
        assert_eq!(measured.detail["retransmits"], 3);
    }

    #[test]
    fn failures_of_iperf_are_told() {
        let error = parse_iperf(r#"{"error":"unable to connect","end":{}}"#).unwrap_err();
        assert!(error.to_string().contains("unable to connect"));
        assert!(parse_iperf("{}").is_err());
        assert!(parse_iperf("").is_err());
    }

    #[test]
    fn the_last_line_of_a_type_is_found() {
        let text = "{\"type\":\"a\",\"n\":1}\nnoise\n{\"type\":\"a\",\"n\":2}\n{\"type\":\"b\"}\n";
        assert_eq!(last_of_type(text, "a")["n"], 2);
        assert!(last_of_type(text, "c").is_null());
    }
}
