//! What is done with a mount, and how fast it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::client::{Kind, Mounted};
use super::server::Server;
use crate::bench::cell::site;
use crate::bench::process::Process;
use crate::sh;

/// The slowest takes so long at most.
pub(super) const LIMIT: Duration = Duration::from_secs(1800);
/// Files in a directory of the trees.
const FILES_PER_DIRECTORY: u32 = 100;
/// Bytes of the files of an archive: of this kind are sources.
pub(super) const SMALL_FILES: [usize; 5] = [200, 900, 2500, 6000, 14_000];

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// A file is read from its beginning to its end.
    Read,
    /// A file is written and synchronized.
    Write,
    /// `ls -lR` of so many files.
    List,
    /// `tar x` of so many small files.
    Untar,
}

/// The amounts for those who are fast and for those who are slow: MiB, or files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amounts {
    pub(super) fast: u32,
    pub(super) slow: u32,
}

impl Amounts {
    /// The amount for a client.
    pub(super) fn of(self, kind: Kind) -> u32 {
        if kind.is_slow() { self.slow } else { self.fast }
    }

    /// The two that are prepared.
    pub(super) fn both(self) -> Vec<u32> {
        let mut both = vec![self.fast, self.slow];
        both.dedup();
        both
    }
}

impl Work {
    /// What is counted.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Read | Self::Write => "Mbit/s",
            Self::List | Self::Untar => "files/s",
        }
    }

    /// What an amount is.
    pub(super) fn amount(self, amount: u32) -> String {
        match self {
            Self::Read | Self::Write => format!("{amount} MiB"),
            Self::List | Self::Untar => format!("{amount} files"),
        }
    }

    /// Puts what is needed where it is needed.
    ///
    /// # Errors
    /// A file cannot be made or copied.
    pub(super) fn prepare(self, server: &Server<'_>, amounts: Amounts) -> Result<()> {
        for amount in amounts.both() {
            let local = server.path(&name(amount));
            match self {
                Self::Read => {
                    site::noise(&local, amount)?;
                    server.put(&local, &name(amount))?;
                }
                Self::Write => {
                    site::noise(&local, amount)?;
                }
                Self::List => {
                    tree(&local, amount, |_| 0)?;
                    server.put(&local, &name(amount))?;
                }
                Self::Untar => {
                    tree(&local, amount, |number| {
                        SMALL_FILES[number % SMALL_FILES.len()]
                    })?;
                    let mut pack = Command::new("tar");
                    pack.arg("cf").arg(server.path(&archive(amount)));
                    pack.arg("-C").arg(&local).arg(".");
                    sh::capture(&mut pack)?;
                }
            }
        }
        Ok(())
    }

    /// Does it with a fresh mount; returns the rate in its unit.
    ///
    /// # Errors
    /// It fails, or what was read or written is not what it should be.
    pub(super) fn rate(
        self,
        server: &mut Server<'_>,
        kind: Kind,
        amount: u32,
        run: u32,
    ) -> Result<f64> {
        let mounted = Mounted::new(kind, server, "one")?;
        let target = format!("run{run}-{}", kind.shown().replace([' ', ','], "-"));
        let target = mounted.root.join(target);
        let source = mounted.root.join(name(amount));
        let command = match self {
            Self::Read => copy(&source, Path::new("/dev/null")),
            Self::Write => {
                let mut command = copy(&server.path(&name(amount)), &target);
                // OpenAFS's client in user space has no fsync, and fails those who ask for it.
                if !matches!(kind, Kind::Afsd | Kind::AfsdTuned) {
                    command.arg("conv=fsync");
                }
                command
            }
            Self::List => {
                let mut command = Command::new("ls");
                command.arg("-lR").arg(&source);
                command
            }
            Self::Untar => {
                fs::create_dir(&target).context("making a folder to unpack in")?;
                let mut command = Command::new("tar");
                command.arg("xf").arg(server.path(&archive(amount)));
                command.arg("-C").arg(&target).arg("--no-same-owner");
                command
            }
        };
        let begun = std::time::Instant::now();
        let ended = Process::start(command)?.succeed(LIMIT)?;
        let idle = mounted.settle(LIMIT)?;
        let seconds = match self {
            Self::Read | Self::List => ended.time,
            Self::Write | Self::Untar if idle.is_zero() => ended.time,
            Self::Write | Self::Untar => begun.elapsed().saturating_sub(idle),
        };
        if let Self::List = self {
            let lines = ended.out.lines().filter(|line| line.starts_with('-'));
            let found = lines.count();
            ensure!(
                found == amount as usize,
                "{found} files instead of {amount}"
            );
        }
        drop(mounted);
        self.verify(server, kind, amount, &target)?;
        let seconds = seconds.as_secs_f64();
        Ok(match self {
            Self::Read | Self::Write => f64::from(amount) * 8.388_608 / seconds,
            Self::List | Self::Untar => f64::from(amount) / seconds,
        })
    }

    /// Looks at what was written from beside the server, and removes it.
    fn verify(self, server: &Server<'_>, kind: Kind, amount: u32, target: &Path) -> Result<()> {
        let name = target.file_name().context("no name")?.to_string_lossy();
        let original = server.path(&super::work::name(amount));
        if !matches!(self, Self::Write | Self::Untar) {
            return Ok(());
        }
        let copy = if kind.is_afs() {
            server.get(&name)?
        } else {
            server.export().join(name.as_ref())
        };
        let mut differ = Command::new("diff");
        differ.arg("-rq").arg(&original).arg(&copy);
        let same = sh::capture(&mut differ).map(drop);
        match copy.is_dir() {
            true => fs::remove_dir_all(&copy),
            false => fs::remove_file(&copy),
        }
        .context("removing the copy")?;
        same.context("what arrived differs from what was written")
    }
}

fn name(amount: u32) -> String {
    format!("data-{amount}")
}

fn archive(amount: u32) -> String {
    format!("data-{amount}.tar")
}

fn copy(from: &Path, to: &Path) -> Command {
    let operand = |key: &str, path: &Path| format!("{key}={}", path.display());
    let mut command = Command::new("dd");
    command.arg("bs=1M").arg(operand("if", from));
    command.arg(operand("of", to));
    command
}

/// Makes directories with files of these sizes.
///
/// # Errors
/// A file cannot be made.
pub(super) fn tree(root: &Path, files: u32, size: impl Fn(usize) -> usize) -> Result<()> {
    for number in 0..files {
        let directory: PathBuf = root.join(format!("d{:03}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let content = format!("line of file {number}\n");
        let size = size(number as usize);
        let content: Vec<u8> = content.bytes().cycle().take(size).collect();
        fs::write(directory.join(format!("file{number:05}.txt")), content)?;
    }
    Ok(())
}
