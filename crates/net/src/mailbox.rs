//! What applications ask of the I/O thread, and how they wake it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use afar_rx::security::{ClientSecurity, ServerSecurity};
use afar_rx::{CallError, PeerStats, Service};
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
        // Either this sees that the thread goes to sleep, or the thread, which says so before it
        // looks at the queue under the lock, sees the command.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = rustix::io::write(&self.event, &1_u64.to_ne_bytes()) {
                // EAGAIN: it is readable already.
                debug_assert_eq!(error, Errno::AGAIN, "an eventfd takes 8 octets");
            }
        }
        Ok(())
    }

    /// Swaps the requests that wait with an empty list.
    pub(crate) fn take(&self, commands: &mut Vec<Command>) {
        debug_assert!(commands.is_empty(), "the last batch was carried out");
        mem::swap(&mut self.lock().commands, commands);
    }

    /// Announces that the I/O thread will sleep. It must not if this says false.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        if self.lock().commands.is_empty() {
            return true;
        }
        self.asleep.store(false, Ordering::Relaxed);
        false
    }

    /// The I/O thread is awake again. `owed` counts, for that thread, the writes of the event that
    /// were promised and not read yet; a late one only cuts a later sleep short.
    pub(crate) fn wake_up(&self, owed: &mut u64) {
        if !self.asleep.swap(false, Ordering::Relaxed) {
            *owed += 1;
        }
        if *owed > 0 {
            let mut count = [0; 8];
            match rustix::io::read(&self.event, &mut count) {
                Ok(_) => *owed = owed.saturating_sub(u64::from_ne_bytes(count)),
                Err(error) => debug_assert_eq!(error, Errno::AGAIN, "an eventfd gives 8 octets"),
            }
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
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
