//! What a reader accepts.

use super::format::DATA_MAX;

/// Bounds on what a dump may announce. None of them is memory set aside: texts and unknown fields
/// are bounded because they would otherwise be read without end, data because the volume it goes
/// to is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest file, in bytes. 2^63 − 1, which is also the most.
    pub data: u64,
    /// Longest name or message, in bytes. 1024. OpenAFS reads any length and keeps the first 31
    /// bytes of a name and 127 of a message; the reader hands out the whole.
    pub text: usize,
    /// Longest content of a field that is not known and skipped, in bytes. 1 MiB.
    pub unknown: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            data: DATA_MAX,
            text: 1024,
            unknown: 1 << 20,
        }
    }
}
