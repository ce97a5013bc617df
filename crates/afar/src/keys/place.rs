//! Which files the keys are in.

use std::path::PathBuf;

use afar_server::local_cell::{self, LocalCell};
use afar_types::CellName;
use anyhow::{Context, bail};
use clap::Args;

use crate::server;

/// The UDP ports of AFS's servers.
const PORTS: [u16; 5] = [7000, 7002, 7003, 7005, 7007];

/// Names files of keys.
#[derive(Debug, Args)]
pub(super) struct KeyFiles {
    /// The key file [default: that of the server that runs here, else that of the configuration]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration of the server whose keys to use [default: /etc/afar/afar.toml, or that
    /// of `afar up`, if no server runs]
    #[arg(
        long,
        value_name = "FILE",
        env = "AFAR_CONFIG",
        conflicts_with = "file"
    )]
    config: Option<PathBuf>,
    /// The cell whose server to use, if several run here
    #[arg(long, short, conflicts_with_all = ["file", "config"])]
    cell: Option<CellName>,
}

impl KeyFiles {
    /// All files with keys.
    pub(super) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(file) = &self.file {
            return Ok(vec![file.clone()]);
        }
        match self.running()? {
            Some(files) => Ok(files),
            None => server::key_files(self.config.as_deref()),
        }
    }

    /// The file to change: the server's own.
    pub(super) fn file(&self) -> anyhow::Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        match self.running()?.and_then(|files| files.into_iter().next()) {
            Some(file) => Ok(file),
            None => server::own_key_file(self.config.as_deref()),
        }
    }

    /// What the server that runs here says, unless a configuration is named.
    fn running(&self) -> anyhow::Result<Option<Vec<PathBuf>>> {
        if self.config.is_some() {
            return Ok(None);
        }
        let mut cells = local_cell::all();
        cells.retain(|cell| !cell.server.keys.is_empty());
        if let Some(name) = &self.cell {
            let found = cells.into_iter().find(|cell| cell.entry.name == *name);
            let found = found.with_context(|| {
                format!(
                    "no server of {name} runs on this machine; name its configuration with --config"
                )
            })?;
            return Ok(Some(found.server.keys));
        }
        // A server that was killed leaves its directory behind.
        cells.retain(|cell| PORTS.iter().any(|&port| cell.is_served(port)));
        one(cells)
    }
}

/// The keys of the only one of these cells.
fn one(mut cells: Vec<LocalCell>) -> anyhow::Result<Option<Vec<PathBuf>>> {
    if cells.len() > 1 {
        let names = cells.iter().map(|cell| cell.entry.name.to_string());
        bail!(
            "several cells run on this machine ({}); choose one with --cell",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(cells.pop().map(|cell| cell.server.keys))
}
