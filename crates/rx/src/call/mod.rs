//! One call: two streams on a channel of a connection, and its clocks.
//!
//! States are what the streams say they are. A client call sends its request and reads the reply;
//! a server call the other way round. The first DATA of the reply acknowledges the whole request.

mod patience;
mod ranges;
pub(crate) mod receive;
pub(crate) mod send;

use std::time::{Duration, Instant};

pub(crate) use self::patience::Patience;
use self::receive::Receiver;
use self::send::Sender;
use crate::endpoint::{CALL_FLOOR, Owners};
use crate::packet::CLASSIC_PACKET_SIZE;
use crate::packet::ack::{Ack, Reason};
use crate::peer::Path;
use crate::types::Key;
use crate::{CallNumber, Config};

/// Pings are sent this often within the dead time.
// spec: rx#keepalive
const PINGS_PER_DEAD_TIME: u32 = 6;
/// How soon a peer is pinged again whose host says that nobody is there. If it still says so then,
/// it is believed: hosts limit how often they say it, mostly to once a second.
const REFUSED_PING: Duration = Duration::from_secs(1);
/// How often a client is asked to prove that it receives; OpenAFS asks every 2 s.
// spec: rx#reach-check
const REACH_EVERY: Duration = Duration::from_millis(250);

/// How long no data of a reply comes before it may be stuck, and how often the peer is pinged then.
pub(crate) const STUCK: Duration = Duration::from_secs(1);
/// Packets that a peer has sent meanwhile in vain if it is.
const STUCK_PACKETS: u32 = 4;
/// How long a call waits for its client to show that it is there.
// spec: rx-strangers#before-an-address-has-answered
const REACH_LIMIT: Duration = Duration::from_secs(15);
/// For each byte that a call may have queued, so many are in memory: queued with the engine, on the way to
/// it, in the program's hands, and read ahead.
pub(crate) const BYTES_PER_GRANTED: u64 = 4;
/// Bytes that each call may have queued, and all that a stranger's may have queued or unacknowledged.
pub(crate) const GRANT_FLOOR: usize = 16 << 10;
const _: () = assert!(BYTES_PER_GRANTED * GRANT_FLOOR as u64 == CALL_FLOOR);

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
    /// Of a client's call to us: among whose calls it counts.
    pub(crate) owners: Option<Owners>,
    /// Whether it counts among its service's calls, waiting or running.
    pub(crate) counted: bool,
    /// Its place among the calls of peers that have not shown that they are there.
    pub(crate) stranger: Option<u64>,
    /// Bytes that it may have queued.
    pub(crate) granted: usize,
    /// Bytes that it counts for in the endpoint's account.
    pub(crate) charged: u64,
    /// The time its client has left.
    pub(crate) patience: Patience,
    told: Told,
    /// Packets of the connection that were missing when data last came, or when the call began.
    pub(crate) missing: u32,
    /// A padded PING of that size is to be sent.
    pub(crate) probe_size: Option<usize>,
    /// It goes on when its client has proved that it receives; when it was last asked to.
    pub(crate) reach_asked: Option<Instant>,
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
            idle_limit: match role {
                Role::Client => config.idle_limit,
                Role::Server => None,
            },
            wake_at: None,
            in_ready: false,
            in_acks: false,
            in_line: false,
            owners: None,
            counted: false,
            stranger: None,
            granted: 0,
            charged: 0,
            patience: Patience::new(None),
            told: Told::default(),
            missing: 0,
            probe_size: None,
            reach_asked: None,
        }
    }

    /// It goes on when its client has proved that it receives. Asks it to, but not all the time.
    pub(crate) fn await_reach(&mut self, now: Instant) {
        if self.reach_asked.is_none_or(|at| at + REACH_EVERY <= now) {
            self.reach_asked = Some(now);
            self.receiver.request_ack(Reason::Ping);
        }
    }

    /// When a client is to be asked once more to prove that it receives.
    pub(crate) fn reach_due(&self) -> Option<Instant> {
        self.reach_asked.map(|at| at + REACH_EVERY)
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
        // spec: rx#what-acknowledgements-may-say
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
                        || self.reach_asked.is_some()
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

    /// Probes the path for larger packets if that is due and worth it: for a client, whose server will send
    /// what it is told gets through, and who has much to send.
    pub(crate) fn look_for_size(&mut self, now: Instant, path: &mut Path) {
        let most = if self.sender.is_bulk() && path.afar {
            usize::MAX
        } else if self.role == Role::Client || self.sender.is_long() || self.stage == Stage::Waiting
        {
            CLASSIC_PACKET_SIZE
        } else {
            0
        };
        let is_reached = self.role == Role::Client || path.is_reached(now);
        if self.probe_size.is_some() || !is_reached {
            return;
        }
        self.probe_size = path.probe_wanted(now, most);
        if self.probe_size.is_some() && !self.receiver.wants_ack() {
            // Only beside a PING that is answered does a probe that is not tell of its size. It leaves first,
            // as peers may answer only the last of several. Another acknowledgement that is to leave now has
            // more to say.
            self.receiver.request_ack(Reason::Ping);
        }
    }

    /// Whether the call cannot go on, as the path drops packets of the size its own were cut to.
    pub(crate) fn is_too_large(&self, path: &Path) -> bool {
        let stuck = self.sender.stuck(self.heard);
        stuck.is_some_and(|size| path.mtu.is_too_large(size))
    }

    /// Since when an old peer's reply may be stuck, as the path drops packets of the size that such peers send:
    /// what it had cut before it was told to send less does not get through any more.
    pub(crate) fn may_be_stuck(&self, path: &Path) -> Option<Instant> {
        let waits = self.role == Role::Client
            && self.stage == Stage::Running
            && !self.receiver.is_complete();
        (waits && !path.afar && path.mtu.is_narrow()).then_some(self.progressed)
    }

    /// Whether it is: it has sent packets for a while, of which `missing` in all have not come, and none has.
    pub(crate) fn is_stuck(&self, now: Instant, path: &Path, missing: u32) -> bool {
        let lost = missing.wrapping_sub(self.missing);
        self.may_be_stuck(path)
            .is_some_and(|since| since + STUCK <= now)
            && (STUCK_PACKETS..u32::MAX / 2).contains(&lost)
            && !path.is_lossy()
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
            Role::Server if self.stranger.is_some() => Some(self.started + REACH_LIMIT),
            Role::Server => self.patience.due(),
        };
        [dead, idle, hard].into_iter().flatten().min()
    }

    /// Whether the peer has something to do: to send more of its request, or to take our reply.
    pub(crate) fn is_peers_turn(&self) -> bool {
        let waits = self.receiver.waits_for_peer() || self.sender.waits_for_peer();
        self.stage == Stage::Running && waits
    }

    /// Bytes that a client's call to us counts for: what it may have queued with all that comes of it, or
    /// what it holds, if that is more. Of our own calls only what came counts: what we send is ours.
    pub(crate) fn charge(&self) -> u64 {
        let received = self.receiver.held();
        match self.role {
            Role::Client => received,
            Role::Server => {
                let holds = received + self.sender.held() as u64;
                holds.max(BYTES_PER_GRANTED * self.granted as u64)
            }
        }
    }
}
