//! `cargo xtask openafs`: a real OpenAFS cell, from Debian's packages, to test against.
//!
//! `up` makes the cell, fills it with a known fixture and prints a description in JSON;
//! `exec` runs a command inside; `verify` checks it with OpenAFS's own tools; `down` leaves
//! no process, mount or namespace behind. Cells in different folders do not disturb each
//! other.

mod cell;
mod directory;
mod dump;
mod fixture;
mod kerberos;
mod keytab;
pub(crate) mod netns;
mod tree;
mod verify;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::Serialize;

use crate::output;
use cell::{Cell, Role, Setup};
use fixture::Part;
use netns::Pair;

pub(crate) use verify::verify;

/// The description `up` prints, as a file in the cell's folder.
const DESCRIPTION: &str = "cell.json";
/// The list of all the fixture holds, as a file in the cell's folder.
const FIXTURE: &str = "fixture.json";

/// Options of `cargo xtask openafs`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cell and print its description in JSON
    Up(Up),
    /// Run a command in a cell: `exec --dir DIR -- vos listvldb -noauth`
    Exec {
        /// The cell's folder
        #[arg(long)]
        dir: PathBuf,
        /// The command's view of the cell and its namespace
        #[arg(long, value_enum, default_value = "client")]
        role: Role,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        words: Vec<String>,
    },
    /// Check a cell with OpenAFS's own tools
    Verify {
        /// The cell's folder
        #[arg(long)]
        dir: PathBuf,
    },
    /// Stop a cell and remove its folder
    Down {
        /// The cell's folder
        #[arg(long)]
        dir: PathBuf,
        /// Keep the folder, for its logs
        #[arg(long)]
        keep: bool,
    },
}

/// Options of `cargo xtask openafs up`.
#[derive(clap::Args)]
struct Up {
    /// The cell's folder; created if missing, must not hold a running cell
    #[arg(long)]
    dir: PathBuf,
    /// The cell's name
    #[arg(long, default_value = "test.example")]
    cell: String,
    /// Network namespace for the servers [default: create a pair]
    #[arg(long)]
    netns: Option<String>,
    /// Network namespace for clients [default: X-cli beside X-srv]
    #[arg(long, requires = "netns")]
    cli_netns: Option<String>,
    /// The servers' address [default: the first in their namespace]
    #[arg(long, requires = "netns")]
    addr: Option<String>,
    /// Further arguments for the file server, separated by blanks
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    fs_args: String,
    /// Add a volume test.bench with one file of this many MiB
    #[arg(long)]
    bench_mib: Option<u32>,
    /// Treat every caller as an administrator, as a server started with -noauth does
    #[arg(long)]
    noauth: bool,
    /// Add a Kerberos realm with users, and one that it trusts
    #[arg(long, conflicts_with = "noauth")]
    kerberos: bool,
    /// Create no volumes
    #[arg(long, conflicts_with = "bench_mib")]
    bare: bool,
    /// Run the servers under OpenAFS's overseer, for bos
    #[arg(long)]
    overseer: bool,
    /// Number of partitions, from /vicepa on
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=26))]
    partitions: u8,
}

impl Up {
    fn setup(&self) -> Setup {
        Setup {
            noauth: self.noauth,
            overseer: self.overseer,
            kerberos: self.kerberos,
            partitions: ('a'..='z').take(self.partitions.into()).collect(),
        }
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Up(options) => {
            let description = up(&options)?;
            let text = serde_json::to_string_pretty(&description)?;
            output::line(&text);
            Ok(())
        }
        Command::Exec { dir, role, words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = Cell::load(&absolute(&dir)?)?.command(role, &words);
            Err(command.exec()).context("cannot start nsenter")
        }
        Command::Verify { dir } => {
            let counts = verify(&absolute(&dir)?)?;
            output::line(&format!(
                "{} passed, {} failed",
                counts.passed, counts.failed
            ));
            if counts.failed > 0 {
                bail!("the cell is not as it should be");
            }
            Ok(())
        }
        Command::Down { dir, keep } => down(&absolute(&dir)?, keep),
    }
}

/// What `up` prints.
#[derive(Serialize)]
struct Description {
    /// The cell's name.
    cell: String,
    /// The cell's folder.
    dir: PathBuf,
    /// Address of all its servers, at AFS's usual ports.
    address: String,
    /// Address of the client's namespace, if it has one.
    client_address: Option<String>,
    /// Network namespace of the servers.
    server_netns: String,
    /// Network namespace for clients.
    client_netns: String,
    /// Words to put before a command so that it reaches the servers.
    client_exec: Vec<String>,
    /// Words to put before one of OpenAFS's administration commands, which then takes -localauth.
    admin_exec: Vec<String>,
    /// The client's CellServDB; ThisCell lies beside it.
    cellservdb: PathBuf,
    /// The servers' KeyFileExt (kvno 1, aes256-cts-hmac-sha1-96).
    key_file_ext: PathBuf,
    /// The cell's Kerberos realm, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    kerberos: Option<kerberos::Description>,
    /// List of all that the volumes hold: see `fixture`.
    fixture: PathBuf,
    /// The volumes by name.
    volumes: Vec<VolumeIds>,
}

