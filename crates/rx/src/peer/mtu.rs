//! How large packets to one peer may be.
//!
//! Every path starts at a size that gets through nearly everywhere. Larger ones are probed with padded PING
//! acknowledgements that must not be fragmented, which all peers answer: first the 1,444 bytes that Rx
//! has always sent, and for afar peers a full Ethernet frame, jumbo frames, and the 64 KiB of a loopback
//! device. Data never depends on an unproved size. What a packet was cut to stays: Rx numbers packets, and a
//! receiver that has one copy of a number takes no other. So a path that drops large packets without a
//! word must be known before they are cut. If full-sized packets stop arriving, the size falls back and is
//! looked for again.
//!
//! spec: RFC 8899 (packetization-layer path MTU discovery)

use std::time::{Duration, Instant};

use crate::packet::CLASSIC_PACKET_SIZE;
use crate::types::Key;

/// What gets through nearly everywhere: 1,200 bytes less IPv4 and UDP headers (RFC 8899 §5.1.2).
// spec: rx-extension#packet-size
const BASE_SIZE: usize = 1172;
/// What every host must take, 576 bytes less headers: while it is looked for what gets through to a peer that is
/// there, and takes no large packets any more.
const LEAST_SIZE: usize = 548;
/// Sizes worth knowing, ascending: the least MTU of IPv6, tunnels, Rx's own, Ethernet, half and whole
/// jumbo frames, 16 KiB loopback, and the largest UDP payload of IPv4.
const CANDIDATES: [usize; 9] = [
    BASE_SIZE,
    1252,
    1372,
    CLASSIC_PACKET_SIZE,
    1452,
    1472,
    4052,
    8972,
    16_356,
];
/// The largest UDP payload of IPv4.
const LARGEST: usize = 65_507;
/// Tries for each size (RFC 8899 §5.1.2, MAX_PROBES).
const TRIES: u8 = 3;
/// The same where much is lost that is not large, and for a size that got through before: calls whose packets were
/// cut to it end if it is given up.
const TRIES_PROVED: u8 = 10;
/// Timeouts in a row with nothing acknowledged, after which full-sized packets are suspected.
const BLACK_HOLE_TIMEOUTS: u32 = 3;
/// How long until a size that failed is tried again. RFC 8899 has 600 s; a probe that congestion took is
/// more frequent than a path that changes, and costs three packets.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The search for one path's packet size.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    /// Proved, or where it begins.
    size: usize,
    /// The largest that packets were cut to.
    largest: usize,
    limit: usize,
    /// The least size that did not get through.
    failed: Option<Failed>,
    tries: u8,
    /// Probes in a row that met a silent peer.
    silences: u32,
    probe: Option<Probe>,
    enabled: bool,
    /// People were told that the path is narrow.
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    size: usize,
    at: Instant,
    /// It is time to try it again; until it gets through it counts as failed.
    again: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    connection: Key,
    size: usize,
    sent: Instant,
    expires: Instant,
    /// The small PING that left with it, and whether that was answered: if not, this tells nothing.
    beside: Option<u32>,
    heard: bool,
    /// It expired before that was known.
    late: bool,
}

impl MtuSearch {
    /// `limit` is the largest packet we take and send; `enabled`, whether sizes are looked for.
    pub(crate) const fn new(limit: usize, enabled: bool) -> Self {
        let size = if enabled {
            BASE_SIZE
        } else {
            CLASSIC_PACKET_SIZE
        };
        Self {
            size,
            largest: size,
            limit,
            failed: None,
            tries: 0,
            silences: 0,
            probe: None,
            enabled,
            told: false,
        }
    }

    /// Largest packet to send now.
    pub(crate) fn packet_size(&self) -> usize {
        self.size.min(self.limit)
    }

    /// The peer takes no more than this.
    pub(crate) const fn limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The size to probe now, if any, of those up to `most`; `answered` is when the peer last acknowledged
    /// anything, and `is_lossy` whether small packets are lost on the path, too.
    pub(crate) fn wanted(
        &mut self,
        now: Instant,
        most: usize,
        answered: Option<Instant>,
        is_lossy: bool,
    ) -> Option<usize> {
        if !self.enabled {
            return None;
        }
        if let Some(probe) = &mut self.probe {
            let is_back = probe.late && answered.is_some_and(|at| at > probe.sent);
            if now < probe.expires && !is_back {
                return None;
            }
            if !probe.heard && !probe.late {
                // The answer to the small one may be on its way.
                probe.late = true;
                probe.expires = now + now.saturating_duration_since(probe.sent);
                return None;
            }
            let (size, heard) = (probe.size, probe.heard);
            self.probe = None;
            self.silences = if heard || is_back {
                0
            } else {
                self.silences + 1
            };
            self.tries += u8::from(heard);
            let tries = if is_lossy || size <= self.largest {
                TRIES_PROVED
            } else {
                TRIES
            };
            if self.tries >= tries {
                self.fail(now, size);
            }
        }
        if let Some(failed) = &mut self.failed {
            failed.again |= now.saturating_duration_since(failed.at) >= RETRY_AFTER;
        }
        self.next().filter(|size| *size <= most)
    }

