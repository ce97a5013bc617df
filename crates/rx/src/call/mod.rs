//! One call: two streams on a channel of a connection, and its clocks.
//!
//! States are what the streams say they are. A client call sends its request and reads the reply;
//! a server call the other way round. The first DATA of the reply acknowledges the whole request.

mod ranges;
pub(crate) mod receive;
pub(crate) mod send;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::receive::Receiver;
use self::send::Sender;
use crate::packet::ack::Ack;
use crate::peer::Path;
use crate::types::Key;
use crate::{CallNumber, Config};

/// Pings are sent this often within the dead time.
const PINGS_PER_DEAD_TIME: u32 = 6;
/// How soon a peer is pinged again whose host says that nobody is there. If it still says so then,
/// it is believed: hosts limit how often they say it, mostly to once a second.
const REFUSED_PING: Duration = Duration::from_secs(1);

/// Which side began the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// What the application knows of a server call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waits for authentication, reachability or a place among the service's calls.
    Waiting,
    /// In the application's hands.
    Running,
    /// The application is done with it; it stays to acknowledge what comes late.
    Lingering,
}

/// What the peer has said of our stream, and our last serial when it said so.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    first: u32,
    highest: u32,
    serial: u32,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) connection: Key,
    pub(crate) channel: usize,
    pub(crate) number: CallNumber,
    pub(crate) role: Role,
    pub(crate) stage: Stage,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) started: Instant,
    /// When a packet of this call last came.
    pub(crate) heard: Instant,
    /// When a packet of this call last left.
    pub(crate) spoke: Instant,
    /// When the streams last made progress.
    pub(crate) progressed: Instant,
    /// When the peer's host said that nobody is there.
    refused: Option<Instant>,
    pub(crate) idle_limit: Option<Duration>,
    /// Where the timer heap will look at this call next.
    pub(crate) wake_at: Option<Instant>,
    /// Whether the call is in its path's list of senders.
    pub(crate) in_ready: bool,
    /// Whether the call is in the endpoint's list of acknowledgements to send.
    pub(crate) in_acks: bool,
    /// Whether the call waits for a place among its service's calls.
    pub(crate) in_line: bool,
    /// The address among whose calls it counts, once it waits or runs.
    pub(crate) counted: Option<SocketAddr>,
    told: Told,
    /// A padded PING of that size is to be sent.
    pub(crate) probe_size: Option<usize>,
}

impl Call {
    pub(crate) fn new(
        connection: Key,
        channel: usize,
        number: CallNumber,
        role: Role,
        now: Instant,
        window: u32,
        config: &Config,
    ) -> Self {
        Self {
            connection,
            channel,
            number,
            role,
            stage: if role == Role::Client {
                Stage::Running
            } else {
                Stage::Waiting
            },
            sender: Sender::new(now, window, role == Role::Server),
            receiver: Receiver::new(u32::from(config.classic_window)),
            started: now,
            heard: now,
            spoke: now,
            progressed: now,
            refused: None,
            idle_limit: if role == Role::Client {
                config.idle_limit
            } else {
                None
            },
            wake_at: None,
            in_ready: false,
            in_acks: false,
            in_line: false,
            counted: None,
            told: Told::default(),
            probe_size: None,
        }
    }

    /// Whether an acknowledgement shows that the peer has lost what it had of our stream: it says less
    /// than before, and names a packet that left after we had heard the more.
    ///
    /// The peer has been restarted. What it had acknowledged cannot be sent again.
    pub(crate) fn is_forgotten(&self, ack: &Ack, afar: bool) -> bool {
        // spec: rx-extension#ranges
        let is_later = ack.serial.wrapping_sub(self.told.serial).wrapping_sub(1) < u32::MAX / 2;
        if ack.serial == 0 || !is_later || self.told.first == 0 {
            return false;
        }
        // Old peers may withdraw soft acknowledgements, and put other things in `previous`.
        let withdrawn = || ack.previous < self.told.highest || self.sender.contradicts(ack);
        ack.first < self.told.first || afar && withdrawn()
    }

    /// Notes what a valid acknowledgement said; `serial` is the last one given out.
    pub(crate) fn on_told(&mut self, ack: &Ack, serial: u32) {
        let first = ack.first.max(self.told.first);
        self.told = Told {
            first,
            highest: ack.previous.max(self.told.highest),
            serial,
        };
    }

    /// Whether the peer owes us something, so that its silence means something.
    pub(crate) fn expects_peer(&self) -> bool {
        match self.role {
            Role::Client => self.stage == Stage::Running && !self.receiver.is_complete(),
            Role::Server => match self.stage {
                // Asked again and again whether it is there: a reach check may have been lost.
                Stage::Waiting => true,
                Stage::Running => {
                    !self.receiver.is_complete()
                        || self.sender.has_begun() && !self.sender.is_done()
                }
                Stage::Lingering => false,
            },
        }
    }

    /// The peer's host says that nobody is there. Returns whether that is to be believed: if it has
    /// said so before, and nothing was heard of the peer since.
    pub(crate) fn on_refused(&mut self, now: Instant) -> bool {
        match self.in_doubt() {
            Some(at) => at + REFUSED_PING <= now,
            None => {
                self.refused = Some(now);
                false
            }
        }
    }

    /// Since when the peer's host says that nobody is there, if nothing was heard of the peer since.
    fn in_doubt(&self) -> Option<Instant> {
        self.refused.filter(|at| self.heard <= *at)
    }

    /// When the peer is to be pinged for want of other traffic.
    pub(crate) fn ping_due(&self, config: &Config) -> Option<Instant> {
        let every = match self.in_doubt() {
            Some(_) => REFUSED_PING,
            None => config.dead_time / PINGS_PER_DEAD_TIME,
        };
        self.expects_peer()
            .then(|| self.heard.max(self.spoke) + every)
    }

    /// When an old peer is to be told again what has come of its stream.
    pub(crate) fn repeat_due(&self, path: &Path) -> Option<Instant> {
        if path.afar || self.stage == Stage::Lingering || !path.rtt.has_sample() {
            return None;
        }
        let repeats = self.receiver.repeats()?;
        Some(self.heard.max(self.spoke) + path.probe_timeout() * (1 << repeats))
    }

    /// When the call counts as dead, idle or too long.
    pub(crate) fn limit_due(&self, config: &Config) -> Option<Instant> {
        if self.stage == Stage::Lingering {
            return None;
        }
        let dead = self.expects_peer().then(|| self.heard + config.dead_time);
        let idle = self.idle_limit.map(|limit| self.progressed + limit);
        let hard = match self.role {
            Role::Client => config.hard_limit.map(|limit| self.started + limit),
            Role::Server => None,
        };
        [dead, idle, hard].into_iter().flatten().min()
    }
}
