//! `fs listquota`, `quota`, `setquota`, `setvol`, `examine` and `diskfree`.

use std::path::PathBuf;

use afar_cell::{Client, Node, PathCause, VolumeStatus};
use afar_types::StoreVolumeStatus;
use clap::Args;
use serde::Serialize;

use super::quota_text::{QUOTA_HEAD, quota_line, quota_row, space_head, space_row, volume_lines};
use super::report::Report;
use super::{Common, each};
use crate::units::parse_kib;

/// Bytes a message for users may have (OpenAFS VMSGSIZE, with its NUL).
const MESSAGE_MAX: usize = 128;

/// Options of `fs listquota` and `fs diskfree`.
#[derive(Debug, Args)]
pub(crate) struct HumanArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    pub(super) path: Vec<PathBuf>,
    /// human-readable listing
    #[arg(long)]
    human: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs setquota`.
#[derive(Debug, Args)]
pub(crate) struct SetQuotaArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    pub(super) path: Option<PathBuf>,
    /// max quota in kbytes
    #[arg(long, required = true, value_name = "max quota in kbytes")]
    pub(super) max: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `fs setvol`.
#[derive(Debug, Args)]
pub(crate) struct SetVolArgs {
    /// dir/file path
    #[arg(long, value_name = "dir/file path")]
    pub(super) path: Vec<PathBuf>,
    /// disk space quota in 1K units
    #[arg(long, value_name = "disk space quota in 1K units")]
    max: Option<String>,
    /// offline message
    #[arg(long, value_name = "offline message")]
    offlinemsg: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A volume in JSON; sizes are in KiB.
#[derive(Serialize)]
struct Shown<'a> {
    path: &'a str,
    fid: String,
    volume: &'a str,
    volume_id: u32,
    offline_message: &'a str,
    /// 0 is no limit.
    quota: u32,
    used: u32,
    partition_total: u32,
    partition_free: u32,
}

async fn show(
    client: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
    text: impl FnOnce(&VolumeStatus) -> String,
) -> Result<(), PathCause> {
    let known = client.volume_status(&node.volume).await?;
    let shown = Shown {
        path,
        fid: node.fid.to_string(),
        volume: &known.name,
        volume_id: known.status.volume.0,
        offline_message: &known.offline_message,
        quota: known.status.max_quota,
        used: known.status.blocks_in_use,
        partition_total: known.status.partition_max_blocks,
        partition_free: known.status.partition_blocks_available,
    };
    report.either(&shown, || text(&known))
}

pub(super) async fn list(
    client: &Client,
    report: &mut Report,
    args: &HumanArgs,
) -> anyhow::Result<()> {
    if !report.is_json() {
        report.text(QUOTA_HEAD)?;
    }
    each(
        client,
        report,
        &args.path,
        async |client, report, path, node| {
            let row = |known: &VolumeStatus| quota_row(&known.status, &known.name, args.human);
            show(client, report, path, node, row).await
        },
    )
    .await
}

pub(super) async fn disk_free(
    client: &Client,
    report: &mut Report,
    args: &HumanArgs,
) -> anyhow::Result<()> {
    if !report.is_json() {
        report.text(&space_head(args.human))?;
    }
    each(
        client,
        report,
        &args.path,
        async |client, report, path, node| {
            let row = |known: &VolumeStatus| space_row(&known.status, &known.name, args.human);
            show(client, report, path, node, row).await
        },
    )
    .await
}

pub(super) async fn quota(
    client: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let line = |known: &VolumeStatus| quota_line(&known.status);
    show(client, report, path, node, line).await
}

pub(super) async fn examine(
    client: &Client,
    report: &mut Report,
    path: &str,
    node: &Node,
) -> Result<(), PathCause> {
    let fid = node.fid;
    let lines = |known: &VolumeStatus| {
        format!(
            "File {path} ({}.{}.{}) contained in volume {}\n{}",
            fid.volume.0,
            fid.vnode.0,
            fid.uniquifier.0,
            fid.volume.0,
            volume_lines(&known.status, &known.name, &known.offline_message)
        )
    };
    show(client, report, path, node, lines).await
}

pub(super) async fn set_quota(
    client: &Client,
    report: &mut Report,
    paths: &[PathBuf],
    max: &str,
) -> anyhow::Result<()> {
    set_status(client, report, paths, Some(max), "").await
}

pub(super) async fn set(
    client: &Client,
    report: &mut Report,
    args: &SetVolArgs,
) -> anyhow::Result<()> {
    let message = args.offlinemsg.as_deref().unwrap_or_default();
    if message.len() >= MESSAGE_MAX {
        let text = format!("fs: message must be shorter than {MESSAGE_MAX} characters\n");
        return report.say(&text);
    }
    set_status(client, report, &args.path, args.max.as_deref(), message).await
}

async fn set_status(
    client: &Client,
    report: &mut Report,
    paths: &[PathBuf],
    max: Option<&str>,
    message: &str,
) -> anyhow::Result<()> {
    let mut status = StoreVolumeStatus::default();
    if let Some(max) = max {
        let quota = parse_kib(max).and_then(|kib| u32::try_from(kib).ok());
        let Some(quota) = quota else {
            return report.say("fs: bad integer specified for quota.\n");
        };
        status.mask = StoreVolumeStatus::SET_MAX_QUOTA;
        status.max_quota = quota;
    }
    each(client, report, paths, async |client, _, _, node| {
        let set = client.set_volume_status(&node.volume, status, message);
        Ok(set.await?)
    })
    .await
}
