//! From a cache to a file system others can use.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use afar_cache::Cache;
use afar_telemetry::Registry;
use fuser::{Config, MountOption, Session, SessionACL};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::eyes::Eyes;
use crate::eyes::own::{Own, Report};
use crate::invalidate::{self, Kernel};
use crate::order::Order;
use crate::requests::Requests;

/// Threads that read requests, at most. What a request waits for is done elsewhere.
const READERS_MAX: usize = 4;

/// How something is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What the table of mounts shows as mounted.
    pub source: String,
    /// Whether others than the user who mounts may use it.
    pub allow_other: bool,
    /// Whether a process beside this one, fusermount3, unmounts when this one ends, however it does.
    /// It needs `allow_other`.
    pub auto_unmount: bool,
    /// Whether nothing can be changed through it.
    pub read_only: bool,
    /// Whether programs in it cannot be run.
    pub no_exec: bool,
    /// Whether programs run with their owner's rights if their mode says so.
    pub suid: bool,
    /// Whether reading leaves no time of access. AFS has none anyway.
    pub no_atime: bool,
    /// The user who, beside root, sees the folder `.afar` at its top.
    pub owner: u32,
    /// Whether servers are told which process and user of this machine ask for a change.
    pub tells_process: bool,
}

impl Options {
    fn config(&self) -> Config {
        let mut options = vec![
            MountOption::FSName(self.source.clone()),
            // Not `Subtype`, which the library tells fusermount and not the kernel.
            MountOption::CUSTOM("subtype=afar".to_owned()),
            MountOption::NoDev,
        ];
        let flags = [
            (self.auto_unmount, MountOption::AutoUnmount),
            (self.read_only, MountOption::RO),
            (self.no_exec, MountOption::NoExec),
            (self.suid, MountOption::Suid),
            (!self.suid, MountOption::NoSuid),
            (self.no_atime, MountOption::NoAtime),
        ];
        options.extend(
            flags
                .into_iter()
                .filter_map(|(on, flag)| on.then_some(flag)),
        );
        let mut config = Config::default();
        config.mount_options = options;
        config.acl = match self.allow_other {
            true => SessionACL::All,
            false => SessionACL::Owner,
        };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        config.n_threads = Some(cores.clamp(1, READERS_MAX));
        config.clone_fd = true;
        config
    }
}

