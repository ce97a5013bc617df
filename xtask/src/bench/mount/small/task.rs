//! What is done with many small files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::data;
use crate::bench::mount::client::{Kind, Mounted};
use crate::bench::mount::server::Server;
use crate::bench::mount::work::LIMIT;
use crate::bench::process::Process;
use crate::sh;

/// Where the same is done on this machine.
const LOCAL: &str = "local";
/// The first file has lines with this, and no other.
const PATTERN: &str = "line of file 0";

/// What is done. Each begins with a fresh mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::bench::mount) enum Task {
    /// An archive is unpacked.
    Untar,
    /// The same, until all of it is at the server.
    UntarSync,
    /// Eight archives of packages are unpacked side by side, as `npm ci` does.
    Npm,
    /// A repository of this machine is cloned.
    Clone,
    /// A clone is looked at.
    Status,
    /// All names and attributes are listed.
    Find,
    /// Everything is packed to a file of this machine.
    Pack,
    /// Everything is searched.
    Grep,
    /// Everything is removed.
    Remove,
    /// A program is built where its sources are.
    Make,
}

/// What it took on this machine.
pub(super) struct Local {
    pub(super) time: Duration,
    /// Bytes of files that are read or written.
    pub(super) bytes: u64,
}

/// Where something is done.
struct Spot {
    /// What is read.
    source: PathBuf,
    /// What is made or changed.
    target: PathBuf,
}

