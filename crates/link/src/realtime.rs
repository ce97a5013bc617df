//! Real-time scheduling for the emulator's thread.
#![expect(
    unsafe_code,
    reason = "sched_setscheduler has no safe wrapper in rustix or nix"
)]

use std::io;

/// Puts the calling thread into `SCHED_FIFO`, so that a full processor does not make packets
/// late.
///
/// # Errors
///
/// What the system said; the emulator works without, only less punctually.
pub(crate) fn enter_fifo(priority: i32) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` is a valid `sched_param` that outlives the call, which only reads it;
    // 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
