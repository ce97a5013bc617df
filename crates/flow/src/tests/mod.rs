//! Time for tests.

use std::sync::OnceLock;
use std::time::Instant;

/// Some moment, from which virtual time is counted.
#[expect(
    clippy::disallowed_methods,
    reason = "a test needs one moment to begin with"
)]
pub(crate) fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