impl Task {
    /// In the name of a row.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Untar => "untar",
            Self::UntarSync => "sync",
            Self::Npm => "npm",
            Self::Clone => "clone",
            Self::Status => "status",
            Self::Find => "find",
            Self::Pack => "pack",
            Self::Grep => "grep",
            Self::Remove => "remove",
            Self::Make => "make",
        }
    }

    /// For the page.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Untar => "`tar x` of small files",
            Self::UntarSync => "`tar x` of small files and `sync`",
            Self::Npm => "packages unpacked as by `npm ci`",
            Self::Clone => "`git clone` of a local repository into the mount",
            Self::Status => "`git status` in a clone",
            Self::Find => "`find -ls`",
            Self::Pack => "`tar c` to a local file",
            Self::Grep => "`grep -r`",
            Self::Remove => "`rm -rf`",
            Self::Make => "`make -j2` of a small program in C",
        }
    }

    /// How many files.
    pub(super) fn files(self) -> u32 {
        match self {
            Self::Npm => 5000,
            Self::Make => 120,
            _ => 2000,
        }
    }

    /// Why it cannot be done here.
    pub(super) fn missing(self) -> Option<String> {
        let needed: &[&str] = match self {
            Self::Clone | Self::Status => &["git"],
            Self::Make => &["cc", "make"],
            _ => &[],
        };
        let missing = needed.iter().find(|program| !sh::has_program(program))?;
        Some(format!("{missing} is not installed"))
    }

    /// Makes the files, and puts those there that are read by everybody.
    ///
    /// # Errors
    /// A file cannot be made or copied.
    pub(super) fn prepare(self, server: &Server<'_>, files: u32) -> Result<()> {
        let local = server.path(&data_name(files));
        match self {
            Self::Npm => data::packages(&local, &server.path(&packed(files)), files)?,
            Self::Make => data::program(&local, files)?,
            _ => data::sources(&local, files)?,
        }
        match self {
            Self::Untar | Self::UntarSync => data::pack(&local, &server.path(&packed(files)), &[]),
            Self::Clone | Self::Status => repository(&local, &server.path(&packed(files))),
            Self::Find | Self::Pack | Self::Grep => server.put(&local, &data_name(files)),
            Self::Npm | Self::Remove | Self::Make => Ok(()),
        }
    }

    /// Does it in a folder of this machine.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn locally(self, server: &Server<'_>, files: u32) -> Result<Local> {
        let data = server.path(&data_name(files));
        let spot = Spot {
            target: server.path(&local_name(files)),
            source: data.clone(),
        };
        if spot.target.exists() {
            fs::remove_dir_all(&spot.target)?;
        }
        match self {
            Self::Remove | Self::Make => {
                let mut copy = Command::new("cp");
                copy.arg("-r").arg(&data).arg(&spot.target);
                sh::capture(&mut copy)?;
            }
            Self::Status => clone_into(server, &spot, files)?,
            _ => {}
        }
        let time = self.time(server, &spot, files, None)?;
        let bytes = match self {
            Self::Untar | Self::UntarSync | Self::Npm | Self::Clone | Self::Make => {
                data::bytes(&spot.target)?
            }
            Self::Pack | Self::Grep => data::bytes(&data)?,
            Self::Status | Self::Find | Self::Remove => 0,
        };
        Ok(Local { time, bytes })
    }

    /// Does it on a fresh mount, and looks at what came of it from beside the server. Returns the seconds it took.
    ///
    /// # Errors
    /// It fails, or something else came of it than in a folder of this machine.
    pub(super) fn mounted(
        self,
        server: &mut Server<'_>,
        kind: Kind,
        files: u32,
        run: u32,
    ) -> Result<f64> {
        let name = format!("{run}-{}-{files}", kind.shown().replace([' ', ','], "-"));
        if matches!(self, Self::Remove | Self::Make) {
            server.put(&server.path(&data_name(files)), &name)?;
        }
        let spot = |mounted: &Mounted| Spot {
            source: mounted.root.join(data_name(files)),
            target: mounted.root.join(&name),
        };
        if self == Self::Status {
            let mounted = Mounted::new(kind, server, "one")?;
            clone_into(server, &spot(&mounted), files)?;
            mounted.settle(LIMIT)?;
        }
        let mounted = Mounted::new(kind, server, "one")?;
        let time = self.time(server, &spot(&mounted), files, Some(&mounted))?;
        mounted.settle(LIMIT)?;
        drop(mounted);
        self.verify(server, kind, &name, files)?;
        Ok(time.as_secs_f64())
    }

    /// Does it, and says how long that took.
    fn time(
        self,
        server: &Server<'_>,
        spot: &Spot,
        files: u32,
        mounted: Option<&Mounted>,
    ) -> Result<Duration> {
        if matches!(self, Self::Untar | Self::UntarSync | Self::Npm) {
            fs::create_dir(&spot.target).context("making a folder to unpack in")?;
        }
        if self == Self::Npm {
            // `tar` gives up if another makes a folder above its own first.
            let modules = spot.target.join(data::MODULES);
            fs::create_dir(modules).context("making a folder of packages")?;
        }
        let begun = Instant::now();
        let ended = Process::start(self.command(server, spot, files))?.succeed(LIMIT)?;
        let mut time = ended.time;
        if self == Self::UntarSync
            && let Some(mounted) = mounted
        {
            let idle = mounted.settle(LIMIT)?;
            if !idle.is_zero() {
                time = begun.elapsed().saturating_sub(idle);
            }
        }
        match self {
            Self::Find => {
                let lines = ended.out.lines();
                let found = lines.filter(|line| line.ends_with(".txt")).count();
                ensure!(found == files as usize, "{found} files instead of {files}");
            }
            Self::Grep => ensure!(
                ended.out.contains(PATTERN),
                "`grep` found nothing: {}",
                ended.err
            ),
            Self::Status => ensure!(
                ended.out.is_empty(),
                "a fresh clone is changed: {}",
                ended.out
            ),
            _ => {}
        }
        Ok(time)
    }

    fn command(self, server: &Server<'_>, spot: &Spot, files: u32) -> Command {
        let (source, target) = (&spot.source, &spot.target);
        let archive = server.path(&packed(files));
        let program = |name: &str, words: &[&str]| {
            let mut command = Command::new(name);
            command.args(words);
            command
        };
        match self {
            Self::Untar => {
                let mut command = program("tar", &["x", "--no-same-owner", "-f"]);
                command.arg(archive).arg("-C").arg(target);
                command
            }
            Self::UntarSync => {
                let line =
                    "tar x --no-same-owner -f \"$1\" -C \"$2\" && sync \"$2\" && sync -f \"$2\"";
                let mut command = program("sh", &["-c", line, "sh"]);
                command.arg(archive).arg(target);
                command
            }
            Self::Npm => {
                let line = format!(
                    "printf '%s\\0' \"$1\"/*.tar | \
                     xargs -0 -n 1 -P {} tar x --no-same-owner -C \"$2\" -f",
                    data::ARCHIVES
                );
                let mut command = program("sh", &["-c", &line, "sh"]);
                command.arg(archive).arg(target);
                command
            }
            Self::Clone => {
                let mut command = git();
                command.args(["clone", "--quiet", "--no-hardlinks"]);
                command.arg(archive).arg(target);
                command
            }
            Self::Status => {
                let mut command = git();
                command.arg("-C").arg(target);
                command.args(["status", "--porcelain"]);
                command
            }
            Self::Find => {
                let mut command = Command::new("find");
                command.arg(source).arg("-ls");
                command
            }
            Self::Pack => {
                let mut command = program("tar", &["c", "-f"]);
                command.arg(server.path("packed.tar"));
                command.arg("-C").arg(source).arg(".");
                command
            }
            Self::Grep => {
                let mut command = program("grep", &["-r", PATTERN]);
                command.arg(source);
                command
            }
            Self::Remove => {
                let mut command = program("rm", &["-rf"]);
                command.arg(target);
                command
            }
            Self::Make => {
                let mut command = program("make", &["-s", "-j2", "-C"]);
                command.arg(target);
                command
            }
        }
    }

    /// Compares what came of it with what came of it on this machine.
    fn verify(self, server: &Server<'_>, kind: Kind, name: &str, files: u32) -> Result<()> {
        match self {
            Self::Find | Self::Grep | Self::Status => return Ok(()),
            Self::Remove => {
                let left = server.has(kind.is_afs(), name)?;
                ensure!(!left, "it is still there");
                return Ok(());
            }
            Self::Pack => {
                let unpacked = server.path("unpacked");
                fs::create_dir(&unpacked)?;
                let mut unpack = Command::new("tar");
                unpack.arg("xf").arg(server.path("packed.tar"));
                sh::capture(unpack.arg("-C").arg(&unpacked))?;
                return same(&server.path(&data_name(files)), &unpacked);
            }
            Self::Untar | Self::UntarSync | Self::Npm | Self::Clone | Self::Make => {}
        }
        let copy = match kind.is_afs() {
            true => server.get(name)?,
            false => server.export().join(name),
        };
        if self == Self::Clone {
            sh::capture(git().arg("-C").arg(&copy).args(["fsck", "--no-progress"]))?;
        }
        same(&server.path(&local_name(files)), &copy)
    }
}

