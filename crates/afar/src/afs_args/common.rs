//! What all commands of the suites take, and what they start with: the cell and its servers.

use std::cell::Cell;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use afar_admin::{LocalServers, Security, Servers, VL_PORT};
use afar_cell::{Client, Config};
use afar_net::Endpoint;
use afar_security::{KeyRing, Level, rxkad};
use afar_server::local_cell::{self, LocalCell, LocalServer};
use afar_server::resolve;
use afar_types::CellName;
use anyhow::{Context, ensure};
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::tokens::{Finder, Printed, SERVER_KEYS, open_keys, own_cell};
use crate::{advice, output};

/// The heading of options that the suites do not have elsewhere. No value goes to them by its
/// place, and the suites' own form of help does not show them.
pub(crate) const OWN: &str = "Options of afar's own";

/// Where `ThisCell` is looked for.
const CONFIG_DIRS: [&str; 3] = ["/etc/openafs", "/usr/vice/etc", "/etc/afar"];
/// The same for one who acts as the cell.
const SERVER_DIRS: [&str; 2] = ["/etc/openafs/server", "/usr/afs/etc"];
/// A server is given up when nothing was heard of it for so long.
const DEAD_TIME: Duration = Duration::from_secs(50);
/// How long calls may still run when the command is done.
const PARTING: Duration = Duration::from_secs(1);
/// What an interrupted program returns, as shells count it: 128 + SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// Options of all commands of the suites.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// cell name
    #[arg(long, short = 'c', value_name = "cell name")]
    pub(crate) cell: Option<CellName>,
    /// don't authenticate
    #[arg(long)]
    pub(crate) noauth: bool,
    /// use server tickets
    #[arg(long)]
    pub(crate) localauth: bool,
    /// verbose
    #[arg(long)]
    pub(crate) verbose: bool,
    /// encrypt commands
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// don't resolve addresses
    #[arg(long)]
    pub(crate) noresolve: bool,
    /// config location
    #[arg(long, value_name = "config location")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) own: OwnArgs,
}

/// Options that OpenAFS's commands do not have.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = OWN)]
pub(crate) struct OwnArgs {
    /// Print the result as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask this database server instead of those in CellServDB and DNS; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) vl_server: Vec<String>,
    /// Read this CellServDB
    #[arg(long, value_name = "FILE", env = "AFAR_CELLSERVDB")]
    pub(crate) cellservdb: Option<PathBuf>,
}

/// A cell's servers, ready to be asked.
pub(crate) struct Session {
    /// Its servers.
    pub(crate) servers: Servers,
    /// Its server on this machine, if that is administered.
    pub(crate) here: Option<LocalServer>,
    /// Whether a signal asked to stop.
    pub(crate) interrupt: watch::Receiver<bool>,
    orderly: Cell<bool>,
}

impl Session {
    /// From now on the command itself looks at [`interrupt`](Self::interrupt) and cleans up; only
    /// a second signal ends it at once.
    pub(crate) fn stop_in_order(&self) {
        self.orderly.set(true);
    }
}

/// Runs a command with a cell's servers. A signal ends it, unless it
/// [stops in order](Session::stop_in_order).
///
/// # Errors
/// When the cell is not known, and what the command fails with.
pub(crate) fn run(
    common: &Common,
    command: impl AsyncFnOnce(&Session) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime; has a limit on threads been reached?")?;
    runtime.block_on(async {
        let (stop, interrupt) = watch::channel(false);
        let (servers, here) = open(common).await?;
        let session = Session {
            servers,
            here,
            interrupt,
            orderly: Cell::new(false),
        };
        let mut interrupts = signal(SignalKind::interrupt()).context("cannot catch signals")?;
        let mut terminates = signal(SignalKind::terminate()).context("cannot catch signals")?;
        let mut work = std::pin::pin!(command(&session));
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = interrupts.recv() => {}
                _ = terminates.recv() => {}
            }
            if !session.orderly.get() || stop.send_replace(true) {
                break Ok(ExitCode::from(INTERRUPTED));
            }
        };
        // The last acknowledgement leaves too: without it the server keeps the call for a while.
        session.servers.shutdown().await;
        result
    })
}

/// The cell's servers, and what its server on this machine says of itself.
///
/// # Errors
/// When the cell is not known, or there is no token or key that is asked for.
pub(crate) async fn open(common: &Common) -> anyhow::Result<(Servers, Option<LocalServer>)> {
    ensure!(
        !(common.noauth && common.localauth),
        "-noauth and -localauth contradict each other; give one of them"
    );
    let mut net = afar_net::Config::default();
    net.rx.dead_time = DEAD_TIME;
    net.shutdown_limit = PARTING;
    let named = own_keys(common);
    if named.is_none()
        && let Some(local) = local(common)
    {
        let sockets = local.endpoint(net.clone())?;
        let security = beside(common, &local).await?;
        let servers = local.entry.servers.clone();
        let here = Some(local.server.clone());
        let sockets = LocalServers::new(sockets, move |address| local.serves(address));
        let endpoint = bind(net)?;
        let servers = Servers::beside(endpoint, &servers, security, Some(sockets));
        return Ok((servers, here));
    }
    let endpoint = bind(net)?;
    let addresses = database_servers(common, &endpoint).await?;
    let security = if common.noauth {
        Security::none()
    } else if common.localauth {
        of_keys(common, named)?
    } else {
        of_user(common).await?
    };
    Ok((Servers::new(endpoint, &addresses, security), None))
}

