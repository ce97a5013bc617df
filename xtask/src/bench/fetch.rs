//! Reading a file from a real OpenAFS file server, with afar and with OpenAFS's own client.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::link::{End, Place};
use super::process::Process;
use super::sample::Measured;
use crate::{output, sh};

const CELL: &str = "test.example";
const VOLUME: &str = "test.bench";
const FILE: &str = "big.bin";
/// How long OpenAFS's programs may take: they need minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// A cell of OpenAFS at the server's end of a link, gone when dropped.
#[derive(Debug)]
pub(super) struct Cell {
    dir: PathBuf,
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
        let server = place
            .namespace(End::Server)
            .context("a cell needs a link")?;
        let client = place
            .namespace(End::Client)
            .context("a cell needs a link")?;
        let name = format!("afar-bench-{}", std::process::id());
        let mut cell = Self {
            dir: std::env::temp_dir().join(name),
            sha256: String::new(),
            bytes: 0,
        };
        // In a process group of its own: Ctrl-C must not end the daemons before `down` does.
        let mut up = xtask(&[
            "up",
            "--cell",
            CELL,
            "--netns",
            &server,
            "--cli-netns",
            &client,
        ])?;
        up.args(["--bench-mib", &mib.to_string(), "--dir"])
            .arg(&cell.dir);
        Process::start(up)?.succeed(LIMIT)?;
        let list = fs::read_to_string(cell.dir.join("fixture.json"))
            .context("reading the list of the cell's content")?;
        let entries: Vec<Entry> = serde_json::from_str(&list)?;
        let entry = entries
            .into_iter()
            .find(|entry| entry.volume == VOLUME && entry.path.trim_start_matches('/') == FILE)
            .context("the cell has no large file")?;
        cell.bytes = entry.length.unwrap_or(0);
        cell.sha256 = entry.sha256.unwrap_or_default();
        Ok(cell)
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
        let copy = self.dir.join("copy.bin");
        if copy.exists() {
            fs::remove_file(&copy).context("removing the last copy")?;
        }
        let mut command = place.command(End::Client, afar);
        command.args(["cp", "--json", "--cellservdb"]);
        command.arg(self.dir.join("client/etc/CellServDB"));
        command
            .arg(format!("/afs/{CELL}/{VOLUME}/{FILE}"))
            .arg(&copy);
        let ended = Process::start(command)?.succeed(limit)?;
        let sha256 = hash(&copy)?;
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
        let mut command = xtask(&["exec", "--role", "admin", "--dir"])?;
        command.arg(&self.dir);
        command.args(["--", "vos", "dump", "-localauth", "-id", VOLUME, "-file"]);
        command.arg(self.dir.join("dump.bin"));
        let ended = Process::start(command)?.succeed(LIMIT)?;
        let detail = json!({ "client": "vos dump" });
        Ok(Measured::rate(self.bytes, ended.time.as_secs_f64(), detail))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let down =
            xtask(&["down", "--dir"]).and_then(|mut command| sh::capture(command.arg(&self.dir)));
        if let Err(error) = down {
            output::note(&format!("stopping the cell: {error:#}"));
        }
    }
}

/// This program's `openafs` command.
fn xtask(args: &[&str]) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.arg("openafs").args(args);
    Ok(command)
}

/// A file's SHA-256 in hexadecimal digits.
fn hash(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.write_all(&buffer[..read])?;
    }
    let digits = hasher.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_hashed() {
        let path = std::env::temp_dir().join(format!("afar-bench-hash-{}", std::process::id()));
        fs::write(&path, "abc").unwrap();
        assert_eq!(
            hash(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        fs::remove_file(&path).unwrap();
    }
}
