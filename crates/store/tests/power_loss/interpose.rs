//! The C library's file calls, as LMDB and the standard library make them: forwarded to the kernel,
//! and what they do to the watched directory recorded.
//!
//! A program's own definition of a C library function goes before the library's, so LMDB's C code
//! and the standard library, both linked into the test, call these. Calls that change nothing (read,
//! close, mmap) are left alone; files are told by their inode, so descriptors need no tracking.
//! What bypasses these functions is found when the recording ends, as a difference between the log
//! and the directory.
//!
//! A call holds the session from before the kernel does it until it is in the log, so that the log
//! has the kernel's order.

#![expect(unsafe_code, reason = "the C library's functions take raw pointers")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "the kernel's answers have the C type's range"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::time::Duration;

use libc::{iovec, mode_t, off64_t, size_t, ssize_t};

use crate::event::{Event, Kind, NodeId};
use crate::fault::{Call, Failure};
use crate::session::{self, Inode, Session};

/// How long a sync takes while it is recorded, as on a fast disk.
const SYNC_TIME: Duration = Duration::from_millis(2);

/// Sets errno; the value of a call that fails.
fn fail(errno: c_int) -> c_long {
    // SAFETY: the address of the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What the kernel says of a file, by descriptor and path as in fstatat.
fn inode(dir: c_int, path: &CStr, flags: c_int) -> Option<Inode> {
    // SAFETY: all zeros are a valid stat.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL and the structure is ours.
    let result = unsafe { libc::fstatat64(dir, path.as_ptr(), &raw mut stat, flags) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

/// A watched file or directory by its descriptor.
fn node_of(session: &Session, fd: c_int) -> Option<NodeId> {
    session.node(inode(fd, c"", libc::AT_EMPTY_PATH)?)
}

/// A name in a watched directory.
struct Place {
    dir: NodeId,
    name: String,
    /// What has the name now.
    inode: Option<Inode>,
}

/// # Safety
///
/// `path` is a string that ends in NUL, or null.
unsafe fn place(session: &Session, dir: c_int, path: *const c_char) -> Option<Place> {
    if path.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes();
    let bytes = &bytes[..bytes.iter().rposition(|byte| *byte != b'/')? + 1];
    let name_at = bytes
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    let parent = if name_at == 0 {
        &b"."[..]
    } else {
        &bytes[..name_at]
    };
    let parent = session.node(inode(dir, &CString::new(parent).ok()?, 0)?)?;
    Some(Place {
        dir: parent,
        name: String::from_utf8_lossy(&bytes[name_at..]).into_owned(),
        inode: inode(dir, path, libc::AT_SYMLINK_NOFOLLOW),
    })
}

/// The bytes of a vector that a write took.
///
/// # Safety
///
/// The vector's parts are readable, and hold at least `taken` bytes together.
unsafe fn gather(iov: *const iovec, count: c_int, taken: usize) -> Box<[u8]> {
    let mut data = Vec::with_capacity(taken);
    // SAFETY: as the caller promises.
    let parts = unsafe { std::slice::from_raw_parts(iov, usize::try_from(count).unwrap_or(0)) };
    for part in parts {
        let len = part.iov_len.min(taken - data.len());
        if len > 0 {
            // SAFETY: as the caller promises; at most the part's length is read.
            data.extend_from_slice(unsafe {
                std::slice::from_raw_parts(part.iov_base.cast(), len)
            });
        }
    }
    data.into()
}

/// Where a write goes.
#[derive(Clone, Copy)]
enum At {
    Offset(off64_t),
    /// The descriptor's own position.
    Position,
}

/// All writes: one vector, at an offset or at the descriptor's position.
///
/// # Safety
///
/// As for pwritev.
unsafe fn write_vector(fd: c_int, iov: *const iovec, count: c_int, at: At) -> ssize_t {
    let raw = |iov: *const iovec, count: c_int| {
        // SAFETY: the kernel checks descriptor and addresses; the caller vouches for the memory.
        let done = unsafe {
            match at {
                At::Offset(offset) => libc::syscall(libc::SYS_pwritev, fd, iov, count, offset, 0),
                At::Position => libc::syscall(libc::SYS_writev, fd, iov, count),
            }
        };
        done as ssize_t
    };
    let Some(mut session) = session::enter() else {
        return raw(iov, count);
    };
    let Some(file) = node_of(&session, fd) else {
        return raw(iov, count);
    };
    let done = match session.fault(Call::Write, file) {
        None => raw(iov, count),
        Some(Failure::Error(errno)) => return fail(errno) as ssize_t,
        Some(Failure::Short) => {
            // SAFETY: as the caller promises.
            let all = unsafe { gather(iov, count, total(iov, count)) };
            let half = iovec {
                iov_base: all.as_ptr().cast_mut().cast(),
                iov_len: all.len() / 2,
            };
            raw(&raw const half, 1)
        }
    };
    if let Ok(taken @ 1..) = usize::try_from(done) {
        let offset = match at {
            At::Offset(offset) => offset,
            // SAFETY: asking for the position changes nothing.
            At::Position => unsafe { libc::lseek64(fd, 0, libc::SEEK_CUR) - done as off64_t },
        };
        // SAFETY: asking for flags changes nothing.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: the kernel has just read as much from the same vector.
        let data = unsafe { gather(iov, count, taken) };
        let synced = flags & libc::O_DSYNC != 0;
        session.push(Event::Write {
            file,
            offset: offset.unsigned_abs(),
            data,
            synced,
        });
    }
    done
}

/// # Safety
///
/// The vector is readable.
unsafe fn total(iov: *const iovec, count: c_int) -> usize {
    // SAFETY: as the caller promises.
    let parts = unsafe { std::slice::from_raw_parts(iov, usize::try_from(count).unwrap_or(0)) };
    parts.iter().map(|part| part.iov_len).sum()
}

/// # Safety
///
/// As for pwrite.
unsafe fn write_one(fd: c_int, buffer: *const c_void, count: size_t, at: At) -> ssize_t {
    let part = iovec {
        iov_base: buffer.cast_mut(),
        iov_len: count,
    };
    // SAFETY: as the caller promises.
    unsafe { write_vector(fd, &raw const part, 1, at) }
}

macro_rules! interpose {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        $(#[$meta])*
        /// # Safety
        ///
        /// As for the C library's function of this name.
        // SAFETY: this is the C library's function: same name, same arguments, same effect.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: whoever calls the C library's function keeps to its contract.
            unsafe { $body }
        }
    )*};
}

// `open`, `openat` and `fcntl` take their last argument as "…" in C; on the architectures Linux runs
// on, an integer given so is passed as any other.
interpose! {
    fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t =
        write_one(fd, buffer, count, At::Position);
    fn pwrite(fd: c_int, buffer: *const c_void, count: size_t, offset: off64_t) -> ssize_t =
        write_one(fd, buffer, count, At::Offset(offset));
    fn pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off64_t) -> ssize_t =
        write_one(fd, buffer, count, At::Offset(offset));
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t =
        write_vector(fd, iov, count, At::Position);
    fn pwritev(fd: c_int, iov: *const iovec, count: c_int, offset: off64_t) -> ssize_t =
        write_vector(fd, iov, count, At::Offset(offset));
    fn pwritev64(fd: c_int, iov: *const iovec, count: c_int, offset: off64_t) -> ssize_t =
        write_vector(fd, iov, count, At::Offset(offset));
    fn fsync(fd: c_int) -> c_int = sync(fd, libc::SYS_fsync);
    fn fdatasync(fd: c_int) -> c_int = sync(fd, libc::SYS_fdatasync);
    fn ftruncate(fd: c_int, len: off64_t) -> c_int = truncate(fd, len);
    fn ftruncate64(fd: c_int, len: off64_t) -> c_int = truncate(fd, len);
    fn fallocate(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int =
        allocate(fd, mode, offset, len);
    fn fallocate64(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int =
        allocate(fd, mode, offset, len);
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_at(libc::AT_FDCWD, path, flags, mode);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_at(libc::AT_FDCWD, path, flags, mode);
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_at(dir, path, flags, mode);
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_at(dir, path, flags, mode);
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int = make_dir(libc::AT_FDCWD, path, mode);
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int = make_dir(dir, path, mode);
    fn unlink(path: *const c_char) -> c_int = remove(libc::AT_FDCWD, path, 0);
    fn rmdir(path: *const c_char) -> c_int = remove(libc::AT_FDCWD, path, libc::AT_REMOVEDIR);
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int = remove(dir, path, flags);
    fn rename(from: *const c_char, to: *const c_char) -> c_int =
        move_name(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0);
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int =
        move_name(from_dir, from, to_dir, to, 0);
    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
        flags: c_uint) -> c_int = move_name(from_dir, from, to_dir, to, flags);
    fn link(from: *const c_char, to: *const c_char) -> c_int =
        add_name(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0);
    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
        flags: c_int) -> c_int = add_name(from_dir, from, to_dir, to, flags);
}

