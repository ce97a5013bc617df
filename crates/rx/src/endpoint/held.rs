//! Packets of connections that have not proved who they are, kept until they have.
//!
//! A client sends its first packets before it hears that it is asked who it is. They are kept, as
//! otherwise each new connection would begin with a retransmission. Nothing is lost with one that is not:
//! the client sends it again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::account::Source;
use crate::packet::Header;
use crate::types::Key;

/// Packets kept of one connection: what a client sends before it hears from the server.
const PACKETS: usize = 32;
/// Bytes kept of one connection: as many packets of the size all peers send.
const BYTES: usize = 48 << 10;
/// What a kept packet takes besides its body.
const OVERHEAD: usize = 128;

/// The packets that are held back.
#[derive(Debug)]
pub(super) struct HeldBack {
    /// Bytes that may be held, of all connections.
    most: usize,
    bytes: usize,
    connections: BTreeMap<Key, Held>,
    /// Connections in the order in which they came; some of them have gone.
    order: VecDeque<Key>,
    by_source: BTreeMap<Source, usize>,
}

#[derive(Debug)]
struct Held {
    source: Source,
    bytes: usize,
    packets: Vec<(Header, Bytes)>,
}

impl HeldBack {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            bytes: 0,
            connections: BTreeMap::new(),
            order: VecDeque::new(),
            by_source: BTreeMap::new(),
        }
    }

    /// Bytes that are held.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a packet, unless its connection or its address has enough. When there is no room, the
    /// connections that have waited for longest lose theirs: a client that means to answer has done so.
    pub(super) fn keep(&mut self, key: Key, source: Source, header: Header, body: &Bytes) {
        let size = OVERHEAD + body.len();
        let own = self.by_source.get(&source).copied().unwrap_or_default();
        if own + size > self.most / 4 {
            return;
        }
        if let Some(held) = self.connections.get(&key) {
            let is_here = held.packets.iter().any(|(other, _)| {
                (other.cid, other.call_number, other.sequence)
                    == (header.cid, header.call_number, header.sequence)
            });
            if is_here || held.packets.len() >= PACKETS || held.bytes + size > BYTES {
                return;
            }
        }
        while self.bytes + size > self.most {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            // Its first packets are not given up for one more of its own.
            if oldest == key {
                self.order.push_back(key);
                if self.order.len() == 1 {
                    return;
                }
            } else {
                self.take(oldest);
            }
        }
        if !self.connections.contains_key(&key) {
            self.forget_gone();
            self.order.push_back(key);
        }
        let held = self.connections.entry(key).or_insert_with(|| Held {
            source,
            bytes: 0,
            packets: Vec::new(),
        });
        held.bytes += size;
        // A copy: what arrived together lies in one large piece, which any part of it would keep.
        held.packets.push((header, Bytes::copy_from_slice(body)));
        self.bytes += size;
        *self.by_source.entry(held.source).or_default() += size;
    }

    /// What was kept of a connection, which has none any more.
    pub(super) fn take(&mut self, key: Key) -> Vec<(Header, Bytes)> {
        let Some(held) = self.connections.remove(&key) else {
            return Vec::new();
        };
        self.bytes -= held.bytes;
        if let Some(own) = self.by_source.get_mut(&held.source) {
            *own -= held.bytes;
            if *own == 0 {
                self.by_source.remove(&held.source);
            }
        }
        held.packets
    }

    /// Keeps the order from growing beyond the connections it is of.
    fn forget_gone(&mut self) {
        if self.order.len() > 2 * self.connections.len() + 16 {
            let connections = &self.connections;
            self.order.retain(|key| connections.contains_key(key));
        }
    }
}
