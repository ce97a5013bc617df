//! Which files the keys are in.

use std::path::PathBuf;

use clap::Args;

use crate::server;

/// Names files of keys.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The file of keys [default: as the configuration says]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration of the server whose keys these are [default: /etc/afar/afar.toml, or that
    /// of `afar up`]
    #[arg(
        long,
        value_name = "FILE",
        env = "AFAR_CONFIG",
        conflicts_with = "file"
    )]
    config: Option<PathBuf>,
}

impl Place {
    /// All files with keys.
    pub(super) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        match &self.file {
            Some(file) => Ok(vec![file.clone()]),
            None => server::key_files(self.config.as_deref()),
        }
    }

    /// The file to change: the server's own.
    pub(super) fn file(&self) -> anyhow::Result<PathBuf> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => server::own_key_file(self.config.as_deref()),
        }
    }
}
