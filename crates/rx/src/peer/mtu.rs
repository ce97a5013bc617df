//! How large packets to one peer may be.
//!
//! Every path starts at 1,444 octets, which all peers take and networks fragment if they must. For
//! afar peers larger sizes are probed with padded PING acknowledgements that must not be
//! fragmented: a full Ethernet frame, jumbo frames, and the 64 KiB of a loopback device. Data
//! never depends on an unproved size. If full-sized packets stop arriving the size falls back.

use std::time::{Duration, Instant};

use crate::packet::CLASSIC_PACKET_SIZE;

/// Sizes worth knowing, ascending: Ethernet less IPv4 and UDP headers, half and whole jumbo
/// frames, 16 KiB loopback, and the largest UDP payload of IPv4.
const CANDIDATES: [usize; 6] = [1452, 1472, 4052, 8972, 16_356, 65_507];
/// Packets that get through where nothing else is known to: 1,280 less IPv6 and UDP headers.
const FALLBACK_SIZE: usize = 1232;
/// Tries for each size.
const TRIES: u8 = 2;
/// Timeouts in a row with nothing acknowledged, after which full-sized packets are suspected.
const BLACK_HOLE_TIMEOUTS: u32 = 3;
/// How long until a size that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// The search for one path's packet size.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    size: usize,
    limit: usize,
    /// Index into [`CANDIDATES`] of the next size to try.
    next: usize,
    tries: u8,
    probe: Option<Probe>,
    done_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    serial: u32,
    connection: crate::types::Key,
    size: usize,
    expires: Instant,
}

impl MtuSearch {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            size: CLASSIC_PACKET_SIZE,
            limit,
            next: 0,
            tries: 0,
            probe: None,
            done_at: None,
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

    /// The size to probe now, if any.
    pub(crate) fn wanted(&mut self, now: Instant) -> Option<usize> {
        if let Some(probe) = self.probe {
            if now < probe.expires {
                return None;
            }
            self.probe = None;
            self.tries += 1;
            if self.tries >= TRIES {
                self.done_at = Some(now);
            }
        }
        if let Some(done_at) = self.done_at {
            if now.saturating_duration_since(done_at) < RETRY_AFTER {
                return None;
            }
            self.done_at = None;
            self.tries = 0;
        }
        while CANDIDATES
            .get(self.next)
            .is_some_and(|size| *size <= self.size)
        {
            self.next += 1;
        }
        CANDIDATES
            .get(self.next)
            .copied()
            .filter(|size| *size <= self.limit)
    }

    /// A probe left.
    pub(crate) const fn on_sent(
        &mut self,
        connection: crate::types::Key,
        serial: u32,
        size: usize,
        expires: Instant,
    ) {
        self.probe = Some(Probe {
            serial,
            connection,
            size,
            expires,
        });
    }

    /// The local network refused a probe of that size.
    pub(crate) const fn on_refused(&mut self, now: Instant) {
        if self.probe.take().is_some() {
            self.done_at = Some(now);
        }
    }

    /// An answer to the PING with that serial came; true if the size grew.
    pub(crate) fn on_answer(&mut self, connection: crate::types::Key, serial: u32) -> bool {
        match self.probe {
            Some(probe) if probe.serial == serial && probe.connection == connection => {
                self.probe = None;
                self.tries = 0;
                self.next += 1;
                self.size = probe.size;
                true
            }
            _ => false,
        }
    }

    /// Timeouts in a row were seen; true if the size was reduced for it.
    pub(crate) fn on_timeouts(&mut self, now: Instant, count: u32) -> bool {
        if count < BLACK_HOLE_TIMEOUTS || self.packet_size() <= FALLBACK_SIZE {
            return false;
        }
        // A size that worked may have been lost to a route change; the least one cannot be helped.
        let smaller = if self.size > CLASSIC_PACKET_SIZE {
            CLASSIC_PACKET_SIZE
        } else {
            FALLBACK_SIZE
        };
        self.size = smaller;
        self.next = 0;
        self.tries = 0;
        self.probe = None;
        self.done_at = Some(now);
        true
    }
}
