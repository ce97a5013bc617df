//! What is said of one cause.

use serde::Serialize;

/// What binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// Large packets disappear on the path.
    MtuHole,
    /// The disk of the cache is full.
    CacheFull,
    /// Clocks differ.
    Clock,
    /// A NAT forgets silent clients.
    Nat,
    /// The server has no thread for further calls.
    BusyThreads,
    /// Database servers do not answer.
    Databases,
    /// The path loses packets.
    Loss,
    /// The path reorders packets.
    Reordering,
    /// This machine drops datagrams for which a socket has no room.
    ReceiveBuffer,
    /// The disk of the cache is slower than the path.
    CacheDisk,
    /// fcrypt takes a processor.
    Cipher,
    /// A call has too few packets on their way.
    Window,
    /// The path carries no more.
    Path,
}

/// One thing that binds: with the figures, what a fix gives, and how to do it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What binds.
    pub cause: Cause,
    /// One sentence with the figures.
    pub sentence: String,
    /// What the fix gives.
    pub gain: String,
    /// The command, or the setting, that fixes it.
    pub command: String,
    /// Bytes a second to which it limits one call, where it limits them.
    pub ceiling_bytes_per_s: Option<f64>,
    /// Whether something fails because of it, and not only takes longer.
    pub breaks: bool,
}

impl Diagnosis {
    pub(super) fn new(cause: Cause, sentence: String, gain: String, command: String) -> Self {
        Self {
            cause,
            sentence,
            gain,
            command,
            ceiling_bytes_per_s: None,
            breaks: false,
        }
    }

    /// It limits a call to so much.
    pub(super) fn limits_to(self, bytes_per_s: f64) -> Self {
        Self {
            ceiling_bytes_per_s: Some(bytes_per_s),
            ..self
        }
    }

    /// Something fails because of it.
    pub(super) fn breaks_if(self, breaks: bool) -> Self {
        Self { breaks, ..self }
    }
}
