//! Settings of out-of-band transfers.

use std::time::Duration;

/// Settings of out-of-band transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OobConfig {
    /// The TCP port that clients are told.
    pub port: u16,
    /// Bytes of memory for data on its way to all clients.
    pub memory: u64,
    /// How long a client may leave a transfer alone, or take nothing of what is sent.
    pub idle_limit: Duration,
}
