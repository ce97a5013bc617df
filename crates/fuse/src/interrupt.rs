//! Who waits for a lock and is to be interrupted.
//!
//! The kernel sends an interrupt behind a request whose process has a signal, but the library
//! answers these itself, and then the process waits until the request is done, unkillable. For locks
//! that may be for ever. So while a lock is waited for, we look whether the one who waits has a
//! signal that he would act on.

use std::time::Duration;

use afar_cache::Errno;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(200);
/// Interrupted system call.
const EINTR: Errno = Errno(libc::EINTR);

/// Does `work`, unless the thread `tid` gets a signal; then `work` is dropped.
pub(crate) async fn unless_interrupted<T>(
    tid: u32,
    work: impl Future<Output = Result<T, Errno>>,
) -> Result<T, Errno> {
    tokio::select! {
        biased;
        result = work => result,
        () = interrupted(tid) => Err(EINTR),
    }
}

/// Returns when the thread has a signal to act on, or is gone.
async fn interrupted(tid: u32) {
    loop {
        tokio::time::sleep(PAUSE).await;
        // The kernel makes this up in memory: it takes no time worth a thread.
        match std::fs::read_to_string(format!("/proc/{tid}/status")) {
            Ok(status) if !has_signal(&status) => {}
            // A thread in another name space of processes has no number here that we could ask for.
            Err(_) if tid == 0 => std::future::pending().await,
            _ => return,
        }
    }
}

/// Whether the status of a thread, as in proc(5), has a signal that is neither blocked nor ignored.
fn has_signal(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    pending & !(mask("SigBlk:") | mask("SigIgn:")) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64) -> String {
        format!(
            "Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t0\n"
        )
    }

    #[test]
    fn signals_count_unless_blocked_or_ignored() {
        assert!(!has_signal(&status(0, 0, 0, 0)));
        assert!(has_signal(&status(1 << 8, 0, 0, 0)));
        assert!(has_signal(&status(0, 1 << 8, 1, 2)));
        assert!(!has_signal(&status(2, 1, 3, 0)));
        assert!(!has_signal(&status(2, 1, 1, 2)));
    }

    #[tokio::test]
    async fn work_goes_on_while_nothing_happens_and_ends_with_its_thread() {
        let own = std::process::id();
        let slow = async {
            tokio::time::sleep(2 * PAUSE).await;
            Ok(1)
        };
        assert_eq!(unless_interrupted(own, slow).await, Ok(1));
        // No process has this number: Linux ends at 2^22.
        let never = std::future::pending::<Result<(), Errno>>();
        assert_eq!(unless_interrupted(u32::MAX, never).await, Err(EINTR));
    }
}
