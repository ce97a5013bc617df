//! A local file as the source of a store.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_cell::{Sink, Source};
use afar_types::FetchStatus;
use bytes::Bytes;

use crate::progress::Meter;

/// A file that is read in order, but for what comes again after a failure.
#[derive(Debug)]
pub(crate) struct LocalFile {
    file: Arc<File>,
    length: u64,
    /// Up to where it was read.
    read: AtomicU64,
    progress: Arc<Meter>,
}

impl LocalFile {
    pub(crate) fn new(file: File, length: u64, progress: Arc<Meter>) -> Self {
        Self {
            file: Arc::new(file),
            length,
            read: AtomicU64::new(0),
            progress,
        }
    }
}

/// A file on its way from one place in AFS to another.
#[derive(Debug)]
pub(crate) struct Spool(pub(crate) File);

impl Sink for Spool {
    fn begin(&self, status: &FetchStatus) -> io::Result<()> {
        self.0.set_len(status.length)
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let mut at = offset;
        for chunk in chunks {
            self.0.write_all_at(&chunk, at)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

impl Source for LocalFile {
    fn length(&self) -> u64 {
        self.length
    }

    async fn read_at(&self, offset: u64, most: usize) -> io::Result<Bytes> {
        let file = Arc::clone(&self.file);
        let reading = tokio::task::spawn_blocking(move || {
            let mut data = vec![0; most];
            loop {
                match file.read_at(&mut data, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                    Ok(length) => {
                        data.truncate(length);
                        return Ok(Bytes::from(data));
                    }
                }
            }
        });
        let data = reading.await.map_err(io::Error::other)??;
        let end = offset + data.len() as u64;
        let before = self.read.swap(end, Ordering::Relaxed);
        if before > offset {
            self.progress.take_back(before - offset);
        }
        self.progress.advance(data.len() as u64);
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_read_at_any_place() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"0123456789").unwrap();
        let source = LocalFile::new(file, 10, Arc::new(Meter::new(Arc::new(()))));
        assert_eq!(source.length(), 10);
        assert_eq!(source.read_at(0, 4).await.unwrap(), "0123");
        assert_eq!(source.read_at(2, 100).await.unwrap(), "23456789");
        assert!(source.read_at(10, 4).await.unwrap().is_empty());
    }
}
