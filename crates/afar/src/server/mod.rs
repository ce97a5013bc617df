//! `afar up` and `afar server`: a cell's servers in one process.
//!
//! - `explain`: telling what can be configured
//! - `up`: a first cell
//! - `init`: a server in earnest: how it begins

mod explain;
mod init;
mod up;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use afar_server::config::{Config, DEFAULT_PATH};
use afar_server::{Process, Reload, Restored, old_options, private, start_log};
use anyhow::Context;
use clap::{Args, Subcommand};
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use explain::{ConfigCommand, run as run_config};
pub(crate) use up::{UpArgs, run as run_up};

use crate::output;
use crate::service::{self, notify};

/// The files of keys of the server with this configuration; by default the one of this machine that does
/// not run.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub(crate) fn key_files(config: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    Ok(afar_server::key_files(&configured(config)?))
}

/// The file of keys that is changed for the server with this configuration.
///
/// # Errors
/// There is no configuration, or it cannot be read.
pub(crate) fn own_key_file(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let config = configured(config)?;
    let named = config.security.keys.first().cloned();
    Ok(named.unwrap_or_else(|| afar_server::own_keys(&config)))
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

/// `afar server …`.
#[derive(Debug, Subcommand)]
enum ServerCommand {
    Init(init::InitArgs),
}

/// Options of `afar server`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    command: Option<ServerCommand>,
    /// The configuration; `afar config explain` explains its keys
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH, env = "AFAR_CONFIG")]
    config: PathBuf,
    /// Let every caller administer this server: for tests, in a network of their own
    #[arg(long)]
    insecure_noauth: bool,
    /// Restore a damaged database of locations (vl) or of users and groups (pt) from its last copy,
    /// then exit; the server must not be running
    #[arg(long, value_name = "DATABASE", value_parser = ["vl", "pt"])]
    restore: Option<String>,
    /// Command lines of OpenAFS's servers, such as `-p 128 -busyat 600`, or with program names as in
    /// BosConfig: `vlserver -p 16`; the log names the replacement of each option
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OLD OPTION"
    )]
    old: Vec<String>,
}

/// Serves until told to stop.
pub(crate) fn run(args: &ServerArgs) -> anyhow::Result<ExitCode> {
    if let Some(ServerCommand::Init(args)) = &args.command {
        return init::run(args);
    }
    private::files();
    let mut config = Config::read(&args.config)?;
    if let Some(service) = &args.restore {
        return restore(&config, service);
    }
    let reload = Reload::of(&config);
    config.insecure_noauth |= args.insecure_noauth;
    start_log(&config.log.0)?;
    for remark in old_options::apply(&args.old, &mut config)? {
        tracing::info!("{remark}");
    }
    config.check()?;
    runtime()?.block_on(async {
        let signals = Signals::catch(reload)?;
        let process = Process::start(config).await?;
        serve(process, signals, || ()).await
    })
}

/// Goes back to the copy of a service's database, and tells of it.
fn restore(config: &Config, service: &str) -> anyhow::Result<ExitCode> {
    let Restored { dir, age } = afar_server::restore(config, service)?;
    output::note(&format_args!(
        "{} is as it was {} s ago; the damaged files are beside it, with names that end in .damaged",
        dir.display(),
        age.as_secs()
    ));
    Ok(ExitCode::SUCCESS)
}

/// What this process is told by signals. They are caught from before the first client on, so that none ends
/// the server without writing down who was promised what.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if a hangup is nothing to this process.
    hangups: Option<Signal>,
    /// What a hangup has read again; none if it ends the server.
    reload: Option<Reload>,
}

impl Signals {
    fn catch(reload: Option<Reload>) -> anyhow::Result<Self> {
        let context = "cannot catch signals";
        let hangups = match reload {
            Some(_) => signal(SignalKind::hangup()).map(Some),
            None => service::hangups(),
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context(context)?,
            terminate: signal(SignalKind::terminate()).context(context)?,
            hangups: hangups.context(context)?,
            reload,
        })
    }

    /// Returns when the server is to stop.
    async fn stop(&mut self, process: &Process) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                () = service::hangup(&mut self.hangups) => match &mut self.reload {
                    Some(reload) => reload.run(process),
                    None => return,
                }
            }
        }
    }
}

/// Serves until a signal to stop, or `bos restart`; `ready` is called first.
///
/// What `ready` returns is kept until then.
async fn serve<T>(
    process: Process,
    mut signals: Signals,
    ready: impl FnOnce() -> T,
) -> anyhow::Result<ExitCode> {
    let beside = ready();
    notify(NotifyState::Ready);
    let watchdog = tokio::spawn(service::keep());
    let again = tokio::select! {
        () = signals.stop(&process) => false,
        () = process.restart() => true,
    };
    watchdog.abort();
    notify(NotifyState::Stopping);
    drop(beside);
    process.stop().await?;
    if again {
        return service::start_again();
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime; has a limit on threads been reached?")
}
