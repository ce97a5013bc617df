//! Named network namespaces, in the place and form `ip netns` uses: a bind mount of the
//! namespace on `/run/netns/NAME` (ip-netns(8)).

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use crate::{
    error::{Context, Result},
    netlink,
};

const DIRECTORY: &str = "/run/netns";
const NOTHING: Option<&str> = None;

/// Where a namespace is mounted.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// True if there is a namespace, or a leftover, of this name.
pub fn exists(name: &str) -> bool {
    fs::symlink_metadata(path(name)).is_ok()
}

/// Makes a namespace with its loopback device up, and sets values under `/proc/sys` in it.
/// A setting that this kernel does not have is passed over.
///
/// # Errors
///
/// What the system said. Nothing is left behind then.
pub fn create(name: &str, settings: &[(&str, &str)]) -> Result<()> {
    prepare_directory().context(format_args!("preparing {DIRECTORY}"))?;
    let place = path(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&place)
        .context(format_args!("creating {}", place.display()))?;
    let made = in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        netlink::set_up(1)?;
        for (key, value) in settings {
            match fs::write(Path::new("/proc/sys").join(key), value) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        mount(
            Some("/proc/thread-self/ns/net"),
            &place,
            NOTHING,
            MsFlags::MS_BIND,
            NOTHING,
        )?;
        Ok(())
    });
    if made.is_err() {
        // The error from above is the one to tell.
        fs::remove_file(&place).ok();
    }
    made.context(format_args!("making network namespace {name}"))
}

/// Removes a namespace. Processes in it keep it alive, unnamed, until they end.
///
/// # Errors
///
/// What the system said. None if there was no such namespace.
pub fn delete(name: &str) -> Result<()> {
    let place = path(name);
    // What a failed start left behind may be a plain file that nothing is mounted on.
    match umount2(&place, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(error) => return Err(error).context(format_args!("unmounting {}", place.display())),
    }
    match fs::remove_file(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(format_args!("removing {}", place.display()))
        }
        _ => Ok(()),
    }
}

/// Moves the calling thread into a namespace.
///
/// # Errors
///
/// What the system said.
pub fn enter(name: &str) -> Result<()> {
    let place = path(name);
    let file = File::open(&place).context(format_args!("opening {}", place.display()))?;
    setns(file, CloneFlags::CLONE_NEWNET).context(format_args!("entering {name}"))
}

/// Gives the process a view of `/sys` that shows the devices of its network namespace. The
/// calling thread must be the only one.
///
/// # Errors
///
/// What the system said.
pub fn remount_sys() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        NOTHING,
        "/",
        NOTHING,
        MsFlags::MS_SLAVE | MsFlags::MS_REC,
        NOTHING,
    )?;
    umount2("/sys", MntFlags::MNT_DETACH)?;
    mount(
        Some("sysfs"),
        "/sys",
        Some("sysfs"),
        MsFlags::empty(),
        NOTHING,
    )?;
    Ok(())
}

/// Runs a function inside a namespace, on a thread of its own. Sockets and devices it opens
/// stay in that namespace wherever they are used.
///
/// # Errors
///
/// What the system said about entering.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    in_thread(|| enter(name).map(|()| work()))
}

/// The processes inside a namespace.
///
/// # Errors
///
/// What the system said about the namespace or `/proc`.
pub fn processes(name: &str) -> Result<Vec<u32>> {
    let place = path(name);
    let wanted = fs::metadata(&place).context(format_args!("looking at {}", place.display()))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process may end while it is looked at.
        let Ok(own) = fs::metadata(entry.path().join("ns/net")) else {
            continue;
        };
        if (own.dev(), own.ino()) == (wanted.dev(), wanted.ino()) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A panic in the work goes on in the caller.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The directory is a shared mount, so that a namespace removed here is also gone from mount
/// namespaces made meanwhile.
fn prepare_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let share = || {
        mount(
            NOTHING,
            DIRECTORY,
            NOTHING,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            NOTHING,
        )
    };
    if share().is_err() {
        mount(
            Some(DIRECTORY),
            DIRECTORY,
            NOTHING,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            NOTHING,
        )?;
        share()?;
    }
    Ok(())
}
