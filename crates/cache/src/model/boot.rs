//! The time that leases count: it goes on while the machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine started.
// spec: leases#time
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}
