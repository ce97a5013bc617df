//! Whether two files, or two symlinks, say the same.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afar_cell::{Client, Node, Sink};
use afar_types::FetchStatus;
use bytes::Bytes;

use crate::error::Result;
use crate::origin::Origin;
use crate::store::spooled;

/// Bytes compared at a time on the local disk.
const BLOCK: usize = 1 << 16;

/// Whether two files have the same contents.
///
/// # Errors
/// When one of them cannot be read.
pub(super) async fn same_file(client: &Client, source: &Origin, there: &Origin) -> Result<bool> {
    match (source, there) {
        (Origin::Local(path), Origin::Afs(node)) | (Origin::Afs(node), Origin::Local(path)) => {
            same_as(client, node, File::open(path)?).await
        }
        (Origin::Afs(source), Origin::Afs(there)) => {
            let (file, _) = spooled(client, source).await?;
            same_as(client, there, file).await
        }
        (Origin::Local(source), Origin::Local(there)) => {
            let (source, there) = (File::open(source)?, File::open(there)?);
            let comparing = tokio::task::spawn_blocking(move || same_local(&source, &there));
            Ok(comparing.await.map_err(io::Error::other)??)
        }
    }
}

/// What a symlink says.
///
/// # Errors
/// When it cannot be read.
pub(super) async fn target(client: &Client, link: &Origin) -> Result<Vec<u8>> {
    match link {
        Origin::Local(path) => Ok(fs::read_link(path)?.into_os_string().into_vec()),
        Origin::Afs(node) => Ok(client.read_link(&node.volume, node.fid).await?.to_vec()),
    }
}

async fn same_as(client: &Client, node: &Node, file: File) -> Result<bool> {
    let comparing = Arc::new(Comparing {
        file,
        differs: AtomicBool::new(false),
    });
    let fetched = client
        .fetch(&node.volume, node.fid, node.status, &comparing)
        .await;
    if comparing.differs.load(Ordering::Relaxed) {
        return Ok(false);
    }
    fetched?;
    Ok(true)
}

fn same_local(one: &File, other: &File) -> io::Result<bool> {
    let mut at = 0;
    loop {
        let (mut first, mut second) = (vec![0; BLOCK], vec![0; BLOCK]);
        let (length, other_length) = (read(one, &mut first, at)?, read(other, &mut second, at)?);
        if first[..length] != second[..other_length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        at += length as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], at + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Compares what comes with a local file, and has no more come after a difference.
#[derive(Debug)]
struct Comparing {
    file: File,
    differs: AtomicBool,
}

impl Comparing {
    fn different(&self) -> io::Error {
        self.differs.store(true, Ordering::Relaxed);
        io::Error::other("the contents differ")
    }
}

impl Sink for Comparing {
    fn begin(&self, status: &FetchStatus) -> io::Result<()> {
        if self.file.metadata()?.len() == status.length {
            Ok(())
        } else {
            Err(self.different())
        }
    }

    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let mut at = offset;
        for chunk in chunks {
            let mut there = vec![0; chunk.len()];
            match self.file.read_exact_at(&mut there, at) {
                Ok(()) if chunk == there => {}
                Ok(()) => return Err(self.different()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.different());
                }
                Err(error) => return Err(error),
            }
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn one_octet_makes_a_difference() {
        let file = || {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"0123456789").unwrap();
            file
        };
        let comparing = Comparing {
            file: file(),
            differs: AtomicBool::new(false),
        };
        let status = |length| FetchStatus {
            length,
            ..FetchStatus::default()
        };
        comparing.begin(&status(10)).unwrap();
        let chunks = vec![Bytes::from_static(b"45"), Bytes::from_static(b"6")];
        comparing.write(4, chunks).await.unwrap();
        assert!(!comparing.differs.load(Ordering::Relaxed));
        let late = comparing.write(4, vec![Bytes::from_static(b"46")]).await;
        assert!(late.is_err() && comparing.differs.load(Ordering::Relaxed));
        assert!(comparing.begin(&status(9)).is_err());
        assert!(same_local(&file(), &file()).unwrap());
        let longer = file();
        longer.write_all_at(b"x", 10).unwrap();
        assert!(!same_local(&file(), &longer).unwrap());
    }
}
