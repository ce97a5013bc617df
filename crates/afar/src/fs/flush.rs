//! `fs flush` and `flushvolume`: what a mount has cached is dropped.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use super::or_here;
use crate::output;

/// Options of both.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    path: Vec<PathBuf>,
}

/// Has the mounts these paths are in drop what is cached; `what` is the attribute that tells them.
pub(super) fn run(args: &FlushArgs, what: &str) -> anyhow::Result<ExitCode> {
    let mut exit = ExitCode::SUCCESS;
    for path in or_here(&args.path) {
        let Err(error) = setxattr(&path, what, b"1", XattrFlags::empty()) else {
            continue;
        };
        exit = ExitCode::FAILURE;
        let shown = path.display();
        let why = match error {
            Errno::OPNOTSUPP | Errno::PERM => "it is in no mount of afar".to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        output::usage(&format!("fs: {shown}: {why}\n"));
    }
    Ok(exit)
}
