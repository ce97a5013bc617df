//! Reading a file from a real OpenAFS file server, with afar and with OpenAFS's own client.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::hash;
use super::link::{End, Place};
use super::openafs::OpenAfs;
use super::process::Process;
use super::sample::Measured;

const CELL: &str = "test.example";
const VOLUME: &str = "test.bench";
const FILE: &str = "big.bin";
/// How long OpenAFS's programs may take: they need minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// A cell of OpenAFS at the server's end of a link, gone when dropped.
#[derive(Debug)]
pub(super) struct Cell {
    openafs: OpenAfs,
    /// What the file hashes to, in hexadecimal digits.
    sha256: String,
    bytes: u64,
}

/// An entry of the cell's list of its content.
#[derive(Deserialize)]
struct Entry {
    volume: String,
    path: String,
    length: Option<u64>,
    sha256: Option<String>,
}

impl Cell {
    /// Starts a cell with a file of `mib` MiB.
    ///
    /// # Errors
    /// Those of `cargo xtask openafs up`.
    pub(super) fn up(place: &Place, mib: u32) -> Result<Self> {
        ensure!(
            place.namespace(End::Server).is_some(),
            "a cell needs a link"
        );
        let (openafs, _) = OpenAfs::up(place, CELL, mib, &[])?;
        let list = fs::read_to_string(openafs.dir().join("fixture.json"))
            .context("reading the list of the cell's content")?;
        let entries: Vec<Entry> = serde_json::from_str(&list)?;
        let entry = entries
            .into_iter()
            .find(|entry| entry.volume == VOLUME && entry.path.trim_start_matches('/') == FILE)
            .context("the cell has no large file")?;
        Ok(Self {
            openafs,
            sha256: entry.sha256.unwrap_or_default(),
            bytes: entry.length.unwrap_or(0),
        })
    }

    /// The size of its file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the file with `afar cp` and compares its content.
    ///
    /// # Errors
    /// The copy fails, differs, or takes longer than `limit`.
    pub(super) fn read_with_afar(
        &self,
        place: &Place,
        afar: &Path,
        limit: Duration,
    ) -> Result<Measured> {
        let copy = self.openafs.dir().join("copy.bin");
        if copy.exists() {
            fs::remove_file(&copy).context("removing the last copy")?;
        }
        let mut command = place.command(End::Client, afar);
        command.args(["cp", "--json", "--cellservdb"]);
        command.arg(self.openafs.dir().join("client/etc/CellServDB"));
        command
            .arg(format!("/afs/{CELL}/{VOLUME}/{FILE}"))
            .arg(&copy);
        let ended = Process::start(command)?.succeed(limit)?;
        let sha256 = hash::file(&copy)?;
        if sha256 != self.sha256 {
            bail!("the copy's SHA-256 is {sha256} instead of {}", self.sha256);
        }
        let said: Option<Value> = ended
            .out
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok());
        let detail = json!({ "sha256": sha256, "said": said });
        Ok(Measured {
            receiver: Some(ended.cpu),
            ..Measured::rate(self.bytes, ended.time.as_secs_f64(), detail)
        })
    }

    /// Dumps the volume that holds nothing but the file with OpenAFS's `vos`, which streams: its
    /// clients that read files in pieces are slower.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn read_with_openafs(&self) -> Result<Measured> {
        let dump = ["vos", "dump", "-localauth", "-id", VOLUME, "-file"];
        let mut command = self.openafs.exec(&["--role", "admin"], &dump)?;
        command.arg(self.openafs.dir().join("dump.bin"));
        let ended = Process::start(command)?.succeed(LIMIT)?;
        let detail = json!({ "client": "vos dump" });
        Ok(Measured::rate(self.bytes, ended.time.as_secs_f64(), detail))
    }
}
