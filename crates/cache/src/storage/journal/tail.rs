//! The file of the journal, and its end, where records are added.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::record::{Draft, HEADER, Place, header};
use crate::storage::private;

/// A file that is only added to, and cut off.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    /// What counts of it; less than a header if it has none yet.
    length: u64,
    /// Whether there may be more behind that.
    torn: bool,
    /// The length at which the disk is full.
    #[cfg(test)]
    pub(super) full_at: u64,
    /// Whether the disk fails to cut the file off.
    #[cfg(test)]
    pub(super) cut_fails: bool,
}

impl Tail {
    /// A file of which so many bytes count.
    pub(super) fn new(file: File, length: u64) -> Self {
        Self {
            file,
            length,
            torn: false,
            #[cfg(test)]
            full_at: u64::MAX,
            #[cfg(test)]
            cut_fails: false,
        }
    }

    /// Opens the file, which is made if there is none.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let mut options = private::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(Self::new(options.open(path)?, 0))
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Adds a record. If it cannot be written, nothing of it is there afterwards.
    pub(super) fn add(&mut self, draft: &mut Draft) -> io::Result<Place> {
        if self.length < HEADER {
            self.cut(0)?;
            self.write(&header())?;
        }
        let at = self.length;
        self.write(draft.at(at))?;
        Ok(Place {
            at,
            length: self.length - at,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A shorter record over the remains of another would have some of them behind it.
        if self.torn {
            self.cut(self.length)?;
        }
        if let Err(error) = self.try_write(bytes) {
            self.torn = true;
            if let Err(error) = self.cut(self.length) {
                tracing::warn!(%error, "a change that was not written whole stays in the journal");
            }
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    #[cfg(not(test))]
    fn try_write(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)
    }

    #[cfg(test)]
    fn try_write(&self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.full_at.saturating_sub(self.length)).unwrap();
        let part = &bytes[..room.min(bytes.len())];
        self.file.write_all_at(part, self.length)?;
        match part.len() == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Cuts the file off.
    pub(super) fn cut(&mut self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.cut_fails {
            return Err(io::ErrorKind::Other.into());
        }
        self.file.set_len(length)?;
        self.length = length;
        self.torn = false;
        Ok(())
    }

    /// The bytes of a record.
    pub(super) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let length = usize::try_from(place.length).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, place.at)?;
        Ok(bytes)
    }

    /// Puts all on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