/// Makes a clone without taking the time.
fn clone_into(server: &Server<'_>, spot: &Spot, files: u32) -> Result<()> {
    let clone = Task::Clone.command(server, spot, files);
    Process::start(clone)?.succeed(LIMIT).map(drop)
}

/// Compares two trees but for what git keeps of them, and removes the second.
fn same(one: &Path, other: &Path) -> Result<()> {
    let mut differ = Command::new("diff");
    differ.args(["-rq", "--exclude=.git"]).arg(one).arg(other);
    let same = sh::capture(&mut differ);
    fs::remove_dir_all(other).context("removing the copy")?;
    same.map(drop)
        .context("what arrived differs from what was to come of it")
}

/// Makes a repository of what is in a folder.
fn repository(data: &Path, bare: &Path) -> Result<()> {
    let work = bare.with_extension("work");
    let mut copy = Command::new("cp");
    sh::capture(copy.arg("-r").arg(data).arg(&work))?;
    let at_work = |words: &[&str]| {
        let mut command = git();
        sh::capture(command.arg("-C").arg(&work).args(words)).map(drop)
    };
    at_work(&["init", "--quiet"])?;
    at_work(&["add", "--all"])?;
    at_work(&["commit", "--quiet", "--message", "all"])?;
    let mut clone = git();
    clone.args(["clone", "--quiet", "--bare"]).arg(&work);
    sh::capture(clone.arg(bare))?;
    fs::remove_dir_all(work).context("removing what was committed")
}

/// git, with nobody's settings; on a mount files may be another user's.
fn git() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_NOSYSTEM", "1");
    for (key, value) in [
        ("safe.directory", "*"),
        ("user.name", "nobody"),
        ("user.email", "nobody@example.org"),
        ("init.defaultBranch", "main"),
    ] {
        command.arg("-c").arg(format!("{key}={value}"));
    }
    command
}

fn data_name(files: u32) -> String {
    format!("data-{files}")
}

fn local_name(files: u32) -> String {
    format!("{LOCAL}-{files}")
}

/// An archive, a folder of archives, or a repository.
fn packed(files: u32) -> String {
    format!("packed-{files}")
}
