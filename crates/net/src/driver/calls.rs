//! The calls that run, by the engine's name for them, and what passes between engine and tasks.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use afar_rx::{AbortCode, CallError, CallId, ConnectionId, Endpoint, Identity, Read, ServiceId};

use crate::call::{CallShared, CallState};

/// The calls that run.
#[derive(Default)]
pub(super) struct CallTable {
    /// By [`CallId::slot`].
    running: Vec<Option<Running>>,
    count: usize,
    /// Calls for which the engine had no channel yet.
    waiting: BTreeMap<ConnectionId, VecDeque<Arc<CallShared>>>,
}

struct Running {
    id: CallId,
    shared: Arc<CallShared>,
}

/// Whether a call could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Yes,
    NoChannel,
}

impl CallTable {
    /// Whether no call runs or waits for a channel.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.waiting.is_empty()
    }

    /// Whether an application still has one of them in its hands.
    pub(super) fn are_waited_for(&self) -> bool {
        let mut running = self.running.iter().flatten();
        !self.waiting.is_empty() || running.any(|call| Arc::strong_count(&call.shared) > 1)
    }

    /// Whether a call of a peer runs. What serves it may have calls of its own to make.
    pub(super) fn is_any_served(&self) -> bool {
        let mut running = self.running.iter().flatten();
        running.any(|call| call.shared.connection.is_none())
    }

    /// Carries out what the application left in a call's state, and begins the call if need be.
    pub(super) fn settle(
        &mut self,
        engine: &mut Endpoint,
        now: Instant,
        call: Arc<CallShared>,
        wakers: &mut Vec<Waker>,
    ) -> Started {
        let mut state = call.lock();
        state.announced = false;
        if state.error.is_some() {
            return Started::Yes;
        }
        let id = match state.id {
            Some(id) => id,
            None => match self.start(engine, now, &call, &mut state) {
                Ok(Some(id)) => id,
                Ok(None) => return Started::Yes,
                Err(connection) => {
                    drop(state);
                    let queue = self.waiting.entry(connection).or_default();
                    if !queue.iter().any(|other| Arc::ptr_eq(other, &call)) {
                        queue.push_back(call);
                    }
                    return Started::NoChannel;
                }
            },
        };
        if self.find(id).is_none() {
            return Started::Yes;
        }
        if let Some(code) = state.abort {
            state.error = Some(CallError::Cancelled(code));
            engine.abort(now, id, code);
            drop(state);
            self.remove(id);
            return Started::Yes;
        }
        pass_consumed(engine, now, id, &mut state);
        pass_outgoing(engine, now, id, &mut state, wakers);
        Started::Yes
    }

    /// Begins a client's call; none if it was given up before, or the connection if that is busy.
    fn start(
        &mut self,
        engine: &mut Endpoint,
        now: Instant,
        call: &Arc<CallShared>,
        state: &mut CallState,
    ) -> Result<Option<CallId>, ConnectionId> {
        let connection = call.connection.as_ref().expect("a server's call has begun");
        let connection_id = *connection
            .id
            .get()
            .expect("connections come before their calls");
        if let Some(code) = state.abort {
            state.error = Some(CallError::Cancelled(code));
            connection.release_channel();
            self.stop_waiting(connection_id, call);
            return Ok(None);
        }
        let id = engine.start_call(now, connection_id).ok_or(connection_id)?;
        state.id = Some(id);
        state.room = true;
        self.insert(id, Arc::clone(call));
        // Nothing can be there; asking makes the engine tell when there is.
        pass_incoming(engine, id, state);
        Ok(Some(id))
    }

    /// A client began a call to us.
    pub(super) fn accept(
        &mut self,
        engine: &mut Endpoint,
        id: CallId,
        (peer, identity): (SocketAddr, Identity),
        service: ServiceId,
    ) -> Arc<CallShared> {
        let granted = engine.granted(id);
        let shared = Arc::new(CallShared::server(id, peer, service, identity, granted));
        pass_incoming(engine, id, &mut shared.lock());
        self.insert(id, Arc::clone(&shared));
        shared
    }

    /// The engine has something to read.
    pub(super) fn read(
        &self,
        engine: &mut Endpoint,
        now: Instant,
        id: CallId,
        wakers: &mut Vec<Waker>,
    ) {
        let Some(call) = self.find(id) else { return };
        let mut state = call.lock();
        pass_consumed(engine, now, id, &mut state);
        pass_incoming(engine, id, &mut state);
        wakers.extend(state.take_reader());
    }

    /// The engine has room.
    pub(super) fn write(
        &self,
        engine: &mut Endpoint,
        now: Instant,
        id: CallId,
        wakers: &mut Vec<Waker>,
    ) {
        let Some(call) = self.find(id) else { return };
        let mut state = call.lock();
        state.room = true;
        pass_outgoing(engine, now, id, &mut state, wakers);
    }

    /// A call ended without success.
    pub(super) fn fail(&mut self, id: CallId, error: CallError, wakers: &mut Vec<Waker>) {
        if let Some(call) = self.remove(id) {
            wakers.extend(call.fail(error));
        }
    }

    /// A call ended well.
    pub(super) fn complete(&mut self, id: CallId) {
        self.remove(id);
    }

    /// The next call that waits for a channel of that connection.
    pub(super) fn next_waiting(&mut self, connection: ConnectionId) -> Option<Arc<CallShared>> {
        let queue = self.waiting.get_mut(&connection)?;
        let call = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&connection);
        }
        call
    }

    /// The connection is closed; its calls were dropped before.
    pub(super) fn forget_connection(&mut self, connection: ConnectionId) {
        self.waiting.remove(&connection);
    }

    /// Gives up all calls and tells the peers.
    pub(super) fn abort_all(
        &mut self,
        engine: &mut Endpoint,
        now: Instant,
        wakers: &mut Vec<Waker>,
    ) {
        for running in self.running.iter().flatten() {
            let code = match running.shared.connection {
                Some(_) => AbortCode::RX_USER_ABORT,
                None => AbortCode::RX_RESTARTING,
            };
            engine.abort(now, running.id, code);
        }
        self.fail_all(CallError::Closed, wakers);
    }

    /// Ends all calls for their tasks.
    pub(super) fn fail_all(&mut self, error: CallError, wakers: &mut Vec<Waker>) {
        for running in mem::take(&mut self.running).into_iter().flatten() {
            wakers.extend(running.shared.fail(error));
        }
        self.count = 0;
        for call in mem::take(&mut self.waiting).into_values().flatten() {
            wakers.extend(call.fail(error));
        }
    }

    fn stop_waiting(&mut self, connection: ConnectionId, call: &Arc<CallShared>) {
        if let Some(queue) = self.waiting.get_mut(&connection) {
            queue.retain(|other| !Arc::ptr_eq(other, call));
            if queue.is_empty() {
                self.waiting.remove(&connection);
            }
        }
    }

    fn insert(&mut self, id: CallId, shared: Arc<CallShared>) {
        let slot = id.slot();
        if slot >= self.running.len() {
            self.running.resize_with(slot + 1, || None);
        }
        debug_assert!(
            self.running[slot].is_none(),
            "a slot is free when its call has ended"
        );
        self.running[slot] = Some(Running { id, shared });
        self.count += 1;
    }

    fn find(&self, id: CallId) -> Option<&Arc<CallShared>> {
        let running = self.running.get(id.slot())?.as_ref()?;
        (running.id == id).then_some(&running.shared)
    }

    /// Takes a call out and frees its channel.
    fn remove(&mut self, id: CallId) -> Option<Arc<CallShared>> {
        let running = self
            .running
            .get_mut(id.slot())?
            .take_if(|running| running.id == id)?;
        self.count -= 1;
        if let Some(connection) = &running.shared.connection {
            connection.release_channel();
        }
        Some(running.shared)
    }
}

