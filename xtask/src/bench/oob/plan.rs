//! How rows are measured.

/// How rows are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) runs: u32,
    pub(super) quick: bool,
    /// Whether there is iperf3 to compare with.
    pub(super) has_iperf: bool,
}
