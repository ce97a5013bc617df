//! `afar rxperf`: throughput and call rates of Rx, on the wire of OpenAFS's rxperf.
//!
//! Client and server are each other's counterparts, and OpenAFS's. [`wire`] has the protocol,
//! [`client`] and [`server`] drive it over `afar-net` and return data, [`report`] is that data
//! with its text form.

mod args;
mod client;
mod path;
mod report;
mod runtime;
mod server;
mod transfer;
mod wire;

use std::process::ExitCode;

pub(crate) use args::Args;
use args::Role;

use crate::output::Output;

/// What an interrupted program returns, as shells count it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs the client or the server.
///
/// # Errors
/// What failed, on which peer, why, and what to try.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.role {
        Role::Client(args) => {
            let mut output = Output::new(args.json, args.output.as_deref())?;
            let plan = client::Plan::new(&args)?;
            let complete = runtime::start()?.block_on(client::run(plan, &mut output))?;
            Ok(if complete {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(INTERRUPTED)
            })
        }
        Role::Server(args) => {
            let mut output = Output::new(args.json, args.output.as_deref())?;
            runtime::start()?.block_on(server::run(&args, &mut output))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
