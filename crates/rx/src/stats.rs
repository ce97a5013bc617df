//! Plain counters; crate `telemetry` and `rxperf` make figures of them.

use std::net::SocketAddr;
use std::time::Duration;

/// Counters of one endpoint since it began. Packets are Rx packets (the parts of a jumbogram count
/// one each); bytes are UDP payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams handed in.
    pub datagrams_received: u64,
    /// Datagrams handed out.
    pub datagrams_sent: u64,
    /// Bytes handed in.
    pub bytes_received: u64,
    /// Bytes handed out.
    pub bytes_sent: u64,
    /// Packets received by type, index type − 1, as RXSTATS of rxdebug has them.
    pub packets_received: [u64; 13],
    /// Packets sent by type, index type − 1.
    pub packets_sent: [u64; 13],
    /// DATA packets sent again.
    pub data_resent: u64,
    /// Losses declared that later proved false.
    pub spurious_losses: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail-loss probes.
    pub probes: u64,
    /// DATA packets received twice.
    pub duplicates: u64,
    /// Acknowledgements dropped because they were older than one already seen.
    pub acks_stale: u64,
    /// Malformed datagrams dropped: too short, bad lengths, bad types.
    pub malformed: u64,
    /// Well-formed packets that belong to nothing here.
    pub unmatched: u64,
    /// Packets that broke a rule: acknowledged what was not sent, outside the window, wrong direction.
    pub violations: u64,
    /// Packets of connections that came from another address than the connection's peer, and were dropped.
    pub elsewhere: u64,
    /// DATA packets that their security class did not open, and were dropped.
    pub unsealed: u64,
    /// Connections whose client went on from another address.
    pub moved: u64,
    /// Packets not sent because their address had not answered yet.
    pub unproved: u64,
    /// New connections or calls refused because a limit was reached.
    pub refused: u64,
    /// Calls begun by this side.
    pub calls_started: u64,
    /// Calls begun by peers.
    pub calls_received: u64,
    /// Calls of peers that had to wait for a place among their service's calls.
    pub calls_waited: u64,
    /// Calls that ended well.
    pub calls_completed: u64,
    /// Calls that ended otherwise.
    pub calls_failed: u64,
    /// Answers that belong to no call held back by the rate limits.
    pub answers_limited: u64,
    /// RTT samples taken.
    pub rtt_samples: u64,
    /// Bytes of payload now held for reading by applications and out of order.
    pub receive_memory: u64,
    /// Bytes that all calls of peers count for, of [`Config::memory_max`](crate::Config::memory_max).
    pub memory: u64,
    /// Bytes of packets that are held back until their connection has proved who it is.
    pub held_back: u64,
    /// Calls of clients that were ended because they did not get on, or to make room for others.
    pub calls_evicted: u64,
}

/// What is known of the path to one peer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PeerStats {
    /// The peer's address.
    pub address: SocketAddr,
    /// Whether it has sent the afar acknowledgement extension.
    pub afar: bool,
    /// The least RTT seen lately, if any was measured.
    pub rtt_min: Option<Duration>,
    /// The smoothed RTT.
    pub rtt_smoothed: Option<Duration>,
    /// The RTT by the last PING that was answered: that of the network alone, without what a peer's program
    /// takes. It is measured twice a second while an old peer sends, and where nothing else measures it.
    pub rtt_ping: Option<Duration>,
    /// The mean deviation of the RTT.
    pub rtt_variation: Option<Duration>,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Bytes now in flight.
    pub in_flight: u64,
    /// Pacing rate in bytes a second, if paced.
    pub pacing_rate: Option<u64>,
    /// The congestion controller's name.
    pub congestion: &'static str,
    /// The controller's state, in its own words.
    pub congestion_state: &'static str,
    /// Shares of the path that it has by its own wish.
    pub shares: u8,
    /// Largest Rx packet sent to this peer, header included.
    pub packet_size: usize,
    /// The peer's receive window for the last call heard of, in packets.
    pub window_packets: u32,
    /// DATA packets sent, retransmissions included.
    pub data_sent: u64,
    /// DATA packets sent again.
    pub data_resent: u64,
    /// Losses declared.
    pub lost: u64,
    /// Losses that proved false.
    pub spurious: u64,
    /// Bytes of payload and headers sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// CE marks the peer reported.
    pub ecn_ce: u64,
}
