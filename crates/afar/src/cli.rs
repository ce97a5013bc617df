//! What the command line offers, and who does it.

use std::process::ExitCode;

use afar_link::cli::{self as link_cli, LinkCommand};
use clap::{CommandFactory, Parser, Subcommand};

use crate::about;
use crate::afs_args::{self, Rewritten};
use crate::bos::{self, BosCommand};
use crate::doctor::{self, DoctorArgs};
use crate::fs::{self, FsCommand};
use crate::keys::{self, KeysCommand};
use crate::mount::{self, MountArgs, UmountArgs};
use crate::pts::{self, PtsCommand};
use crate::store::{self, StoreCommand};
use crate::vos::{self, VosCommand};
use crate::{fetch, metrics, output, rxperf, server, status, tokens, top};

/// AFS for long and fat links: client, servers, administration and instruments in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "afar",
    version,
    long_version = about::VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 success, 1 failure (one line on standard error says what failed, why, \
    and what to do), 2 wrong usage, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cell in one process; the first start creates it.
    Up(server::UpArgs),
    /// Serve files, volumes, volume locations, users and groups, as configured.
    Server(server::ServerArgs),
    /// Explain the configuration.
    #[command(subcommand)]
    Config(server::ConfigCommand),
    /// Manage the cell's keys, by which its servers identify callers.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Mount AFS: all known cells, one cell, or one volume.
    Mount(MountArgs),
    /// Unmount what `afar mount` has mounted, after storing everything written.
    Umount(UmountArgs),
    /// Get a token for a cell, from a ticket, a password or an SSH key.
    Login(tokens::LoginArgs),
    /// List tokens.
    Tokens(tokens::TokensArgs),
    /// Forget tokens.
    Logout(tokens::LogoutArgs),
    /// List files in AFS, without a mount.
    Ls(fetch::LsArgs),
    /// Show everything AFS knows about files, without a mount.
    Stat(fetch::StatArgs),
    /// Write files in AFS to standard output, without a mount.
    Cat(fetch::CatArgs),
    /// Copy files from and to AFS, without a mount, as fast as the link allows.
    ///
    /// Under `ionice -c 3` it fetches in the background, with the bandwidth that other traffic leaves.
    Cp(fetch::CpArgs),
    Sync(fetch::SyncArgs),
    /// Create directories in AFS, without a mount.
    Mkdir(fetch::MkdirArgs),
    /// Remove files in AFS, without a mount.
    Rm(fetch::RmArgs),
    /// Remove empty directories in AFS, without a mount.
    Rmdir(fetch::RmdirArgs),
    /// Move files within a volume of AFS, without a mount.
    Mv(fetch::MvArgs),
    /// Create links in AFS, without a mount.
    Ln(fetch::LnArgs),
    Doctor(DoctorArgs),
    Metrics(metrics::MetricsArgs),
    /// Measure Rx between two hosts: throughput, calls per second, path.
    Rxperf(rxperf::Args),
    /// Manage partitions: create, list, check, import and export volumes.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Manage the volumes of a cell, as OpenAFS's vos does.
    #[command(subcommand, disable_help_subcommand = true)]
    Vos(VosCommand),
    /// Manage the users and groups of a cell, as OpenAFS's pts does.
    #[command(subcommand, disable_help_subcommand = true)]
    Pts(PtsCommand),
    /// Show the state of a machine's servers, as OpenAFS's bos does.
    #[command(subcommand, disable_help_subcommand = true)]
    Bos(BosCommand),
    /// Manage access lists, quotas and mount points, as OpenAFS's fs does, with or without a mount.
    #[command(subcommand, disable_help_subcommand = true)]
    Fs(FsCommand),
    Top(top::TopArgs),
    Status(status::StatusArgs),
    /// Emulate a long or lossy link between two network namespaces.
    #[command(subcommand)]
    Link(LinkCommand),
    /// Print the version and the features built in.
    Version(about::VersionArgs),
    /// Print a shell completion script.
    Completions(about::CompletionsArgs),
    /// Show the manual page of a command.
    Man(about::ManArgs),
}

/// All commands.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line, does what it says and reports an error in one line.
pub(crate) fn run() -> ExitCode {
    let root = command();
    let argv = mount::rewrite(&root, std::env::args_os());
    let argv = match afs_args::rewrite(&root, argv) {
        Rewritten::Parse(argv) => argv,
        Rewritten::Print(text, code) => {
            output::help(&text);
            return ExitCode::from(code);
        }
        Rewritten::Fail(text, code) => {
            output::usage(&text);
            return ExitCode::from(code);
        }
    };
    let result = match Cli::parse_from(&argv).command {
        Command::Up(args) => server::run_up(&args),
        Command::Server(args) => server::run(&args),
        Command::Config(command) => server::run_config(command),
        Command::Keys(command) => keys::run(command),
        Command::Mount(args) => mount::run(&args, &argv),
        Command::Umount(args) => mount::umount(&args),
        Command::Login(args) => tokens::login(&args),
        Command::Tokens(args) => tokens::tokens(&args),
        Command::Logout(args) => tokens::logout(&args),
        Command::Ls(args) => fetch::ls(args),
        Command::Stat(args) => fetch::stat(args),
        Command::Cat(args) => fetch::cat(args),
        Command::Cp(args) => fetch::cp(args),
        Command::Sync(args) => fetch::sync(args),
        Command::Mkdir(args) => fetch::mkdir(args),
        Command::Rm(args) => fetch::rm(args),
        Command::Rmdir(args) => fetch::rmdir(args),
        Command::Mv(args) => fetch::mv(args),
        Command::Ln(args) => fetch::ln(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Rxperf(args) => rxperf::run(args),
        Command::Store(command) => store::run(command),
        Command::Vos(command) => vos::run(command),
        Command::Pts(command) => pts::run(command),
        Command::Bos(command) => bos::run(command),
        Command::Fs(command) => fs::run(command),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Link(command) => link(command),
        Command::Version(args) => about::version(&args),
        Command::Completions(args) => about::completions(root, &args),
        Command::Man(args) => about::man(root, &args),
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        ExitCode::FAILURE
    })
}

fn link(command: LinkCommand) -> anyhow::Result<ExitCode> {
    link_cli::run(command)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn flags_do_not_clash() {
        Cli::command().debug_assert();
    }
}
