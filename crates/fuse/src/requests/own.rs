//! Requests for the [files of the mount's own](crate::eyes::own).
//!
//! They are neither counted nor told to those who read along: else each line that is read would make another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use afar_cache::{Errno, Ino};
use fuser::{
    AccessFlags, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};
use std::time::Duration;

use super::Requests;
use crate::eyes::own::{Own, OwnFile};
use crate::interrupt::unless_interrupted;
use crate::reply::{Answer, errno};

impl Requests {
    /// Whether a name stands for one of our files, for the one who asks.
    pub(super) fn is_own_name(&self, request: &Request, parent: INodeNo, name: &OsStr) -> bool {
        OwnFile::of(parent).is_some()
            || Own::is_name(parent, name.as_bytes()) && self.own.is_for(request.uid())
    }

    pub(super) fn own_lookup(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let found = match OwnFile::of(parent) {
            None => Ok(OwnFile::Folder),
            Some(_) if !self.own.is_for(request.uid()) => Err(Errno::EACCES),
            Some(OwnFile::Folder) => self.own.named(name.as_bytes()).ok_or(Errno::ENOENT),
            Some(_) => Err(Errno::ENOTDIR),
        };
        match found {
            // The name is asked for each time: for others it is something else.
            Ok(file) => reply.entry_with_ttls(
                &self.own.valid(),
                &Duration::ZERO,
                &self.own.attr(file),
                Generation(0),
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn own_getattr(&self, file: OwnFile, reply: ReplyAttr) {
        reply.attr(&self.own.valid(), &self.own.attr(file));
    }

    pub(super) fn own_access(
        &self,
        request: &Request,
        file: OwnFile,
        mask: AccessFlags,
        reply: ReplyEmpty,
    ) {
        let enters = file == OwnFile::Folder || !mask.contains(AccessFlags::X_OK);
        let may = enters && self.own.is_for(request.uid()) && !mask.contains(AccessFlags::W_OK);
        reply.answer(if may { Ok(()) } else { Err(Errno::EACCES) });
    }

    pub(super) fn own_open(
        &self,
        request: &Request,
        file: OwnFile,
        flags: fuser::OpenFlags,
        reply: ReplyOpen,
    ) {
        let reads = flags.0 & libc::O_ACCMODE == libc::O_RDONLY && flags.0 & libc::O_TRUNC == 0;
        let opened = match reads && self.own.is_for(request.uid()) {
            true => self.own.open(file),
            false => Err(Errno::EACCES),
        };
        match opened {
            Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn own_opendir(&self, request: &Request, file: OwnFile, reply: ReplyOpen) {
        match file {
            OwnFile::Folder if self.own.is_for(request.uid()) => {
                reply.opened(FileHandle(0), FopenFlags::empty());
            }
            OwnFile::Folder => reply.error(fuser::Errno::EACCES),
            _ => reply.error(fuser::Errno::ENOTDIR),
        }
    }

    pub(super) fn own_read(
        &self,
        request: &Request,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: fuser::OpenFlags,
        reply: ReplyData,
    ) {
        let (own, tid) = (std::sync::Arc::clone(&self.own), request.pid());
        let waits = flags.0 & libc::O_NONBLOCK == 0;
        self.run(async move {
            let read = own.read(handle.0, offset, size, waits);
            reply.answer(unless_interrupted(tid, read).await);
        });
    }

    pub(super) fn own_readdir(&self, offset: u64, mut reply: ReplyDirectory) {
        for (number, kind, name, next) in self.own_entries(offset) {
            if reply.add(number, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    pub(super) fn own_readdirplus(&self, offset: u64, mut reply: ReplyDirectoryPlus) {
        for (number, _, name, next) in self.own_entries(offset) {
            // Of the dots the kernel shows the number only.
            let file = OwnFile::of(number).unwrap_or(OwnFile::Folder);
            let attr = fuser::FileAttr {
                ino: number,
                ..self.own.attr(file)
            };
            if reply.add(number, next, name, &Duration::ZERO, &attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    /// What is in the folder from there on.
    fn own_entries(
        &self,
        offset: u64,
    ) -> impl Iterator<Item = (INodeNo, fuser::FileType, &'static str, u64)> {
        let dots = [
            (OwnFile::Folder.number(), "."),
            (INodeNo(Ino::ROOT.0), ".."),
        ];
        let files = self.own.listed().map(|(name, file)| (file.number(), name));
        let all = dots.into_iter().chain(files).zip(1_u64..);
        let rest = all.filter(move |(_, next)| *next > offset);
        rest.map(|((number, name), next)| {
            let kind = match name {
                "." | ".." => fuser::FileType::Directory,
                _ => fuser::FileType::RegularFile,
            };
            (number, kind, name, next)
        })
    }
}
