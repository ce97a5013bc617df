//! `afar ls`, `stat`, `cat`, `cp`, `sync`, `mkdir`, `rm`, `rmdir`, `mv` and `ln`: files in AFS without
//! a mount.
//!
//! Crate `afar-cell` finds, fetches, stores and changes, crate `afar-transfer` copies and compares; here are flags,
//! and what is printed. Flags are those of the coreutils of the same names, as far as they apply.

mod cat;
mod changes;
mod cp;
pub(crate) mod format;
mod ln;
mod ls;
mod mkdir;
mod mounts;
mod mv;
mod object;
mod progress;
mod report;
mod rm;
pub(crate) mod session;
mod stat;
mod sync;
mod sync_report;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_cell::{PathCause, PathError, Patience};
use afar_security::Level;
use afar_server::local_cell;
use afar_types::CellName;
use clap::Args;

pub(crate) use cat::CatArgs;
pub(crate) use cp::CpArgs;
pub(crate) use ln::LnArgs;
pub(crate) use ls::LsArgs;
pub(crate) use mkdir::MkdirArgs;
pub(crate) use mv::MvArgs;
pub(crate) use rm::{RmArgs, RmdirArgs};
pub(crate) use stat::StatArgs;
pub(crate) use sync::SyncArgs;

use crate::units::parse_threshold;
use crate::{advice, output};

/// The heading of [`Reach`].
pub(crate) const REACH: &str = "Finding the cell";

/// How cells are found and servers asked: options of all these commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = REACH)]
pub(crate) struct Reach {
    /// Act as the cell's administrator, through the sockets of the cell that runs on this machine
    /// or with its servers' keys
    #[arg(long)]
    pub(crate) localauth: bool,
    /// Use the servers' key file FILE with --localauth [default: the sockets, or
    /// /etc/openafs/server/KeyFileExt]
    #[arg(
        long,
        value_name = "FILE",
        requires = "localauth",
        conflicts_with = "noauth"
    )]
    keys: Option<PathBuf>,
    /// Act as an anonymous user, ignoring all tokens
    #[arg(long, conflicts_with = "localauth")]
    noauth: bool,
    /// Fail if there is no token
    #[arg(long, conflicts_with_all = ["noauth", "localauth"])]
    auth: bool,
    /// Protect connections to file servers at this level, if there is a token: clear, auth or crypt
    #[arg(long, value_name = "LEVEL", default_value_t)]
    level: Level,
    /// Read this CellServDB [default: ~/.config/afar/CellServDB, to which `afar login` adds cells, and the
    /// first of /etc/openafs/CellServDB, /usr/vice/etc/CellServDB, /etc/afar/CellServDB]
    #[arg(long, value_name = "FILE", env = "AFAR_CELLSERVDB")]
    cellservdb: Option<PathBuf>,
    /// Ask this volume location server instead of those in CellServDB and DNS; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Vec<String>,
    /// Rank of a server, for files and for locations; servers with lower ranks are asked first; may be
    /// repeated [default: measured, 20000 plus 10 for each millisecond that a small file takes]
    #[arg(long, value_name = "HOST=RANK")]
    serverprefs: Vec<String>,
    /// Seconds to wait for servers that do not answer before failing, or hard to wait until they do
    /// [default: 60, for servers that have answered before]
    #[arg(long, value_name = "SECONDS|hard")]
    patience: Option<Patience>,
    /// Do not look up unknown cells in DNS
    #[arg(long)]
    no_dns: bool,
    /// Move at most this many bytes in one call [default: chosen for the path]
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    piece: Option<std::num::NonZeroU64>,
    /// How large a piece of a file must be to go out of band, by TLS on TCP, where the server offers
    /// that; off for never [default: 1Mi]
    #[arg(long, value_name = "AMOUNT|off", value_parser = parse_threshold, hide_short_help = true)]
    oob_threshold: Option<u64>,
    /// Values of @sys in a path, the preferred one first [default: by machine type]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sysname: Vec<String>,
    /// The cell that the command is about, if its paths tell.
    #[arg(skip)]
    cell: Option<CellName>,
    /// The UDP port that calls come from; 0 for any.
    #[arg(skip)]
    port: u16,
}