/// # Safety
///
/// As for fsync; `call` is the number of fsync or fdatasync.
unsafe fn sync(fd: c_int, call: c_long) -> c_int {
    // SAFETY: the kernel checks the descriptor.
    let raw = || unsafe { libc::syscall(call, fd) };
    let done = (|| {
        let Some(session) = session::enter() else {
            return raw();
        };
        let Some(node) = node_of(&session, fd) else {
            return raw();
        };
        let covers = session.events.len();
        // Others go on meanwhile.
        drop(session);
        std::thread::sleep(SYNC_TIME);
        let Some(mut session) = session::enter() else {
            return raw();
        };
        if let Some(Failure::Error(errno)) = session.fault(Call::Sync, node) {
            session.push(Event::SyncFailed { node });
            return fail(errno);
        }
        let done = raw();
        session.push(match done {
            0 => Event::Sync { node, covers },
            _ => Event::SyncFailed { node },
        });
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for ftruncate.
unsafe fn truncate(fd: c_int, len: off64_t) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        let Some(file) = node_of(&session, fd) else {
            return raw();
        };
        if let Some(Failure::Error(errno)) = session.fault(Call::Size, file) {
            return fail(errno);
        }
        let done = raw();
        if done == 0 {
            session.push(Event::Truncate {
                file,
                len: len.unsigned_abs(),
            });
        }
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for fallocate.
unsafe fn allocate(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, len) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        let Some(file) = node_of(&session, fd) else {
            return raw();
        };
        if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        if let Some(Failure::Error(errno)) = session.fault(Call::Size, file) {
            return fail(errno);
        }
        let done = raw();
        let (offset, len) = (offset.unsigned_abs(), len.unsigned_abs());
        if done == 0 && mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            session.push(Event::Zero { file, offset, len });
        }
        if done == 0 && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            session.push(Event::Extend {
                file,
                len: offset + len,
            });
        }
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for openat.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) };
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return raw() as c_int;
    }
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        // SAFETY: as the caller promises.
        let Some(place) = (unsafe { place(&session, dir, path) }) else {
            return raw();
        };
        if place.inode.is_none()
            && let Some(Failure::Error(errno)) = session.fault_by_name(Call::Name, &place.name)
        {
            return fail(errno);
        }
        let fd = raw();
        if fd >= 0
            && let Some(inode) = inode(fd as c_int, c"", libc::AT_EMPTY_PATH)
        {
            match place.inode {
                None => add(&mut session, inode, place, Kind::File),
                Some(_) if flags & libc::O_TRUNC == 0 => {}
                Some(_) => {
                    if let Some(file) = session.node(inode) {
                        session.push(Event::Truncate { file, len: 0 });
                    }
                }
            }
        }
        fd
    })();
    done as c_int
}

