//! A local file in the making: written under another name, then renamed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afar_cell::Sink;
use afar_types::FetchStatus;
use bytes::Bytes;
use rustix::io::pwritev;

use crate::path::umask;
use crate::progress::{Event, Meter};

/// Slices one system call takes (IOV_MAX).
const SLICES: usize = 1024;
/// Tells the temporary files of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file under a temporary name in the directory where it belongs. Dropped before
/// [`publish`](Self::publish), it is removed unless it is to be [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    temporary: PathBuf,
    /// Its name at last.
    path: PathBuf,
    /// Mode of the file it replaces.
    replaced: Option<Permissions>,
    published: bool,
    kept: bool,
    progress: Arc<Meter>,
    written: AtomicU64,
}

impl Target {
    /// Makes the temporary file. `mode` is what a new file gets, less the umask.
    pub(crate) fn create(path: &Path, mode: u32, progress: Arc<Meter>) -> io::Result<Self> {
        let path = replaced(path);
        let replaced = fs::metadata(&path)
            .ok()
            .map(|metadata| metadata.permissions());
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let mut hidden = std::ffi::OsString::from(".");
        // A name of 255 bytes leaves no room for more.
        hidden
            .push(String::from_utf8_lossy(&name.as_encoded_bytes()[..name.len().min(64)]).as_ref());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".afar-{}-{number}", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o777)
            .open(&temporary)?;
        let mut target = Self::new(file, temporary, path, progress);
        target.replaced = replaced;
        Ok(target)
    }

    /// A file that is there under a temporary name, and becomes the one at `path`.
    pub(crate) fn new(file: File, temporary: PathBuf, path: PathBuf, progress: Arc<Meter>) -> Self {
        Self {
            file,
            temporary,
            path,
            replaced: None,
            published: false,
            kept: false,
            progress,
            written: AtomicU64::new(0),
        }
    }

    /// Gives it the mode of the file it replaces; if there is none, this one less the umask.
    pub(crate) fn take_mode(&mut self, mode: u32) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(metadata) => self.replaced = Some(metadata.permissions()),
            Err(_) => {
                let mode = mode & 0o777 & !umask();
                let mode = Permissions::from_mode(mode);
                self.file.set_permissions(mode)?;
            }
        }
        Ok(())
    }

    /// Whether it has its name.
    pub(crate) fn is_published(&self) -> bool {
        self.published
    }

    /// Has it stay under its temporary name.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Sets attributes and gives the file its name.
    pub(crate) fn publish(
        &mut self,
        status: &FetchStatus,
        preserve: bool,
        fsync: bool,
    ) -> io::Result<()> {
        if preserve {
            let mode = status.unix_mode_bits & 0o7777;
            self.file.set_permissions(Permissions::from_mode(mode))?;
            self.file
                .set_modified(status.client_mod_time.to_system_time())?;
        } else if let Some(replaced) = &self.replaced {
            self.file.set_permissions(replaced.clone())?;
        }
        if fsync {
            self.file.sync_all()?;
        }
        fs::rename(&self.temporary, &self.path)?;
        self.published = true;
        if fsync && let Some(directory) = self.path.parent() {
            let directory = if directory.as_os_str().is_empty() {
                Path::new(".")
            } else {
                directory
            };
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.published
            && !self.kept
            && let Err(error) = fs::remove_file(&self.temporary)
        {
            self.progress.tell(Event::LeftBehind {
                path: &self.temporary,
                incomplete: false,
                error: &error,
            });
        }
    }
}

impl Sink for Target {
    fn begin(&self, status: &FetchStatus) -> io::Result<()> {
        self.progress
            .take_back(self.written.swap(0, Ordering::Relaxed));
        self.file.set_len(status.length)
    }

    /// Writes into the page cache from the calling task: a copy of some tens of kilobytes takes less
    /// time than handing it to another thread.
    async fn write(&self, offset: u64, chunks: Vec<Bytes>) -> io::Result<()> {
        let length = write_all(&self.file, offset, &chunks)?;
        self.written.fetch_add(length, Ordering::Relaxed);
        self.progress.advance(length);
        Ok(())
    }
}

/// The file that a write to this path replaces: as with cp, the target of a symlink, not the symlink.
pub(crate) fn replaced(path: &Path) -> PathBuf {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
        }
        _ => path.to_owned(),
    }
}

fn write_all(file: &File, mut offset: u64, chunks: &[Bytes]) -> io::Result<u64> {
    let begin = offset;
    for some in chunks.chunks(SLICES) {
        let mut slices: Vec<_> = some.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let written = match pwritev(file, slices, offset) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                other => other?,
            };
            offset += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
    }
    Ok(offset - begin)
}

/// Whether something is at that path that is written to, not replaced: a device or pipe.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
    })
}

/// Replaces what is at `path` by a symlink.
pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            std::os::unix::fs::symlink(target, path)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(length: u64) -> FetchStatus {
        FetchStatus {
            length,
            unix_mode_bits: 0o640,
            client_mod_time: 1_000_000_000.into(),
            ..FetchStatus::default()
        }
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("afar-target-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[tokio::test]
    async fn a_file_appears_whole_or_not_at_all() {
        let directory = directory("whole");
        let path = directory.join("file");
        let progress = || Arc::new(Meter::new(Arc::new(())));
        let abandoned = Target::create(&path, 0o644, progress()).unwrap();
        abandoned.begin(&status(10)).unwrap();
        drop(abandoned);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let mut target = Target::create(&path, 0o644, progress()).unwrap();
        target.begin(&status(2001)).unwrap();
        let small = vec![Bytes::from_static(b"x"); 2000];
        target.write(1, small).await.unwrap();
        target
            .write(0, vec![Bytes::from_static(b"y")])
            .await
            .unwrap();
        assert!(!path.exists());
        target.publish(&status(2001), true, true).unwrap();
        drop(target);
        assert_eq!(
            fs::read(&path).unwrap(),
            format!("y{}", "x".repeat(2000)).as_bytes()
        );
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
        let modified = metadata.modified().unwrap();
        assert_eq!(modified, status(0).client_mod_time.to_system_time());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_a_symlink_leads_to_is_replaced() {
        let directory = directory("link");
        fs::write(directory.join("real"), "old").unwrap();
        fs::set_permissions(directory.join("real"), Permissions::from_mode(0o604)).unwrap();
        symlink(Path::new("real"), &directory.join("link")).unwrap();
        let progress = Arc::new(Meter::new(Arc::new(())));
        let mut target = Target::create(&directory.join("link"), 0o644, progress).unwrap();
        target.begin(&status(0)).unwrap();
        target.publish(&status(0), false, false).unwrap();
        assert_eq!(fs::read(directory.join("real")).unwrap(), b"");
        let mode = fs::metadata(directory.join("real")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o604);
        assert!(directory.join("link").is_symlink());
        fs::remove_dir_all(directory).unwrap();
    }
}
