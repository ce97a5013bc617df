//! `afar ls`, `stat`, `cat` and `cp`: reading AFS without a mount and without a token.
//!
//! Crate `afar-cell` finds and fetches; here are flags, the local side of a copy, and what is
//! printed. Flags are those of the coreutils of the same names, as far as they apply.

mod cat;
mod cp;
pub(crate) mod format;
mod ls;
mod object;
mod session;
mod stat;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

pub(crate) use cat::CatArgs;
pub(crate) use cp::CpArgs;
pub(crate) use ls::LsArgs;
pub(crate) use stat::StatArgs;

use crate::output;

/// How cells are found and servers asked: options of all these commands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Finding the cell")]
pub(crate) struct Reach {
    /// CellServDB to read [default: the first of /etc/openafs/CellServDB,
    /// /usr/vice/etc/CellServDB, /etc/afar/CellServDB]
    #[arg(long, value_name = "FILE", env = "AFAR_CELLSERVDB")]
    cellservdb: Option<std::path::PathBuf>,
    /// Ask this volume location server, whatever CellServDB and DNS say; may be given again
    #[arg(long, value_name = "HOST[:PORT]")]
    server: Vec<String>,
    /// Do not look unknown cells up in DNS
    #[arg(long)]
    no_dns: bool,
    /// What @sys in a path stands for, the best first [default: by the kind of machine]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    sysname: Vec<String>,
}

/// Calls at a time to make ready for, by one who looks around.
const LOOKING: usize = 4;
/// The same for one who fetches.
const FETCHING: usize = 72;

/// Lists files.
pub(crate) fn ls(args: LsArgs) -> anyhow::Result<ExitCode> {
    session::run(args.reach.clone(), None, LOOKING, async |session| {
        ls::run(&args, session).await
    })
}

/// Tells all that AFS knows of files.
pub(crate) fn stat(args: StatArgs) -> anyhow::Result<ExitCode> {
    session::run(args.reach.clone(), None, LOOKING, async |session| {
        stat::run(&args, session).await
    })
}

/// Writes files to standard output.
pub(crate) fn cat(args: CatArgs) -> anyhow::Result<ExitCode> {
    session::run(args.reach.clone(), args.calls, FETCHING, async |session| {
        cat::run(&args, session).await
    })
}

/// Copies files.
pub(crate) fn cp(args: CpArgs) -> anyhow::Result<ExitCode> {
    session::run(args.reach.clone(), args.calls, FETCHING, async |session| {
        cp::run(&args, session).await
    })
}

/// Whether all went well so far; errors of single files are printed as they come.
#[derive(Debug, Default)]
struct Failures(u64);

impl Failures {
    fn note(&mut self, error: impl Into<anyhow::Error>) {
        self.0 += 1;
        output::error(&error.into());
    }

    fn exit_code(&self) -> ExitCode {
        if self.0 == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// A path's bytes, as AFS takes them.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
