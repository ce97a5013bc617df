//! From a client to a live mount, and everything back in order at the end.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use afar_cache::{Cache, CacheConfig, Root};
use afar_fuse::{Mount, Options as FuseOptions};
use afar_server::start_log;
use afar_types::CellName;
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process, set_parent_process_death_signal};
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::options::Options;
use super::owners::{self, MountOwners};
use super::record::{self, Left, Record};
use super::room;
use super::table::{self, KIND, Kept, Manner};
use super::umount::by_whom;
use super::users::MountUsers;
use super::{MountArgs, Source};
use super::{background, eyes, xstat};
use crate::fetch::{Reach, Seen, session};
use crate::output;
use crate::service::{self, notify};

/// Calls at a time to make ready for at a server: enough to fill a long path.
const LANES: usize = 16;
/// What the kernel may read ahead of a reader, in KiB, so that its requests are large. How far ahead
/// of it we are ourselves is another matter.
const READ_AHEAD_KIB: u32 = 2048;
/// How long those who use a mount that is to end may go on.
const LEAVE: Duration = Duration::from_secs(10);
/// How often a process that ends notes what is left.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// The mountpoint from the root, if something can be mounted there. What a process that has crashed
/// left there is taken away.
pub(super) fn ready_place(place: &Path) -> anyhow::Result<PathBuf> {
    let place = table::absolute(place)?;
    while let Some(mounted) = table::at(&place)?.filter(|mounted| mounted.kind == KIND) {
        ensure!(
            table::is_dead(&place),
            "{0}: {1} is mounted here already; `afar umount {0}` ends that",
            place.display(),
            mounted.source
        );
        if let Err(Kept::Busy) = table::unmount(&place, Manner::Detach)? {
            bail!(
                "{0}: the process of this mount is gone, but the mount cannot be removed; run \
                 `umount -l {0}`",
                place.display()
            );
        }
        output::note(&format_args!(
            "{}: removed a mount whose process is gone",
            place.display()
        ));
    }
    match std::fs::metadata(&place) {
        Ok(found) if found.is_dir() => Ok(place),
        Ok(_) => bail!("{} is not a directory", place.display()),
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot mount on {0}; `mkdir {0}` creates it",
                place.display()
            )
        }),
    }
}

