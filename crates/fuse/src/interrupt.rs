//! Interrupting requests that wait.
//!
//! The kernel sends an interrupt behind a request whose process has a signal, but the library
//! answers these itself, and then the process waits until the request is done, unkillable. For locks, and where
//! requests wait for servers, that may be for ever. So while a request waits, the mount checks whether its thread has
//! a signal to act on.
//!
//! Any such signal ends waiting for a lock. Other requests are interrupted while they wait for a server: as
//! with NFS, by what ends the process; those that change nothing also by the signals with which people ask programs
//! to end. What was begun goes on: nobody would know what is done of it if it were dropped.

use std::time::Duration;

use afar_cache::{Cache, Errno};
use tokio::sync::Semaphore;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(200);
/// Most requests end before the first check.
const BEGINNING: Duration = Duration::from_secs(1);
/// Requests that take longer and can be interrupted, and those that go on after that, at a time.
const SLOW_MOST: usize = 1024;
/// Interrupted system call.
const EINTR: Errno = Errno(libc::EINTR);
/// The signals by which people ask a program to end, as a mask: HUP, INT, QUIT, TERM.
const ASKING: u64 = bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGTERM);

static SLOW: Semaphore = Semaphore::const_new(SLOW_MOST);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Which signals interrupt a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// All on which the process acts.
    Any,
    /// Those that end the process, and those by which it is asked to end: nothing is changed by the request, and a
    /// program that makes it again does no harm.
    Asking,
    /// Those that end the process: nobody makes the request again.
    Ending,
}

/// The thread whose request may be interrupted while the request waits for servers.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) tid: u32,
    pub(crate) by: By,
    pub(crate) cache: Cache,
}

impl Asker {
    /// Returns when it has a signal to act on while it waits for a server.
    pub(crate) async fn gives_up(&self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.cache.is_waiting() && is_interrupted(self.tid, self.by) {
                return;
            }
        }
    }
}

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

/// Does `work`, unless the asker gives up meanwhile; then `work` goes on, and `after` gets what comes of it.
pub(crate) async fn or_go_on<T: Send + 'static>(
    asker: Asker,
    work: impl Future<Output = Result<T, Errno>> + Send + 'static,
    after: impl AsyncAfter<T>,
) -> Result<T, Errno> {
    unless(async move { asker.gives_up().await }, work, after).await
}

/// Does `work`, unless `given_up` returns meanwhile; then `work` goes on, and `after` gets what comes of it.
pub(crate) async fn unless<T: Send + 'static>(
    given_up: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, Errno>> + Send + 'static,
    after: impl AsyncAfter<T>,
) -> Result<T, Errno> {
    let mut work = Box::pin(work);
    tokio::select! {
        biased;
        result = &mut work => return result,
        () = tokio::time::sleep(BEGINNING) => {}
    }
    let Ok(slow) = SLOW.try_acquire() else {
        return work.await;
    };
    tokio::select! {
        biased;
        result = &mut work => result,
        () = given_up => {
            tokio::spawn(async move {
                let result = work.await;
                after.after(result).await;
                drop(slow);
            });
            Err(EINTR)
        }
    }
}

/// What is done with the result of a request whose process is gone.
pub(crate) trait AsyncAfter<T>: Send + 'static {
    /// Takes back what was handed out.
    fn after(self, result: Result<T, Errno>) -> impl Future<Output = ()> + Send;
}

impl<T, F, G> AsyncAfter<T> for F
where
    F: FnOnce(Result<T, Errno>) -> G + Send + 'static,
    G: Future<Output = ()> + Send,
{
    fn after(self, result: Result<T, Errno>) -> impl Future<Output = ()> + Send {
        self(result)
    }
}

/// For requests that hand nothing out.
pub(crate) fn nothing<T>(_: Result<T, Errno>) -> std::future::Ready<()> {
    std::future::ready(())
}

/// Returns when the thread has a signal to act on, or is gone.
async fn interrupted(tid: u32) {
    while !is_interrupted(tid, By::Any) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a thread has a signal to act on, or is gone.
fn is_interrupted(tid: u32, by: By) -> bool {
    // The kernel makes this up in memory: it takes no time worth a thread.
    match std::fs::read_to_string(format!("/proc/{tid}/status")) {
        Ok(status) => has_signal(&status, by),
        // A thread in another name space of processes has no number here that we could ask for.
        Err(_) => tid != 0,
    }
}

/// Whether the status of a thread, as in proc(5), has a signal of these that is neither blocked nor ignored.
fn has_signal(status: &str, by: By) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    let acted_on = pending & !(mask("SigBlk:") | mask("SigIgn:"));
    let caught = mask("SigCgt:");
    acted_on
        & match by {
            By::Any => u64::MAX,
            By::Asking => !caught | ASKING,
            By::Ending => !caught,
        }
        != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nSigQ:\t1/2\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn signals_count_unless_blocked_or_ignored() {
        for by in [By::Any, By::Asking, By::Ending] {
            assert!(!has_signal(&status(0, 0, 0, 0, 0), by));
            assert!(has_signal(&status(1 << 8, 0, 0, 0, 0), by));
            assert!(has_signal(&status(0, 1 << 8, 1, 2, 0), by));
            assert!(!has_signal(&status(2, 1, 3, 0, 0), by));
            assert!(!has_signal(&status(2, 1, 1, 2, 0), by));
        }
    }

    #[test]
    fn a_program_that_catches_a_signal_may_ask_again() {
        let pending = |signal: i32, by| {
            let bit = bit(signal);
            has_signal(&status(bit, 0, 0, 0, bit), by)
        };
        let told = |signal| [By::Any, By::Asking, By::Ending].map(|by| pending(signal, by));
        assert_eq!(told(libc::SIGINT), [true, true, false]);
        assert_eq!(told(libc::SIGURG), [true, false, false]);
    }

    #[tokio::test]
    async fn what_is_interrupted_goes_on_and_is_taken_back() {
        let (told, heard) = tokio::sync::oneshot::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<u8>();
        let work = async move { gone.await.map_err(|_| Errno::EIO) };
        let after = move |result: Result<u8, Errno>| async move { told.send(result).unwrap() };
        let result = unless(async {}, work, after).await;
        assert_eq!(result, Err(EINTR));
        go.send(7).unwrap();
        assert_eq!(heard.await.unwrap(), Ok(7));
        // Of one that is done in time nothing is taken back.
        let quick = unless(async {}, async { Ok(1) }, nothing);
        assert_eq!(quick.await, Ok(1));
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