/// A file or directory was made.
fn add(session: &mut Session, inode: Inode, place: Place, kind: Kind) {
    let node = session.add(inode, &place.name, kind);
    session.push(Event::Link {
        dir: place.dir,
        name: place.name,
        node,
    });
}

/// # Safety
///
/// As for mkdirat.
unsafe fn make_dir(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        // SAFETY: as the caller promises.
        let Some(place) = (unsafe { place(&session, dir, path) }) else {
            return raw();
        };
        if let Some(Failure::Error(errno)) = session.fault_by_name(Call::Name, &place.name) {
            return fail(errno);
        }
        let done = raw();
        // SAFETY: as the caller promises; the kernel has just read the path.
        let path = unsafe { CStr::from_ptr(path) };
        if done == 0
            && let Some(inode) = inode(dir, path, libc::AT_SYMLINK_NOFOLLOW)
        {
            add(&mut session, inode, place, Kind::Directory);
        }
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for unlinkat.
unsafe fn remove(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        // SAFETY: as the caller promises.
        let Some(place) = (unsafe { place(&session, dir, path) }) else {
            return raw();
        };
        if let Some(Failure::Error(errno)) = session.fault_by_name(Call::Name, &place.name) {
            return fail(errno);
        }
        let done = raw();
        if done == 0 {
            session.push(Event::Unlink {
                dir: place.dir,
                name: place.name,
            });
        }
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for renameat2.
unsafe fn move_name(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        // SAFETY: as the caller promises.
        let old = unsafe { place(&session, from_dir, from) };
        // SAFETY: as the caller promises.
        let new = unsafe { place(&session, to_dir, to) };
        if old.is_none() && new.is_none() {
            return raw();
        }
        let (Some(old), Some(new)) = (old, new) else {
            return fail(libc::EXDEV);
        };
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return fail(libc::EINVAL);
        }
        if let Some(Failure::Error(errno)) = session.fault_by_name(Call::Name, &new.name) {
            return fail(errno);
        }
        let done = raw();
        // Of two names of one file none goes away.
        if done == 0 && old.inode != new.inode {
            session.push(Event::Rename {
                from: (old.dir, old.name),
                to: (new.dir, new.name),
            });
        }
        done
    })();
    done as c_int
}

/// # Safety
///
/// As for linkat.
unsafe fn add_name(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the kernel checks the arguments.
    let raw = || unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) };
    let done = (|| {
        let Some(mut session) = session::enter() else {
            return raw();
        };
        // SAFETY: as the caller promises.
        let Some(new) = (unsafe { place(&session, to_dir, to) }) else {
            return raw();
        };
        if let Some(Failure::Error(errno)) = session.fault_by_name(Call::Name, &new.name) {
            return fail(errno);
        }
        let done = raw();
        // SAFETY: as the caller promises; the kernel has just read the path.
        let to = unsafe { CStr::from_ptr(to) };
        let node =
            inode(to_dir, to, libc::AT_SYMLINK_NOFOLLOW).and_then(|inode| session.node(inode));
        if done == 0
            && let Some(node) = node
        {
            session.push(Event::Link {
                dir: new.dir,
                name: new.name,
                node,
            });
        }
        done
    })();
    done as c_int
}
