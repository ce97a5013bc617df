//! Records read back: always verified, never guessed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::error::{ReadError, ReadErrorKind};
use super::pool::Pool;
use super::record::{Stored, unpack_into, verify};
use super::stats::add;
use super::{Codec, Extent, Segments};

static BUFFERS: Pool<Vec<u8>> = Pool::new();

impl Segments {
    /// Reads a record: verified, decompressed, in place of what `out` had. An
    /// `out` that is used again and again is neither allocated nor cleared
    /// each time. After an error it is empty.
    ///
    /// # Errors
    ///
    /// [`ReadError`], saying which record and why.
    pub fn read(&self, extent: &Extent, out: &mut Vec<u8>) -> Result<(), ReadError> {
        self.noting_errors(extent, || {
            extent.check()?;
            out.resize(extent.plain as usize, 0);
            self.read_whole(extent, out)
        })
        .inspect_err(|_| out.clear())
    }

    /// Reads a part of a record, counted in its plain bytes, into `out`, which
    /// is as long as the part. The whole record is read and verified, so parts
    /// of one record are better taken at a time; a range that is the whole
    /// record goes to `out` without a copy, and several threads may fill parts
    /// of one buffer from several records.
    ///
    /// # Errors
    ///
    /// [`ReadError`], saying which record and why; `out` then has anything.
    pub fn read_range(
        &self,
        extent: &Extent,
        within: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        self.noting_errors(extent, || {
            extent.check()?;
            let (start, end) = (within.start as usize, within.end as usize);
            if within.end > extent.plain || end.checked_sub(start) != Some(out.len()) {
                return Err(ReadErrorKind::Range {
                    start: within.start,
                    end: within.end,
                });
            }
            if within == (0..extent.plain) {
                return self.read_whole(extent, out);
            }
            with_buffer(extent.plain, |plain| {
                self.read_whole(extent, plain)?;
                out.copy_from_slice(&plain[start..end]);
                Ok(())
            })
        })
    }

    /// Reads a record as stored, verified: to send it on or to append it
    /// elsewhere.
    ///
    /// # Errors
    ///
    /// [`ReadError`], saying which record and why.
    pub fn read_stored(&self, extent: &Extent) -> Result<Stored<'static>, ReadError> {
        self.noting_errors(extent, || {
            extent.check()?;
            let mut bytes = vec![0; extent.stored as usize];
            self.fetch(extent, &mut bytes)?;
            Ok(Stored::trusted(extent, bytes))
        })
    }

    /// The file of a segment, to send from. It stays open as long as it is
    /// held, and an [`EpochGuard`](super::EpochGuard) keeps what is in it.
    /// Nothing is verified.
    ///
    /// # Errors
    ///
    /// The system's, [`io::ErrorKind::NotFound`] for a missing one.
    pub fn file(&self, segment: u32) -> io::Result<Arc<File>> {
        self.files.get(segment)
    }

    /// Asks the system to read a part of a segment into its cache, which it
    /// does in the background. Nothing is lost when it does not.
    pub fn prefetch(&self, segment: u32, offset: u32, len: u32) {
        let advice = PosixFadviseAdvice::POSIX_FADV_WILLNEED;
        if let Ok(file) = self.files.get(segment) {
            advise(&file, offset, len, advice);
        }
    }

    fn read_whole(&self, extent: &Extent, out: &mut [u8]) -> Result<(), ReadErrorKind> {
        if extent.codec == Codec::Raw {
            return self.fetch(extent, out);
        }
        with_buffer(extent.stored, |stored| {
            self.fetch(extent, stored)?;
            unpack_into(extent.codec, stored, out).map_err(ReadErrorKind::Decompress)
        })
    }

    /// Reads and verifies the stored bytes. A mismatch is read once more, past
    /// the system's cache if that is possible, before it is believed.
    fn fetch(&self, extent: &Extent, stored: &mut [u8]) -> Result<(), ReadErrorKind> {
        let file = self.files.get(extent.segment).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                ReadErrorKind::Missing
            } else {
                ReadErrorKind::Io(error)
            }
        })?;
        self.read_at(&file, extent, stored)?;
        if verify(stored, extent.checksum).is_err() {
            let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
            advise(&file, extent.offset, extent.stored, advice);
            self.read_at(&file, extent, stored)?;
            verify(stored, extent.checksum)?;
            add(&self.counters.reread, 1);
        }
        self.counters.read(extent.codec, extent.stored);
        Ok(())
    }

    fn read_at(
        &self,
        file: &File,
        extent: &Extent,
        stored: &mut [u8],
    ) -> Result<(), ReadErrorKind> {
        let offset = u64::from(extent.offset);
        let read = self.times.read(|| file.read_exact_at(stored, offset));
        read.map_err(ReadErrorKind::Io)
    }

    fn noting_errors<T>(
        &self,
        extent: &Extent,
        read: impl FnOnce() -> Result<T, ReadErrorKind>,
    ) -> Result<T, ReadError> {
        read().map_err(|kind| {
            match kind {
                ReadErrorKind::Io(_) | ReadErrorKind::Missing => {
                    add(&self.counters.read_errors_io, 1);
                }
                ReadErrorKind::Checksum { .. } => add(&self.counters.read_errors_checksum, 1),
                ReadErrorKind::Decompress(_) | ReadErrorKind::Extent(_) => {
                    add(&self.counters.read_errors_decompress, 1);
                }
                ReadErrorKind::Range { .. } => {}
            }
            ReadError::new(extent, kind)
        })
    }
}

fn advise(file: &File, offset: u32, len: u32, advice: PosixFadviseAdvice) {
    if let Err(error) = posix_fadvise(file, i64::from(offset), i64::from(len), advice) {
        tracing::debug!(%error, "the system takes no advice on a segment");
    }
}

/// Lends a buffer of `len` bytes with anything in it.
fn with_buffer<T>(len: u32, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let len = len as usize;
    let mut buffer = BUFFERS.take().unwrap_or_default();
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let result = with(&mut buffer[..len]);
    BUFFERS.put(buffer);
    result
}
