//! One command's run: runtime, endpoint, client, signals, and giving promises back at the end.

use std::net::IpAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;

use afar_cell::{Class, Client, Config, Patience, ServerKind};
use afar_net::Endpoint;
use afar_server::local_cell::{self, AsAdministrator, LocalCell};
use afar_server::resolve;
use afar_types::CellName;
use anyhow::{Context, bail, ensure};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::Reach;
use super::mounts::Mounts;
use crate::tokens::{Finder, LOOK_EVERY, Printed, SERVER_KEYS, UserTokens, open_keys};

/// What an interrupted program returns, as shells count it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// A server is given up when nothing was heard of it for so long. People wait for these commands.
const DEAD_TIME: Duration = Duration::from_secs(15);
/// How often a server with nothing to say hears of us, so that a NAT between us lets its callbacks through: as often
/// as with OpenAFS. Many NATs forget after 30 s.
const NAT_KEEPALIVE: Duration = Duration::from_secs(20);
/// UDP port of volume location servers.
const VL_PORT: u16 = 7003;

/// Runs a command with a client, and ends the client whatever came of it.
pub(crate) fn run(
    reach: Reach,
    calls: Option<NonZeroUsize>,
    lanes: usize,
    command: impl AsyncFnOnce(&Client) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(async {
        let mounts = Mounts::for_those_seen(reach.seen_as());
        let mut client = open(reach, calls, lanes).await?;
        if let Some(mounts) = mounts {
            client = client.with_nearby(Arc::new(mounts));
        }
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch signals")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch signals")?;
        let result = tokio::select! {
            result = command(&client) => result,
            _ = interrupt.recv() => Ok(ExitCode::from(INTERRUPTED)),
            _ = terminate.recv() => Ok(ExitCode::from(INTERRUPTED)),
        };
        client.close().await;
        result
    })
}

/// The engine has a thread of its own and does most of the work: on small machines one more thread
/// is best.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores < 4 {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    };
    builder
        .enable_all()
        .build()
        .context("cannot start the runtime; has a limit on threads been reached?")
}

/// Tokens that are renewed for as long as they are in use.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn renewed(tokens: UserTokens) -> Arc<UserTokens> {
    let tokens = Arc::new(tokens);
    tokio::spawn(renew(Arc::downgrade(&tokens)));
    tokens
}

/// Has tokens renewed for as long as they are in use.
async fn renew(tokens: Weak<UserTokens>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(tokens) = tokens.upgrade() else {
            return;
        };
        // A KDC may let us wait.
        if let Err(error) = tokio::task::spawn_blocking(move || tokens.renew()).await {
            tracing::debug!("cannot renew tokens: {error}");
        }
    }
}

/// A client that reaches what these options say, and is whom they say.
pub(crate) async fn open(
    reach: Reach,
    calls: Option<NonZeroUsize>,
    lanes: usize,
) -> anyhow::Result<Client> {
    let local = local_cell::all();
    let mut config = Config {
        cellservdb: reach.cellservdb.clone(),
        cells: local.iter().map(|cell| cell.entry.clone()).collect(),
        dns: !reach.no_dns,
        calls: calls.map(NonZeroUsize::get),
        lanes: calls.map_or(lanes, NonZeroUsize::get),
        piece: reach.piece.map(NonZeroU64::get),
        patience: reach.patience.unwrap_or(Patience::USUAL),
        ..Config::default()
    };
    if reach.oob_threshold.is_some() {
        config.oob_threshold = reach.oob_threshold;
    }
    if !reach.sysname.is_empty() {
        config.sysnames = reach.sysname.clone();
    }
    for server in &reach.server {
        config
            .vl_servers
            .extend(resolve::of_option("--server", server, VL_PORT).await?);
    }
    for preference in &reach.serverprefs {
        config.ranks.extend(ranks(preference).await?);
    }
    let mut net = afar_net::Config::default();
    net.rx.dead_time = DEAD_TIME;
    net.rx.nat_keepalive = Some(NAT_KEEPALIVE);
    let keys = keys_of(&reach, &local);
    let endpoint = if reach.localauth && keys.is_none() {
        ensure!(
            reach.port == 0,
            "--port: with --localauth this reaches its cell through sockets, which have no ports"
        );
        let cell = administered(&local, reach.cell.as_ref())?;
        // The sockets lead to this cell's servers, whatever the address.
        config.cells = vec![cell.entry.clone()];
        config.only_cells = true;
        config.credentials = Some(Arc::new(AsAdministrator::new()));
        cell.endpoint(net)?
    } else {
        Endpoint::bind(([0, 0, 0, 0], reach.port).into(), net).with_context(|| {
            match reach.port {
                0 => "cannot open a UDP socket".to_owned(),
                port => format!("cannot use UDP port {port}; does another client have it?"),
            }
        })?
    };
    if let Some(keys) = keys {
        let keys = open_keys(keys)?;
        config.credentials = Some(Arc::new(Printed::new(
            reach.cell.clone(),
            keys,
            reach.level,
        )));
    } else if !reach.noauth && !reach.localauth {
        let tokens = UserTokens::new(Finder::default(), reach.level, reach.auth);
        config.credentials = Some(renewed(tokens));
    }
    // What `ionice` says of the process is for what it fetches, too.
    Ok(Client::new(endpoint, config)?.in_class(Class::of(0)))
}