    fn fail(&mut self, now: Instant, size: usize) {
        self.failed = Some(Failed {
            size,
            at: now,
            again: false,
        });
        self.tries = 0;
    }

    /// The next size to try: what most paths take, else step by step upwards.
    fn next(&self) -> Option<usize> {
        let usual = CLASSIC_PACKET_SIZE.min(self.limit);
        let may_be = |size: &usize| {
            *size > self.size
                && *size <= self.limit
                && self
                    .failed
                    .is_none_or(|failed| failed.again || *size < failed.size)
        };
        let mut steps = CANDIDATES.into_iter().chain([LARGEST]);
        Some(usual).filter(may_be).or_else(|| steps.find(may_be))
    }

    /// Whether a probe may yet be answered.
    pub(crate) const fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// When an unanswered probe is to be looked at.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.probe.map(|probe| probe.expires)
    }

    /// A probe left, to which the peer answers within `patience` if it is there; `beside` is the PING that left
    /// just before.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        connection: Key,
        serial: u32,
        beside: Option<u32>,
        size: usize,
        patience: Duration,
    ) {
        // A peer that is not there gets few.
        let expires = now + patience * (1 << self.silences.min(6));
        self.probe = Some(Probe {
            serial,
            connection,
            size,
            sent: now,
            expires,
            beside,
            heard: false,
            late: false,
        });
    }

    /// The local network refused a probe.
    pub(crate) fn on_refused(&mut self, now: Instant) {
        if let Some(probe) = self.probe.take() {
            self.fail(now, probe.size);
        }
    }

    /// An answer to the PING with that serial came; if that was a probe, the size grew, and this is when it
    /// left.
    pub(crate) fn on_answer(&mut self, connection: Key, serial: u32) -> Option<Instant> {
        let probe = self.probe.as_mut()?;
        if probe.connection != connection {
            return None;
        }
        if probe.serial != serial {
            probe.heard |= probe.beside == Some(serial);
            return None;
        }
        let (size, sent) = (probe.size, probe.sent);
        self.probe = None;
        self.tries = 0;
        self.size = size;
        self.largest = self.largest.max(size);
        self.failed = self.failed.filter(|failed| failed.size > size);
        self.told &= self.is_narrow();
        Some(sent)
    }

    /// So many timeouts in a row were seen of packets of a size, while the peer was heard of or not; true if the size
    /// was reduced for it.
    pub(crate) fn on_timeouts(&mut self, count: u32, lost: usize, is_heard: bool) -> bool {
        if lost > self.size {
            // They were cut before. Sizes that are looked for since are not in doubt.
            return false;
        }
        let smaller = if is_heard { LEAST_SIZE } else { BASE_SIZE };
        if count < BLACK_HOLE_TIMEOUTS || self.size <= smaller {
            return false;
        }
        let before = self.packet_size();
        self.size = smaller;
        self.tries = 0;
        self.probe = None;
        self.packet_size() < before
    }

    /// Whether a packet of that size, sent again and again, is known not to get through: the least size that would
    /// prove that it does has failed.
    pub(crate) fn is_too_large(&self, size: usize) -> bool {
        let mut sizes = CANDIDATES.into_iter().chain([LARGEST]);
        let proof = sizes.find(|candidate| *candidate >= size);
        let has_failed = (self.failed).is_some_and(|failed| Some(failed.size) <= proof);
        size > self.packet_size() && has_failed
    }

    /// Whether the path is known to drop packets that Rx peers have always sent.
    pub(crate) fn is_narrow(&self) -> bool {
        let classic = CLASSIC_PACKET_SIZE.min(self.limit);
        self.failed.is_some_and(|failed| failed.size <= classic)
    }

    /// The largest packet that gets through, if the path proved narrow and people were not told of it yet.
    pub(crate) fn take_news(&mut self) -> Option<usize> {
        let is_news = !self.told && self.is_narrow() && self.next().is_none();
        self.told |= is_news;
        is_news.then(|| self.packet_size())
    }
}
