//! The cache's words and the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afar_cache::{Attr, Entry, Errno, Ino, Kind, Who};
use fuser::{
    FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyWrite, ReplyXattr, Request,
};

/// What stat(2) says is a good size to read or write.
const BLOCK_SIZE: u32 = 4096;

/// The user and process of a request.
pub(crate) fn who(request: &Request) -> Who {
    Who {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}

pub(crate) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
    }
}

/// Attributes as the kernel takes them. AFS has no time of access: it is that of the last change.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.file.0),
        // What is more than the kernel can count, it takes for a malformed answer.
        size: attr.size.min(i64::MAX as u64),
        blocks: attr.blocks,
        atime: whole_seconds(attr.mtime),
        mtime: whole_seconds(attr.mtime),
        ctime: whole_seconds(attr.ctime),
        crtime: whole_seconds(attr.ctime),
        kind: file_type(attr.kind),
        perm: u16::try_from(attr.mode & 0o7777).unwrap_or(0),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// The attributes of an entry. The kernel takes the number in them for the one to ask by, so it must not
/// use them where programs see another: see [`attr_valid`].
pub(crate) fn entry_attr(entry: &Entry) -> FileAttr {
    FileAttr {
        ino: INodeNo(entry.attr.ino.0),
        ..file_attr(&entry.attr)
    }
}

/// How long the attributes of an entry may be used without asking.
pub(crate) fn attr_valid(entry: &Entry) -> Duration {
    if entry.attr.file == entry.attr.ino {
        entry.attr.valid
    } else {
        Duration::ZERO
    }
}

/// AFS keeps whole seconds. A fraction that is shown until the file is stored, and then no longer,
/// would make it seem newer than one that is written after it.
fn whole_seconds(time: SystemTime) -> SystemTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Err(_) => UNIX_EPOCH,
    }
}

pub(crate) fn generation(entry: &Entry) -> Generation {
    Generation(entry.generation)
}

/// An error as the kernel takes it: 0 would be no error.
pub(crate) fn errno(error: Errno) -> fuser::Errno {
    match error.0 {
        1..=4095 => fuser::Errno::from_i32(error.0),
        _ => fuser::Errno::EIO,
    }
}

/// Answers that are an error or one thing.
pub(crate) trait Answer<T> {
    fn answer(self, result: Result<T, Errno>);
}

impl Answer<()> for ReplyEmpty {
    fn answer(self, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.ok(),
            Err(error) => self.error(errno(error)),
        }
    }
}

impl Answer<u32> for ReplyWrite {
    fn answer(self, result: Result<u32, Errno>) {
        match result {
            Ok(written) => self.written(written),
            Err(error) => self.error(errno(error)),
        }
    }
}

impl Answer<Attr> for ReplyAttr {
    fn answer(self, result: Result<Attr, Errno>) {
        match result {
            Ok(attr) => self.attr(&attr.valid, &file_attr(&attr)),
            Err(error) => self.error(errno(error)),
        }
    }
}

impl Answer<Entry> for ReplyEntry {
    fn answer(self, result: Result<Entry, Errno>) {
        match result {
            Ok(entry) => self.entry_with_ttls(
                &attr_valid(&entry),
                &entry.valid,
                &entry_attr(&entry),
                generation(&entry),
            ),
            Err(error) => self.error(errno(error)),
        }
    }
}

impl<T: AsRef<[u8]>> Answer<T> for ReplyData {
    fn answer(self, result: Result<T, Errno>) {
        match result {
            Ok(data) => self.data(data.as_ref()),
            Err(error) => self.error(errno(error)),
        }
    }
}

/// Answers a question for an extended attribute, or for their names, by one who has room for so many
/// bytes; 0 asks for the number of bytes.
pub(crate) fn xattr(reply: ReplyXattr, room: u32, result: Result<impl AsRef<[u8]>, Errno>) {
    match result {
        Ok(value) => {
            let value = value.as_ref();
            match u32::try_from(value.len()) {
                Ok(length) if room == 0 => reply.size(length),
                Ok(length) if length <= room => reply.data(value),
                _ => reply.error(fuser::Errno::ERANGE),
            }
        }
        Err(error) => reply.error(errno(error)),
    }
}

/// The shorter of how long a name holds and how long its attributes do, where the kernel is told
/// both as one.
pub(crate) fn both(entry: &Entry) -> Duration {
    entry.valid.min(attr_valid(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_never_success_for_the_kernel() {
        for number in [0, -1, 4096, i32::MIN, i32::MAX] {
            assert_eq!(errno(Errno(number)), fuser::Errno::EIO, "{number}");
        }
        assert_eq!(errno(Errno::EDQUOT), fuser::Errno::from_i32(122));
    }

    #[test]
    fn attributes_fit_the_kernel() {
        let attr = Attr {
            ino: Ino(7),
            file: Ino(7),
            kind: Kind::Dir,
            size: u64::MAX,
            blocks: 2,
            mtime: UNIX_EPOCH + Duration::from_millis(5900),
            ctime: UNIX_EPOCH,
            mode: 0o40755,
            nlink: 3,
            uid: 32766,
            gid: 0,
            data_version: Default::default(),
            valid: Duration::from_secs(1),
        };
        let told = file_attr(&attr);
        assert_eq!((told.ino.0, told.perm, told.nlink), (7, 0o755, 3));
        assert_eq!(told.kind, FileType::Directory);
        assert_eq!(told.size, i64::MAX as u64);
        assert_eq!(told.mtime, UNIX_EPOCH + Duration::from_secs(5));
    }
}
