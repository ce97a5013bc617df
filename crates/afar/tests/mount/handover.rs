//! Files that two machines keep open and change in turns under locks: the one that gets a lock sees all that was
//! stored before it was given up, in its kernel too.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, flock};

use crate::mapping;
use crate::site::{Mounted, Site, can_mount, soon};

/// Turns of each machine.
const TURNS: usize = 40;
/// Bytes of a record that fills a page.
const PAGE: usize = 4096;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Flock,
    Posix,
    OpenFile,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Flock, Self::Posix, Self::OpenFile];

    /// Waits for the lock.
    fn lock(self, file: &File) {
        match self {
            Self::Flock => flock(file, FlockOperation::LockExclusive).unwrap(),
            Self::Posix => {
                fcntl(file, FcntlArg::F_SETLKW(&part(libc::F_WRLCK))).unwrap();
            }
            Self::OpenFile => {
                fcntl(file, FcntlArg::F_OFD_SETLKW(&part(libc::F_WRLCK))).unwrap();
            }
        }
    }

    fn unlock(self, file: &File) {
        match self {
            Self::Flock => flock(file, FlockOperation::Unlock).unwrap(),
            Self::Posix => {
                fcntl(file, FcntlArg::F_SETLK(&part(libc::F_UNLCK))).unwrap();
            }
            Self::OpenFile => {
                fcntl(file, FcntlArg::F_OFD_SETLK(&part(libc::F_UNLCK))).unwrap();
            }
        }
    }
}

fn part(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 10,
        l_len: 10,
        l_pid: 0,
    }
}

/// What is done to a file in the turn of this number, when as many were before it.
type Turn = fn(&File, usize);

/// Reads what there is, past its end, and writes behind it.
fn reads_all(file: &File, number: usize) {
    let mut data = vec![0; 100_000];
    let read = file.read_at(&mut data, 0).unwrap();
    assert_eq!(read, number, "bytes read");
    assert!(data[..read].iter().all(|byte| *byte == b'x'));
    file.write_all_at(b"x", number as u64).unwrap();
}

/// Goes to the end and writes.
fn seeks_the_end(mut file: &File, number: usize) {
    let end = file.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(end, number as u64, "where the end is");
    file.write_all(b"x").unwrap();
}

/// Writes at the end without looking, and looks then.
fn appends(mut file: &File, number: usize) {
    file.write_all(b"x").unwrap();
    let length = file.metadata().unwrap().len();
    assert_eq!(length, number as u64 + 1, "the length");
}

/// The same by pages, and reads the last two without asking for the length.
fn appends_pages(mut file: &File, number: usize) {
    file.write_all(&[number as u8; PAGE]).unwrap();
    for record in number.saturating_sub(1)..=number {
        let mut read = [0; PAGE];
        file.read_exact_at(&mut read, (record * PAGE) as u64)
            .unwrap();
        assert!(
            read == [record as u8; PAGE],
            "record {record} in turn {number}"
        );
    }
}

/// Counts in a mapping.
fn counts_mapped(file: &File, number: usize) {
    const PLACE: u64 = 5000;
    let (count, _) = mapping::read(file, PLACE, 8);
    assert_eq!(count, number.to_le_bytes(), "the count in the mapping");
    mapping::write(file, PLACE, &(number + 1).to_le_bytes(), true);
}

/// Has two machines take turns, each with the file open all the time.
fn take_turns(mounts: &[Mounted; 2], name: &str, append: bool, kind: Kind, turn: Turn) {
    let (to_first, first) = mpsc::channel();
    let (to_second, second) = mpsc::channel();
    to_first.send(()).unwrap();
    let sides = [(first, to_second), (second, to_first)];
    thread::scope(|scope| {
        for (which, ((mine, theirs), mount)) in sides.into_iter().zip(mounts).enumerate() {
            let mut options = File::options();
            let options = options.read(true).append(append).write(true);
            let file = options.open(mount.path(name)).unwrap();
            scope.spawn(move || {
                for round in 0..TURNS {
                    // Its error is told by the other side.
                    if mine.recv().is_err() {
                        return;
                    }
                    kind.lock(&file);
                    turn(&file, 2 * round + which);
                    if round % 2 == 0 {
                        file.sync_all().unwrap();
                    }
                    kind.unlock(&file);
                    // The other one has done all of its turns after the last.
                    let _gone = theirs.send(());
                }
            });
        }
    });
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn what_was_stored_under_a_lock_is_there_for_the_next_in_a_file_kept_open() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.36");
    let mounts = [site.mount("a"), site.mount("b")];
    let turns: [(&str, usize, bool, Turn); 5] = [
        ("read", 0, false, reads_all),
        ("end", 0, false, seeks_the_end),
        ("append", 0, true, appends),
        ("pages", 0, true, appends_pages),
        ("mapped", 3 * PAGE, false, counts_mapped),
    ];
    for kind in Kind::ALL {
        for (what, length, append, turn) in turns {
            let name = format!("{what}-{kind:?}");
            fs::write(mounts[0].path(&name), vec![0; length]).unwrap();
            soon("the file", || mounts[1].path(&name).exists());
            take_turns(&mounts, &name, append, kind, turn);
        }
    }
    for mount in mounts {
        mount.stop();
    }
}

#[test]
#[ignore = "mounts: needs root and /dev/fuse"]
fn a_lock_ends_with_its_open_file_and_what_was_written_is_stored_first() {
    if !can_mount() {
        return;
    }
    let site = Site::new("127.84.0.37");
    let mounts = [site.mount("a"), site.mount("b")];
    fs::write(mounts[0].path("file"), b"before").unwrap();
    soon("the file", || mounts[1].path("file").exists());
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let open = |mount: &Mounted| {
            let path = mount.path("file");
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (here, there) = (open(&mounts[0]), open(&mounts[1]));
        let text = format!("turn {number}");
        kind.lock(&here);
        here.write_all_at(text.as_bytes(), 0).unwrap();
        drop(here);
        // The last word of a file that is closed is said behind the close.
        kind.lock(&there);
        let mut read = [0; 6];
        there.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, text.as_bytes(), "{kind:?}");
        kind.unlock(&there);
    }
    for mount in mounts {
        mount.stop();
    }
}
