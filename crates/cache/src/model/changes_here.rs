//! What a cache tells of changes that it makes itself.

/// Changes that a cache made itself, under leases, and what became of them so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangesHere {
    /// Those made.
    pub made: u64,
    /// Batches of them that servers have run.
    pub batches: u64,
    /// Those that were sent after a lease was over.
    pub late: u64,
    /// Those that servers did not make.
    pub refused: u64,
    /// Those that wait to be sent.
    pub waiting: usize,
    /// Bytes of these in the journal.
    pub bytes: u64,
}
