//! `afar up`: a whole cell in one process, made at the first start.

use std::fs;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use afar_login::uri::CellUri;
use afar_server::Process;
use afar_server::config::{Config, DataDir, Listen, LogFilter, Partition};
use afar_types::CellName;
use anyhow::{Context, ensure};
use clap::Args;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

use crate::mount::Beside;
use crate::output;

/// The cell of those who name none: a name for home networks (RFC 8375).
const DEFAULT_CELL: &str = "home.arpa";
/// The configuration in the directory of a cell.
pub(super) const CONFIG: &str = "afar.toml";

/// Options of `afar up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The directory of the cell: configuration, databases, files [default: /var/lib/afar for
    /// root, else afar in $XDG_DATA_HOME or ~/.local/share]
    dir: Option<PathBuf>,
    /// The cell's name, at the first start [default: home.arpa]
    #[arg(long)]
    cell: Option<CellName>,
    /// The address to listen on, at the first start; 0.0.0.0 admits other machines [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Let every caller administer this server: for tests, in a network of their own
    #[arg(long)]
    insecure_noauth: bool,
    /// Also mount the cell on this directory, as its administrator
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// What to log to standard error, such as info
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// Makes the cell if it is not there, and serves it until told to stop.
pub(crate) fn run(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    afar_server::private::files();
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => default_dir()?,
    };
    let (mut config, first) = load(&dir, args)?;
    config.insecure_noauth |= args.insecure_noauth;
    super::start_log(args.log.as_deref().unwrap_or(&config.log.0))?;
    let cell = config.cell()?;
    afar_server::first_key(&config).context("cannot create the cell's key")?;
    super::runtime()?.block_on(async {
        // When its terminal goes, it ends as by Ctrl-C.
        let signals = super::Signals::catch(None)?;
        let process = Process::start(config).await?;
        process.found_cell().await?;
        if let Some(first) = first {
            first.keep();
        }
        let is_up = told(&cell, &process, &dir, begun);
        super::serve(process, signals, || {
            output::usage(&is_up);
            args.mount.as_ref().and_then(|place| mount(&cell, place))
        })
        .await
    })
}

/// What is said of a cell that is up: what there is, how to get a token, what to do next.
fn told(cell: &CellName, process: &Process, dir: &Path, begun: Instant) -> String {
    let (listen, dir, time) = (process.listen(), dir.display(), begun.elapsed());
    let line = process.login_line();
    let login = match &line {
        Some(line) => format!("afar login USER {line}"),
        None => format!("afar login USER --cell {cell}"),
    };
    let picture = line.as_ref().and_then(picture);
    let picture = picture.map_or(String::new(), |picture| picture + "\n");
    format!(
        "afar: cell {cell} is up at {listen} after {time:.1?}; Ctrl-C stops it\n\
         data:  {dir}\n\
         login: {login}\n\
         next:  afar pts createuser -name ann --password\n       \
                afar vos create {listen} a user.ann\n       \
                afar fs mkmount --localauth /afs/{cell}/ann user.ann\n{picture}"
    )
}

/// A cell at its first start. Unless it is kept, what was made of it goes again, so that the next try
/// may say something else.
struct First {
    dir: PathBuf,
    /// Whether the directory was there.
    was_there: bool,
    kept: bool,
}

impl First {
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // It was empty before.
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let removed = names
            .map(|entry| entry.path())
            .try_for_each(|path| match path.is_dir() {
                true => fs::remove_dir_all(path),
                false => fs::remove_file(path),
            })
            .and_then(|()| match self.was_there {
                true => Ok(()),
                false => fs::remove_dir(&self.dir),
            });
        if let Err(error) = removed {
            let dir = self.dir.display();
            output::note(&format_args!(
                "{dir} holds an incomplete cell, which cannot be removed: {error}; empty it"
            ));
        }
    }
}

/// Mounts the cell. A cell that cannot be mounted is served all the same.
fn mount(cell: &CellName, place: &Path) -> Option<Beside> {
    match Beside::start(cell, place) {
        Ok(mount) => {
            output::note(&format_args!("{cell} is mounted on {}", place.display()));
            Some(mount)
        }
        Err(error) => {
            output::error(&error);
            None
        }
    }
}

/// The configuration of the cell in `dir`; written there if there is none, which is the first start.
fn load(dir: &Path, args: &UpArgs) -> anyhow::Result<(Config, Option<First>)> {
    let path = dir.join(CONFIG);
    if path.exists() {
        let config = Config::read(&path)?;
        if let Some(cell) = &args.cell {
            ensure!(
                config.cell()? == *cell,
                "{} is of cell {}; omit --cell, or give another directory",
                path.display(),
                config.cell
            );
        }
        if let Some(listen) = args.listen {
            ensure!(
                config.listen.0 == listen,
                "{} says listen = \"{}\"; change it there",
                path.display(),
                config.listen.0
            );
        }
        return Ok((config, None));
    }
    let context = || format!("cannot create a cell in {}", dir.display());
    let was_there = dir.exists();
    fs::create_dir_all(dir).with_context(context)?;
    let dir = dir.canonicalize().with_context(context)?;
    let empty = fs::read_dir(&dir).with_context(context)?.next().is_none();
    ensure!(
        empty,
        "{} has files but no {CONFIG}; give an empty directory, or one of a cell",
        dir.display()
    );
    let first = First {
        dir: dir.clone(),
        was_there,
        kept: false,
    };
    let cell = args.cell.as_ref().map(ToString::to_string);
    let mut config = Config {
        cell: cell.unwrap_or_else(|| DEFAULT_CELL.to_owned()),
        data: DataDir(dir.join("data")),
        listen: Listen(args.listen.unwrap_or_else(|| Ipv4Addr::LOCALHOST.into())),
        log: LogFilter("warn".to_owned()),
        ..Config::default()
    };
    config
        .partition
        .insert("a".to_owned(), Partition::new(dir.join("vicepa")));
    config.check()?;
    fs::write(dir.join(CONFIG), text(&config)?).with_context(context)?;
    Ok((config, Some(first)))
}

/// A configuration as it is written.
pub(super) fn text(config: &Config) -> anyhow::Result<String> {
    let text = toml::to_string(config)?;
    let text = text.replace(
        "log = ",
        "# \"warn,audit=info\" logs changes and refusals with their callers.\nlog = ",
    );
    let text = text.replace(
        "superusers = []",
        "# Users who may administer the cell's servers, such as \"ann\".\nsuperusers = []",
    );
    Ok(format!(
        "# `afar config explain` explains each key.\n{text}"
    ))
}

/// The configuration of the cell of those who name no directory.
pub(super) fn default_config() -> Option<PathBuf> {
    default_dir().ok().map(|dir| dir.join(CONFIG))
}

fn default_dir() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/afar".into());
    }
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = data
        .or_else(home)
        .context("there is no home directory for the cell; name a directory: afar up DIR")?;
    Ok(base.join("afar"))
}

/// The line by which other machines are told of the cell as a picture, for a telephone's camera; on a
/// terminal, unless only this machine gets there.
fn picture(line: &CellUri) -> Option<String> {
    let here = line.host().parse::<IpAddr>();
    let picture = io::stderr().is_terminal() && !here.is_ok_and(|host| host.is_loopback());
    let code = QrCode::new(line.to_string()).ok().filter(|_| picture)?;
    Some(code.render::<Dense1x2>().build())
}