/// Tells the engine what the application is done with.
fn pass_consumed(engine: &mut Endpoint, now: Instant, id: CallId, state: &mut CallState) {
    let consumed = mem::take(&mut state.consumed);
    if consumed > 0 {
        engine.consume(now, id, consumed);
    }
}

/// Moves what has arrived to where the application finds it.
fn pass_incoming(engine: &mut Endpoint, id: CallId, state: &mut CallState) {
    if state.end {
        return;
    }
    loop {
        match engine.read(id) {
            Read::Data(data) => {
                state.incoming_bytes += data.len();
                state.incoming.push_back(data);
            }
            Read::Pending => return,
            Read::End => {
                state.end = true;
                return;
            }
        }
    }
}

/// Moves what the application sent to the engine, as far as it has room.
fn pass_outgoing(
    engine: &mut Endpoint,
    now: Instant,
    id: CallId,
    state: &mut CallState,
    wakers: &mut Vec<Waker>,
) {
    while state.room
        && let Some(data) = state.outgoing.pop_front()
    {
        state.outgoing_bytes -= data.len();
        match engine.write(now, id, data) {
            Ok(room) => state.room = room,
            // The event that says why follows.
            Err(_) => return,
        }
    }
    if state.outgoing.is_empty() && state.finish && !state.finish_told {
        state.finish_told = true;
        engine.finish(now, id);
    }
    state.granted = engine.granted(id);
    wakers.extend(state.take_writer());
}