fn bind(net: afar_net::Config) -> anyhow::Result<Endpoint> {
    let any = ([0, 0, 0, 0], 0).into();
    Endpoint::bind(any, net).context("cannot open a UDP socket")
}

/// The identity that a command shows to the cell's servers on other machines: the cell's own, if it may read the
/// keys of this machine's server, and the user's otherwise.
async fn beside(common: &Common, local: &LocalCell) -> anyhow::Result<Security> {
    for path in &local.server.keys {
        if let Ok(keys) = open_keys(path) {
            return printed(common, keys);
        }
    }
    of_user(common).await
}

/// How much of a call is protected. What concerns users is always encrypted, as by OpenAFS's `pts`;
/// the rest when that is asked for.
fn level(common: &Common) -> Level {
    match common.encrypt {
        true => Level::Crypt,
        false => Level::Clear,
    }
}

/// The key file of the configuration that is named with -localauth.
fn own_keys(common: &Common) -> Option<PathBuf> {
    let dir = common.config.as_ref().filter(|_| common.localauth)?;
    Some(dir.join("KeyFileExt")).filter(|path| path.exists())
}

/// The cell itself, by tickets printed with its servers' keys.
fn of_keys(common: &Common, named: Option<PathBuf>) -> anyhow::Result<Security> {
    let path = named.unwrap_or_else(|| PathBuf::from(SERVER_KEYS));
    ensure!(
        path.exists(),
        "-localauth: you may not administer any server of this machine, and there is no {}; run \
         this on a server's machine, as its user, and name the cell with -cell if there are \
         several, or the directory of its KeyFileExt with -config",
        path.display()
    );
    printed(common, open_keys(&path)?)
}

fn printed(common: &Common, keys: KeyRing) -> anyhow::Result<Security> {
    let printed = Printed::new(None, keys, Level::Crypt);
    Ok(Security::new(
        printed.class(Level::Crypt)?,
        printed.class(level(common))?,
    ))
}

/// The user, by the token for the cell; nobody in particular if there is none.
async fn of_user(common: &Common) -> anyhow::Result<Security> {
    let Some(cell) = common.cell.clone().or_else(|| this_cell(common)) else {
        return Ok(Security::none());
    };
    let asked = tokio::task::spawn_blocking(move || Finder::default().find(&cell, None));
    let found = asked.await.context("looking for a token failed")?;
    let token = match found {
        Ok(Some(found)) => Arc::new(found.held.token),
        Ok(None) => {
            if common.encrypt {
                output::note(&"-encrypt needs a token, and there is none: nothing is encrypted");
            }
            return Ok(Security::none());
        }
        Err(problem) => {
            output::note(&format!(
                "could not get afs tokens, running unauthenticated: {}",
                advice::told(&problem)
            ));
            return Ok(Security::none());
        }
    };
    let class = |level| Arc::new(rxkad::Client::new(Arc::clone(&token), level));
    Ok(Security::new(class(Level::Crypt), class(level(common))))
}

/// The cell whose servers on this machine are to be administered through their sockets: the one
/// that is named, or the only one, if we may.
fn local(common: &Common) -> Option<LocalCell> {
    let elsewhere = !common.own.vl_server.is_empty();
    if common.noauth || (elsewhere && !common.localauth) {
        return None;
    }
    let cell = common.cell.clone().or_else(|| this_cell(common));
    let found = match local_cell::find(cell.as_ref()) {
        // What /etc says is this machine's cell need not be the one that was started by hand.
        None if common.cell.is_none() => local_cell::find(None),
        found => found,
    };
    found.filter(|local| local.is_served(VL_PORT))
}

async fn database_servers(common: &Common, endpoint: &Endpoint) -> anyhow::Result<Vec<SocketAddr>> {
    if !common.own.vl_server.is_empty() {
        let mut addresses = Vec::new();
        for server in &common.own.vl_server {
            addresses.extend(resolve::of_option("--vl-server", server, VL_PORT).await?);
        }
        return Ok(addresses);
    }
    let cell = common.cell.clone().or_else(|| this_cell(common));
    let cell = cell.context(
        "no cell is named, and no ThisCell file names one; give -cell, or a server with \
         --vl-server",
    )?;
    let in_config = common.config.as_deref().map(|dir| dir.join("CellServDB"));
    if let Some(local) = local_cell::find(Some(&cell)) {
        return Ok(local.entry.servers);
    }
    let config = Config {
        cellservdb: common.own.cellservdb.clone().or(in_config),
        ..Config::default()
    };
    let client = Client::new(endpoint.clone(), config)?;
    Ok(client.cell(&cell).await?.servers().collect())
}

/// The cell of this machine.
fn this_cell(common: &Common) -> Option<CellName> {
    if let Some(cell) = env::var("AFSCELL").ok().and_then(|name| name.parse().ok()) {
        return Some(cell);
    }
    let read = |dir: &Path| {
        let text = fs::read_to_string(dir.join("ThisCell")).ok()?;
        text.trim().parse().ok()
    };
    if let Some(dir) = &common.config {
        return read(dir);
    }
    let servers = SERVER_DIRS.iter().filter(|_| common.localauth);
    let mut dirs = servers.chain(&CONFIG_DIRS).map(Path::new);
    let own = || own_cell().filter(|_| !common.localauth);
    dirs.find_map(read).or_else(own)
}
