//! Buffers that datagrams are received into and that come back when the last reader drops them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

/// Bytes of a buffer: the most a datagram, or what the kernel joined of several, can have.
pub(super) const BUFFER_SIZE: usize = 1 << 16;
/// Buffers kept for reuse: 16 MiB of them.
const KEPT: usize = 256;

/// Buffers of [`BUFFER_SIZE`] for reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// The owner of a lent buffer: gives it back.
struct Lent {
    buffer: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl Pool {
    /// A buffer of [`BUFFER_SIZE`] bytes of any content; the one that came back last, if any did,
    /// as it is most likely still in the processor's cache.
    pub(super) fn take(&self) -> Vec<u8> {
        let kept = self.lock().pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_SIZE])
    }

    /// The first `len` bytes of a buffer, which comes back when they are dropped.
    pub(super) fn lend(&self, buffer: Vec<u8>, len: usize) -> Bytes {
        Bytes::from_owner(Lent {
            buffer,
            len,
            pool: self.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut kept = self.pool.lock();
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_its_last_slice() {
        let pool = Pool::default();
        let mut buffer = pool.take();
        buffer[..4].copy_from_slice(b"afar");
        let address = buffer.as_ptr();
        let mut whole = pool.lend(buffer, 4);
        let part = whole.split_to(2);
        assert_eq!((&part[..], &whole[..]), (&b"af"[..], &b"ar"[..]));
        drop(whole);
        assert!(pool.lock().is_empty());
        drop(part);
        let again = pool.take();
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn no_more_buffers_are_kept_than_allowed() {
        let pool = Pool::default();
        let lent: Vec<_> = (0..KEPT + 5).map(|_| pool.lend(pool.take(), 1)).collect();
        drop(lent);
        assert_eq!(pool.lock().len(), KEPT);
    }
}
