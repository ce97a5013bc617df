//! What was measured. Times are in seconds, rates in bytes a second, sizes in bytes.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

/// Bytes of file data in a packet of an OpenAFS server.
// spec: rx#packet-sizes
pub(crate) const OLD_PAYLOAD: f64 = 1416.0;

/// All that was measured of one server. What could not be measured is absent, and `notes` says why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The server asked.
    pub address: SocketAddr,
    /// Its answers to small packets.
    pub path: Path,
    /// Packet sizes that reach it.
    pub mtu: Option<Mtu>,
    /// How long a NAT on the path remembers a silent client.
    pub nat: Option<Nat>,
    /// What the server tells of itself.
    pub server: Server,
    /// Its clock.
    pub clock: Option<Clock>,
    /// How long the smallest call takes.
    pub small_call: Option<SmallCall>,
    /// How fast data comes.
    pub fetch: Option<Fetch>,
    /// The cell's database servers.
    pub databases: Vec<Database>,
    /// This machine.
    pub local: Local,
    /// What was not measured, and why.
    pub notes: Vec<String>,
}

/// The path to a server, by small packets that the server answers at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Path {
    /// Packets sent.
    pub sent: u32,
    /// Packets answered.
    pub answered: u32,
    /// Answers that came after the answer to a later packet.
    pub reordered: u32,
    /// Answers that came twice.
    pub duplicated: u32,
    /// Whether the host answers only so many packets a second; then the others count as not sent.
    pub rate_limited: bool,
    /// Whether this host's system said that nothing listens at the port.
    pub refused: bool,
    /// The least round trip.
    pub rtt_min_s: Option<f64>,
    /// The median round trip.
    pub rtt_median_s: Option<f64>,
    /// The 99th percentile of the round trips.
    pub rtt_p99_s: Option<f64>,
}

/// Sizes of IP packets from here to the server that must not be fragmented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mtu {
    /// What this machine's route says.
    pub route: u32,
    /// The largest size that was answered.
    pub passed: u32,
    /// The least size that disappeared although the route allows it, and no router said why.
    pub lost: Option<u32>,
}

/// How long an idle mapping of a NAT or firewall lets packets of the server through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Nat {
    /// The longest silence after which one came through.
    pub kept_s: Option<u64>,
    /// The shortest after which none did.
    pub lost_s: Option<u64>,
}

/// What a server tells everybody.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Server {
    /// Its version, printable characters only.
    pub version: Option<String>,
    /// Whether it is afar's.
    pub afar: bool,
    /// Its threads, each time it was asked.
    pub threads: Vec<Threads>,
    /// Packets that it takes of one call before it acknowledges.
    pub receive_window_packets: Option<u32>,
    /// What it knows of the path to this client.
    pub peer: Option<PeerView>,
}

/// Threads of a server, or places for calls, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Threads {
    /// Calls that wait for one.
    pub waiting: u32,
    /// Idle ones.
    pub idle: u32,
}

/// The path to this client as the server sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PeerView {
    /// The smoothed round trip.
    pub rtt_s: f64,
    /// DATA packets sent to this client.
    pub sent: u32,
    /// Of these, sent again.
    pub resent: u32,
    /// Congestion window in packets.
    pub window_packets: u16,
}

/// A server's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Clock {
    /// How far it is ahead of this machine's.
    pub offset_s: f64,
    /// How far that may be wrong.
    pub error_s: f64,
}

/// The time of the smallest call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SmallCall {
    /// Calls answered.
    pub answered: u32,
    /// Calls made.
    pub made: u32,
    /// The median time.
    pub median_s: f64,
}

/// How fast a file comes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fetch {
    /// Length of the file.
    pub length: u64,
    /// Whether packets are sealed by fcrypt.
    pub sealed: bool,
    /// By one call at a time.
    pub one: Rate,
    /// By several.
    pub several: Rate,
    /// The median round trip of small packets meanwhile.
    pub rtt_loaded_s: Option<f64>,
    /// Datagrams that this machine dropped meanwhile because a socket's receive buffer was full.
    pub buffer_drops: u64,
}

/// Data that came in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Calls at a time.
    pub calls: u32,
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes a second, without the start.
    pub bytes_per_s: f64,
}

/// One database server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Database {
    /// Its address.
    pub address: SocketAddr,
    /// Time of its answer; absent if there was none.
    pub answer_s: Option<f64>,
}

/// This machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Local {
    /// `net.core.rmem_max`.
    pub rmem_max: Option<u64>,
    /// The receive buffer that a socket of afar's gets here.
    pub receive_buffer: Option<u64>,
    /// The one that it asks for.
    pub receive_buffer_wanted: u64,
    /// The packet cipher on one processor.
    pub cipher: Option<Cipher>,
    /// Where the cache lies.
    pub cache: Option<Disk>,
}

/// The speed of fcrypt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cipher {
    /// Packets opened on one processor.
    pub open_bytes_per_s: f64,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Disk {
    /// The directory looked at.
    pub directory: PathBuf,
    /// Bytes of the file system.
    pub size: u64,
    /// Of these, free for this user.
    pub free: u64,
    /// Bytes written to a new file and flushed, a second.
    pub write_bytes_per_s: Option<f64>,
}

impl Measured {
    /// Nothing yet.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            path: Path::default(),
            mtu: None,
            nat: None,
            server: Server::default(),
            clock: None,
            small_call: None,
            fetch: None,
            databases: Vec::new(),
            local: Local::default(),
            notes: Vec::new(),
        }
    }

    /// Whether the server answered anything at all.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.path.answered > 0 || self.small_call.is_some_and(|call| call.answered > 0)
    }
}

impl Path {
    /// Packets that were not answered.
    #[must_use]
    pub const fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.answered)
    }

    /// The share of packets that were not answered.
    #[must_use]
    pub fn loss(&self) -> f64 {
        share(self.lost(), self.sent)
    }

    /// The share of answers that came out of order.
    #[must_use]
    pub fn reordering(&self) -> f64 {
        share(self.reordered, self.answered)
    }
}

impl Rate {
    /// Packets of an OpenAFS server that are on their way at this rate and round trip.
    #[must_use]
    pub fn packets_in_flight(&self, rtt_s: f64) -> f64 {
        self.bytes_per_s * rtt_s / OLD_PAYLOAD
    }
}

fn share(part: u32, of: u32) -> f64 {
    match of {
        0 => 0.0,
        _ => f64::from(part) / f64::from(of),
    }
}
