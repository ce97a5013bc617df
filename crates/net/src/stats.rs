//! Counters of an endpoint.

use crate::SocketStats;

/// Counters of an endpoint since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The engine's.
    pub engine: afar_rx::Stats,
    /// The socket's.
    pub socket: SocketStats,
    /// Turns of the I/O thread's loop.
    pub turns: u64,
    /// Requests of applications carried out.
    pub commands: u64,
    /// Times an application had to wake the I/O thread with a system call.
    pub wakes: u64,
    /// Tasks woken.
    pub tasks_woken: u64,
}

impl Stats {
    /// Datagrams for each system call that sends.
    #[must_use]
    pub fn packets_per_send(&self) -> f64 {
        ratio(self.socket.datagrams_sent, self.socket.send_calls)
    }

    /// Datagrams for each system call that receives.
    #[must_use]
    pub fn packets_per_receive(&self) -> f64 {
        ratio(self.socket.datagrams_received, self.socket.receive_calls)
    }
}

/// `part` for each `whole`, 0 if there is none.
#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