#[derive(Serialize)]
struct VolumeIds {
    name: String,
    read_write: u32,
    read_only: Option<u32>,
}

fn up(options: &Up) -> Result<Description> {
    let begin = Instant::now();
    let dir = absolute(&options.dir)?;
    clear(&dir)?;
    let setup = options.setup();
    cell::make_mount_places(&setup)?;
    let pair = match &options.netns {
        Some(server) => Pair::find(
            server,
            options.cli_netns.as_deref(),
            options.addr.as_deref(),
        )?,
        None => Pair::make(&tag(&dir))?,
    };
    let made = Cell::create(&dir, &options.cell, pair.clone(), setup);
    let mut cell = match made {
        Ok(cell) => cell,
        Err(error) => {
            pair.remove();
            return Err(error);
        }
    };
    let filled = fill(&mut cell, options);
    match filled {
        Ok(description) => {
            let took = begin.elapsed().as_secs_f64();
            output::note(&format!("cell {} is up after {took:.1} s", cell.name));
            Ok(description)
        }
        Err(error) => {
            let dead = cell.dead().join(" ");
            let hint = if dead.is_empty() {
                String::new()
            } else {
                format!("; ended: {dead}")
            };
            cell.stop()?;
            let log = cell.dir.join("server/log");
            Err(error.context(format!(
                "the cell did not start (logs: {}{hint})",
                log.display()
            )))
        }
    }
}

/// Starts the daemons, restores the volumes, writes the description.
fn fill(cell: &mut Cell, options: &Up) -> Result<Description> {
    let fs_args: Vec<&str> = options.fs_args.split_whitespace().collect();
    cell.start(&fs_args)?;
    if options.kerberos {
        kerberos::register(cell)?;
    }
    let parts = if options.bare {
        Vec::new()
    } else {
        let more = fixture::More {
            bench_mib: options.bench_mib,
            protected: options.kerberos,
        };
        fixture::parts(&cell.name, more)
    };
    restore_all(cell, &parts)?;
    let entries: Vec<_> = parts
        .iter()
        .flat_map(|part| fixture::list(&part.volume))
        .collect();
    write_json(&cell.dir.join(FIXTURE), &entries)?;
    let description = describe(cell, &parts)?;
    write_json(&cell.dir.join(DESCRIPTION), &description)?;
    Ok(description)
}

/// Makes all volumes at once: OpenAFS's Rx often waits 2.6 seconds after an abort that is
/// nobody's fault, and so these waits overlap.
fn restore_all(cell: &Cell, parts: &[Part]) -> Result<()> {
    std::thread::scope(|scope| {
        let restore = |part| scope.spawn(move || restore(cell, part));
        let threads: Vec<_> = parts.iter().map(restore).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| bail!("making a volume panicked"))
        })
    })
}

/// Puts a volume on the file server and, if wanted, its read-only copy beside it.
fn restore(cell: &Cell, part: &Part) -> Result<()> {
    let name = part.volume.name.as_str();
    let path = cell.dir.join(format!("{name}.dump"));
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    dump::write(&part.volume, &mut out)
        .and_then(|()| out.flush())
        .with_context(|| format!("writing {}", path.display()))?;
    let file = path
        .to_str()
        .context("the cell's folder has a name that is not UTF-8")?;
    let address = cell.pair.server_address.as_str();
    cell.admin(&["vos", "restore", address, "a", name, "-file", file])?;
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    if part.replicated {
        cell.admin(&["vos", "addsite", address, "a", name])?;
        cell.admin(&["vos", "release", name])?;
    }
    Ok(())
}

fn describe(cell: &Cell, parts: &[Part]) -> Result<Description> {
    let mut volumes = Vec::new();
    for part in parts {
        let name = part.volume.name.clone();
        let text = cell.admin(&["vos", "examine", &name])?;
        let read_write = volume_id(&text, "RWrite:")
            .with_context(|| format!("vos examine tells no number of {name}"))?;
        let read_only = part
            .replicated
            .then(|| volume_id(&text, "ROnly:"))
            .flatten();
        volumes.push(VolumeIds {
            name,
            read_write,
            read_only,
        });
    }
    Ok(Description {
        cell: cell.name.clone(),
        dir: cell.dir.clone(),
        address: cell.pair.server_address.clone(),
        client_address: cell.pair.client_address.clone(),
        server_netns: cell.pair.server.clone(),
        client_netns: cell.pair.client.clone(),
        client_exec: vec![
            "nsenter".to_owned(),
            format!("--net=/run/netns/{}", cell.pair.client),
            "--".to_owned(),
        ],
        admin_exec: words(&cell.command(Role::Server, &[]))?,
        cellservdb: cell.dir.join("client/etc/CellServDB"),
        key_file_ext: cell.dir.join("server/etc/server/KeyFileExt"),
        kerberos: cell.setup.kerberos.then(|| kerberos::Description::of(cell)),
        fixture: cell.dir.join(FIXTURE),
        volumes,
    })
}

