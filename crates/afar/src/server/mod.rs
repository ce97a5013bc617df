//! `afar up` and `afar server`: a cell's servers in one process.
//!
//! - `config`, `explain`, `old_options`: what can be configured, and telling it
//! - `sockets`, `identity`: where a server listens, who it is
//! - `security`: keys, who callers are, what they must do at least
//! - `peers`: the database servers that are asked; `whereabouts`: who is told where this server is
//! - `login`: tokens for users without a KDC
//! - `process`: starting and stopping the roles
//! - `partitions`, `missing`: what is served of a server's partitions; what is lost for a time
//! - `overseer`: what `bos status` is told
//! - `up`, `found`: a first cell: its configuration; its root volumes and mount points

mod config;
mod explain;
mod found;
mod identity;
mod login;
mod missing;
mod old_options;
mod overseer;
mod partitions;
mod peers;
mod process;
mod security;
mod sockets;
mod up;
mod whereabouts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

pub(crate) use explain::{ConfigCommand, run as run_config};
pub(crate) use up::{UpArgs, run as run_up};

use crate::output;
use config::{Config, DEFAULT_PATH};
use process::Process;

/// The files of keys of the server with this configuration; by default the one of this machine.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub(crate) fn key_files(config: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    Ok(security::key_files(&configured(config)?))
}

/// The file of keys that is changed for the server with this configuration.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub(crate) fn own_key_file(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let config = configured(config)?;
    let named = config.security.keys.first().cloned();
    Ok(named.unwrap_or_else(|| security::own_keys(&config)))
}

/// The configuration of a server of this machine.
fn configured(path: Option<&Path>) -> anyhow::Result<Config> {
    if let Some(path) = path {
        return Config::read(path);
    }
    let system = PathBuf::from(DEFAULT_PATH);
    let first_cell = up::default_config();
    match first_cell.filter(|path| !system.exists() && path.exists()) {
        Some(path) => Config::read(&path),
        None => Config::read(&system),
    }
}

/// Options of `afar server`.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The configuration; `afar config explain` tells what can be in it
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH, env = "AFAR_CONFIG")]
    config: PathBuf,
    /// Let everybody who reaches this server administer it: for tests, in a network of their own
    #[arg(long)]
    insecure_noauth: bool,
    /// Go back to the last copy of a damaged database of locations (vl) or of users and groups (pt),
    /// and end; the server must not run
    #[arg(long, value_name = "DATABASE", value_parser = ["vl", "pt"])]
    restore: Option<String>,
    /// Command lines of OpenAFS's servers, such as `-p 128 -busyat 600`, or with their programs as in
    /// BosConfig: `vlserver -p 16`; each option is answered with what takes its place
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OLD OPTION"
    )]
    old: Vec<String>,
}

/// Serves until told to stop.
pub(crate) fn run(args: &ServerArgs) -> anyhow::Result<ExitCode> {
    crate::private::files();
    let mut config = Config::read(&args.config)?;
    if let Some(service) = &args.restore {
        return process::restore(&config, service);
    }
    config.insecure_noauth |= args.insecure_noauth;
    start_log(&config.log.0)?;
    for remark in old_options::apply(&args.old, &mut config)? {
        tracing::info!("{remark}");
    }
    config.check()?;
    runtime()?.block_on(async {
        let process = Process::start(config).await?;
        serve(process, || ()).await
    })
}

/// Serves until a signal to stop; `ready` is called first.
///
/// What `ready` returns is kept until then.
async fn serve<T>(process: Process, ready: impl FnOnce() -> T) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch signals")?;
    let beside = ready();
    notify(NotifyState::Ready);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    notify(NotifyState::Stopping);
    drop(beside);
    process.stop().await?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the service manager, if there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime; is a limit on threads reached?")
}

pub(crate) fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("log = {filter:?}: not understood; `afar config explain log`"))?;
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    // The journal has the time already.
    let started = if under_systemd {
        log.without_time().try_init()
    } else {
        log.try_init()
    };
    if let Err(error) = started {
        output::note(&format_args!("logging is set up already: {error}"));
    }
    Ok(())
}
