//! Datagrams of one size to one address, which leave together.

use std::net::{IpAddr, SocketAddr};

use crate::arena::Arena;
use crate::connection::Connection;
use crate::packet::{HEADER_SIZE, Header};
use crate::security::Sealing;
use crate::types::Key;
use crate::{Ecn, Transmit};

/// Bytes and datagrams of one transmit: what the kernel takes in one segmented send.
const BATCH_SIZE: usize = 65_507;
const BATCH_DATAGRAMS: usize = 64;

/// Datagrams gathered for one address.
pub(super) struct Batch<'a> {
    pub(super) buf: &'a mut Vec<u8>,
    segment: usize,
    pub(super) count: usize,
    closed: bool,
    /// What is still to be sealed, in the order of the buffer.
    pub(super) open: Vec<Unsealed>,
}

/// A packet in the buffer that its security class has not seen yet.
pub(super) struct Unsealed {
    pub(super) connection: Key,
    pub(super) header: Header,
    /// Where its header begins.
    pub(super) start: usize,
    /// Bytes of its sealed body, and of the payload in that.
    pub(super) sealed: usize,
    pub(super) payload: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        Self {
            buf,
            segment: 0,
            count: 0,
            closed: false,
            open: Vec::new(),
        }
    }

    /// Whether a datagram of that size can leave with those before it.
    pub(super) fn fits(&self, size: usize) -> bool {
        self.count == 0
            || (!self.closed
                && size <= self.segment
                && self.count < BATCH_DATAGRAMS
                && self.buf.len() + size <= BATCH_SIZE)
    }

    /// Notes that a datagram of that size was appended.
    pub(super) fn added(&mut self, size: usize) {
        if self.count == 0 {
            self.segment = size;
        }
        self.closed = size < self.segment;
        self.count += 1;
    }

    pub(super) fn into_transmit(
        self,
        (destination, source): (SocketAddr, Option<IpAddr>),
        ecn: Option<Ecn>,
    ) -> Option<Transmit> {
        (self.count > 0).then(|| Transmit {
            destination,
            source,
            ecn,
            size: self.buf.len(),
            segment_size: (self.count > 1).then_some(self.segment),
            dont_fragment: false,
        })
    }

    /// Seals what the batch holds, each connection's packets together.
    pub(super) fn seal(&mut self, connections: &mut Arena<Connection>) {
        if self.open.is_empty() {
            return;
        }
        let mut rest = self.buf.as_mut_slice();
        let mut offset = 0;
        let mut parts = Vec::with_capacity(self.open.len());
        for packet in &self.open {
            let (_, from_here) = rest.split_at_mut(packet.start - offset);
            let (head, after) = from_here.split_at_mut(HEADER_SIZE);
            let (body, after) = after.split_at_mut(packet.sealed);
            offset = packet.start + HEADER_SIZE + packet.sealed;
            rest = after;
            let sealing = Sealing {
                header: packet.header,
                body,
                payload: packet.payload,
            };
            parts.push((packet.connection, head, sealing));
        }
        // Stable, so that each connection's packets stay in order.
        parts.sort_by_key(|(connection, ..)| *connection);
        let (mut heads, mut packets) = (Vec::new(), Vec::new());
        let mut parts = parts.into_iter().peekable();
        while let Some((key, head, packet)) = parts.next() {
            heads.push(head);
            packets.push(packet);
            if parts.peek().is_some_and(|(next, ..)| *next == key) {
                continue;
            }
            if let Some(connection) = connections.get_mut(key) {
                connection.security.packets().seal(&mut packets);
            }
            for (head, packet) in heads.drain(..).zip(packets.drain(..)) {
                head.copy_from_slice(&packet.header.encode());
            }
        }
    }
}
