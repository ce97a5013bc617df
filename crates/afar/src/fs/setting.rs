//! Settings of a mount while it is in use: attributes that every path in it has.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use crate::mount::attribute;
use crate::output;

/// Which mount a verb is about, and how it tells what it found.
#[derive(Debug, Args)]
pub(crate) struct OfMount {
    /// A path in the mount
    #[arg(
        long,
        value_name = "PATH",
        default_value = ".",
        help_heading = "Options of afar's own"
    )]
    mount: PathBuf,
    /// Print the result as JSON
    #[arg(long, help_heading = "Options of afar's own")]
    pub(super) json: bool,
}

impl OfMount {
    /// What a setting is.
    pub(super) fn get(&self, name: &str) -> Result<String, Errno> {
        attribute(&self.mount, name)
    }

    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), Errno> {
        setxattr(&self.mount, name, value.as_bytes(), XattrFlags::empty())
    }

    /// Says why a setting could not be read or changed; `invalid` is what is wrong with a value that
    /// is refused.
    pub(super) fn failed(&self, error: Errno, invalid: &str) -> ExitCode {
        let why = match error {
            Errno::OPNOTSUPP | Errno::NODATA => {
                "it is in no mount of afar; name a path in one with -mount".to_owned()
            }
            Errno::PERM | Errno::ACCESS => "only root may change this".to_owned(),
            Errno::INVAL => invalid.to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        output::usage(&format!("fs: {}: {why}\n", self.mount.display()));
        ExitCode::FAILURE
    }
}
