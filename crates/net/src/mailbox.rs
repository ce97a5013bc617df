//! What applications ask of the I/O thread, and how they wake it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{io, mem};

use afar_rx::security::{ClientSecurity, ServerSecurity};
use afar_rx::{CallError, PeerStats, Service};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::call::CallShared;
use crate::connection::ConnectionShared;
use crate::server::Spawn;
use crate::stats::Stats;

/// A request to the I/O thread.
pub(crate) enum Command {
    /// Look at what the application left in this call's state.
    Call(Arc<CallShared>),
    /// Make the engine's connection.
    Connect(Arc<ConnectionShared>, Arc<dyn ClientSecurity>),
    /// Nobody can call on this connection any more.
    Disconnect(Arc<ConnectionShared>),
    /// Answer for a service.
    Serve(Service, Vec<Arc<dyn ServerSecurity>>, Spawn),
    /// Take what has arrived, from now on.
    Listen,
    /// Tell all counters.
    Stats(oneshot::Sender<Stats>),
    /// Tell what is known of a peer.
    PeerStats(SocketAddr, oneshot::Sender<Option<PeerStats>>),
    /// Ask a peer for so many shares of the path.
    AskForShares(SocketAddr, u8),
    /// Tell what is known of all peers.
    Peers(oneshot::Sender<Vec<PeerStats>>),
    /// Finish the running calls, then end. The sender is dropped at the end.
    Shutdown(oneshot::Sender<()>),
    /// End at once.
    Close,
}

/// Where the requests are put.
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    /// Whether the I/O thread sleeps, or will without looking at the queue again.
    asleep: AtomicBool,
    event: OwnedFd,
    wakes: AtomicU64,
}

#[derive(Default)]
struct Queue {
    commands: Vec<Command>,
    /// The last counters, once the I/O thread has ended.
    ended: Option<Stats>,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            asleep: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            wakes: AtomicU64::new(0),
        })
    }

    /// Hands a request over. Fails if the I/O thread has ended.
    pub(crate) fn push(&self, command: Command) -> Result<(), CallError> {
        {
            let mut queue = self.lock();
            if queue.ended.is_some() {
                return Err(CallError::Closed);
            }
            queue.commands.push(command);
        }
        self.wake();
        Ok(())
    }

    /// Ends the I/O thread's sleep, if it sleeps, after the queue has changed.
    fn wake(&self) {
        // Either this sees that the thread goes to sleep, or the thread, which says so before it
        // looks at the queue under the lock, sees the command.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = rustix::io::write(&self.event, &1_u64.to_ne_bytes()) {
                // EAGAIN: it is readable already.
                debug_assert_eq!(error, Errno::AGAIN, "an eventfd takes 8 bytes");
            }
        }
    }

    /// Swaps the requests that wait with an empty list.
    pub(crate) fn take(&self, commands: &mut Vec<Command>) {
        debug_assert!(commands.is_empty(), "the last batch was carried out");
        mem::swap(&mut self.lock().commands, commands);
    }

    /// Announces that the I/O thread will sleep. It must not if this says false.
    ///
    /// Then a sender may have seen the announcement before it was taken back, and writes the event
    /// now or later. That ends one later sleep early, after which [`wake_up`](Self::wake_up) reads it.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        if self.lock().commands.is_empty() {
            return true;
        }
        self.asleep.store(false, Ordering::Relaxed);
        false
    }

    /// The I/O thread is awake again; `readable` says that the event may have ended the sleep.
    ///
    /// What was polled readable is read, whoever wrote it and whenever: an event that nobody reads
    /// ends every sleep at once. A count of writes to come is no substitute for that.
    pub(crate) fn wake_up(&self, readable: bool) {
        self.asleep.store(false, Ordering::Relaxed);
        if readable && let Err(error) = rustix::io::read(&self.event, &mut [0; 8]) {
            debug_assert_eq!(error, Errno::AGAIN, "an eventfd gives 8 bytes");
        }
    }

    /// Refuses requests from now on and gives those that waited.
    pub(crate) fn end(&self, stats: Stats) -> Vec<Command> {
        let mut queue = self.lock();
        queue.ended = Some(stats);
        mem::take(&mut queue.commands)
    }

    /// The last counters, if the I/O thread has ended.
    pub(crate) fn ended(&self) -> Option<Stats> {
        self.lock().ended
    }

    /// What is readable when the I/O thread should wake up.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// How often the event was written.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole between any two of its operations.
        self.queue.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Whether the event is readable, as the socket's wait finds it.
    fn is_readable(mailbox: &Mailbox) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(mailbox.event(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap();
        fds[0].revents().contains(PollFlags::IN)
    }

    /// One sleep of the I/O thread; whether it would have lasted.
    fn sleep(mailbox: &Mailbox) -> bool {
        assert!(mailbox.prepare_sleep(), "no command waits");
        let readable = is_readable(mailbox);
        mailbox.wake_up(readable);
        !readable
    }

    /// A sender sees the announcement of a sleep that is taken back, as its own command is there already. Its
    /// event ends one sleep, and not all that follow.
    #[test]
    fn an_event_for_a_sleep_that_was_called_off_is_read() {
        for late in [false, true] {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let mut queue = mailbox.lock();
            let sleeper = Arc::clone(&mailbox);
            let sleeper = std::thread::spawn(move || sleeper.prepare_sleep());
            while !mailbox.asleep.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The sleeper has announced itself and waits for the lock that a sender holds.
            queue.commands.push(Command::Close);
            if late {
                assert!(mailbox.asleep.swap(false, Ordering::Relaxed));
            } else {
                mailbox.wake();
            }
            drop(queue);
            assert!(!sleeper.join().unwrap(), "there is a command");
            mailbox.take(&mut Vec::new());
            if late {
                assert!(sleep(&mailbox), "nothing was written yet");
                rustix::io::write(&mailbox.event, &1_u64.to_ne_bytes()).unwrap();
            }
            assert!(!sleep(&mailbox), "late {late}: one sleep ends early");
            assert!(sleep(&mailbox), "late {late}: the event was read");
        }
    }
}
