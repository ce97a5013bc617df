//! Telling programs that a file could not be closed in order.
//!
//! The kernel flushes a file when any of its descriptors is closed. But only close(2) tells what came of that; when
//! a process ends, or dup2(2) puts another file in the place of a descriptor, nobody hears it.

use std::time::Duration;

use afar_cache::Cache;

/// How long it may take to see what a thread does.
const LOOK: Duration = Duration::from_millis(200);

/// Whether a thread that waits for a file to be flushed will be told what comes of it. Where that cannot be seen, it
/// counts as told.
pub(super) async fn hears_of_close(tid: u32) -> bool {
    let line = tokio::task::spawn_blocking(move || {
        std::fs::read_to_string(format!("/proc/{tid}/syscall"))
    });
    match tokio::time::timeout(LOOK, line).await {
        Ok(Ok(Ok(line))) => is_close(&line),
        Ok(_) => true,
        // While a thread executes another program, which closes files, nobody can look at it.
        Err(_) => false,
    }
}

/// Returns when the flush waits for a server while a thread waits in vain for it, as the thread is not told what
/// comes of it. It may even be the server's own process that is being started.
pub(super) async fn waits_in_vain(cache: &Cache, tid: u32) {
    loop {
        tokio::time::sleep(LOOK).await;
        if cache.is_waiting() && !hears_of_close(tid).await {
            return;
        }
    }
}

/// Whether the line of a thread, as in proc_pid_syscall(5), may be that of close(2).
fn is_close(line: &str) -> bool {
    let number = line.split_whitespace().next();
    let number = number.and_then(|number| number.parse::<i64>().ok());
    number.is_none_or(|number| number == libc::SYS_close)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_tells() {
        let line = |call: i64| format!("{call} 0x5 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f12\n");
        assert!(is_close(&line(libc::SYS_close)));
        for call in [
            libc::SYS_dup3,
            libc::SYS_exit_group,
            libc::SYS_close_range,
            -1,
        ] {
            assert!(!is_close(&line(call)), "{call}");
        }
        assert!(is_close("running\n") && is_close(""), "it cannot be seen");
    }
}
