//! Buffers for packets on their way, used again without going through the allocator.

use std::rc::Rc;

use crate::packet::Packet;

/// Buffers hold 2 KiB, 4 KiB and so on up to 64 KiB.
const CLASSES: usize = 6;
const SMALLEST: usize = 2_048;
/// Most bytes in buffers: ten seconds at 1.6 Gbit/s.
const MOST: usize = 2 << 30;

/// Free buffers by size, and how much is in use.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    held: usize,
}

impl Pool {
    /// Copies a packet into a buffer of its size. `None` if too much is in use already.
    pub(super) fn copy(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let class = class_of(data.len());
        if self.held >= MOST {
            return None;
        }
        self.held += SMALLEST << class;
        let mut buffer = self.free[class]
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(SMALLEST << class));
        buffer.extend_from_slice(data);
        Some(buffer)
    }

    /// Takes the buffer back if nobody else refers to the packet.
    pub(super) fn recycle(&mut self, packet: Rc<Packet>) {
        let Some(packet) = Rc::into_inner(packet) else {
            return;
        };
        let mut buffer = packet.into_data();
        let class = class_of(buffer.len());
        self.held -= SMALLEST << class;
        buffer.clear();
        self.free[class].push(buffer);
    }
}

/// The smallest size that takes `len` bytes, which are 64 KiB at most.
fn class_of(len: usize) -> usize {
    (0..CLASSES - 1)
        .find(|class| len <= SMALLEST << class)
        .unwrap_or(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{PACKET_MAX, VnetHeader};

    #[test]
    fn buffers_come_back() {
        let mut pool = Pool::default();
        for len in [1, 1_500, 2_048, 2_049, 30_000, PACKET_MAX] {
            let data = pool.copy(&vec![7; len]).unwrap();
            assert_eq!(data, vec![7; len]);
            let place = data.as_ptr();
            let packet = Rc::new(Packet::new(VnetHeader::default(), data));
            let other = packet.clone();
            pool.recycle(packet);
            assert!(pool.held > 0);
            pool.recycle(other);
            assert_eq!(pool.held, 0);
            let again = pool.copy(&vec![8; len]).unwrap();
            assert_eq!(again.as_ptr(), place);
            pool.held = 0;
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut pool = Pool {
            held: MOST,
            ..Pool::default()
        };
        assert!(pool.copy(&[0; 100]).is_none());
    }
}