/// Mounts and serves until unmounted or told to stop.
pub(super) fn run(
    args: &MountArgs,
    source: Source,
    place: &Path,
    options: &Options,
) -> anyhow::Result<ExitCode> {
    if args.foreground && args.report_ready {
        // Started beside a cell: it does not outlive that.
        set_parent_process_death_signal(Some(Signal::TERM))?;
    }
    // The library warns when it finds unmounted what it means to unmount: as it always should be.
    start_log(&format!("{},fuser::session=error", args.log))?;
    let record = Record::take(place)?;
    runtime()?.block_on(async {
        let cache = open(args, &source, place, options).await?;
        let served = serve(args, &source, place, options, &cache).await;
        close(&cache, &record).await;
        served
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Requests wait for the disk of the cache too, so there are more threads than cores.
fn runtime() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .enable_all()
        .build()
        .context("cannot start the runtime; has a limit on threads been reached?")
}

async fn open(
    args: &MountArgs,
    source: &Source,
    place: &Path,
    options: &Options,
) -> anyhow::Result<Cache> {
    let mut config = config(args, source, place)?;
    let client = session::open(reach(args, source), None, LANES).await?;
    let seen = reach(args, source).seen_as();
    let of_one_user = !is_for_others(args, source, options);
    let owners = MountOwners::new(&args.map_owner, of_one_user, client.clone(), seen)?;
    let owners = owners.map(Arc::new);
    config.owners = owners.clone().map(|owners| owners as _);
    let cache = Cache::open(client.clone(), config).await;
    if cache.is_err() {
        client.close().await;
    }
    let cache = cache?;
    if let Some(owners) = owners {
        owners::follow(cache.clone(), owners);
    }
    Ok(cache)
}

/// Whether users other than the mount's may use it. Through sockets everybody would be the administrator.
fn is_for_others(args: &MountArgs, source: &Source, options: &Options) -> bool {
    let by_sockets = reach(args, source).seen_as() == Seen::Sockets;
    options
        .allow_other
        .unwrap_or_else(|| geteuid().is_root() && !by_sockets)
}

/// How cells are reached, and which one it is about.
fn reach(args: &MountArgs, source: &Source) -> Reach {
    let reach = args.reach.clone().at_port(args.port.unwrap_or(0));
    // What is cached is used at once.
    let reach = match args.disconnected {
        true => reach.impatient(),
        false => reach,
    };
    match source {
        Source::Volume(cell, _) => reach.about([&PathBuf::from(format!("/afs/{cell}"))]),
        Source::Dynamic => reach,
    }
}

fn config(args: &MountArgs, source: &Source, place: &Path) -> anyhow::Result<CacheConfig> {
    let dir = match &args.cache {
        Some(dir) => dir.clone(),
        None => default_cache(place)?,
    };
    let context = || {
        let dir = dir.display();
        format!("cannot create the cache in {dir}; name another directory with --cache")
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(context)?;
    let mut config = CacheConfig::new(dir.canonicalize().with_context(context)?);
    config.bytes = match args.cache_size {
        Some(size) => size,
        // On a disk that is nearly full it takes what it can get.
        None => room::default_size(&config.dir)
            .with_context(context)?
            .max(CacheConfig::BYTES_MIN),
    };
    ensure!(
        config.bytes >= CacheConfig::BYTES_MIN,
        "--cache-size: {} bytes are too few; give 64Mi or more",
        config.bytes
    );
    if let Some(files) = args.cache_files {
        config.files = usize::try_from(files)?;
    }
    config.users = MountUsers::of(&reach(args, source)).map(|users| Arc::new(users) as _);
    config.store_behind = args.store_behind.unwrap_or_default();
    config.write_through = args.write_through;
    config.disconnected = args.disconnected;
    config.root = match source {
        Source::Dynamic => Root::Dynamic,
        Source::Volume(cell, volume) => Root::Volume(cell.clone(), volume.clone()),
    };
    Ok(config)
}

/// A directory for each mountpoint, as a cache belongs to one mount.
fn default_cache(place: &Path) -> anyhow::Result<PathBuf> {
    Ok(caches()?.join(record::name(place)))
}

/// The directory that has the caches of all mounts.
pub(crate) fn caches() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let Some(given) = variable("CACHE_DIRECTORY") {
        // The service manager has made one.
        return Ok(given);
    }
    Ok(if geteuid().is_root() {
        PathBuf::from("/var/cache/afar")
    } else {
        let own = variable("XDG_CACHE_HOME");
        own.or_else(|| variable("HOME").map(|home| home.join(".cache")))
            .context("there is no home directory for the cache; name a directory with --cache")?
            .join("afar")
    })
}

/// Mounts, says so, and returns when the mount has ended.
async fn serve(
    args: &MountArgs,
    source: &Source,
    place: &Path,
    options: &Options,
    cache: &Cache,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch signals")?;
    // A terminal that goes takes nothing away that was written: the mount ends in good order.
    let mut hangups = service::hangups().context("cannot catch signals")?;
    let fuse = fuse_options(args, source, options);
    let registry = eyes::registry(cache);
    xstat::answer(cache, &registry);
    let shown = (&registry, eyes::reports(cache, &registry));
    let mut mount = Mount::new(cache.clone(), &Handle::current(), place, &fuse, shown)?;
    let readers = mount.readers();
    read_ahead(place);
    if args.report_ready {
        background::report(args.foreground, args.log_file.as_deref())?;
    } else {
        output::note(&format_args!(
            "{} is mounted on {}; Ctrl-C unmounts it",
            fuse.source,
            place.display()
        ));
    }
    notify(NotifyState::Ready);
    tokio::select! {
        ended = mount.ended() => return Ok(ended?),
        () = service::keep() => {}
        () = eyes::follow(place, readers.clone()) => {}
        () = service::hangup(&mut hangups) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    notify(NotifyState::Stopping);
    let leave = async {
        eyes::dismiss(&readers).await;
        leave(&mut mount).await
    };
    tokio::select! {
        left = leave => left,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

fn fuse_options(args: &MountArgs, source: &Source, options: &Options) -> FuseOptions {
    let by_sockets = reach(args, source).seen_as() == Seen::Sockets;
    let others = is_for_others(args, source, options);
    if others && by_sockets {
        tracing::warn!("with --localauth every user of the mount is the cell's administrator");
    }
    FuseOptions {
        source: source.shown(),
        allow_other: others,
        auto_unmount: options.auto_unmount,
        read_only: options.read_only,
        no_exec: options.no_exec,
        suid: options.suid,
        no_atime: options.no_atime,
        owner: geteuid().as_raw(),
        tells_process: args.tell_process,
    }
}

/// Lets the kernel ask for more at a time than it does by default. Only root may; without it reading
/// costs more requests.
fn read_ahead(place: &Path) {
    let set = || -> anyhow::Result<()> {
        let mounted = table::at(place)?.context("it is not mounted")?;
        let file = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
        std::fs::write(&file, READ_AHEAD_KIB.to_string()).context(file)
    };
    if let Err(error) = set() {
        tracing::debug!("cannot set the kernel's read-ahead: {error:#}");
    }
}

/// Unmounts. Programs that use it may go on for a while.
async fn leave(mount: &mut Mount) -> anyhow::Result<()> {
    let place = mount.place().to_owned();
    let unmount = async |manner| {
        let place = place.clone();
        // It asks the mount itself, which must not wait for this thread.
        tokio::task::spawn_blocking(move || table::unmount(&place, manner)).await?
    };
    if let Err(Kept::Busy) = unmount(Manner::Unused).await? {
        let by = tokio::task::spawn_blocking({
            let place = place.clone();
            move || by_whom(&place)
        });
        tracing::warn!(
            "{} is in use{}; unmounting it all the same, and open files end in {} s",
            place.display(),
            by.await?,
            LEAVE.as_secs()
        );
        if let Err(kept) = unmount(Manner::Detach).await? {
            tracing::debug!(?kept, "it was unmounted meanwhile");
        }
    }
    match tokio::time::timeout(LEAVE, mount.ended()).await {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            tracing::warn!(
                "{} is still in use; open files fail from now on",
                place.display()
            );
            Ok(())
        }
    }
}

/// Stores what was written and gives the promises back; a signal ends the waiting.
async fn close(cache: &Cache, record: &Record) {
    let told = async {
        let mut interrupt = signal(SignalKind::interrupt()).ok()?;
        let mut terminate = signal(SignalKind::terminate()).ok()?;
        tokio::select! {
            it = interrupt.recv() => it,
            it = terminate.recv() => it,
        }
    };
    tokio::select! {
        () = cache.close() => {}
        () = note_left(cache, record) => {}
        Some(()) = told => tracing::warn!(
            "interrupted while storing written data; the next mount with this cache will store it"
        ),
    }
}

/// Notes what is left to send, for who waits for the end of this process. It does not return.
async fn note_left(cache: &Cache, record: &Record) {
    loop {
        record.tell(Left::of(&cache.pending()));
        tokio::time::sleep(NOTE_EVERY).await;
    }
}

/// A mount of a cell that runs in this process; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Beside(Child);

impl Beside {
    /// Mounts a cell of this machine, as its administrator, by a process of its own.
    pub(crate) fn start(cell: &CellName, place: &Path) -> anyhow::Result<Self> {
        let arguments = ["mount", "--localauth", "--foreground", background::FLAG];
        let arguments = arguments.map(OsStr::new).into_iter();
        let arguments = arguments.chain([OsStr::new(cell.as_str()), place.as_os_str()]);
        let (child, ready) = background::spawn(arguments)?;
        let started = Self(child);
        ensure!(
            ready,
            "{} is not mounted; the cell runs without the mount",
            place.display()
        );
        Ok(started)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // An error of either is that it has ended already.
        let _gone = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _gone = self.0.wait();
    }
}
