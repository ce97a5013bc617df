//! What a task and the I/O thread share about one call.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};

use afar_rx::{AbortCode, CallError, CallId, Identity, ServiceId};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::connection::ConnectionShared;

/// Bytes queued, besides what the engine has taken, from which an application waits, unless it is to have
/// even fewer ready.
const SEND_QUEUE: usize = 256 << 10;

/// What a task and the I/O thread share about one call.
pub(crate) struct CallShared {
    state: Mutex<CallState>,
    /// Of a client's call.
    pub(crate) connection: Option<Arc<ConnectionShared>>,
    pub(crate) peer: SocketAddr,
    pub(crate) service: ServiceId,
    /// Of an incoming call: who the client has proved to be.
    pub(crate) identity: Identity,
}

/// The part of it that changes. The lock is held for moments only, by either side.
#[derive(Default)]
pub(crate) struct CallState {
    /// Chunks the application sent and the engine has not taken.
    pub(crate) outgoing: VecDeque<Bytes>,
    /// Bytes in `outgoing`.
    pub(crate) outgoing_bytes: usize,
    /// Bytes at the end of `outgoing` that the I/O thread was not told of.
    pub(crate) unannounced: usize,
    /// The application's stream ends after `outgoing`.
    pub(crate) finish: bool,
    /// Bytes the application has taken and the engine was not told of.
    pub(crate) consumed: usize,
    /// The application gave the call up.
    pub(crate) abort: Option<AbortCode>,
    /// A command for this call waits in the mailbox.
    pub(crate) announced: bool,

    /// The engine's name for the call, once it began.
    pub(crate) id: Option<CallId>,
    /// The engine takes more bytes.
    pub(crate) room: bool,
    /// Bytes to have ready for the engine, as it said last.
    pub(crate) granted: usize,
    /// The engine was told of the stream's end.
    pub(crate) finish_told: bool,
    /// Chunks that arrived.
    pub(crate) incoming: VecDeque<Bytes>,
    /// Bytes in `incoming`.
    pub(crate) incoming_bytes: usize,
    /// The peer's stream ends after `incoming`.
    pub(crate) end: bool,
    /// The call is over without success.
    pub(crate) error: Option<CallError>,

    interest: Interest,
    waker: Option<Waker>,
}

/// What the call's task waits for. A call belongs to one task, which waits for one thing at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Interest {
    #[default]
    Nothing,
    /// That so many bytes are there, or no more will come.
    Read {
        least: usize,
    },
    Write,
}

impl CallShared {
    pub(crate) fn client(connection: &Arc<ConnectionShared>) -> Self {
        let state = CallState {
            granted: SEND_QUEUE,
            ..CallState::default()
        };
        Self {
            state: Mutex::new(state),
            peer: connection.peer,
            service: connection.service,
            identity: Identity::Anonymous,
            connection: Some(Arc::clone(connection)),
        }
    }

    pub(crate) fn server(
        id: CallId,
        peer: SocketAddr,
        service: ServiceId,
        identity: Identity,
        granted: usize,
    ) -> Self {
        let state = CallState {
            id: Some(id),
            room: true,
            granted,
            ..CallState::default()
        };
        Self {
            state: Mutex::new(state),
            connection: None,
            peer,
            service,
            identity,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CallState> {
        // The state is whole between any two of its operations.
        self.state.lock()
    }

    /// Ends the call without success for its task. Gives whom to wake.
    pub(crate) fn fail(&self, error: CallError) -> Option<Waker> {
        let mut state = self.lock();
        if !state.end || !state.finish_told {
            state.error.get_or_insert(error);
        }
        state.outgoing.clear();
        state.outgoing_bytes = 0;
        state.take_waker()
    }
}

impl CallState {
    /// Whether the task is to wait before it sends more.
    pub(crate) fn is_full(&self) -> bool {
        self.outgoing_bytes >= SEND_QUEUE.min(self.granted)
    }

    /// Notes what the task waits for, under the same lock as it looked.
    pub(crate) fn wait(&mut self, interest: Interest, cx: &Context<'_>) {
        self.interest = interest;
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Whom to wake after a change of what can be read.
    pub(crate) fn take_reader(&mut self) -> Option<Waker> {
        match self.interest {
            Interest::Read { least } if self.is_readable(least) => self.take_waker(),
            _ => None,
        }
    }

    /// Whom to wake as there is room.
    pub(crate) fn take_writer(&mut self) -> Option<Waker> {
        match self.interest {
            Interest::Write if self.outgoing_bytes <= SEND_QUEUE.min(self.granted) / 2 => {
                self.take_waker()
            }
            _ => None,
        }
    }

    /// The task to wake, whatever it waits for.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        match std::mem::take(&mut self.interest) {
            Interest::Nothing => None,
            Interest::Read { .. } | Interest::Write => self.waker.take(),
        }
    }

    /// Whether so many bytes can be read, or no more will come.
    pub(crate) fn is_readable(&self, least: usize) -> bool {
        self.end || self.error.is_some() || self.incoming_bytes >= least
    }

    /// Whether something queued here is not known to the I/O thread.
    pub(crate) fn has_unannounced(&self) -> bool {
        self.unannounced > 0
    }
}
