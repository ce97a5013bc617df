//! The I/O thread: drives the engine with a socket, a clock and the applications' requests.
//!
//! One thread owns the engine, so nothing here is locked but the moments of contact with a task: the
//! mailbox is swapped whole, and a call's state is locked once a batch. Each turn takes one batch of
//! datagrams, then the requests, the timers and the events, wakes tasks, and sends a bounded number
//! of batches: neither direction can starve the other.

mod calls;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use afar_rx::{AbortCode, CallError, ConnectionId, Event, ServiceId, Transmit};
use quinn_udp::is_msg_size_err;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::connection::ConnectionShared;
use crate::mailbox::{Command, Mailbox};
use crate::server::Spawn;
use crate::{Config, Received, Socket, Stats};

use calls::{CallTable, Started};

/// Batches sent in a turn before arrivals are looked at again.
const SENDS_IN_A_TURN: usize = 16;
/// Timers closer than this share a wake-up: a thousand calls have a thousand timers. The
/// nearest ones are pacing's, which loses nothing by firing 2 ms late.
const TIMER_GRAIN: Duration = Duration::from_micros(50);
/// How long to keep away from a socket whose error we do not understand.
const ERROR_PAUSE: Duration = Duration::from_millis(1);
/// How often an endpoint that holds looks for its first service.
const HOLD_PAUSE: Duration = Duration::from_millis(1);
/// How long an endpoint that ends waits for acknowledgements of replies that were sent.
const LINGER: Duration = Duration::from_millis(500);
/// How long the last packets may take to leave.
const LAST_PACKETS: Duration = Duration::from_millis(100);

/// The state of an I/O thread.
pub(crate) struct Driver<S: Socket> {
    engine: afar_rx::Endpoint,
    mailbox: Arc<Mailbox>,
    calls: CallTable,
    connections: BTreeMap<ConnectionId, Arc<ConnectionShared>>,
    services: BTreeMap<ServiceId, Spawn>,
    /// Filled by the engine; what `unsent` describes.
    buffer: Vec<u8>,
    /// What the socket had no room for.
    unsent: Option<Transmit>,
    /// Whether datagrams may have arrived since the last batch.
    readable: bool,
    spin: Duration,
    last_work: Instant,
    shutdown_limit: Duration,
    hold: bool,
    closing: Option<Closing>,
    stats: Stats,
    /// Empty between turns; kept for their allocations.
    datagrams: Vec<Received>,
    commands: Vec<Command>,
    wakers: Vec<Waker>,
    incoming: Vec<Call>,
    socket: S,
    /// Dropped last of all: that tells [`Endpoint::shutdown`](crate::Endpoint::shutdown).
    done: Vec<oneshot::Sender<()>>,
}

/// The endpoint ends when its calls have, or then.
struct Closing {
    deadline: Instant,
    /// Since when nobody here waits for a call: all there is are replies that were sent and not
    /// acknowledged. Their clients may be gone.
    quiet_since: Option<Instant>,
}

impl Closing {
    /// When it ends if nothing happens.
    fn ends_at(&self) -> Instant {
        let quiet = self.quiet_since.map(|since| since + LINGER);
        quiet.map_or(self.deadline, |quiet| quiet.min(self.deadline))
    }
}

/// What to do after a turn.
enum Next {
    Turn,
    Sleep(Option<Duration>),
    End,
}

impl<S: Socket> Driver<S> {
    pub(crate) fn new(socket: S, config: Config, mailbox: Arc<Mailbox>) -> Self {
        let now = socket.now();
        let mut rx = config.rx;
        rx.private |= socket.is_private();
        Self {
            engine: afar_rx::Endpoint::new(rx, now),
            mailbox,
            calls: CallTable::default(),
            connections: BTreeMap::new(),
            services: BTreeMap::new(),
            buffer: Vec::with_capacity(1 << 16),
            unsent: None,
            readable: true,
            spin: config.spin,
            last_work: now,
            shutdown_limit: config.shutdown_limit,
            hold: config.hold,
            closing: None,
            stats: Stats::default(),
            datagrams: Vec::new(),
            commands: Vec::new(),
            wakers: Vec::new(),
            incoming: Vec::new(),
            socket,
            done: Vec::new(),
        }
    }