/// Why something is not mounted, or ended.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system has no FUSE.
    #[error("/dev/fuse is not there")]
    NoFuse,
    /// The program by which users mount is missing.
    #[error("mounting on {place} needs the program fusermount3, which is missing")]
    NoFusermount {
        /// Where.
        place: PathBuf,
    },
    /// Only root may do it.
    #[error("mounting on {place} is refused: {source}")]
    Refused {
        /// Where.
        place: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others were to be allowed to use it.
    #[error("others may use what you mount only if /etc/fuse.conf has user_allow_other")]
    AllowOther,
    /// It was live, and ended by itself.
    #[error("the mount on {place} ended: {source}")]
    Ended {
        /// Where.
        place: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A mounted file system that answers.
#[derive(Debug)]
pub struct Mount {
    place: PathBuf,
    own: Arc<Own>,
    end: oneshot::Receiver<io::Result<()>>,
}

impl Mount {
    /// Mounts a cache on a directory. When this returns the kernel's requests are answered, by threads
    /// of this mount and tasks of `runtime`. The registry shows their metrics; `reports` are in the folder `.afar` at
    /// the top, beside the file `accesslog`.
    ///
    /// # Errors
    /// When the system does not mount it.
    pub fn new(
        cache: Cache,
        runtime: &Handle,
        place: &Path,
        options: &Options,
        (registry, reports): (&Registry, Vec<Report>),
    ) -> Result<Self, MountError> {
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoFuse);
        }
        let refused = |source| refused(place, source);
        let order = Arc::new(Order::default());
        let eyes = Eyes::new(registry, options.tells_process);
        let own = Arc::new(Own::new(&eyes, options.owner, reports));
        let requests = Requests::new(
            cache.clone(),
            runtime.clone(),
            Arc::clone(&order),
            eyes,
            Arc::clone(&own),
        );
        let session = Session::new(requests, place, &options.config()).map_err(refused)?;
        let kernel = Kernel::of(&session).map_err(refused)?;
        invalidate::start(&cache, kernel, &order, runtime.clone()).map_err(refused)?;
        let (ended, end) = oneshot::channel();
        let serve = move || {
            // Nobody is told if the mount was dropped.
            let _told = ended.send(session.run());
        };
        thread::Builder::new()
            .name("afar-fuse".to_owned())
            .spawn(serve)
            .map_err(refused)?;
        Ok(Self {
            place: place.to_owned(),
            own,
            end,
        })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The readers of `.afar/accesslog`.
    #[must_use]
    pub fn readers(&self) -> Readers {
        Readers(Arc::clone(&self.own))
    }

    /// Returns when it is unmounted and nobody uses it any more. May be dropped and asked again.
    ///
    /// # Errors
    /// When it ended otherwise.
    pub async fn ended(&mut self) -> Result<(), MountError> {
        let end = match (&mut self.end).await {
            Ok(end) => end,
            Err(_) => Err(io::Error::other("a thread that served it has panicked")),
        };
        unless_unmounted(end).map_err(|source| MountError::Ended {
            place: self.place.clone(),
            source,
        })
    }
}

/// The readers of a mount's `.afar/accesslog`.
#[derive(Debug, Clone)]
pub struct Readers(Arc<Own>);

impl Readers {
    /// Whether there are any.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.0.has_readers()
    }

    /// What they read ends, so that they do not hold up the end of the mount; `for_ever` if nobody is to begin again.
    pub fn end(&self, for_ever: bool) {
        self.0.end_readers(for_ever);
    }
}

/// Leaves an error out that only says that it was unmounted.
fn unless_unmounted(end: io::Result<()>) -> io::Result<()> {
    match end {
        // The kernel says so when it takes the mount away while it hands its last request out.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        end => end,
    }
}

/// Why the library did not mount.
fn refused(place: &Path, source: io::Error) -> MountError {
    let missing = source.kind() == io::ErrorKind::NotFound;
    let place = place.to_owned();
    match source.to_string() {
        text if text.contains("user_allow_other") => MountError::AllowOther,
        // What is not there is the directory, else the program.
        _ if missing && place.is_dir() => MountError::NoFusermount { place },
        _ => MountError::Refused { place, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_taken_away_with_a_request_on_its_way_has_ended_as_it_should() {
        let end = |code| unless_unmounted(Err(io::Error::from_raw_os_error(code))).is_ok();
        assert!(end(libc::ECONNABORTED));
        assert!(!end(libc::EIO) && !end(libc::EPERM));
        assert!(unless_unmounted(Err(io::Error::other("a panic"))).is_err());
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let text = refused(Path::new("/"), missing()).to_string();
        assert!(text.contains("fusermount3"), "{text}");
        let other = refused(Path::new("/no such place"), missing());
        assert!(matches!(other, MountError::Refused { .. }), "{other}");
    }

    #[test]
    fn options_do_not_exclude_each_other() {
        let options = Options {
            source: "a.org".to_owned(),
            allow_other: true,
            auto_unmount: false,
            read_only: true,
            no_exec: true,
            suid: false,
            no_atime: true,
            owner: 0,
            tells_process: false,
        };
        let config = options.config();
        assert!(config.mount_options.contains(&MountOption::NoSuid));
        assert!(!config.mount_options.contains(&MountOption::Suid));
        assert_eq!(config.acl, SessionACL::All);
        let suid = Options {
            suid: true,
            ..options
        };
        assert!(!suid.config().mount_options.contains(&MountOption::NoSuid));
    }
}
