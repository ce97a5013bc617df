//! `afar vos`: volumes of a cell, with OpenAFS's verbs, words and exit codes.

use std::process::ExitCode;

use clap::Subcommand;

use crate::afs_args::{self, Common};

/// `afar vos …`.
#[derive(Debug, Subcommand)]
pub(crate) enum VosCommand {
    /// list partitions
    Listpart(ListpartArgs),
}

/// Options of `vos listpart`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListpartArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    server: String,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(command: VosCommand) -> anyhow::Result<ExitCode> {
    match command {
        VosCommand::Listpart(args) => afs_args::run(&args.common, async |session| {
            let address = args.server.parse()?;
            let server = session.servers.volume_server(address);
            server.x_list_partitions().await?;
            Ok(ExitCode::SUCCESS)
        }),
    }
}
