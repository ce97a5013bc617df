//! One method for each kind of request.
//!
//! A request is begun on the thread that read it: what is in memory is answered there and then. What
//! has to wait goes on as a task of the runtime, so that no request waits for another.

mod directory;
mod lock;
mod noted;
mod own;
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
    Cache, Class, Entry, Errno, Handle, Ino, OpenFlags, RenameFlags, SetAttr, StatFs, Who,
};
use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle as Runtime;

use crate::eyes::own::{Own, OwnFile};
use crate::eyes::{Eyes, Noted, Operation, Outcome, args, quoted};
use crate::interrupt::{Asker, AsyncAfter, By, nothing, or_go_on, unless};
use crate::order::Order;
use crate::reply::{self, Answer, entry_attr, errno, generation, ino, who};
use noted::setattr_args;

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
    eyes: Arc<Eyes>,
    own: Arc<Own>,
    /// Whether a file that is read and written past the kernel's pages can be mapped all the same.
    maps_direct: bool,
}

/// When an answer was asked for that the kernel may use for a time.
struct Asked {
    cache: Cache,
    order: Arc<Order>,
    invalidated: u64,
    /// Whether the kernel is to ask again in any case.
    fleeting: bool,
}

impl Asked {
    /// Gives the answer; `fresh` says whether nothing was invalidated since it was asked for.
    fn give<T>(&self, give: impl FnOnce(bool) -> T) -> T {
        let _giving = self.order.enter();
        give(!self.fleeting && self.cache.invalidated() == self.invalidated)
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
    pub(crate) fn new(
        cache: Cache,
        runtime: Runtime,
        order: Arc<Order>,
        eyes: Arc<Eyes>,
        own: Arc<Own>,
    ) -> Self {
        Self {
            cache,
            runtime,
            order,
            eyes,
            own,
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
            fleeting: false,
        }
    }

    /// The same for what a name is to stand for. One that is that of our folder for others is asked for each time.
    fn asked_of(&self, parent: INodeNo, name: &OsStr) -> Asked {
        Asked {
            fleeting: Own::is_name(parent, name.as_bytes()),
            ..self.asked()
        }
    }

    /// The same as [`answer`](Self::answer) for what a name stands for.
    fn answer_entry(
        &self,
        (noted, asked): (Noted, Asked),
        reply: ReplyEntry,
        asker: Asker,
        request: impl Future<Output = Result<Entry, Errno>> + Send + 'static,
    ) {
        let cache = self.cache.clone();
        let forget = async move |entry: Result<Entry, Errno>| {
            if let Ok(entry) = entry {
                cache.forget(entry.attr.ino, 1);
            }
        };
        self.run_noted(noted, |noted| async move {
            let entry = or_go_on(asker, request, forget).await;
            noted.end(&entry);
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
        noted: Noted,
        reply: R,
        asker: Asker,
        request: impl Future<Output = Result<T, Errno>> + Send + 'static,
    ) where
        R: Answer<T> + Send + 'static,
        T: Outcome + Send + Sync + 'static,
    {
        self.run_noted(noted, |noted| async move {
            let result = or_go_on(asker, request, nothing).await;
            noted.end(&result);
            reply.answer(result);
        });
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
        if self.is_own_name(request, parent, name) {
            return self.own_lookup(request, parent, name, reply);
        }
        let noted = self.note_name(request, Operation::Lookup, parent, name);
        let noted = (noted, self.asked_of(parent, name));
        let (cache, who, parent, name) =
            (self.cache.clone(), who(request), ino(parent), owned(name));
        self.answer_entry(noted, reply, self.reader(request), async move {
            cache.lookup(who, parent, &name).await
        });
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        if !directory::is_unknown(number) && OwnFile::of(number).is_none() {
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
        if let Some(file) = OwnFile::of(number) {
            return self.own_getattr(file, reply);
        }
        let noted = self.note(request, Operation::Getattr, || args(&[&number.0]));
        let (cache, who) = (self.cache.clone(), who(request));
        self.answer(noted, reply, self.reader(request), async move {
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
        if OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::EPERM);
        }
        let (cache, who) = (self.cache.clone(), who(request));
        let mut set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            size,
            mtime: mtime.map(time),
            uid,
            gid,
        };
        let handle = handle.map(|handle| Handle(handle.0));
        let noted = self.note(request, Operation::Setattr, || setattr_args(number, &set));
        self.answer(noted, reply, self.changer(request), async move {
            privileges::drop_by(&cache, who, ino(number), &mut set).await;
            cache.setattr(who, ino(number), set, handle).await
        });
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        if OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let noted = self.note(request, Operation::Readlink, || args(&[&number.0]));
        let (cache, who) = (self.cache.clone(), who(request));
        self.answer(noted, reply, self.reader(request), async move {
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
        if mode & libc::S_IFMT != libc::S_IFREG || self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note_name(request, Operation::Mknod, parent, name);
        let noted = (noted, self.asked_of(parent, name));
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let flags = OpenFlags {
            write: true,
            exclusive: true,
            ..OpenFlags::default()
        };
        self.answer_entry(noted, reply, self.changer(request), async move {
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
        if self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note_name(request, Operation::Mkdir, parent, name);
        let noted = (noted, self.asked_of(parent, name));
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer_entry(noted, reply, self.changer(request), async move {
            cache.mkdir(who, ino(parent), &name, mode & 0o7777).await
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note_name(request, Operation::Unlink, parent, name);
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer(noted, reply, self.changer(request), async move {
            cache.unlink(who, ino(parent), &name).await
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note_name(request, Operation::Rmdir, parent, name);
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer(noted, reply, self.changer(request), async move {
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
        if self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let target = owned(target.as_os_str());
        let noted = self.note(request, Operation::Symlink, || {
            args(&[&parent.0, &quoted(name.as_bytes()), &quoted(&target)])
        });
        let noted = (noted, self.asked_of(parent, name));
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        self.answer_entry(noted, reply, self.changer(request), async move {
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
        if self.is_own_name(request, parent, name)
            || self.is_own_name(request, new_parent, new_name)
        {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note(request, Operation::Rename, || {
            let (name, new_name) = (quoted(name.as_bytes()), quoted(new_name.as_bytes()));
            args(&[&parent.0, &name, &new_parent.0, &new_name])
        });
        let (cache, who) = (self.cache.clone(), who(request));
        let (name, new_name) = (owned(name), owned(new_name));
        let (from, to) = (ino(parent), ino(new_parent));
        let flags = RenameFlags(flags.bits());
        self.answer(noted, reply, self.changer(request), async move {
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
        if OwnFile::of(number).is_some() || self.is_own_name(request, new_parent, new_name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note(request, Operation::Link, || {
            args(&[&number.0, &new_parent.0, &quoted(new_name.as_bytes())])
        });
        let noted = (noted, self.asked_of(new_parent, new_name));
        let (cache, who, name) = (self.cache.clone(), who(request), owned(new_name));
        self.answer_entry(noted, reply, self.changer(request), async move {
            cache.link(who, ino(number), ino(new_parent), &name).await
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        if let Some(file) = OwnFile::of(number) {
            return self.own_open(request, file, flags, reply);
        }
        let noted = self.note(request, Operation::Open, || {
            args(&[&number.0, &format_args!("{:#o}", flags.0)])
        });
        let (cache, who) = (self.cache.clone(), who(request));
        let flags = asked_for(who, flags.0);
        let direct = self.is_direct(flags);
        let asker = if flags.truncate {
            self.changer(request)
        } else {
            self.reader(request)
        };
        self.run_noted(noted, |noted| async move {
            let open = cache.clone();
            let open = async move { open.open_file(who, ino(number), flags).await };
            let close = async move |opened: Result<(Handle, bool), Errno>| {
                if let Ok((handle, _)) = opened {
                    cache.release(handle, None).await;
                }
            };
            let opened = or_go_on(asker, open, close).await;
            noted.end(&opened.map(|(handle, _)| handle));
            match opened {
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
        if self.is_own_name(request, parent, name) {
            return reply.error(fuser::Errno::EPERM);
        }
        let noted = self.note(request, Operation::Create, || {
            let (name, flags) = (quoted(name.as_bytes()), format_args!("{flags:#o}"));
            args(&[&parent.0, &name, &format_args!("{mode:o}"), &flags])
        });
        let asked = self.asked_of(parent, name);
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let flags = asked_for(who, flags);
        let direct = self.is_direct(flags);
        let asker = self.changer(request);
        self.run_noted(noted, |noted| async move {
            let make = cache.clone();
            let parent = ino(parent);
            let make = async move { make.create(who, parent, &name, mode & 0o7777, flags).await };
            let close = async move |made: Result<(Entry, Handle), Errno>| {
                if let Ok((entry, handle)) = made {
                    cache.release(handle, None).await;
                    cache.forget(entry.attr.ino, 1);
                }
            };
            let made = or_go_on(asker, make, close).await;
            noted.end(&made.map(|(entry, _)| entry));
            match made {
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
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if OwnFile::of(number).is_some() {
            return self.own_read(request, handle, offset, size, flags, reply);
        }
        let noted = self.note(request, Operation::Read, || {
            args(&[&number.0, &size, &offset, &handle.0])
        });
        let cache = self.cache.clone();
        self.answer(noted, reply, self.reader(request), async move {
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
        if OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::EBADF);
        }
        let noted = self.note(request, Operation::Write, || {
            args(&[&number.0, &data.len(), &offset, &handle.0])
        });
        let (cache, who) = (self.cache.clone(), who(request));
        // The kernel writes a mapping's pages through any handle for writing, and these belong where they are.
        let mapped = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = !mapped && OpenFlags::from_linux(open_flags.0).append;
        // The buffer is the reader's, who is to read the next request into it.
        let data = Bytes::copy_from_slice(data);
        let drop_privileges = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        self.answer(noted, reply, self.changer(request), async move {
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
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.ok();
        }
        let noted = self.note(request, Operation::Flush, || args(&[&number.0, &handle.0]));
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
        self.run_noted(noted, |noted| async move {
            let flushed = unless(given_up, flush, after).await;
            noted.end(&flushed);
            reply.answer(flushed);
        });
    }

    fn release(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _flags: fuser::OpenFlags,
        owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            self.own.close(handle.0);
            return reply.ok();
        }
        let noted = self.note(request, Operation::Release, || {
            args(&[&number.0, &handle.0])
        });
        let cache = self.cache.clone();
        // Nobody waits for it.
        self.run_noted(noted, |noted| async move {
            let owner = owner.map(|owner| owner.0);
            cache.release(Handle(handle.0), owner).await;
            noted.end(&Ok(()));
            reply.ok();
        });
    }

    fn fsync(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.ok();
        }
        let noted = self.note(request, Operation::Fsync, || args(&[&number.0, &handle.0]));
        let (cache, handle) = (self.cache.clone(), Handle(handle.0));
        let (asker, after) = (self.reader(request), tell_later(&cache, handle));
        self.run_noted(noted, |noted| async move {
            let synced = async move { cache.fsync(handle).await };
            let synced = or_go_on(asker, synced, after).await;
            noted.end(&synced);
            reply.answer(synced);
        });
    }

    fn opendir(
        &self,
        request: &Request,
        number: INodeNo,
        _flags: fuser::OpenFlags,
        reply: ReplyOpen,
    ) {
        if let Some(file) = OwnFile::of(number) {
            return self.own_opendir(request, file, reply);
        }
        let noted = self.note(request, Operation::Opendir, || args(&[&number.0]));
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run_noted(noted, |noted| async move {
            let open = cache.clone();
            let open = async move { open.opendir(who, ino(number)).await };
            let close = async move |opened: Result<Handle, Errno>| {
                if let Ok(handle) = opened {
                    cache.releasedir(handle);
                }
            };
            let opened = or_go_on(asker, open, close).await;
            noted.end(&opened);
            match opened {
                Ok(handle) => reply.opened(FileHandle(handle.0), FopenFlags::empty()),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        if OwnFile::of(number).is_some() {
            return self.own_readdir(offset, reply);
        }
        let noted = self.note(request, Operation::Readdir, || {
            args(&[&number.0, &offset, &handle.0])
        });
        let asker = self.reader(request);
        self.run_noted(noted, |noted| async move {
            directory::names(noted, asker, Handle(handle.0), offset, reply).await;
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        if OwnFile::of(number).is_some() {
            return self.own_readdirplus(offset, reply);
        }
        let noted = self.note(request, Operation::Readdir, || {
            args(&[&number.0, &offset, &handle.0])
        });
        let (asker, asked) = (self.reader(request), self.asked());
        self.run_noted(noted, |noted| async move {
            directory::entries((noted, asker), Handle(handle.0), offset, &asked, reply).await;
        });
    }

    fn releasedir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _flags: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.ok();
        }
        let noted = self.note(request, Operation::Releasedir, || {
            args(&[&number.0, &handle.0])
        });
        self.cache.releasedir(Handle(handle.0));
        noted.end(&Ok(()));
        reply.ok();
    }

    /// Waits until the server has what was changed in the directory. What it has answered, it has on its disk; what
    /// was changed under a lease may still be on its way.
    fn fsyncdir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.ok();
        }
        let noted = self.note(request, Operation::Fsyncdir, || {
            args(&[&number.0, &handle.0])
        });
        let (cache, handle) = (self.cache.clone(), Handle(handle.0));
        let (asker, after) = (self.reader(request), tell_later(&cache, handle));
        self.run_noted(noted, |noted| async move {
            let synced = async move { cache.fsyncdir(handle).await };
            let synced = or_go_on(asker, synced, after).await;
            noted.end(&synced);
            reply.answer(synced);
        });
    }

    fn statfs(&self, request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let number = match OwnFile::of(number) {
            Some(_) => INodeNo(Ino::ROOT.0),
            None => number,
        };
        let noted = self.note(request, Operation::Statfs, || args(&[&number.0]));
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run_noted(noted, |noted| async move {
            let space = async move { cache.statfs(who, ino(number)).await };
            let space = or_go_on(asker, space, nothing).await;
            noted.end(&space);
            match space {
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
        if !name.as_bytes().starts_with(XATTR_PREFIX) || OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        let noted = self.note(request, Operation::Setxattr, || {
            args(&[&number.0, &quoted(name.as_bytes()), &value.len()])
        });
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let value = value.to_vec();
        self.answer(noted, reply, self.changer(request), async move {
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
        if !name.as_bytes().starts_with(XATTR_PREFIX) || OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::ENODATA);
        }
        let noted = self.note_name(request, Operation::Getxattr, number, name);
        let (cache, who, name) = (self.cache.clone(), who(request), owned(name));
        let asker = self.reader(request);
        self.run_noted(noted, |noted| async move {
            let value = async move { cache.getxattr(who, ino(number), &name).await };
            let value = or_go_on(asker, value, nothing).await;
            noted.end(&value);
            reply::xattr(reply, size, value);
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        if OwnFile::of(number).is_some() {
            return reply::xattr(reply, size, Ok([]));
        }
        let noted = self.note(request, Operation::Listxattr, || args(&[&number.0]));
        let (cache, who) = (self.cache.clone(), who(request));
        let asker = self.reader(request);
        self.run_noted(noted, |noted| async move {
            let names = async move { cache.listxattr(who, ino(number)).await };
            let names = or_go_on(asker, names, nothing).await;
            noted.end(&names.as_ref().map(Vec::len).map_err(|error| *error));
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
        if let Some(file) = OwnFile::of(number) {
            return self.own_access(request, file, mask, reply);
        }
        let noted = self.note(request, Operation::Access, || {
            args(&[&number.0, &mask.bits()])
        });
        let (cache, who) = (self.cache.clone(), who(request));
        let mask = u32::try_from(mask.bits() & 7).unwrap_or(0);
        self.answer(noted, reply, self.reader(request), async move {
            cache.access(who, ino(number), mask).await
        });
    }

    fn getlk(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::ENOLCK);
        }
        let Some(lock) = lock::lock(kind, start, end, pid) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let noted = self.note(request, Operation::Getlk, || {
            args(&[&number.0, &handle.0, &kind, &start, &end])
        });
        let cache = self.cache.clone();
        self.run_noted(noted, |noted| async move {
            lock::test(noted, &cache, (Handle(handle.0), owner.0), lock, reply).await;
        });
    }

    fn setlk(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        if OwnFile::of(number).is_some() {
            return reply.error(fuser::Errno::ENOLCK);
        }
        let Some(lock) = lock::lock(kind, start, end, pid) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let (cache, asker) = (self.cache.clone(), request.pid());
        let wait = sleep.then_some(asker);
        let noted = self.note(request, Operation::Setlk, || {
            args(&[&number.0, &handle.0, &kind, &start, &end, &sleep])
        });
        self.run_noted(noted, |noted| async move {
            let set = lock::set(&cache, Handle(handle.0), owner.0, lock, wait).await;
            noted.end(&set);
            reply.answer(set);
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