    /// Runs until the endpoint ends.
    pub(crate) fn run(mut self) {
        // Pacing wants timers sharper than the default of 50 µs; without them it is only coarser.
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            tracing::debug!("cannot set the timer slack: {error}");
        }
        loop {
            match self.turn() {
                Next::Turn => self.readable = true,
                Next::Sleep(timeout) => self.sleep(timeout),
                Next::End => break,
            }
        }
        self.say_goodbye();
    }

    /// One round of work.
    fn turn(&mut self) -> Next {
        self.stats.turns += 1;
        let now = self.socket.now();
        let more = self.readable && !self.is_holding() && self.receive();
        // Between the two, so that what was asked for before a datagram was sent, a service to be
        // answered for, is done before that datagram is looked at.
        let commands = self.carry_out(now);
        let arrived = self.handle(now);
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.take_events(now);
        self.wake_tasks();
        let sent_all = self.transmit();
        if self.is_over(now) {
            return Next::End;
        }
        if more || !sent_all {
            return Next::Turn;
        }
        self.next(now, commands || arrived)
    }

    /// Whether to sleep, and until when.
    fn next(&mut self, before: Instant, worked: bool) -> Next {
        if !self.spin.is_zero() {
            if worked {
                self.last_work = before;
            }
            if before.saturating_duration_since(self.last_work) < self.spin {
                std::hint::spin_loop();
                return Next::Turn;
            }
        }
        let deadline = self.closing.as_ref().map(Closing::ends_at);
        let at = match (self.engine.poll_timeout(), deadline) {
            (Some(timer), Some(deadline)) => Some(timer.min(deadline)),
            (timer, deadline) => timer.or(deadline),
        };
        let Some(at) = at else {
            return Next::Sleep(None);
        };
        match at.saturating_duration_since(self.socket.now()) {
            Duration::ZERO => Next::Turn,
            timeout => Next::Sleep(Some(timeout.max(TIMER_GRAIN))),
        }
    }

    /// Whether nothing is taken from the socket yet.
    fn is_holding(&self) -> bool {
        self.hold && self.closing.is_none()
    }

    fn sleep(&mut self, timeout: Option<Duration>) {
        if self.is_holding() {
            // The socket may be readable all the time; this lasts for the start of a server only.
            std::thread::sleep(HOLD_PAUSE);
            self.readable = true;
            return;
        }
        if !self.mailbox.prepare_sleep() {
            self.readable = true;
            return;
        }
        match self
            .socket
            .wait(self.mailbox.event(), self.unsent.is_some(), timeout)
        {
            Ok(ready) => {
                self.readable = ready.datagrams;
                self.mailbox.wake_up(ready.wake);
            }
            Err(error) => {
                tracing::warn!("waiting for the socket failed: {error}");
                std::thread::sleep(ERROR_PAUSE);
                self.readable = true;
                self.mailbox.wake_up(true);
            }
        }
    }

    /// Takes one batch of datagrams. Says whether more may be there.
    fn receive(&mut self) -> bool {
        let Self {
            socket, datagrams, ..
        } = self;
        socket
            .receive(|datagram| datagrams.push(datagram))
            .unwrap_or_else(|error| {
                tracing::warn!("receiving failed: {error}");
                std::thread::sleep(ERROR_PAUSE);
                false
            })
    }

    /// Hands the batch to the engine. Says whether there was anything.
    fn handle(&mut self, now: Instant) -> bool {
        let Self {
            socket,
            engine,
            datagrams,
            ..
        } = self;
        let any = !datagrams.is_empty();
        for datagram in datagrams.drain(..) {
            let Received {
                from,
                to,
                ecn,
                data,
            } = datagram;
            engine.handle(now, from, to, ecn, data);
        }
        socket.refusals(|peer, kind| engine.handle_unreachable(now, peer, kind));
        any
    }

    /// Sends batches until the engine has none, the socket no room, or the turn is over, which gives
    /// false.
    fn transmit(&mut self) -> bool {
        for _ in 0..SENDS_IN_A_TURN {
            let now = self.socket.now();
            if self.unsent.is_none() {
                self.unsent = self.engine.poll_transmit(now, &mut self.buffer);
            }
            let Some(transmit) = self.unsent.take() else {
                return true;
            };
            match self.socket.send(&transmit, &self.buffer[..transmit.size]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some(transmit);
                    return true;
                }
                Err(error) => {
                    let peer = transmit.destination;
                    if is_msg_size_err(&error) {
                        self.engine.handle_too_large(now, peer);
                    } else {
                        self.engine.handle_unreachable(now, peer, error.kind());
                    }
                    self.take_events(now);
                    self.wake_tasks();
                }
            }
        }
        false
    }

    /// Carries out what applications asked for. Says whether there was anything.
    fn carry_out(&mut self, now: Instant) -> bool {
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox.take(&mut commands);
        let any = !commands.is_empty();
        self.stats.commands += commands.len() as u64;
        for command in commands.drain(..) {
            self.obey(now, command);
        }
        self.commands = commands;
        any
    }

    fn obey(&mut self, now: Instant, command: Command) {
        match command {
            Command::Call(call) => {
                self.calls
                    .settle(&mut self.engine, now, call, &mut self.wakers);
            }
            Command::Connect(shared, security) => {
                let id = self
                    .engine
                    .connect(now, shared.peer, shared.service, &security);
                // A peer's call that is let finish may need others: a file server tells clients of a
                // change before it answers who made it.
                if self.closing.is_some() && !self.calls.is_any_served() {
                    shared.close();
                }
                let fresh = shared.id.set(id);
                debug_assert_eq!(fresh, Ok(()), "a connection is made once");
                self.connections.insert(id, shared);
            }
            Command::Disconnect(shared) => {
                if let Some(id) = shared.id.get() {
                    self.connections.remove(id);
                    self.calls.forget_connection(*id);
                    self.engine.close(now, *id);
                }
            }
            Command::Serve(service, security, spawn) => {
                self.services.insert(service.id, spawn);
                self.engine.add_service(service, security);
            }
            Command::Listen => self.hold = false,
            // The caller may have gone.
            Command::Stats(answer) => drop(answer.send(self.stats())),
            Command::PeerStats(peer, answer) => drop(answer.send(self.engine.peer_stats(peer))),
            Command::AskForShares(peer, shares) => self.engine.ask_for_shares(peer, shares),
            Command::Peers(answer) => drop(answer.send(self.engine.peers())),
            Command::Shutdown(done) => {
                self.done.push(done);
                self.close_by(now + self.shutdown_limit);
            }
            Command::Close => self.close_by(now),
        }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Incoming { call, .. } if self.closing.is_some() => {
                    self.engine.abort(now, call, AbortCode::RX_RESTARTING);
                }
                Event::Incoming {
                    call,
                    connection,
                    peer,
                    service,
                } => {
                    let from = (peer, self.engine.identity(connection));
                    let shared = self.calls.accept(&mut self.engine, call, from, service);
                    self.incoming
                        .push(Call::server(shared, Arc::clone(&self.mailbox)));
                }
                Event::Readable(id) => {
                    self.calls.read(&mut self.engine, now, id, &mut self.wakers);
                }
                Event::Writable(id) => {
                    self.calls
                        .write(&mut self.engine, now, id, &mut self.wakers);
                }
                Event::Failed(id, error) => self.calls.fail(id, error, &mut self.wakers),
                Event::Completed(id) => self.calls.complete(id),
                Event::ChannelFree(id) => self.start_waiting(now, id),
                Event::Narrow { peer, size } => {
                    let packet = size + ip_overhead(peer);
                    tracing::warn!(
                        "the path to {peer} seems to drop packets larger than {packet} bytes; \
                         sending smaller ones from now on"
                    );
                }
            }
        }
    }

    /// Begins calls that waited for a channel.
    fn start_waiting(&mut self, now: Instant, connection: ConnectionId) {
        while let Some(call) = self.calls.next_waiting(connection) {
            let started = self
                .calls
                .settle(&mut self.engine, now, call, &mut self.wakers);
            if started == Started::NoChannel {
                break;
            }
        }
    }

    fn wake_tasks(&mut self) {
        // After all events of this turn, so that each task finds everything that is there for it.
        for call in self.incoming.drain(..) {
            if let Some(spawn) = self.services.get(&call.service()) {
                spawn(call);
            }
        }
        self.stats.tasks_woken += self.wakers.len() as u64;
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    fn close_by(&mut self, deadline: Instant) {
        for connection in self.connections.values() {
            connection.close();
        }
        let deadline = self
            .closing
            .as_ref()
            .map_or(deadline, |old| old.deadline.min(deadline));
        self.closing = Some(Closing {
            deadline,
            quiet_since: None,
        });
    }

    fn is_over(&mut self, now: Instant) -> bool {
        let Some(closing) = &mut self.closing else {
            return false;
        };
        if self.calls.is_empty() {
            return true;
        }
        if self.calls.are_waited_for() {
            closing.quiet_since = None;
        } else {
            closing.quiet_since.get_or_insert(now);
        }
        now >= closing.ends_at()
    }

    /// Ends what still runs and sends the last packets: aborts and acknowledgements.
    fn say_goodbye(&mut self) {
        let now = self.socket.now();
        self.calls
            .abort_all(&mut self.engine, now, &mut self.wakers);
        for (id, connection) in std::mem::take(&mut self.connections) {
            connection.close();
            self.engine.close(now, id);
        }
        loop {
            while !self.transmit() {}
            let left = LAST_PACKETS.saturating_sub(self.socket.now().duration_since(now));
            if self.unsent.is_none() || left.is_zero() {
                break;
            }
            if let Err(error) = self.socket.wait(self.mailbox.event(), true, Some(left)) {
                tracing::debug!("cannot send the last packets: {error}");
                break;
            }
        }
    }

    fn stats(&self) -> Stats {
        Stats {
            engine: self.engine.stats(),
            socket: self.socket.stats(),
            wakes: self.mailbox.wakes(),
            ..self.stats
        }
    }
}

/// Bytes of the IP and UDP headers before a datagram's payload.
const fn ip_overhead(peer: SocketAddr) -> usize {
    if peer.is_ipv4() { 28 } else { 48 }
}

impl<S: Socket> Drop for Driver<S> {
    /// However the thread ends, nobody may wait for it for ever.
    fn drop(&mut self) {
        for command in self.mailbox.end(self.stats()) {
            match command {
                Command::Call(call) => self.wakers.extend(call.fail(CallError::Closed)),
                Command::Connect(connection, _) => connection.close(),
                // Answers that are dropped say that there is none.
                _ => {}
            }
        }
        for connection in self.connections.values() {
            connection.close();
        }
        self.calls.fail_all(CallError::Closed, &mut self.wakers);
        self.wake_tasks();
    }
}
