//! What the application wrote and no packet carries yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes from which an application waits with its next write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) bytes: usize,
    /// Whether what was sent and is not acknowledged counts, and not only what is queued.
    pub(crate) is_strict: bool,
}

/// Bytes of a stream that have no sequence number, and how the application is told to wait.
///
/// `kept` is everywhere how many bytes were sent and are not acknowledged for good.
#[derive(Debug)]
pub(super) struct Queue {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// The application has written all.
    finishing: bool,
    /// The last packet was cut.
    ended: bool,
    /// The application was told to wait.
    full: bool,
    limit: Limit,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            bytes: 0,
            finishing: false,
            ended: false,
            full: false,
            limit: Limit {
                bytes: 0,
                is_strict: false,
            },
        }
    }

    /// Queues bytes; false if the application should wait before it writes more.
    pub(super) fn write(&mut self, data: Bytes, kept: usize) -> bool {
        if !data.is_empty() && !self.finishing {
            self.bytes += data.len();
            self.chunks.push_back(data);
        }
        self.set_limit(self.limit, kept)
    }

    /// Sets from how many bytes on the application waits. Says whether it need not.
    pub(super) const fn set_limit(&mut self, limit: Limit, kept: usize) -> bool {
        self.limit = limit;
        self.full = self.counted(kept) >= limit.bytes;
        !self.full
    }

    /// Whether the application was told to wait.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the application, told to wait, may go on; says so once.
    pub(super) const fn take_room(&mut self, kept: usize) -> bool {
        if self.full && self.has_room(kept) {
            self.full = false;
            return true;
        }
        false
    }

    /// Whether so little is queued that the application should write more.
    const fn has_room(&self, kept: usize) -> bool {
        self.counted(kept) < self.limit.bytes / 2
    }

    /// Bytes that count against the limit.
    const fn counted(&self, kept: usize) -> usize {
        match self.limit.is_strict {
            true => self.bytes + kept,
            false => self.bytes,
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether anything is queued, or the end was told.
    pub(super) const fn has_any(&self) -> bool {
        self.bytes > 0 || self.finishing
    }

    /// Whether the last packet was cut.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether one packet would carry all that there is, and will be.
    pub(super) const fn is_single(&self, payload_max: usize) -> bool {
        self.finishing && self.bytes <= payload_max
    }

    /// The size of the next packet, if one may be cut.
    pub(super) const fn next_size(&self, payload_max: usize, kept: usize) -> Option<usize> {
        if self.bytes > payload_max {
            Some(payload_max)
        } else if self.finishing && !self.ended {
            Some(self.bytes)
        } else if self.bytes > 0 && self.full && !self.has_room(kept) {
            // The application may write no more before this is sent, however little of a packet it fills.
            Some(self.bytes)
        } else {
            // A packet that fills up exactly is kept back as well: it may prove to be the last.
            None
        }
    }

    /// Cuts the next packet; says, too, whether it is the last.
    pub(super) fn cut(&mut self, payload_max: usize, kept: usize) -> Option<(Bytes, bool)> {
        let size = self.next_size(payload_max, kept)?;
        let payload = self.take(size);
        let last = self.finishing && self.bytes == 0;
        self.ended |= last;
        Some((payload, last))
    }

    /// Takes `size` bytes, without copying where they lie in one piece.
    fn take(&mut self, size: usize) -> Bytes {
        self.bytes -= size;
        let Some(front) = self.chunks.front_mut() else {
            return Bytes::new();
        };
        if front.len() > size {
            return front.split_to(size);
        }
        if front.len() == size {
            return self.chunks.pop_front().unwrap_or_default();
        }
        let mut gathered = BytesMut::with_capacity(size);
        while gathered.len() < size {
            let Some(front) = self.chunks.front_mut() else {
                break;
            };
            let part = front.len().min(size - gathered.len());
            gathered.extend_from_slice(&front.split_to(part));
            if front.is_empty() {
                self.chunks.pop_front();
            }
        }
        gathered.freeze()
    }

    /// Nothing more is sent.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.bytes = 0;
    }

    /// Looks whether the sum is one.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let bytes: usize = self.chunks.iter().map(Bytes::len).sum();
        assert_eq!(self.bytes, bytes, "bytes queued");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(pieces: &[&'static [u8]]) -> Queue {
        let mut queue = Queue::new();
        let limit = Limit {
            bytes: 100,
            is_strict: false,
        };
        queue.set_limit(limit, 0);
        for piece in pieces {
            queue.write(Bytes::from_static(piece), 0);
        }
        queue
    }

    #[test]
    fn packets_are_cut_across_pieces_and_the_last_one_is_told() {
        let mut queue = queue(&[b"abcd", b"e", b"fgh"]);
        assert_eq!(queue.cut(3, 0).unwrap(), ("abc".into(), false));
        assert_eq!(queue.cut(3, 0).unwrap(), ("def".into(), false));
        queue.check();
        assert_eq!(queue.next_size(3, 0), None, "it may be the last");
        queue.finish();
        assert_eq!(queue.cut(3, 0).unwrap(), ("gh".into(), true));
        assert!(queue.is_ended() && queue.cut(3, 0).is_none());
        queue.check();
    }

    #[test]
    fn a_stream_that_fills_its_packets_ends_with_a_full_one() {
        let mut queue = queue(&[b"abcdef"]);
        queue.finish();
        assert_eq!(queue.cut(3, 0).unwrap(), ("abc".into(), false));
        assert_eq!(queue.cut(3, 0).unwrap(), ("def".into(), true));
    }

    #[test]
    fn an_application_that_waits_has_even_little_sent() {
        let mut queue = queue(&[]);
        let limit = |is_strict| Limit {
            bytes: 8,
            is_strict,
        };
        assert!(queue.set_limit(limit(false), 100));
        assert!(queue.write(Bytes::from_static(b"abcdefg"), 100));
        assert_eq!(queue.next_size(10, 100), None, "it may write more");
        assert!(!queue.write(Bytes::from_static(b"h"), 100));
        assert_eq!(queue.next_size(10, 100), Some(8));
        assert!(!queue.take_room(100), "nothing is sent yet");
        queue.cut(5, 100);
        assert!(queue.take_room(100), "less than half is queued");
        assert!(!queue.take_room(100), "which is told once");
        assert!(!queue.set_limit(limit(true), 5), "what is kept counts");
    }
}
