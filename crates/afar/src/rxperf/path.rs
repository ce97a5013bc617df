//! Between `rxperf` and the engine: flags into settings, counters into figures of a report.

use std::net::SocketAddr;
use std::time::Duration;

use afar_net::{Config, Endpoint};
use afar_rx::CongestionKind;
use serde::Serialize;

use super::args::{Congestion, TransportArgs};
use super::report::Counters;

/// What a packet of `-W` counts if `-m` does not say: Rx over Ethernet.
const PACKET_BYTES: u32 = 1444;

/// The endpoint's settings that the flags ask for.
pub(crate) fn config(args: &TransportArgs) -> Config {
    let mut config = Config::default();
    config.rx.extension = !args.classic;
    if let Some(congestion) = args.congestion {
        config.rx.congestion = match congestion {
            Congestion::Bbr => CongestionKind::Bbr,
            Congestion::Cubic => CongestionKind::Cubic,
            Congestion::Reno => CongestionKind::Reno,
        };
    }
    if let Some(mtu) = args.mtu {
        config.rx.datagram_max = mtu as usize;
    }
    if let Some(window) = args.window {
        let packet = args.mtu.unwrap_or(PACKET_BYTES);
        config.rx.receive_window_max = u64::from(window) * u64::from(packet);
        config.rx.classic_window = u8::try_from(window).unwrap_or(u8::MAX);
    }
    if let Some(kib) = args.udp_buffer {
        let bytes = kib as usize * 1024;
        config.receive_buffer = bytes;
        config.send_buffer = bytes;
    }
    if let Some(micros) = args.spin {
        config.spin = Duration::from_micros(micros.into());
    }
    config
}

/// The path to the peer and the work of the endpoint, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct PathReport {
    /// Whether the peer has shown that it speaks afar's extension.
    pub(crate) peer_is_afar: bool,
    /// The least RTT seen lately.
    pub(crate) rtt_min_s: Option<f64>,
    /// The smoothed RTT.
    pub(crate) rtt_smoothed_s: Option<f64>,
    /// The congestion controller's name.
    pub(crate) congestion: &'static str,
    /// Congestion window.
    pub(crate) cwnd_bytes: u64,
    /// Largest Rx packet sent, header included.
    pub(crate) mtu_bytes: u64,
    /// The peer's receive window, in packets; 0 if it is not known.
    pub(crate) window_packets: u32,
    /// DATA packets sent, retransmissions included.
    pub(crate) data_sent: u64,
    /// DATA packets sent again.
    pub(crate) data_resent: u64,
    /// Losses declared.
    pub(crate) lost: u64,
    /// Losses that proved false.
    pub(crate) spurious: u64,
    /// CE marks the peer reported.
    pub(crate) ecn_ce: u64,
    /// Datagrams that left for each system call that sends.
    pub(crate) datagrams_per_send: Option<f64>,
    /// Datagrams that came for each system call that receives.
    pub(crate) datagrams_per_recv: Option<f64>,
}

/// Asks the endpoint. Figures of a peer not heard from yet are 0 or absent.
pub(crate) async fn snapshot(endpoint: &Endpoint, peer: SocketAddr) -> PathReport {
    let stats = endpoint.stats().await;
    let mut report = PathReport {
        datagrams_per_send: ratio(stats.socket.datagrams_sent, stats.socket.send_calls),
        datagrams_per_recv: ratio(stats.socket.datagrams_received, stats.socket.receive_calls),
        ..PathReport::default()
    };
    if let Some(path) = endpoint.peer_stats(peer).await {
        report.peer_is_afar = path.afar;
        report.rtt_min_s = path.rtt_min.as_ref().map(Duration::as_secs_f64);
        report.rtt_smoothed_s = path.rtt_smoothed.as_ref().map(Duration::as_secs_f64);
        report.congestion = path.congestion;
        report.cwnd_bytes = path.congestion_window;
        report.mtu_bytes = path.packet_size as u64;
        report.window_packets = path.window_packets;
        report.data_sent = path.data_sent;
        report.data_resent = path.data_resent;
        report.lost = path.lost;
        report.spurious = path.spurious;
        report.ecn_ce = path.ecn_ce;
    }
    report
}

/// The counters of the endpoint.
pub(crate) async fn counters(endpoint: &Endpoint) -> Counters {
    let stats = endpoint.stats().await;
    let engine = stats.engine;
    Counters(vec![
        ("datagrams_received", engine.datagrams_received),
        ("datagrams_sent", engine.datagrams_sent),
        ("bytes_received", engine.bytes_received),
        ("bytes_sent", engine.bytes_sent),
        ("receive_syscalls", stats.socket.receive_calls),
        ("send_syscalls", stats.socket.send_calls),
        ("wakes", stats.wakes),
        ("turns", stats.turns),
        ("data_resent", engine.data_resent),
        ("spurious_losses", engine.spurious_losses),
        ("timeouts", engine.timeouts),
        ("probes", engine.probes),
        ("duplicates", engine.duplicates),
        ("acks_stale", engine.acks_stale),
        ("malformed", engine.malformed),
        ("unmatched", engine.unmatched),
        ("violations", engine.violations),
        ("refused", engine.refused),
        ("calls_started", engine.calls_started),
        ("calls_completed", engine.calls_completed),
        ("calls_failed", engine.calls_failed),
        ("rtt_samples", engine.rtt_samples),
    ])
}

fn ratio(amount: u64, calls: u64) -> Option<f64> {
    (calls > 0).then(|| amount as f64 / calls as f64)
}
