//! One method for each kind of request.
//!
//! A request is begun on the thread that read it: what is in memory is answered there and then. What
//! has to wait goes on as a task of the runtime, so that no request waits for another.

mod directory;
mod lock;
mod privileges;
mod told;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use afar_cache::{
    Cache, Class, Entry, Errno, Handle, OpenFlags, RenameFlags, SetAttr, StatFs, Who,
};
use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle as Runtime;

use crate::interrupt::{Asker, AsyncAfter, By, nothing, or_go_on, unless};
use crate::order::Order;
use crate::reply::{self, Answer, entry_attr, errno, generation, ino, who};

/// Bytes of the greatest write, and so of the greatest read.
const WRITE_MAX: u32 = 1 << 20;
/// Reads ahead and the like that the kernel may have under way.
const BACKGROUND_MAX: u16 = 128;
/// AFS keeps whole seconds.
const TIME_UNIT: Duration = Duration::from_secs(1);
/// The beginning of the names of extended attributes that we have.
const XATTR_PREFIX: &[u8] = b"afs.";
/// What the kernel is asked to do, as far as it can.
const WANTED: [InitFlags; 9] = [
    // Names and attributes of a directory in one answer, where they are being asked for.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // Look-ups and listings of one directory at a time by several.
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    // Opening and emptying is one step, as two would have others see the one without the other.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // A symlink never changes: what it says is kept.
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Locks are told to the server.
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    // Else each write is preceded by a question for the attribute security.capability.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// A cache as the kernel's requests see it.
#[derive(Debug)]
pub(crate) struct Requests {
    cache: Cache,
    runtime: Runtime,
    order: Arc<Order>,
    /// Whether a file that is read and written past the kernel's pages can be mapped all the same.
    maps_direct: bool,
}

/// When an answer was asked for that the kernel may use for a time.
struct Asked {
    cache: Cache,
    order: Arc<Order>,
    invalidated: u64,
}

impl Asked {
    /// Gives the answer; `fresh` says whether nothing was invalidated since it was asked for.
    fn give<T>(&self, give: impl FnOnce(bool) -> T) -> T {
        let _giving = self.order.enter();
        give(self.cache.invalidated() == self.invalidated)
    }
}

/// An entry as the kernel may keep it.
fn kept(entry: Entry, fresh: bool) -> Entry {
    let mut entry = entry;
    if !fresh {
        (entry.valid, entry.attr.valid) = (Duration::ZERO, Duration::ZERO);
    }
    entry
}

/// Has what storing ends in told at the next close: a program that was interrupted does not hear of it, and what is
/// to be stored is stored in any case.
fn tell_later(cache: &Cache, handle: Handle) -> impl AsyncAfter<()> + use<> {
    let cache = cache.clone();
    async move |stored: Result<(), Errno>| {
        if let Err(error) = stored {
            cache.nobody_heard(handle, error);
        }
    }
}

impl Requests {
    pub(crate) fn new(cache: Cache, runtime: Runtime, order: Arc<Order>) -> Self {
        Self {
            cache,
            runtime,
            order,
            maps_direct: false,
        }
    }

    /// Whether a file is to be read and written past the kernel's pages. The kernel puts what is appended into
    /// the page where it believes the end to be: where another machine has appended meanwhile, that is the wrong
    /// place, and would be shown there.
    fn is_direct(&self, flags: OpenFlags) -> bool {
        flags.append && flags.write && self.maps_direct
    }

    fn asked(&self) -> Asked {
        Asked {
            cache: self.cache.clone(),
            order: Arc::clone(&self.order),
            invalidated: self.cache.invalidated(),
        }
    }

    /// The same as [`answer`](Self::answer) for what a name stands for.
    fn answer_entry(
        &self,
        reply: ReplyEntry,
        asker: Asker,
        request: impl Future<Output = Result<Entry, Errno>> + Send + 'static,
    ) {
        let asked = self.asked();
        let cache = self.cache.clone();
        let forget = async move |entry: Result<Entry, Errno>| {
            if let Ok(entry) = entry {
                cache.forget(entry.attr.ino, 1);
            }
        };
        self.run(async move {
            let entry = or_go_on(asker, request, forget).await;
            asked.give(|fresh| reply.answer(entry.map(|entry| kept(entry, fresh))));
        });
    }

    /// Does a request: here if it can be done at once, else as a task.
    fn run(&self, request: impl Future<Output = ()> + Send + 'static) {
        let mut request = Box::pin(request);
        let _inside = self.runtime.enter();
        // A task wakes itself when it is begun, so nothing is lost by not being woken here.
        let mut context = Context::from_waker(Waker::noop());
        if request.as_mut().poll(&mut context).is_pending() {
            drop(self.runtime.spawn(request));
        }
    }

    /// The asker of a request that changes something.
    fn changer(&self, request: &Request) -> Asker {
        self.asker(request, By::Ending)
    }

    /// The asker of a request that changes nothing.
    fn reader(&self, request: &Request) -> Asker {
        self.asker(request, By::Asking)
    }

    fn asker(&self, request: &Request, by: By) -> Asker {
        Asker {
            tid: request.pid(),
            by,
            cache: self.cache.clone(),
        }
    }

    /// The same for requests with one answer, by which nothing is handed out that must come back.
    fn answer<T, R>(
        &self,
        reply: R,
        asker: Asker,
        request: impl Future<Output = Result<T, Errno>> + Send + 'static,
    ) where
        R: Answer<T> + Send + 'static,
        T: Send + 'static,
    {
        self.run(async move { reply.answer(or_go_on(asker, request, nothing).await) });
    }
}

/// A name, for a task.
fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// How a file is to be opened, by this process.
fn asked_for(who: Who, flags: i32) -> OpenFlags {
    OpenFlags {
        class: Class::of(who.pid),
        ..OpenFlags::from_linux(flags)
    }
}

/// What is opened may keep its pages, if they are still good, and be written to directly by several.
fn open_flags(keep: bool, direct: bool) -> FopenFlags {
    let mut flags = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, keep);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, direct);
    flags
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel cannot do this");
            }
        }
        // Kernels that know this also drop the pages of what is written past them.
        let direct = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        self.maps_direct = config.add_capabilities(direct).is_ok();
        let invalid = |nearest| io::Error::other(format!("a limit is refused, {nearest} is not"));
        config.set_max_write(WRITE_MAX).map_err(invalid)?;
        config
            .set_max_background(BACKGROUND_MAX)
            .map_err(|nearest| invalid(nearest.into()))?;
        config
            .set_time_granularity(TIME_UNIT)
            .map_err(|nearest| io::Error::other(format!("times in {nearest:?} only")))?;
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (cache, who, parent, name) =
            (self.cache.clone(), who(request), ino(parent), owned(name));
        self.answer_entry(reply, self.reader(request), async move {
            cache.lookup(who, parent, &name).await
        });
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        if !directory::is_unknown(number) {
            self.cache.forget(ino(number), count);
        }
    }

    fn getattr(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let (cache, who) = (self.cache.clone(), who(request));
        self.answer(reply, self.reader(request), async move {
            cache.getattr(who, ino(number)).await
        });
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (cache, who) = (self.cache.clone(), who(request));
        let mut set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            size,
            mtime: mtime.map(time),
            uid,
            gid,
        };
        let handle = handle.map(|handle| Handle(handle.0));
        self.answer(reply, self.changer(request), async move {
            privileges::drop_by(&cache, who, ino(number), &mut set).await;
            cache.setattr(who, ino(number), set, handle).await
        });
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let (cache, who) = (self.cache.clone(), who(request));
        self.answer(reply, self.reader(request), async move {
            cache.readlink(who, ino(number)).await
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        // AFS has no devices, sockets and pipes.
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(fuser::Errno::EPERM);
        }
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let flags = OpenFlags {
            write: true,
            exclusive: true,
            ..OpenFlags::default()
        };
        self.answer_entry(reply, self.changer(request), async move {
            let made = cache.create(who, ino(parent), &name, mode & 0o7777, flags);
            let (entry, handle) = made.await?;
            cache.release(handle, None).await;
            Ok(entry)
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer_entry(reply, self.changer(request), async move {
            cache.mkdir(who, ino(parent), &name, mode & 0o7777).await
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer(reply, self.changer(request), async move {
            cache.unlink(who, ino(parent), &name).await
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer(reply, self.changer(request), async move {
            cache.rmdir(who, ino(parent), &name).await
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let target = owned(target.as_os_str());
        self.answer_entry(reply, self.changer(request), async move {
            cache.symlink(who, ino(parent), &name, &target).await
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (cache, who) = (self.cache.clone(), who(request));
        let (name, new_name) = (owned(name), owned(new_name));
        let (from, to) = (ino(parent), ino(new_parent));
        let flags = RenameFlags(flags.bits());
        self.answer(reply, self.changer(request), async move {
            cache.rename(who, from, &name, to, &new_name, flags).await
        });
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(new_name));
        self.answer_entry(reply, self.changer(request), async move {
            cache.link(who, ino(number), ino(new_parent), &name).await
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (cache, who) = (self.cache.clone(), who(request));
        let flags = asked_for(who, flags.0);
        let direct = self.is_direct(flags);
        let asker = if flags.truncate {
            self.changer(request)
        } else {
            self.reader(request)
        };
        self.run(async move {
            let open = cache.clone();
            let open = async move { open.open_file(who, ino(number), flags).await };
            let close = async move |opened: Result<(Handle, bool), Errno>| {
                if let Ok((handle, _)) = opened {
                    cache.release(handle, None).await;
                }
            };
            match or_go_on(asker, open, close).await {
                Ok((handle, keep)) => reply.opened(FileHandle(handle.0), open_flags(keep, direct)),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let asked = self.asked();
        let flags = asked_for(who, flags);
        let direct = self.is_direct(flags);
        let asker = self.changer(request);
        self.run(async move {
            let make = cache.clone();
            let parent = ino(parent);
            let make = async move { make.create(who, parent, &name, mode & 0o7777, flags).await };
            let close = async move |made: Result<(Entry, Handle), Errno>| {
                if let Ok((entry, handle)) = made {
                    cache.release(handle, None).await;
                    cache.forget(entry.attr.ino, 1);
                }
            };
            match or_go_on(asker, make, close).await {
                Ok((entry, handle)) => asked.give(|fresh| {
                    let entry = kept(entry, fresh);
                    reply.created(
                        &reply::both(&entry),
                        &entry_attr(&entry),
                        generation(&entry),
                        FileHandle(handle.0),
                        open_flags(false, direct),
                    );
                }),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let cache = self.cache.clone();
        self.answer(reply, self.reader(request), async move {
            cache.read(Handle(handle.0), offset, size).await
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (cache, who) = (self.cache.clone(), who(request));
        // The kernel writes a mapping's pages through any handle for writing, and these belong where they are.
        let mapped = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = !mapped && OpenFlags::from_linux(open_flags.0).append;
        // The buffer is the reader's, who is to read the next request into it.
        let data = Bytes::copy_from_slice(data);
        let drop_privileges = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        self.answer(reply, self.changer(request), async move {
            let handle = Handle(handle.0);
            let written = match appends {
                // The kernel's place is that of a length which others may have changed.
                true => cache.append(handle, &data).await?,
                false => cache.write(handle, offset, &data).await?,
            };
            if drop_privileges {
                privileges::drop_now(&cache, who, ino(number)).await;
            }
            Ok(written)
        });
    }

    fn flush(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let (cache, asker) = (self.cache.clone(), request.pid());
        let handle = Handle(handle.0);
        let after = tell_later(&cache, handle);
        let flush = async move {
            let flushed = cache.flush(handle, owner.0).await;
            if let Err(error) = flushed
                && !told::hears_of_close(asker).await
            {
                cache.nobody_heard(handle, error);
            }
            flushed
        };
        let (waiting, cache) = (self.reader(request), self.cache.clone());
        let given_up = async move {
            tokio::select! {
                () = waiting.gives_up() => {}
                () = told::waits_in_vain(&cache, asker) => {}
            }
        };
        self.run(async move { reply.answer(unless(given_up, flush, after).await) });
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: fuser::OpenFlags,
        owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let cache = self.cache.clone();
        // Nobody waits for it.
        self.run(async move {
            let owner = owner.map(|owner| owner.0);
            cache.release(Handle(handle.0), owner).await;
            reply.ok();
        });
    }

    fn fsync(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let (cache, handle) = (self.cache.clone(), Handle(handle.0));
        let (asker, after) = (self.reader(request), tell_later(&cache, handle));
        self.run(async move {
            let synced = async move { cache.fsync(handle).await };
            reply.answer(or_go_on(asker, synced, after).await);
        });
    }

    fn opendir(
        &self,
        request: &Request,
        number: INodeNo,
        _flags: fuser::OpenFlags,
        reply: ReplyOpen,
    ) {
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run(async move {
            let open = cache.clone();
            let open = async move { open.opendir(who, ino(number)).await };
            let close = async move |opened: Result<Handle, Errno>| {
                if let Ok(handle) = opened {
                    cache.releasedir(handle);
                }
            };
            match or_go_on(asker, open, close).await {
                Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let asker = self.reader(request);
        self.run(async move { directory::names(asker, Handle(handle.0), offset, reply).await });
    }

    fn readdirplus(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (asker, asked) = (self.reader(request), self.asked());
        self.run(async move {
            directory::entries(asker, Handle(handle.0), offset, &asked, reply).await;
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.cache.releasedir(Handle(handle.0));
        reply.ok();
    }

    /// What a server has answered about a directory, it has on its disk.
    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run(async move {
            let space = async move { cache.statfs(who, ino(number)).await };
            match or_go_on(asker, space, nothing).await {
                // AFS does not count files in advance: 0 is how others say so.
                Ok(space) => reply.statfs(
                    space.blocks,
                    space.free,
                    space.available,
                    0,
                    0,
                    StatFs::BLOCK,
                    StatFs::NAME_MAX,
                    StatFs::BLOCK,
                ),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if !name.as_bytes().starts_with(XATTR_PREFIX) {
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let value = value.to_vec();
        self.answer(reply, self.changer(request), async move {
            cache.setxattr(who, ino(number), &name, &value).await
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        // Programs ask for attributes of others all the time.
        if !name.as_bytes().starts_with(XATTR_PREFIX) {
            return reply.error(fuser::Errno::ENODATA);
        }
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let asker = self.reader(request);
        self.run(async move {
            let value = async move { cache.getxattr(who, ino(number), &name).await };
            let value = or_go_on(asker, value, nothing).await;
            reply::xattr(reply, size, value);
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run(async move {
            let names = async move { cache.listxattr(who, ino(number)).await };
            let names = or_go_on(asker, names, nothing).await;
            let list = names.map(|names| {
                let ended = names
                    .into_iter()
                    .flat_map(|name| name.into_iter().chain([0]));
                ended.collect::<Vec<u8>>()
            });
            reply::xattr(reply, size, list);
        });
    }

    fn removexattr(&self, _request: &Request, _number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(if name.as_bytes().starts_with(XATTR_PREFIX) {
            fuser::Errno::EPERM
        } else {
            fuser::Errno::ENODATA
        });
    }

    fn access(&self, request: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let (cache, who) = (self.cache.clone(), who(request));
        let mask = u32::try_from(mask.bits() & 7).unwrap_or(0);
        self.answer(reply, self.reader(request), async move {
            cache.access(who, ino(number), mask).await
        });
    }

    fn getlk(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let Some(lock) = lock::lock(kind, start, end, pid) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let cache = self.cache.clone();
        self.run(async move { lock::test(&cache, Handle(handle.0), owner.0, lock, reply).await });
    }

    fn setlk(
        &self,
        request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let Some(lock) = lock::lock(kind, start, end, pid) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let (cache, asker) = (self.cache.clone(), request.pid());
        let wait = sleep.then_some(asker);
        self.run(async move {
            reply.answer(lock::set(&cache, Handle(handle.0), owner.0, lock, wait).await);
        });
    }

    // What follows is not done. For each the kernel has something that does instead, and asks once.

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: fuser::PollNotifier,
        _: fuser::PollEvents,
        _: fuser::PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }
}