/// The key file that these options mean `--localauth` to use.
pub(super) fn keys_of<'a>(reach: &'a Reach, local: &[LocalCell]) -> Option<&'a Path> {
    keys(
        local,
        reach.localauth,
        reach.keys.as_deref(),
        reach.cell.as_ref(),
    )
}

/// The key file that `--localauth` is to use: the one named; or the usual one, where the cell does
/// not run on this machine, so that there are no sockets.
fn keys<'a>(
    local: &[LocalCell],
    localauth: bool,
    named: Option<&'a Path>,
    cell: Option<&CellName>,
) -> Option<&'a Path> {
    if named.is_some() {
        return named;
    }
    let usual = Path::new(SERVER_KEYS);
    let runs_here = |local: &LocalCell| cell.is_none_or(|cell| *cell == local.entry.name);
    (localauth && !local.iter().any(runs_here) && usual.exists()).then_some(usual)
}

/// The cell of this machine that `--localauth` is for.
fn administered<'a>(
    local: &'a [LocalCell],
    wanted: Option<&CellName>,
) -> anyhow::Result<&'a LocalCell> {
    let names = || {
        let names = local.iter().map(|cell| cell.entry.name.to_string());
        names.collect::<Vec<_>>().join(", ")
    };
    let cell = match (wanted, local) {
        (_, []) => bail!(
            "--localauth: no cell runs on this machine; run this on the machine of its servers, \
             set {} to the directory of its sockets, or name its servers' key file with --keys",
            local_cell::BASE_VARIABLE
        ),
        (Some(name), _) => {
            let cell = local.iter().find(|cell| cell.entry.name == *name);
            cell.with_context(|| {
                let names = names();
                format!("--localauth: cell {name} does not run on this machine, but {names} does")
            })?
        }
        (None, [cell]) => cell,
        (None, _) => bail!(
            "--localauth: several cells run on this machine ({}); give a path in one of them",
            names()
        ),
    };
    ensure!(
        cell.is_served(VL_PORT),
        "--localauth: you may not administer the servers of {}, or they are not running; be root \
         or their user ({})",
        cell.entry.name,
        cell.run.display()
    );
    Ok(cell)
}

/// The ranks that `--serverprefs` gives a host, whatever it is asked for.
async fn ranks(preference: &str) -> anyhow::Result<Vec<(ServerKind, IpAddr, u16)>> {
    let wrong = || format!("--serverprefs {preference}: give HOST=RANK, a rank from 0 to 65535");
    let (host, rank) = preference.split_once('=').with_context(wrong)?;
    let rank = rank.parse().with_context(wrong)?;
    let mut ranks = Vec::new();
    for server in resolve::of_option("--serverprefs", host, VL_PORT).await? {
        for kind in [ServerKind::File, ServerKind::Location] {
            ranks.push((kind, server.ip(), rank));
        }
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_preference_is_a_host_and_a_rank() {
        let host = IpAddr::from([192, 0, 2, 1]);
        let given = ranks("192.0.2.1=7").await.unwrap();
        let expected = [ServerKind::File, ServerKind::Location].map(|kind| (kind, host, 7));
        assert_eq!(given, expected);
        for wrong in ["192.0.2.1", "192.0.2.1=", "192.0.2.1=65536", "=1"] {
            let error = ranks(wrong).await.unwrap_err().to_string();
            assert!(error.starts_with("--serverprefs "), "{error}");
        }
    }
}
