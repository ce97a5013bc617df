//! `afar store export`.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use afar_store::{DumpOptions, DumpSummary, Volume};
use afar_types::UnixTime;
use anyhow::{Context, bail};
use serde::Serialize;

use super::progress::Progress;
use super::text::parse_time;
use crate::output::Output;
use crate::units::grouped;

/// Options of `afar store export`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Write a volume's dump",
    long_about = "Write a volume's dump, as `vos dump` does. `afar store import`, `vos restore` and \
    backup programs can read it.",
    after_help = "Examples:\n  afar store export /vicepa user.alice user.alice.dump\n  \
    afar store export /vicepa user.alice - --since '2026-11-16 04:00' | zstd > monday.dump.zst"
)]
pub(crate) struct ExportArgs {
    /// The partition
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The volume's name or number
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Where to write the dump; - writes to standard output. A file appears only when it is complete
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Dump only what changed at this time (UTC) or later, as 2026-11-21, '2026-11-21 13:25' or
    /// @SECONDS since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<UnixTime>,
    /// Print a summary as one JSON object; not with FILE -
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    volume: u32,
    name: String,
    vnodes: u64,
    /// Vnodes given with their content.
    given: u64,
    /// Bytes of the dump.
    octets: u64,
    /// Bytes of file data and directories read for it.
    data: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "volume {} ({}): {} of {} vnodes in a dump of {} bytes",
            self.volume,
            self.name,
            grouped(self.given),
            grouped(self.vnodes),
            grouped(self.octets)
        )
    }
}

pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        bail!("cannot write a dump to a terminal: name a file, or use a pipe");
    }
    if to_stdout && args.json {
        bail!("the dump goes to standard output, so --json needs another FILE than -");
    }
    let partition = super::open(&args.dir)?;
    let volume = super::find(&partition, &args.volume)?;
    if to_stdout {
        dump(&volume, io::stdout().lock(), args.since)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = args.file.display();
    // Beside the target, so that it can take its place in one step.
    let mut partial = args.file.clone().into_os_string();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial);
    let write = || -> anyhow::Result<DumpSummary> {
        let file = File::create(&partial).with_context(|| format!("making {name}"))?;
        let summary = dump(&volume, &file, args.since)?;
        file.sync_all().with_context(|| format!("writing {name}"))?;
        fs::rename(&partial, &args.file).with_context(|| format!("making {name}"))?;
        Ok(summary)
    };
    let DumpSummary {
        vnodes,
        given,
        bytes,
        data,
    } = write().inspect_err(|_| {
        // It may not even be there.
        fs::remove_file(&partial).ok();
    })?;
    Output::new(args.json, None)?.report(&Report {
        volume: volume.id().0,
        name: volume.state()?.name,
        vnodes,
        given,
        octets: bytes,
        data,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn dump(volume: &Volume, out: impl Write, since: Option<UnixTime>) -> anyhow::Result<DumpSummary> {
    let progress = Progress::of_unknown();
    progress.tell("export");
    let options = DumpOptions {
        from: since,
        ..DumpOptions::default()
    };
    let dumped = volume.dump_with_progress(out, &options, |at| progress.set(at.bytes));
    Ok(dumped?)
}
