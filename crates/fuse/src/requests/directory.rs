//! Listing directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use afar_cache::{Cache, DirEntry, Errno, Handle, Kind};
use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::{Asked, kept};
use crate::eyes::Noted;
use crate::eyes::own::Own;
use crate::interrupt::{Asker, nothing, or_go_on};
use crate::reply::{both, entry_attr, errno, file_type, generation};

/// Marks numbers of what is listed and was not looked up.
const UNKNOWN: u64 = 1 << 63;

/// Whether a number is of something that was listed without having been looked up.
pub(super) fn is_unknown(number: INodeNo) -> bool {
    number.0 & UNKNOWN != 0
}

/// Answers with names, numbers and types.
///
/// Only a file's status tells a file from a symlink and from a mount point. The library cannot say
/// "unknown" to the kernel, and a wrong type would lead find(1) and others astray; so where a type
/// is missing, status is asked for, as `ls -l` would.
pub(super) async fn names(
    noted: Noted,
    asker: Asker,
    handle: Handle,
    offset: u64,
    mut reply: ReplyDirectory,
) {
    let cache = asker.cache.clone();
    let listed = async move { with_kinds(&cache, handle, offset).await };
    let listed = or_go_on(asker, listed, nothing).await;
    noted.end(&listed.as_ref().map(Vec::len).map_err(|error| *error));
    match listed {
        Ok(entries) => {
            for entry in entries {
                let kind = file_type(entry.kind.unwrap_or(Kind::File));
                let name = OsStr::from_bytes(&entry.name);
                if reply.add(INodeNo(entry.ino.0), entry.offset, kind, name) {
                    break;
                }
            }
            reply.ok();
        }
        Err(error) => reply.error(errno(error)),
    }
}

async fn with_kinds(cache: &Cache, handle: Handle, offset: u64) -> Result<Vec<DirEntry>, Errno> {
    let entries = cache.readdir(handle, offset, false).await?;
    if entries.iter().all(|entry| entry.kind.is_some()) {
        return Ok(entries);
    }
    let mut entries = cache.readdir(handle, offset, true).await?;
    for entry in &mut entries {
        if let Some(looked_up) = entry.entry.take() {
            entry.kind = Some(looked_up.attr.kind);
            cache.forget(looked_up.attr.ino, 1);
        }
    }
    Ok(entries)
}

/// Answers with names and, where they are known, what a look-up would answer. What does not fit was
/// not given out.
pub(super) async fn entries(
    (noted, asker): (Noted, Asker),
    handle: Handle,
    offset: u64,
    asked: &Asked,
    mut reply: ReplyDirectoryPlus,
) {
    let cache = asker.cache.clone();
    let list = cache.clone();
    let list = async move { list.readdir(handle, offset, true).await };
    let not_told = cache.clone();
    let forget = async move |listed: Result<Vec<DirEntry>, Errno>| {
        for entry in listed.into_iter().flatten() {
            if let Some(looked_up) = entry.entry {
                not_told.forget(looked_up.attr.ino, 1);
            }
        }
    };
    let listed = or_go_on(asker, list, forget).await;
    noted.end(&listed.as_ref().map(Vec::len).map_err(|error| *error));
    match listed {
        Ok(entries) => asked.give(|fresh| {
            let mut is_full = false;
            for mut entry in entries {
                // What is our folder for some is to be looked up by each.
                let fresh = fresh && !Own::is_folder_name(&entry.name);
                entry.entry = entry.entry.map(|entry| kept(entry, fresh));
                if !is_full {
                    is_full = add(&mut reply, &entry);
                }
                if let Some(looked_up) = entry.entry.filter(|_| is_full) {
                    cache.forget(looked_up.attr.ino, 1);
                }
            }
            reply.ok();
        }),
        Err(error) => reply.error(errno(error)),
    }
}

/// Whether there was no more room.
fn add(reply: &mut ReplyDirectoryPlus, entry: &DirEntry) -> bool {
    let name = OsStr::from_bytes(&entry.name);
    let (valid, attr, generation) = match &entry.entry {
        Some(entry) => (both(entry), entry_attr(entry), generation(entry)),
        None => (Duration::ZERO, unknown(entry), Generation(0)),
    };
    reply.add(attr.ino, entry.offset, name, &valid, &attr, generation)
}

/// Attributes for a name that comes without. The library has one number for the entry and for what
/// the kernel is to look up by; so the kernel gets a length it refuses: it shows the name, takes
/// nothing else, and has a number forgotten that [`is_unknown`] knows.
fn unknown(entry: &DirEntry) -> FileAttr {
    let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
    let kind = if is_dots { Some(Kind::Dir) } else { entry.kind };
    FileAttr {
        // Of these two the kernel shows the number and takes nothing.
        ino: INodeNo(if is_dots {
            entry.ino.0
        } else {
            entry.ino.0 | UNKNOWN
        }),
        size: u64::MAX,
        blocks: 0,
        atime: std::time::UNIX_EPOCH,
        mtime: std::time::UNIX_EPOCH,
        ctime: std::time::UNIX_EPOCH,
        crtime: std::time::UNIX_EPOCH,
        kind: kind.map_or(FileType::RegularFile, file_type),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
