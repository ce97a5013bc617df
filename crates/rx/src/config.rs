//! Settings of an endpoint.

use std::net::IpAddr;
use std::time::Duration;

use crate::peer::congestion::CongestionKind;

/// Settings of an [`Endpoint`](crate::Endpoint). The defaults suit servers and clients alike.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of everything random here: epoch, connection ids, serials, the congestion controller's probing.
    /// A real endpoint must take it from the system's generator.
    pub seed: u64,
    /// The congestion controller of every path.
    pub congestion: CongestionKind,
    /// Packets that may leave before the first acknowledgement; 32 is what Rx peers have always sent.
    pub initial_window_packets: u32,
    /// A call is dead when nothing was heard of the peer for so long, pings notwithstanding.
    pub dead_time: Duration,
    /// A client call is given up when its streams make no progress for so long; `None` is never.
    pub idle_limit: Option<Duration>,
    /// A client call is given up after so long in any case; `None` is never.
    pub hard_limit: Option<Duration>,
    /// Bytes one call may hold unread, and so its largest receive window.
    pub receive_window_max: u64,
    /// Bytes that peers may make this endpoint hold: what of all calls is unread, queued for clients, or
    /// not acknowledged by them. One address, and one user, may take a third of it, strangers less.
    pub memory_max: u64,
    /// Bytes one call may have queued and unsent before writing must wait.
    pub send_buffer: usize,
    /// Connections kept that clients opened to us; idle ones make room first.
    pub server_connections_max: usize,
    /// Largest datagram accepted from and, once probed, sent to afar peers.
    pub datagram_max: usize,
    /// Whether larger packets than 1,444 bytes are looked for between afar peers.
    pub mtu_discovery: bool,
    /// Whether DATA to afar peers is sent as ECN-capable.
    pub ecn: bool,
    /// Whether the afar acknowledgement extension is sent and understood. Off, this endpoint keeps
    /// to what OpenAFS peers do; tests use it as the old peer.
    pub extension: bool,
    /// Receive window advertised to old peers, 1 to 255 packets.
    // spec: rx#windows
    pub classic_window: u8,
    /// How often an idle peer of our connections gets a packet that keeps NAT mappings alive, so that
    /// its callbacks reach us; `None` is never. Clients of file servers want 20 s.
    pub nat_keepalive: Option<Duration>,
    /// What `rxdebug -version` prints; 55 bytes are kept.
    pub version: String,
    /// Whether DEBUG questions of strangers are answered, without what connections could be taken over with.
    /// Servers say yes, so that `rxdebug` lists what they have; clients no.
    pub debug_for_all: bool,
    /// Addresses that DEBUG tells as much as this machine: everything.
    pub monitors: Vec<IpAddr>,
    /// Whether nobody can send here who may not, and addresses are made up by the shell, as between processes of
    /// one machine: then they are believed.
    pub private: bool,
}

impl Default for Config {
    /// Dead after 30 s, no other limits; 64 MiB a call and 1 GiB in all for what peers cause.
    ///
    /// 64 MiB is two bandwidth-delay products of 1 Gbit/s at 250 ms.
    fn default() -> Self {
        Self {
            seed: 0,
            congestion: CongestionKind::default(),
            initial_window_packets: 32,
            dead_time: Duration::from_secs(30),
            idle_limit: None,
            hard_limit: None,
            receive_window_max: 64 << 20,
            memory_max: 1 << 30,
            send_buffer: 2 << 20,
            server_connections_max: 100_000,
            datagram_max: 65_507,
            mtu_discovery: true,
            ecn: true,
            extension: true,
            classic_window: 255,
            nat_keepalive: None,
            version: concat!("afar ", env!("CARGO_PKG_VERSION")).to_owned(),
            debug_for_all: false,
            monitors: Vec::new(),
            private: false,
        }
    }
}
