//! A cell whose files are copied by each way, and what a copy costs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::tree::{self, Tree};
use crate::bench::cell::gathered::{LIMIT, mbits, per_gb, said_seconds};
use crate::bench::cell::site::{CELL, Site, VOLUME};
use crate::bench::link::Place;
use crate::bench::process::Process;

/// The least part of the bytes that goes out of band in a transfer that counts as one out of band.
const SHARE: f64 = 0.5;
/// Where copies go: a file system in memory, where there is one.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Bytes of files that clients fetched out of band.
pub(super) const FETCHED: &str = "afar_oob_data_bytes_total";
/// The same as they were packed.
const FETCHED_PACKED: &str = "afar_oob_sent_bytes_total";
/// Bytes of files that clients stored out of band.
pub(super) const STORED: &str = "afar_oob_received_data_bytes_total";

/// How the data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Rx with rxkad at the level clear.
    Clear,
    /// Rx with rxkad at the level crypt.
    Crypt,
    /// TLS out of band, beside Rx at the level crypt.
    Tls,
}

impl Way {
    /// All, in the order they take turns.
    pub(super) const ALL: [Self; 3] = [Self::Clear, Self::Crypt, Self::Tls];

    /// Its name in a table.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Clear => "Rx clear",
            Self::Crypt => "Rx crypt",
            Self::Tls => "TLS",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Crypt | Self::Tls => "crypt",
        }
    }
}

/// What a copy came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copied {
    pub(super) seconds: f64,
    /// Mbit/s.
    pub(super) rate: f64,
    /// Processor seconds of the client for each 10⁹ bytes, and of the server.
    pub(super) client: f64,
    pub(super) server: f64,
    /// The part of the bytes that went out of band.
    pub(super) share: f64,
    /// How many times as long the files fetched out of band are as what was sent.
    pub(super) packed: f64,
}

/// A cell at the server's end of a link, for copies one way; gone when dropped.
pub(super) struct Cell<'a> {
    site: Site<'a>,
    keys: PathBuf,
    /// A folder for copies.
    scratch: PathBuf,
    way: Way,
}

impl<'a> Cell<'a> {
    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn up(place: &'a Place, afar: &Path, way: Way) -> Result<Self> {
        let site = Site::up(place, afar)?;
        let keys = site.path("cell/data/KeyFileExt");
        ensure!(keys.exists(), "the cell made no key: {}", keys.display());
        let memory = Path::new(MEMORY_FOLDER);
        let scratch = if memory.is_dir() {
            memory.join(format!("afar-bench-copy-{}", std::process::id()))
        } else {
            site.path("copy")
        };
        let mut this = Self {
            site,
            keys,
            scratch,
            way,
        };
        this.turn_to(way)?;
        Ok(this)
    }

    /// Restarts the server for transfers this way.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn turn_to(&mut self, way: Way) -> Result<()> {
        self.way = way;
        let is_enabled = (way == Way::Tls).to_string();
        self.site.configure(&[("oob", "enabled", &is_enabled)])
    }

    /// What the server counts by this name, of which it may know nothing.
    ///
    /// # Errors
    /// The server does not tell.
    pub(super) fn count(&self, name: &str) -> Result<Option<f64>> {
        self.site.metric(name)
    }

    /// Puts the files into the cell.
    ///
    /// # Errors
    /// They cannot be copied.
    pub(super) fn fill(&self, tree: &Tree, large: u32) -> Result<()> {
        let mut words = vec!["cp".to_owned(), "--localauth".to_owned()];
        words.extend(local(tree, large)?);
        words.push(volume());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.site.administer(&words).map(drop)
    }

    /// The client fetches the small files and so many large ones.
    ///
    /// # Errors
    /// It does not, or the files did not go the way they should.
    pub(super) fn read(&self, tree: &Tree, large: u32) -> Result<Copied> {
        let names = tree::names(large);
        let sources = names.iter().map(|name| format!("{}/{name}", volume()));
        tree::remove(&self.scratch)?;
        fs::create_dir_all(&self.scratch)?;
        let target = text(&self.scratch)?;
        let copied = self.copy(FETCHED, sources.collect(), &target, large)?;
        tree.check(large, &self.scratch)?;
        tree::remove(&self.scratch)?;
        Ok(copied)
    }

    /// The client stores them in an empty cell.
    ///
    /// # Errors
    /// As of reading.
    pub(super) fn write(&self, tree: &Tree, large: u32) -> Result<Copied> {
        let copied = self.copy(STORED, local(tree, large)?, &volume(), large)?;
        tree::remove(&self.scratch)?;
        let target = text(&self.scratch)?;
        let words = ["cp", "-r", "--localauth", &volume(), &target];
        self.site.administer(&words)?;
        tree.check(large, &self.scratch)?;
        tree::remove(&self.scratch)?;
        Ok(copied)
    }

    /// Copies files, of which the server counts those out of band by this name.
    fn copy(
        &self,
        counter: &str,
        sources: Vec<String>,
        target: &str,
        large: u32,
    ) -> Result<Copied> {
        let keys = text(&self.keys)?;
        let level = self.way.level();
        let mut words = vec!["cp", "--json", "--level", level];
        words.extend(["--localauth", "--keys", &keys]);
        let mut command = self.site.client(&words);
        command.args(sources).arg(target);
        let (served, counted) = (self.site.cpu(), self.counts(counter)?);
        let ended = Process::start(command)?.succeed(LIMIT)?;
        let (served, now) = (self.site.cpu() - served, self.counts(counter)?);
        let (bytes, packed) = (now.0 - counted.0, now.1 - counted.1);
        let mib = tree::mib(large);
        let share = bytes / (f64::from(mib) * 1_048_576.0);
        if self.way == Way::Tls {
            ensure!(
                share >= SHARE,
                "only {:.1} % of the bytes went out of band by {counter}",
                share * 100.0
            );
        } else {
            ensure!(bytes == 0.0, "{bytes} bytes went out of band");
        }
        let seconds = said_seconds(&ended.out)?;
        Ok(Copied {
            seconds,
            rate: mbits(mib, seconds),
            client: per_gb(ended.cpu, mib),
            server: per_gb(served, mib),
            share,
            packed: bytes / packed.max(1.0),
        })
    }

    /// Bytes that went out of band so far, and as they were packed.
    fn counts(&self, counter: &str) -> Result<(f64, f64)> {
        let bytes = self.count(counter)?.unwrap_or_default();
        let packed = self.count(FETCHED_PACKED)?.unwrap_or_default();
        Ok((bytes, packed))
    }
}

impl Drop for Cell<'_> {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for such files.
        fs::remove_dir_all(&self.scratch).ok();
    }
}

/// The folder that everybody may write to.
fn volume() -> String {
    format!("/afs/{CELL}/{VOLUME}")
}

/// The small files on this machine, and so many large ones.
fn local(tree: &Tree, large: u32) -> Result<Vec<String>> {
    let paths = tree::names(large)
        .into_iter()
        .map(|name| text(&tree.dir().join(name)));
    paths.collect()
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str().context("a path that is not UTF-8")?;
    Ok(text.to_owned())
}
