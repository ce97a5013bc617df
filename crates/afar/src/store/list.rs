//! `afar store list`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use afar_store::{Partition, VolumeState};
use afar_types::VolumeId;
use serde::Serialize;

use super::text::{matches, short_kind};
use super::{PAGE, each};
use crate::fetch::format::{Lines, time};

/// Options of `afar store list`.
#[derive(Debug, clap::Args)]
#[command(
    about = "List volumes",
    long_about = "List volumes as `vos listvol` does: name, number, type (RW read-write, RO read-only, \
    BK backup), size in KiB, and whether clients may use the volume; then the totals.",
    after_help = "Example: users' backup volumes, for a program\n  \
    afar store list /vicepa /vicepb --name 'user.*.backup' --json"
)]
pub(crate) struct ListArgs {
    /// Partitions
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Show all details of each volume; times in UTC
    #[arg(short = 'l', long)]
    long: bool,
    /// List only volumes with a matching name: * matches anything, ? one character
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Print JSON, one object for each volume, with all details
    #[arg(long)]
    json: bool,
}

/// A volume in JSON.
#[derive(Serialize)]
struct Entry<'a> {
    partition: std::borrow::Cow<'a, str>,
    id: u32,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    online: bool,
    in_service: bool,
    read_write: u32,
    read_only: u32,
    backup: u32,
    restored_from: u32,
    size_kib: u64,
    max_quota_kib: u64,
    files: u32,
    owner: i32,
    creation_date: u32,
    copy_date: u32,
    backup_date: u32,
    access_date: u32,
    update_date: u32,
    day_use: u32,
    week_use: [u32; 7],
    compression: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    offline_message: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    motd: std::borrow::Cow<'a, str>,
}

impl<'a> Entry<'a> {
    fn new(partition: &'a Partition, state: &'a VolumeState) -> Self {
        Self {
            partition: partition.path().to_string_lossy(),
            id: state.id.0,
            name: &state.name,
            kind: short_kind(state.kind),
            online: state.online,
            in_service: state.in_service,
            read_write: state.parent.0,
            read_only: state.clone.0,
            backup: state.backup.0,
            restored_from: state.restored_from.0,
            size_kib: state.disk_used,
            max_quota_kib: state.max_quota,
            files: state.file_count,
            owner: state.owner.0,
            creation_date: state.creation_date.0,
            copy_date: state.copy_date.0,
            backup_date: state.backup_date.0,
            access_date: state.access_date.0,
            update_date: state.update_date.0,
            day_use: state.day_use,
            week_use: state.week_use,
            compression: state.compression.to_string(),
            offline_message: String::from_utf8_lossy(&state.offline_message),
            motd: String::from_utf8_lossy(&state.motd),
        }
    }
}

/// What the last line of a partition says.
#[derive(Default)]
struct Totals {
    online: u64,
    offline: u64,
    size_kib: u64,
}

pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let mut lines = Lines::new();
    let mut first = true;
    let failed = each(&args.dirs, |partition| {
        if !args.json && !std::mem::take(&mut first) {
            lines.line(&[])?;
        }
        let listed = list(args, partition, &mut lines);
        // What was listed comes before what is said of an error.
        lines.flush()?;
        listed
    });
    lines.flush()?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list(args: &ListArgs, partition: &Arc<Partition>, lines: &mut Lines) -> anyhow::Result<()> {
    if !args.json {
        let heading = format!(
            "Partition {}: {} volumes",
            partition.path().display(),
            partition.volume_count()?
        );
        lines.line(&[heading.as_bytes()])?;
    }
    let mut totals = Totals::default();
    let mut after = VolumeId(0);
    loop {
        let states = partition.states(after, PAGE)?;
        let Some(last) = states.last() else { break };
        after = last.id;
        for state in &states {
            if args
                .name
                .as_ref()
                .is_some_and(|name| !matches(name, &state.name))
            {
                continue;
            }
            let count = if state.online {
                &mut totals.online
            } else {
                &mut totals.offline
            };
            *count += 1;
            totals.size_kib = totals.size_kib.saturating_add(state.disk_used);
            if args.json {
                lines.json(&Entry::new(partition, state))?;
            } else {
                print(args, state, lines)?;
            }
        }
    }
    if !args.json {
        let Totals {
            online,
            offline,
            size_kib,
        } = totals;
        let text = format!("Total: {online} On-line, {offline} Off-line, {size_kib} K");
        lines.line(&[text.as_bytes()])?;
    }
    Ok(())
}

fn print(args: &ListArgs, state: &VolumeState, lines: &mut Lines) -> anyhow::Result<()> {
    let text = format!(
        "{:<32} {:>10} {} {:>10} K {}",
        state.name,
        state.id.0,
        short_kind(state.kind),
        state.disk_used,
        if state.online { "On-line" } else { "Off-line" }
    );
    lines.line(&[text.as_bytes()])?;
    if !args.long {
        return Ok(());
    }
    let quota = match state.max_quota {
        0 => "none".to_owned(),
        kib => format!("{kib} K"),
    };
    let date = |when: afar_types::UnixTime| match when.0 {
        0 => "never".to_owned(),
        _ => time(when),
    };
    let long = format!(
        "    RWrite {}  ROnly {}  Backup {}\n    MaxQuota {quota}  Files {}  Compression {}\n    \
         Creation    {}\n    Copy        {}\n    Backup      {}\n    Last Access {}\n    \
         Last Update {}\n    {} accesses in the past day",
        state.parent.0,
        state.clone.0,
        state.backup.0,
        state.file_count,
        state.compression,
        date(state.creation_date),
        date(state.copy_date),
        date(state.backup_date),
        date(state.access_date),
        date(state.update_date),
        state.day_use,
    );
    for line in long.lines() {
        lines.line(&[line.as_bytes()])?;
    }
    if !state.online && !state.offline_message.is_empty() {
        lines.line(&[b"    Off-line because: ", &state.offline_message])?;
    }
    Ok(lines.line(&[])?)
}