/// As whom a client is seen, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Anonymous.
    Nobody,
    /// With tokens; with `required` only so.
    Tokens { required: bool },
    /// The administrator of a cell of this machine: whoever uses its sockets is.
    Sockets,
    /// The administrator, by keys.
    Keys,
}

impl Reach {
    /// As whom a client with these options is seen.
    pub(crate) fn seen_as(&self) -> Seen {
        let by_keys = || session::keys_of(self, &local_cell::all()).is_some();
        match (self.localauth, self.noauth) {
            (true, _) if by_keys() => Seen::Keys,
            (true, _) => Seen::Sockets,
            (false, true) => Seen::Nobody,
            (false, false) => Seen::Tokens {
                required: self.auth,
            },
        }
    }

    /// How connections of somebody with a token are protected.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// The same without waiting for servers, unless that was said.
    pub(crate) fn impatient(mut self) -> Self {
        self.patience.get_or_insert(Patience::NONE);
        self
    }

    /// The same from this UDP port; from any for 0.
    pub(crate) fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The same for a command about these paths.
    pub(crate) fn about<'a>(mut self, paths: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        self.cell = paths.into_iter().find_map(|path| cell_of(bytes(path)));
        self
    }
}

/// The cell of a path that starts with `/afs/CELL` or `/afs/.CELL`.
fn cell_of(path: &[u8]) -> Option<CellName> {
    let path = std::str::from_utf8(path).ok()?;
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let inside = path.starts_with('/') && parts.next() == Some("afs");
    let cell = parts.next().filter(|_| inside)?;
    cell.strip_prefix('.').unwrap_or(cell).parse().ok()
}

/// Calls at a time to make ready for, by one who looks around.
pub(crate) const LOOKING: usize = 4;
/// The same for one who fetches.
const FETCHING: usize = 72;

/// Lists files.
pub(crate) fn ls(args: LsArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.paths);
    session::run(reach, None, LOOKING, async |session| {
        ls::run(&args, session).await
    })
}

/// Tells all that AFS knows of files.
pub(crate) fn stat(args: StatArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.paths);
    session::run(reach, None, LOOKING, async |session| {
        stat::run(&args, session).await
    })
}

/// Writes files to standard output.
pub(crate) fn cat(args: CatArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.files);
    session::run(reach, args.calls, FETCHING, async |session| {
        cat::run(&args, session).await
    })
}

/// Copies files.
pub(crate) fn cp(args: CpArgs) -> anyhow::Result<ExitCode> {
    let paths = args.target_directory.iter().chain(args.paths.iter().rev());
    let reach = args.reach.clone().about(paths);
    session::run(reach, args.calls, FETCHING, async |session| {
        cp::run(&args, session).await
    })
}

/// Makes a directory the same as another.
pub(crate) fn sync(args: SyncArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about([&args.dest, &args.source]);
    session::run(reach, args.calls, FETCHING, async |session| {
        sync::run(&args, session).await
    })
}

/// Makes directories.
pub(crate) fn mkdir(args: MkdirArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.directories);
    session::run(reach, None, LOOKING, async |session| {
        mkdir::run(&args, session).await
    })
}

/// Removes files and directories.
pub(crate) fn rm(args: RmArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.paths);
    session::run(reach, None, LOOKING, async |session| {
        rm::run(&args, session).await
    })
}

/// Removes empty directories.
pub(crate) fn rmdir(args: RmdirArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.directories);
    session::run(reach, None, LOOKING, async |session| {
        rm::run_rmdir(&args, session).await
    })
}

/// Moves and renames.
pub(crate) fn mv(args: MvArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about(&args.paths);
    session::run(reach, None, LOOKING, async |session| {
        mv::run(&args, session).await
    })
}

