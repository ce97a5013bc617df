//! `afar doctor`: what binds between this machine and a server.
//!
//! Crate `afar-doctor` measures and decides; here are flags, and what is printed. `place` finds the server.

mod place;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use afar_cell::Client;
use afar_doctor::{Plan, diagnose, measure};
use afar_types::CellName;
use anyhow::Context;

use crate::fetch::{LOOKING, Reach, session};
use crate::mount;
use crate::output::{self, Output};
use place::{Found, Target};
use report::Report;

/// What the command returns when it found something, and when it could measure nothing.
const FOUND: u8 = 1;
const NOT_MEASURED: u8 = 2;

/// Find out why a server is slow or does not answer.
///
/// Measures, without rights on the server, the round trip, loss, reordering, packet sizes, the server's threads and
/// clock, small calls, and, with a path, how fast data comes by one call and by several; on this machine the receive
/// buffers, the packet cipher and the disk of the cache; and whether each database server of the cell answers. Says in
/// one sentence each what binds, the worst first, what a fix would give, and how to do it. It takes about 15 s and
/// changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  afar doctor fs1.example.org
  afar doctor --cell example.org fs1.example.org
  afar doctor /afs/example.org/software/big.iso
  afar doctor --nat --json 192.0.2.1:7000

The file of a path should have some MiB. A directory stands for the largest of its files.

Exit status: 0 nothing binds, 1 something does, 2 nothing could be measured or wrong usage, 130 interrupted.")]
pub(crate) struct DoctorArgs {
    /// Server, with its port if that is not 7000, or a file or directory in AFS
    #[arg(value_name = "HOST[:PORT]|PATH")]
    target: String,
    /// Ask the database servers of this cell too [default: with a path, those of its cell]
    #[arg(long, value_name = "CELL")]
    cell: Option<CellName>,
    /// Measure also how long a NAT or firewall on the path remembers an idle client, which takes two minutes
    #[arg(long)]
    nat: bool,
    /// Measure the disk of this directory [default: where `afar mount` puts its caches]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Print one JSON object with the diagnoses and all measurements
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Measures, and says what binds.
pub(crate) fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let target = Target::parse(&args.target);
    let reach = args.reach.clone().impatient().about(target.path());
    let done = session::run(reach, None, LOOKING, async |client| {
        examine(&args, &target, client).await
    });
    done.or_else(|error| {
        output::error(&error);
        Ok(ExitCode::from(NOT_MEASURED))
    })
}

async fn examine(args: &DoctorArgs, target: &Target, client: &Client) -> anyhow::Result<ExitCode> {
    let Found {
        server,
        file,
        databases,
        note,
    } = place::find(client, target, args.cell.as_ref(), args.reach.level()).await?;
    client.callbacks().expect(server);
    let plan = Plan {
        server,
        file,
        databases,
        nat: args.nat,
        // Without a home there is no cache either.
        cache: args.cache.clone().or_else(|| mount::caches().ok()),
        endpoint: client.endpoint().clone(),
    };
    let mut measured = measure(&plan)
        .await
        .with_context(|| format!("doctor: cannot open a socket to {server}"))?;
    measured.notes.extend(note);
    let diagnoses = diagnose(&measured);
    let code = match (diagnoses.is_empty(), measured.is_answered()) {
        (false, _) => ExitCode::from(FOUND),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(NOT_MEASURED),
    };
    let report = Report::new(&args.target, measured, diagnoses);
    Output::new(args.json, None)?.report(&report)?;
    Ok(code)
}
