//! Lines of requests, to those who read along.
//!
//! Each reader has a queue of its own, of a bounded size: one that does not read loses lines, and is told how many.
//! So nobody waits for a reader. While there is none, a request looks at one number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use afar_cache::Errno;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes of lines that wait for a reader.
const QUEUE_MOST: usize = 1 << 20;
/// Readers at a time.
const READERS_MOST: usize = 16;
/// Too many open files.
const EMFILE: Errno = Errno(libc::EMFILE);

/// The readers of lines.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    count: AtomicUsize,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    by_handle: BTreeMap<u64, Arc<Reader>>,
    /// Whether the mount ends: nobody reads any more.
    ended: bool,
}

#[derive(Debug, Default)]
struct Reader {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Lines that had no room since the last one that had.
    lost: u64,
    /// Nothing more comes.
    ended: bool,
}

impl Queue {
    fn push(&mut self, line: &str) {
        let room = QUEUE_MOST - self.bytes.len();
        let note = lost_line(self.lost);
        if note.len() + line.len() > room {
            self.lost += 1;
            return;
        }
        self.bytes.extend(note.as_bytes());
        self.bytes.extend(line.as_bytes());
        self.lost = 0;
    }

    /// What there is of it, at most so many bytes; `None` if a reader has to wait.
    fn take(&mut self, most: usize) -> Option<Vec<u8>> {
        if self.bytes.is_empty() && self.lost > 0 {
            // The next line may be long in coming.
            let note = lost_line(self.lost);
            self.bytes.extend(note.as_bytes());
            self.lost = 0;
        }
        let count = self.bytes.len().min(most);
        if count == 0 && !self.ended && most > 0 {
            return None;
        }
        Some(self.bytes.drain(..count).collect())
    }
}

/// Says that lines are missing here.
fn lost_line(lost: u64) -> String {
    match lost {
        0 => String::new(),
        lost => format!("# {lost} lines lost here: the reader is too slow\n"),
    }
}

impl AccessLog {
    /// Whether anybody reads along.
    pub(crate) fn is_read(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Somebody reads along from now on, until this handle is [closed](Self::close).
    ///
    /// # Errors
    /// EMFILE when too many do.
    pub(crate) fn open(&self, handle: u64) -> Result<(), Errno> {
        let mut readers = self.readers.lock();
        if readers.by_handle.len() >= READERS_MOST {
            return Err(EMFILE);
        }
        let reader = Arc::new(Reader::default());
        reader.queue.lock().ended = readers.ended;
        readers.by_handle.insert(handle, reader);
        self.count.store(readers.by_handle.len(), Relaxed);
        Ok(())
    }

    /// A reader has gone.
    pub(crate) fn close(&self, handle: u64) {
        let mut readers = self.readers.lock();
        readers.by_handle.remove(&handle);
        self.count.store(readers.by_handle.len(), Relaxed);
    }

    /// Tells all readers that nothing more comes; `for_ever` says whether that goes for later ones too.
    pub(crate) fn end(&self, for_ever: bool) {
        let mut readers = self.readers.lock();
        readers.ended |= for_ever;
        for reader in readers.by_handle.values() {
            reader.queue.lock().ended = true;
            reader.filled.notify_waiters();
        }
    }

    /// Gives a line to all who read along.
    pub(crate) fn push(&self, line: &str) {
        for reader in self.readers.lock().by_handle.values() {
            reader.queue.lock().push(line);
            reader.filled.notify_waiters();
        }
    }

    /// What comes next for a reader, at most so many bytes; waits until there is something. Nothing means the end.
    ///
    /// # Errors
    /// EAGAIN when there is nothing and the reader does not wait; EBADF when there is no such reader.
    pub(crate) async fn read(
        &self,
        handle: u64,
        most: usize,
        waits: bool,
    ) -> Result<Vec<u8>, Errno> {
        let reader = self.readers.lock().by_handle.get(&handle).cloned();
        let reader = reader.ok_or(Errno::EBADF)?;
        loop {
            let filled = reader.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            if let Some(lines) = reader.queue.lock().take(most) {
                return Ok(lines);
            }
            if !waits {
                return Err(Errno::EAGAIN);
            }
            filled.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn read(log: &AccessLog, handle: u64, most: usize) -> String {
        let lines = log.read(handle, most, true).await.unwrap();
        String::from_utf8(lines).unwrap()
    }

    #[tokio::test]
    async fn readers_get_all_lines_from_their_beginning_on() {
        let log = AccessLog::default();
        assert!(!log.is_read());
        log.open(1).unwrap();
        log.push("a\n");
        log.open(2).unwrap();
        log.push("b\n");
        assert_eq!(read(&log, 1, 3).await, "a\nb");
        assert_eq!(read(&log, 1, 100).await, "\n");
        assert_eq!(read(&log, 2, 100).await, "b\n");
        assert_eq!(log.read(2, 100, false).await, Err(Errno::EAGAIN));
        log.close(1);
        assert!(log.is_read());
        log.close(2);
        assert!(!log.is_read());
        assert_eq!(log.read(2, 100, true).await, Err(Errno::EBADF));
    }

    #[tokio::test]
    async fn a_reader_waits_for_a_line_and_for_the_end() {
        let log = Arc::new(AccessLog::default());
        log.open(1).unwrap();
        let waiting = Arc::clone(&log);
        let waiting = tokio::spawn(async move { read(&waiting, 1, 100).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        log.push("a\n");
        assert_eq!(waiting.await.unwrap(), "a\n");
        let waiting = Arc::clone(&log);
        let waiting = tokio::spawn(async move { read(&waiting, 1, 100).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        log.end(true);
        assert_eq!(waiting.await.unwrap(), "");
        log.open(2).unwrap();
        assert_eq!(read(&log, 2, 100).await, "");
    }

    #[tokio::test]
    async fn a_reader_that_stops_reading_loses_lines_and_is_told() {
        let log = AccessLog::default();
        log.open(1).unwrap();
        let line = format!("{}\n", "x".repeat(1023));
        (0..3000).for_each(|_| log.push(&line));
        let mut whole = String::new();
        while let Ok(lines) = log.read(1, 100_000, false).await {
            whole.push_str(std::str::from_utf8(&lines).unwrap());
        }
        assert!(whole.len() <= QUEUE_MOST + 100);
        let kept = whole.lines().filter(|one| *one == line.trim()).count();
        let lost = format!("# {} lines lost here", 3000 - kept);
        assert!(whole.lines().last().unwrap().starts_with(&lost));
        log.push("b\n");
        assert_eq!(read(&log, 1, 100).await, "b\n");
        // What comes behind a gap says so before it.
        (0..3000).for_each(|_| log.push(&line));
        let half = read(&log, 1, QUEUE_MOST / 2).await;
        log.push("c\n");
        let rest = read(&log, 1, QUEUE_MOST).await;
        assert!(half.len() + rest.len() <= QUEUE_MOST + 100);
        let mut last = rest.lines().rev();
        assert_eq!(last.next(), Some("c"));
        assert!(last.next().unwrap().starts_with("# "), "{:?}", last.next());
    }

    #[test]
    fn readers_are_bounded() {
        let log = AccessLog::default();
        let most = READERS_MOST as u64;
        (0..most).for_each(|handle| log.open(handle).unwrap());
        assert_eq!(log.open(most), Err(EMFILE));
        log.close(3);
        log.open(most).unwrap();
    }
}
