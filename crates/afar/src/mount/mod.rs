//! `afar mount`, `afar umount` and the helper of mount(8), `mount.afar`.
//!
//! - `words`: command lines of all three
//! - `options`: what `-o` may say
//! - `serve`: from the client to the mount, and everything back in order at the end
//! - `eyes`: what it shows of itself, in the folder `.afar` at its top; `xstat`: the same for AFS's tools
//! - `room`: how much of the disk a cache takes
//! - `users`: the tokens of those who use it
//! - `owners`: whose files are shown as whose
//! - `background`: a process that goes on when the command has ended
//! - `table`, `record`: what the kernel has mounted; which process serves it
//! - `attribute`: what it tells of its files and of itself; `list`: all mounts, and whether they work
//! - `umount`: taking it away

mod attribute;
mod background;
mod eyes;
mod list;
mod options;
mod owners;
mod record;
mod room;
mod serve;
mod table;
mod umount;
mod users;
mod words;
mod xstat;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use afar_types::CellName;
use anyhow::{Context, bail, ensure};
use clap::Args;

pub(crate) use attribute::attribute;
pub(crate) use eyes::CONFLICTS;
pub(crate) use list::{Health, MountState, all as mounts};
pub(crate) use serve::{Beside, caches};
pub(crate) use table::{dynamic_roots, mount_of, mount_places, path_in_afs};
pub(crate) use umount::{UmountArgs, run as umount};
pub(crate) use words::rewrite;

use crate::fetch::Reach;
use crate::units::parse_bytes;
use options::Options;

/// Options of `afar mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// A cell, or CELL:VOLUME, and the directory to mount it on; the directory alone mounts all known
    /// cells
    #[arg(required = true, num_args = 1..=2, value_names = ["CELL", "MOUNTPOINT"])]
    places: Vec<OsString>,
    /// Show all known cells, each by its name
    #[arg(long)]
    dynroot: bool,
    /// Options as in fstab, separated by commas: allow_other, auto_unmount, ro, noexec, ..., and the
    /// options below without their dashes
    #[arg(
        short = 'o',
        long = "option",
        value_name = "OPTION,...",
        value_delimiter = ','
    )]
    options: Vec<String>,
    /// The directory of this mount's cache; only one mount at a time can use it [default: in
    /// /var/cache/afar for root, else afar in $XDG_CACHE_HOME or ~/.cache; a directory for each
    /// mountpoint]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Maximum size of the cache, such as 2Gi [default: a tenth of the disk, at most 20 GiB, and at
    /// most half of the free space]
    #[arg(long, value_name = "AMOUNT", value_parser = parse_bytes)]
    cache_size: Option<u64>,
    /// Maximum number of files in the cache
    #[arg(long, value_name = "NUMBER")]
    cache_files: Option<u64>,
    /// How much of a file may remain to be stored when it is closed, such as 64Ki: small files are
    /// written faster, but `close` does not report that a file cannot be stored, and others may see it
    /// a little later [default: nothing]
    #[arg(long, value_name = "AMOUNT", value_parser = parse_bytes)]
    store_behind: Option<u64>,
    /// Make each change at the server before a program goes on: slower, but `close`, `mkdir` and the like
    /// return when the server has the change [default: changes in directories that no other machine uses
    /// are sent a moment later]
    #[arg(long)]
    write_through: bool,
    /// Show the files of the cell's user PTS as those of the local user LOCAL, each a name or number; may
    /// be repeated. self maps the mounting user's files to that user, none shows the cell's numbers
    /// [default: self where no other user may use the mount, else none]
    #[arg(long, value_name = "PTS=LOCAL|self|none")]
    map_owner: Vec<owners::MapOwner>,
    /// When no server can be reached, serve from the cache, even if the servers' callback promises
    /// have ended
    #[arg(long)]
    disconnected: bool,
    /// UDP port where file servers and AFS's tools reach the mount, such as 7001, as OpenAFS has it
    /// [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Tell servers which process and user of this machine ask for a change, for the servers' audit
    #[arg(long)]
    tell_process: bool,
    /// Serve in the foreground until interrupted
    #[arg(long)]
    foreground: bool,
    /// What to log, such as info or afar_cache=debug
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "AFAR_LOG")]
    log: String,
    /// Where to log from the background [default: the journal, if there is one]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Check whether the mount would succeed, without mounting
    #[arg(long)]
    fake: bool,
    /// Another process waits for this one
    #[arg(long, hide = true)]
    report_ready: bool,
    #[command(flatten)]
    reach: Reach,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// All cells.
    Dynamic,
    /// A volume of a cell.
    Volume(CellName, String),
}

/// The volume of a cell that is meant if none is named.
const ROOT_CELL: &str = "root.cell";

impl Source {
    fn read(word: &OsStr) -> anyhow::Result<Self> {
        let text = word.to_str().with_context(|| {
            let text = word.to_string_lossy();
            format!("{text} is not a cell; write CELL or CELL:VOLUME, or omit it")
        })?;
        let (cell, volume) = text.split_once(':').unwrap_or((text, ROOT_CELL));
        ensure!(
            !cell.contains('/'),
            "{text} is not a cell; the order is `afar mount CELL MOUNTPOINT`"
        );
        let cell = cell
            .parse()
            .with_context(|| format!("{text} is neither a cell nor CELL:VOLUME"))?;
        ensure!(
            !volume.is_empty(),
            "{text}: the name of the volume is missing"
        );
        Ok(Self::Volume(cell, volume.to_owned()))
    }

    /// As the kernel's table of mounts shows it.
    fn shown(&self) -> String {
        match self {
            Self::Dynamic => table::DYNROOT.to_owned(),
            Self::Volume(cell, volume) if volume == ROOT_CELL => cell.to_string(),
            Self::Volume(cell, volume) => format!("{cell}:{volume}"),
        }
    }
}

/// Mounts, and serves or leaves a process behind that does; `argv` is the command line.
pub(crate) fn run(args: &MountArgs, argv: &[OsString]) -> anyhow::Result<ExitCode> {
    let (source, place) = match (args.places.as_slice(), args.dynroot) {
        ([place], _) => (Source::Dynamic, place),
        ([source, place], false) => (Source::read(source)?, place),
        _ => bail!("--dynroot shows all cells; omit the cell's name"),
    };
    let options = Options::read(args.options.iter().map(String::as_str))?;
    let place = serve::ready_place(place.as_ref())?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.foreground && !args.report_ready {
        return background::start(argv);
    }
    serve::run(args, source, &place, &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_cells_and_volumes() {
        let read = |text: &str| Source::read(text.as_ref()).map(|source| source.shown());
        assert_eq!(read("A.org").unwrap(), "a.org");
        assert_eq!(read("a.org:root.cell").unwrap(), "a.org");
        assert_eq!(read("a.org:user.ann").unwrap(), "a.org:user.ann");
        for wrong in ["/afs", "a.org:", "a b"] {
            read(wrong).unwrap_err();
        }
    }
}