/// A command as words.
fn words(command: &std::process::Command) -> Result<Vec<String>> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_str().map(str::to_owned))
        .collect::<Option<_>>()
        .context("the cell's folder has a name that is not UTF-8")
}

/// The number after a label in what `vos examine` prints.
fn volume_id(text: &str, label: &str) -> Option<u32> {
    let (_, after) = text.split_once(label)?;
    after.split_whitespace().next()?.parse().ok()
}

fn down(dir: &Path, keep: bool) -> Result<()> {
    Cell::load(dir)?.stop()?;
    if !keep {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(())
}

/// Makes room for a new cell: a stopped one is removed, anything else is left alone.
fn clear(dir: &Path) -> Result<()> {
    if let Ok(mut old) = Cell::load(dir) {
        if old.daemons.len() > old.dead().len() {
            bail!(
                "a cell runs in {}; stop it: cargo xtask openafs down --dir …",
                dir.display()
            );
        }
        old.stop()?;
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    } else if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!(
            "{} is not empty and holds no cell; choose another folder",
            dir.display()
        );
    }
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

/// A short name for the namespaces of the cell in this folder.
fn tag(dir: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    format!("afs{:08x}", hasher.finish() >> 32)
}

fn absolute(dir: &Path) -> Result<PathBuf> {
    std::path::absolute(dir).with_context(|| format!("cannot make {} absolute", dir.display()))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("encoding JSON")?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Folder names of test cells begin so; the process id of their owner follows, and perhaps a dash
/// and more.
const TEST_CELL: &str = "afar-openafs-";
/// Names of network namespaces that tests make begin so, and go on alike.
const TEST_NETNS: &str = "afari";

/// Whether what is named so belongs to a process that is gone.
fn is_orphan(name: &str, prefix: &str) -> bool {
    let owner = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('-').next())
        .and_then(|pid| pid.parse::<u32>().ok());
    owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Stops the cells of test runs that were killed before they could, and removes their networks.
fn stop_orphans() -> Result<()> {
    let temp = std::env::temp_dir();
    for entry in fs::read_dir(&temp).with_context(|| format!("reading {}", temp.display()))? {
        let dir = entry.context("reading the temporary folder")?.path();
        let name = dir
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if is_orphan(name, TEST_CELL) {
            down(&dir, false)?;
        }
    }
    netns::remove(|name| is_orphan(name, TEST_NETNS))
}

/// A cell for the length of a test run, in a temporary folder.
pub(crate) struct TestCell {
    dir: PathBuf,
    up: bool,
}

impl TestCell {
    /// Starts a cell with the usual fixture.
    pub(crate) fn up() -> Result<Self> {
        stop_orphans()?;
        let dir = std::env::temp_dir().join(format!("{TEST_CELL}{}", std::process::id()));
        let options = Up {
            dir: dir.clone(),
            cell: "test.example".to_owned(),
            netns: None,
            cli_netns: None,
            addr: None,
            fs_args: String::new(),
            bench_mib: None,
            noauth: false,
            kerberos: true,
            bare: false,
            overseer: false,
            partitions: 1,
        };
        up(&options)?;
        Ok(Self { dir, up: true })
    }

    /// The cell's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file with the description that `up` prints.
    pub(crate) fn description(&self) -> PathBuf {
        self.dir.join(DESCRIPTION)
    }

    /// Stops the cell and removes its folder.
    pub(crate) fn down(mut self) -> Result<()> {
        self.up = false;
        down(&self.dir, false)
    }
}

impl Drop for TestCell {
    fn drop(&mut self) {
        if self.up
            && let Err(error) = down(&self.dir, false)
        {
            output::note(&format!("stopping the test cell: {error:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_numbers_are_read() {
        let text = "    RWrite: 536870915     ROnly: 536870916     Backup: 0\n";
        assert_eq!(volume_id(text, "RWrite:"), Some(536_870_915));
        assert_eq!(volume_id(text, "ROnly:"), Some(536_870_916));
        assert_eq!(volume_id(text, "Clone:"), None);
    }

    #[test]
    fn what_belongs_to_a_process_that_runs_is_no_orphan() {
        let own = std::process::id();
        assert!(!is_orphan(&format!("{TEST_CELL}{own}"), TEST_CELL));
        assert!(!is_orphan(&format!("{TEST_CELL}{own}-3"), TEST_CELL));
        assert!(is_orphan(&format!("{TEST_CELL}4194305-3"), TEST_CELL));
        assert!(!is_orphan("afar-openafs-x", TEST_CELL) && !is_orphan("other", TEST_CELL));
    }

    #[test]
    fn namespaces_of_two_folders_differ() {
        assert_ne!(tag(Path::new("/a")), tag(Path::new("/b")));
        assert!(tag(Path::new("/a")).len() < 12);
    }

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("afar-xtask-clear-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("precious"), "x").unwrap();
        assert!(clear(&dir).is_err());
        assert!(dir.join("precious").exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