/// Makes symlinks and hard links.
pub(crate) fn ln(args: LnArgs) -> anyhow::Result<ExitCode> {
    let reach = args.reach.clone().about([&args.link]);
    session::run(reach, None, LOOKING, async |session| {
        ln::run(&args, session).await
    })
}

/// Whether all went well so far; errors of single files are printed as they come.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// Whether we act as administrator already.
    localauth: bool,
    /// What was told already that more files met, and how many of them.
    again: BTreeMap<String, Again>,
}

/// An event that more than one file met.
#[derive(Debug)]
struct Again {
    told: String,
    count: u64,
}

impl Failures {
    fn new(reach: &Reach) -> Self {
        Self {
            count: 0,
            localauth: reach.localauth,
            again: BTreeMap::new(),
        }
    }

    fn note(&mut self, error: impl Into<anyhow::Error>) {
        self.count += 1;
        let error = error.into();
        if self.is_told(&error) {
            return;
        }
        match advice::as_administrator(&error).filter(|_| !self.localauth) {
            Some(more) => output::note(&format_args!("{}; {more}", advice::told(&error))),
            None => output::error(&error),
        }
    }

    /// Whether the same was told of another file: one event is one line, whatever it keeps from being
    /// done.
    fn is_told(&mut self, error: &anyhow::Error) -> bool {
        let Some((event, cause)) = event(error) else {
            return false;
        };
        if let Some(again) = self.again.get_mut(&event) {
            again.count += 1;
            return true;
        }
        let again = Again {
            told: cause,
            count: 0,
        };
        self.again.insert(event, again);
        false
    }

    fn exit_code(&self) -> ExitCode {
        if self.count == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        for again in self.again.values().filter(|again| again.count > 0) {
            let Again { told, count } = again;
            output::note(&format_args!(
                "and {count} more for the same reason: {told}"
            ));
        }
    }
}

/// The event behind an error, and what is said of it.
fn event(error: &anyhow::Error) -> Option<(String, String)> {
    error.chain().find_map(|cause| {
        let of_cell = cause.downcast_ref::<afar_cell::Error>();
        let of_path = || match &cause.downcast_ref::<PathError>()?.cause {
            PathCause::Cell(error) => Some(error),
            _ => None,
        };
        let error = of_cell.or_else(of_path)?;
        Some((error.event()?, advice::told_of(error)))
    })
}

/// An error of a transfer as one of the commands: what failed before the reason, and the reason itself.
fn plain(error: afar_transfer::Error) -> anyhow::Error {
    use afar_transfer::Error;
    match error {
        Error::Failed { what, cause } => plain(*cause).context(what),
        Error::Path(error) => error.into(),
        Error::PathCause(error) => error.into(),
        Error::Cell(error) => error.into(),
        Error::Io(error) => error.into(),
        other => other.into(),
    }
}

/// A path's bytes, as AFS takes them.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A path as it was given, for messages.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_files_meet_is_told_once() {
        let mut failures = Failures::default();
        let full = || {
            let error = afar_cell::Error::NoToken {
                cell: "a.org".parse().unwrap(),
                problem: "none".to_owned(),
            };
            anyhow::Error::from(error)
        };
        let told = (0..77)
            .filter(|number| !failures.is_told(&full().context(format!("file {number}"))))
            .count();
        assert_eq!(told, 1);
        let gone = || anyhow::Error::from(afar_cell::Error::Gone);
        assert!(!failures.is_told(&gone()) && !failures.is_told(&gone()));
        let again: Vec<_> = failures.again.values().map(|again| again.count).collect();
        assert_eq!(again, [76]);
    }

    #[test]
    fn paths_tell_their_cell() {
        let cell = |path: &str| cell_of(path.as_bytes()).map(|cell| cell.to_string());
        assert_eq!(cell("/afs/a.org/x").as_deref(), Some("a.org"));
        assert_eq!(cell("//afs/.a.org").as_deref(), Some("a.org"));
        for other in ["/afs", "afs/a.org", "/srv/afs/a.org", "/afs/ /x"] {
            assert_eq!(cell(other), None, "{other}");
        }
    }
}
