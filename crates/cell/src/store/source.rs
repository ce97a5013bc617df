//! Where stored data comes from.

use std::io;

use bytes::Bytes;

/// Gives the data of one file.
pub trait Source: Send + Sync + 'static {
    /// Bytes the file has. It is asked once.
    fn length(&self) -> u64;

    /// Bytes from this place on: at least one and at most `most`, or none at the file's end. They
    /// are asked for in order, but for parts whose calls failed, which are asked for again.
    ///
    /// # Errors
    /// The source's.
    fn read_at(&self, offset: u64, most: usize) -> impl Future<Output = io::Result<Bytes>> + Send;
}

/// A part of a file in memory.
#[derive(Debug)]
pub(super) struct Kept {
    offset: u64,
    data: Bytes,
}

impl Kept {
    pub(super) fn new(offset: u64, data: Bytes) -> Self {
        Self { offset, data }
    }
}

impl Source for Kept {
    fn length(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    async fn read_at(&self, offset: u64, most: usize) -> io::Result<Bytes> {
        let place = offset.checked_sub(self.offset);
        let start = place.and_then(|place| usize::try_from(place).ok());
        let start = start.filter(|&start| start <= self.data.len());
        let start = start.ok_or_else(|| io::Error::other("not kept any more"))?;
        let end = self.data.len().min(start.saturating_add(most));
        Ok(self.data.slice(start..end))
    }
}
