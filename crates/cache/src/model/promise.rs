//! Promises of servers.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// A server's word that it will tell of changes.
///
/// In little memory: the server's number in the uppermost 16 bits, and in the others when it is over, in
/// milliseconds since [`start`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise(NonZeroU64);

/// A time before any promise that is kept.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

impl Promise {
    const TIME_BITS: u32 = 48;

    /// It may be over a moment early, and never late. None if it is over already.
    pub(crate) fn new(server: u16, until: Instant) -> Option<Self> {
        let time = until.checked_duration_since(start())?.as_millis();
        let time = u64::try_from(time).ok()?.min((1 << Self::TIME_BITS) - 1);
        let some = NonZeroU64::new(time)?;
        let promise = Self(some | u64::from(server) << Self::TIME_BITS);
        debug_assert!(promise.until() <= until, "it lasts too long");
        debug_assert_eq!(promise.server(), server);
        Some(promise)
    }

    /// The number of the server that gave it.
    pub(crate) fn server(self) -> u16 {
        let [high, low, ..] = self.0.get().to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// When it is over.
    pub(crate) fn until(self) -> Instant {
        let time = self.0.get() & ((1 << Self::TIME_BITS) - 1);
        start() + Duration::from_millis(time)
    }
}
