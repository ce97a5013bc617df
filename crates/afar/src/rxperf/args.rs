//! The flags of `afar rxperf`. Single letters mean what they mean to OpenAFS's rxperf.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::wire;
use crate::units::{parse_bytes, parse_seconds, parse_size};

/// Measure Rx between two hosts: throughput, calls per second, path.
///
/// Start `afar rxperf server` on one host and `afar rxperf client` on another. Either side may
/// also be OpenAFS's rxperf: the protocol is the same (service 147, UDP port 7009), and so are the
/// single letters.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Make calls to a server and measure them.
    Client(ClientArgs),
    /// Answer the calls of clients until Ctrl-C.
    Server(ServerArgs),
}

/// Make calls to a server and measure them.
///
/// Amounts take k, M, G (powers of 1,000) or Ki, Mi, Gi (powers of 1,024). Rates are SI: 1 MB/s is
/// 10^6 bytes of payload a second. The time runs from the first call's start to the last call's
/// end.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  afar rxperf client -c send -s fs1 -b 1Gi -T 1       one call of 1 GiB to fs1
  afar rxperf client -c recv -s fs1 --duration 10 --interval 1
  afar rxperf client -c rpc -t 64 -T 10000 -S 3 -R 30 small calls, 64 at a time
  afar rxperf client -c file -f amounts               the amounts in the file

A file for -c file has a number on each line: the number of four-byte words to send or, after a
zero or an empty line, to receive.

Figures: RTT, congestion window, losses and packets are this side's and concern what it sends; for
the sending side of a recv, run the client on the server's host. A loss is spurious if the packet
arrived after all. Jain's index is 1 if all threads got the same rate and 1/n if one got everything.")]
pub(crate) struct ClientArgs {
    /// What each call does.
    #[arg(short = 'c', long = "command", value_enum, ignore_case = true)]
    pub(crate) command: CommandName,

    /// The server, by name or address.
    #[arg(short, long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) server: String,

    /// The server's UDP port.
    #[arg(short, long, default_value_t = wire::PORT)]
    pub(crate) port: u16,

    /// Bytes a call of send or recv moves. Above 2 GiB it must be a multiple of four and goes as a
    /// `file` request.
    #[arg(short, long, value_name = "AMOUNT", value_parser = parse_bytes, default_value = "1Mi")]
    pub(crate) bytes: u64,

    /// Bytes a call of rpc sends.
    #[arg(short = 'S', long, value_name = "AMOUNT", value_parser = parse_bytes,
          default_value = "3")]
    pub(crate) send_bytes: u64,

    /// Bytes a call of rpc receives.
    #[arg(short = 'R', long, value_name = "AMOUNT", value_parser = parse_bytes,
          default_value = "30")]
    pub(crate) recv_bytes: u64,

    /// The file with the amounts of -c file.
    #[arg(short, long, value_name = "PATH", required_if_eq("command", "file"))]
    pub(crate) file: Option<PathBuf>,

    /// Calls each thread makes, one after the other [default: 100; with --duration, as many as
    /// fit].
    #[arg(short = 'T', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) times: Option<u64>,

    /// Begin calls for this many seconds, then finish those in progress.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<Duration>,

    /// Number of parallel calls.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) threads: u32,

    /// Number of Rx connections for the threads; one carries four calls at a time [default: as many
    /// as needed].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) connections: Option<u32>,

    /// Bytes passed to Rx at a time, here and by the server; at most 512 KiB.
    #[arg(short, long, value_name = "AMOUNT", value_parser = parse_io_size,
          default_value = "512Ki")]
    pub(crate) write_size: u32,

    /// Bytes an OpenAFS server takes from Rx at a time; at most 512 KiB. An afar server takes all
    /// that has arrived.
    #[arg(short, long, value_name = "AMOUNT", value_parser = parse_io_size,
          default_value = "512Ki")]
    pub(crate) read_size: u32,

    /// Report at this interval, in seconds, while running.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) interval: Option<Duration>,

    /// Also report the counters of the endpoint.
    #[arg(short = 'D', long)]
    pub(crate) dump_stats: bool,

    /// Print JSON, one object a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the reports to this file instead of standard output.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,

    /// Local address to send from.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) transport: TransportArgs,
}

/// Answer the calls of clients until Ctrl-C.
///
/// On Ctrl-C or SIGTERM the server takes no new calls, finishes those in progress and prints a
/// summary; a second signal ends it at once.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// The UDP port; 0 chooses a free one and reports it.
    #[arg(short, long, default_value_t = wire::PORT)]
    pub(crate) port: u16,

    /// Local address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub(crate) bind: IpAddr,

    /// Report each call when it ends.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Report totals at this interval, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) interval: Option<Duration>,

    /// Print JSON, one object a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the reports to this file instead of standard output.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) transport: TransportArgs,
}

/// What both sides may set of Rx.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportArgs {
    /// Congestion control for the data this side sends.
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) congestion: Option<Congestion>,

    /// Socket buffer size in KiB, in each direction [default: chosen by afar].
    #[arg(short, long, value_name = "KIB",
          value_parser = clap::value_parser!(u32).range(1..=4_194_303))]
    pub(crate) udp_buffer: Option<u32>,

    /// Largest Rx packet to send, in bytes, including the header [default: found by probing].
    #[arg(short, long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(576..=65_507))]
    pub(crate) mtu: Option<u32>,

    /// Largest receive window of a call, in packets of --mtu bytes, else 1,444 [default: chosen by
    /// afar].
    #[arg(short = 'W', long, value_name = "PACKETS",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) window: Option<u32>,

    /// Poll for packets for this many microseconds after the last one, instead of sleeping: uses a
    /// whole processor, but saves the wake-up.
    #[arg(long, value_name = "MICROSECONDS",
          value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) spin: Option<u32>,

    /// Behave like a peer without afar's extension.
    #[arg(long)]
    pub(crate) classic: bool,

    #[command(flatten)]
    pub(crate) old: OldArgs,
}

/// Flags of OpenAFS's rxperf that have no effect here; accepted so that old scripts run.
#[derive(Debug, clap::Args)]
pub(crate) struct OldArgs {
    /// No effect: afar never sends jumbograms.
    #[arg(short = 'j', hide_short_help = true)]
    no_jumbo: bool,

    /// No effect: one thread always serves the socket.
    #[arg(short = 'H', hide_short_help = true)]
    hot_thread: bool,

    /// No effect: counting costs nothing.
    #[arg(short = 'N', hide_short_help = true)]
    no_stats: bool,

    /// No effect: afar never copies payload to read it.
    #[arg(short = 'V', hide_short_help = true)]
    readv: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommandName {
    /// Send --bytes.
    Send,
    /// Receive --bytes.
    Recv,
    /// Send --send-bytes, then receive --recv-bytes.
    Rpc,
    /// Send and receive the amounts in --file.
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Congestion {
    /// BBRv2: keeps its rate where losses are not congestion.
    Bbr,
    /// CUBIC with HyStart++ (RFC 9438, RFC 9406).
    Cubic,
    /// NewReno (RFC 6582).
    Reno,
}

fn parse_io_size(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        size if size > wire::IO_SIZE_MAX => Err(format!(
            "{text:?} is above {} bytes, the most that servers take",
            wire::IO_SIZE_MAX
        )),
        size => Ok(size),
    }
}
