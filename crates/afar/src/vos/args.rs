//! The verbs and their options, in the order of their syntax: values without an option go by it.
//! Helps are those of OpenAFS's `vos`, as its own form of help shows them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::afs_args::Common;

/// `afar vos …`.
#[derive(Debug, Subcommand)]
pub(crate) enum VosCommand {
    /// add a replication site
    Addsite(AddsiteArgs),
    /// make backup of a volume
    Backup(BackupArgs),
    /// en masse backups
    Backupsys(BackupsysArgs),
    /// change the IP address of a file server
    Changeaddr(ChangeaddrArgs),
    /// change an RW volume's location in the VLDB
    Changeloc(ChangelocArgs),
    /// make clone of a volume
    Clone(CloneArgs),
    /// convert a RO volume into a RW volume (after loss of old RW volume)
    #[command(name = "convertROtoRW")]
    ConvertRoToRw(ConvertRoToRwArgs),
    /// copy a volume
    Copy(CopyArgs),
    /// create a new volume
    Create(CreateArgs),
    /// delete VLDB entry for a volume
    Delentry(DelentryArgs),
    /// dump a volume
    Dump(DumpArgs),
    /// end a volserver transaction
    Endtrans(EndtransArgs),
    /// everything about the volume
    #[command(aliases = ["e", "volinfo"])]
    Examine(ExamineArgs),
    /// list the IP address of all file servers registered in the VLDB
    Listaddrs(ListaddrsArgs),
    /// list partitions
    Listpart(ListpartArgs),
    /// list volumes in the VLDB
    Listvldb(ListvldbArgs),
    /// list volumes on server (bypass VLDB)
    Listvol(ListvolArgs),
    /// lock VLDB entry for a volume
    Lock(LockArgs),
    /// move a volume
    Move(MoveArgs),
    /// force the volume status to offline
    Offline(OfflineArgs),
    /// force the volume status to online
    Online(OnlineArgs),
    /// list partition information
    Partinfo(PartinfoArgs),
    /// release a volume
    Release(ReleaseArgs),
    /// remove the list of IP addresses for a given UUID in the VLDB
    Remaddrs(RemaddrsArgs),
    /// delete a volume
    Remove(RemoveArgs),
    /// remove a replication site
    Remsite(RemsiteArgs),
    /// rename a volume
    Rename(RenameArgs),
    /// restore a volume
    Restore(RestoreArgs),
    /// set the list of IP addresses for a given UUID in the VLDB
    Setaddrs(SetaddrsArgs),
    /// change volume info fields
    Setfields(SetfieldsArgs),
    /// make or update a shadow volume
    Shadow(ShadowArgs),
    /// obtain various sizes of the volume.
    #[command(verbatim_doc_comment)]
    Size(SizeArgs),
    /// report on volser status
    Status(StatusArgs),
    /// synchronize server with VLDB
    Syncserv(SyncservArgs),
    /// synchronize VLDB with server
    Syncvldb(SyncvldbArgs),
    /// release lock on VLDB entry for a volume
    Unlock(UnlockArgs),
    /// unlock all the locked entries in the VLDB
    Unlockvldb(UnlockvldbArgs),
    /// delete the volume, don't bother with VLDB
    Zap(ZapArgs),
}

impl VosCommand {
    /// What all verbs take.
    pub(super) fn common(&self) -> &Common {
        match self {
            Self::Addsite(args) => &args.common,
            Self::Backup(args) => &args.common,
            Self::Backupsys(args) => &args.common,
            Self::Changeaddr(args) => &args.common,
            Self::Changeloc(args) => &args.common,
            Self::Clone(args) => &args.common,
            Self::ConvertRoToRw(args) => &args.common,
            Self::Copy(args) => &args.common,
            Self::Create(args) => &args.common,
            Self::Delentry(args) => &args.common,
            Self::Dump(args) => &args.common,
            Self::Endtrans(args) => &args.common,
            Self::Examine(args) => &args.common,
            Self::Listaddrs(args) => &args.common,
            Self::Listpart(args) => &args.common,
            Self::Listvldb(args) => &args.common,
            Self::Listvol(args) => &args.common,
            Self::Lock(args) => &args.common,
            Self::Move(args) => &args.common,
            Self::Offline(args) => &args.common,
            Self::Online(args) => &args.common,
            Self::Partinfo(args) => &args.common,
            Self::Release(args) => &args.common,
            Self::Remaddrs(args) => &args.common,
            Self::Remove(args) => &args.common,
            Self::Remsite(args) => &args.common,
            Self::Rename(args) => &args.common,
            Self::Restore(args) => &args.common,
            Self::Setaddrs(args) => &args.common,
            Self::Setfields(args) => &args.common,
            Self::Shadow(args) => &args.common,
            Self::Size(args) => &args.common,
            Self::Status(args) => &args.common,
            Self::Syncserv(args) => &args.common,
            Self::Syncvldb(args) => &args.common,
            Self::Unlock(args) => &args.common,
            Self::Unlockvldb(args) => &args.common,
            Self::Zap(args) => &args.common,
        }
    }
}

/// Options of `vos addsite`.
#[derive(Debug, Args)]
pub(crate) struct AddsiteArgs {
    /// machine name for new site
    #[arg(long, value_name = "machine name for new site", required = true)]
    pub(super) server: String,
    /// partition name for new site
    #[arg(long, value_name = "partition name for new site", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// volume name or ID for RO
    #[arg(long, value_name = "volume name or ID for RO")]
    pub(super) roid: Option<String>,
    /// publish as an up-to-date site in VLDB
    #[arg(long)]
    pub(super) valid: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos backupsys`.
#[derive(Debug, Args)]
pub(crate) struct BackupsysArgs {
    /// common prefix on volume(s)
    #[arg(long, value_name = "common prefix on volume(s)")]
    pub(super) prefix: Vec<String>,
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// exclude common prefix volumes
    #[arg(long)]
    pub(super) exclude: bool,
    /// negative prefix on volume(s)
    #[arg(long, value_name = "negative prefix on volume(s)")]
    pub(super) xprefix: Vec<String>,
    /// list what would be done, don't do it
    #[arg(long)]
    pub(super) dryrun: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos changeaddr`.
#[derive(Debug, Args)]
pub(crate) struct ChangeaddrArgs {
    /// original IP address
    #[arg(long, value_name = "original IP address", required = true)]
    pub(super) oldaddr: String,
    /// new IP address
    #[arg(long, value_name = "new IP address")]
    pub(super) newaddr: Option<String>,
    /// remove the IP address from the VLDB
    #[arg(long)]
    pub(super) remove: bool,
    /// allow multi-homed server entry change (not recommended)
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos changeloc`.
#[derive(Debug, Args)]
pub(crate) struct ChangelocArgs {
    /// machine name for new location
    #[arg(long, value_name = "machine name for new location", required = true)]
    pub(super) server: String,
    /// partition name for new location
    #[arg(long, value_name = "partition name for new location", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos clone`.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// server
    #[arg(long, value_name = "server")]
    pub(super) server: Option<String>,
    /// partition
    #[arg(long, value_name = "partition")]
    pub(super) partition: Option<String>,
    /// volume name on destination
    #[arg(long, value_name = "volume name on destination")]
    pub(super) toname: Option<String>,
    /// volume ID on destination
    #[arg(long, value_name = "volume ID on destination")]
    pub(super) toid: Option<String>,
    /// leave clone volume offline
    #[arg(long)]
    pub(super) offline: bool,
    /// make clone volume read-only, not readwrite
    #[arg(long)]
    pub(super) readonly: bool,
    /// make clone volume readwrite, not read-only
    #[arg(long)]
    pub(super) readwrite: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos convertROtoRW`.
#[derive(Debug, Args)]
pub(crate) struct ConvertRoToRwArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// don't ask
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// volume name or ID on source
    #[arg(long, value_name = "volume name or ID on source", required = true)]
    pub(super) id: String,
    /// machine name on source
    #[arg(long, value_name = "machine name on source", required = true)]
    pub(super) fromserver: String,
    /// partition name on source
    #[arg(long, value_name = "partition name on source", required = true)]
    pub(super) frompartition: String,
    /// volume name on destination
    #[arg(long, value_name = "volume name on destination", required = true)]
    pub(super) toname: String,
    /// machine name on destination
    #[arg(long, value_name = "machine name on destination", required = true)]
    pub(super) toserver: String,
    /// partition name on destination
    #[arg(long, value_name = "partition name on destination", required = true)]
    pub(super) topartition: String,
    /// leave new volume offline
    #[arg(long)]
    pub(super) offline: bool,
    /// make new volume read-only
    #[arg(long)]
    pub(super) readonly: bool,
    /// copy live volume without cloning
    #[arg(long)]
    pub(super) live: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume name
    #[arg(long, value_name = "volume name", required = true)]
    pub(super) name: String,
    /// initial quota (KB) [default: no limit]
    #[arg(long, value_name = "initial quota (KB)")]
    pub(super) maxquota: Option<String>,
    /// volume ID
    #[arg(long, value_name = "volume ID")]
    pub(super) id: Option<String>,
    /// readonly volume ID
    #[arg(long, value_name = "readonly volume ID")]
    pub(super) roid: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos delentry`.
#[derive(Debug, Args)]
pub(crate) struct DelentryArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID")]
    pub(super) id: Vec<String>,
    /// prefix of the volume whose VLDB entry is to be deleted
    #[arg(
        long,
        value_name = "prefix of the volume whose VLDB entry is to be deleted"
    )]
    pub(super) prefix: Option<String>,
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// the old name of -dryrun
    #[arg(long, hide = true)]
    pub(super) noexecute: bool,
    /// list what would be done, don't do it
    #[arg(long)]
    pub(super) dryrun: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// dump from time
    #[arg(long, value_name = "dump from time")]
    pub(super) time: Option<String>,
    /// dump file
    #[arg(long, value_name = "dump file")]
    pub(super) file: Option<PathBuf>,
    /// server
    #[arg(long, value_name = "server")]
    pub(super) server: Option<String>,
    /// partition
    #[arg(long, value_name = "partition")]
    pub(super) partition: Option<String>,
    /// dump a clone of the volume
    #[arg(long)]
    pub(super) clone: bool,
    /// omit unchanged directories from an incremental dump
    #[arg(long)]
    pub(super) omitdirs: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos endtrans`.
#[derive(Debug, Args)]
pub(crate) struct EndtransArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// transaction ID
    #[arg(long, value_name = "transaction ID", required = true)]
    pub(super) transaction: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos examine`.
#[derive(Debug, Args)]
pub(crate) struct ExamineArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// list extended volume fields
    #[arg(long)]
    pub(super) extended: bool,
    /// machine readable format
    #[arg(long)]
    pub(super) format: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos listaddrs`.
#[derive(Debug, Args)]
pub(crate) struct ListaddrsArgs {
    /// uuid of server
    #[arg(long, value_name = "uuid of server")]
    pub(super) uuid: Option<String>,
    /// address of host
    #[arg(long, value_name = "address of host")]
    pub(super) host: Option<String>,
    /// print uuid of hosts
    #[arg(long)]
    pub(super) printuuid: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos listpart`.
#[derive(Debug, Args)]
pub(crate) struct ListpartArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos listvldb`.
#[derive(Debug, Args)]
pub(crate) struct ListvldbArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID")]
    pub(super) name: Option<String>,
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// locked volumes only
    #[arg(long)]
    pub(super) locked: bool,
    /// generate minimal information
    #[arg(long)]
    pub(super) quiet: bool,
    /// do not alphabetically sort the volume names
    #[arg(long)]
    pub(super) nosort: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos listvol`.
#[derive(Debug, Args)]
pub(crate) struct ListvolArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// minimal listing
    #[arg(long)]
    pub(super) fast: bool,
    /// list all normal volume fields
    #[arg(long)]
    pub(super) long: bool,
    /// generate minimal information
    #[arg(long)]
    pub(super) quiet: bool,
    /// list extended volume fields
    #[arg(long)]
    pub(super) extended: bool,
    /// machine readable format
    #[arg(long)]
    pub(super) format: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos move`.
#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// machine name on source
    #[arg(long, value_name = "machine name on source", required = true)]
    pub(super) fromserver: String,
    /// partition name on source
    #[arg(long, value_name = "partition name on source", required = true)]
    pub(super) frompartition: String,
    /// machine name on destination
    #[arg(long, value_name = "machine name on destination", required = true)]
    pub(super) toserver: String,
    /// partition name on destination
    #[arg(long, value_name = "partition name on destination", required = true)]
    pub(super) topartition: String,
    /// copy live volume without cloning
    #[arg(long)]
    pub(super) live: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos offline`.
#[derive(Debug, Args)]
pub(crate) struct OfflineArgs {
    /// server name
    #[arg(long, value_name = "server name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// seconds to sleep
    #[arg(long, value_name = "seconds to sleep")]
    pub(super) sleep: Option<String>,
    /// busy volume
    #[arg(long)]
    pub(super) busy: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos online`.
#[derive(Debug, Args)]
pub(crate) struct OnlineArgs {
    /// server name
    #[arg(long, value_name = "server name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos partinfo`.
#[derive(Debug, Args)]
pub(crate) struct PartinfoArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// print storage summary
    #[arg(long)]
    pub(super) summary: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// force a complete release and full dumps
    #[arg(long, short = 'f')]
    pub(super) force: bool,
    /// release to cloned temp vol, then clone back to repsite RO
    #[arg(long, hide = true)]
    pub(super) stayonline: bool,
    /// force a reclone and complete release with incremental dumps
    #[arg(long)]
    pub(super) force_reclone: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos remaddrs`.
#[derive(Debug, Args)]
pub(crate) struct RemaddrsArgs {
    /// uuid of server
    #[arg(long, value_name = "uuid of server", required = true)]
    pub(super) uuid: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos remsite`.
#[derive(Debug, Args)]
pub(crate) struct RemsiteArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos rename`.
#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// old volume name
    #[arg(long, value_name = "old volume name ", required = true)]
    pub(super) oldname: String,
    /// new volume name
    #[arg(long, value_name = "new volume name ", required = true)]
    pub(super) newname: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// name of volume to be restored
    #[arg(long, value_name = "name of volume to be restored", required = true)]
    pub(super) name: String,
    /// dump file
    #[arg(long, value_name = "dump file")]
    pub(super) file: Option<PathBuf>,
    /// volume ID
    #[arg(long, value_name = "volume ID")]
    pub(super) id: Option<String>,
    /// abort | full | incremental
    #[arg(long, value_name = "abort | full | incremental")]
    pub(super) overwrite: Option<String>,
    /// leave restored volume offline
    #[arg(long)]
    pub(super) offline: bool,
    /// make restored volume read-only
    #[arg(long)]
    pub(super) readonly: bool,
    /// dump | keep | new
    #[arg(long, value_name = "dump | keep | new")]
    pub(super) creation: Option<String>,
    /// dump | keep | new
    #[arg(long, value_name = "dump | keep | new")]
    pub(super) lastupdate: Option<String>,
    /// do not delete old site when restoring to a new site
    #[arg(long)]
    pub(super) nodelete: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos setaddrs`.
#[derive(Debug, Args)]
pub(crate) struct SetaddrsArgs {
    /// uuid of server
    #[arg(long, value_name = "uuid of server", required = true)]
    pub(super) uuid: String,
    /// address of host
    #[arg(long, value_name = "address of host", required = true)]
    pub(super) host: Vec<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos setfields`.
#[derive(Debug, Args)]
pub(crate) struct SetfieldsArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// quota (KB)
    #[arg(long, value_name = "quota (KB)")]
    pub(super) maxquota: Option<String>,
    /// clear dayUse
    #[arg(long)]
    pub(super) clearuse: bool,
    /// clear volUpdateCounter
    #[arg(long = "clearVolUpCounter")]
    pub(super) clear_vol_up_counter: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos shadow`.
#[derive(Debug, Args)]
pub(crate) struct ShadowArgs {
    /// volume name or ID on source
    #[arg(long, value_name = "volume name or ID on source", required = true)]
    pub(super) id: String,
    /// machine name on source
    #[arg(long, value_name = "machine name on source", required = true)]
    pub(super) fromserver: String,
    /// partition name on source
    #[arg(long, value_name = "partition name on source", required = true)]
    pub(super) frompartition: String,
    /// machine name on destination
    #[arg(long, value_name = "machine name on destination", required = true)]
    pub(super) toserver: String,
    /// partition name on destination
    #[arg(long, value_name = "partition name on destination", required = true)]
    pub(super) topartition: String,
    /// volume name on destination
    #[arg(long, value_name = "volume name on destination")]
    pub(super) toname: Option<String>,
    /// volume ID on destination
    #[arg(long, value_name = "volume ID on destination")]
    pub(super) toid: Option<String>,
    /// leave shadow volume offline
    #[arg(long)]
    pub(super) offline: bool,
    /// make shadow volume read-only
    #[arg(long)]
    pub(super) readonly: bool,
    /// copy live volume without cloning
    #[arg(long)]
    pub(super) live: bool,
    /// do incremental update if target exists
    #[arg(long)]
    pub(super) incremental: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos size`.
#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// Obtain the size of the dump
    #[arg(long)]
    pub(super) dump: bool,
    /// dump from time
    #[arg(long, value_name = "dump from time")]
    pub(super) time: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos syncserv`.
#[derive(Debug, Args)]
pub(crate) struct SyncservArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// list what would be done, don't do it
    #[arg(long)]
    pub(super) dryrun: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos syncvldb`.
#[derive(Debug, Args)]
pub(crate) struct SyncvldbArgs {
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID")]
    pub(super) volume: Option<String>,
    /// list what would be done, don't do it
    #[arg(long)]
    pub(super) dryrun: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos unlock`.
#[derive(Debug, Args)]
pub(crate) struct UnlockArgs {
    /// volume name or ID
    #[arg(long, value_name = "volume name or ID", required = true)]
    pub(super) id: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos unlockvldb`.
#[derive(Debug, Args)]
pub(crate) struct UnlockvldbArgs {
    /// machine name
    #[arg(long, value_name = "machine name")]
    pub(super) server: Option<String>,
    /// partition name
    #[arg(long, value_name = "partition name")]
    pub(super) partition: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Options of `vos zap`.
#[derive(Debug, Args)]
pub(crate) struct ZapArgs {
    /// machine name
    #[arg(long, value_name = "machine name", required = true)]
    pub(super) server: String,
    /// partition name
    #[arg(long, value_name = "partition name", required = true)]
    pub(super) partition: String,
    /// volume ID
    #[arg(long, value_name = "volume ID", required = true)]
    pub(super) id: String,
    /// force deletion of bad volumes
    #[arg(long)]
    pub(super) force: bool,
    /// also delete backup volume if one is found
    #[arg(long)]
    pub(super) backup: bool,
    #[command(flatten)]
    pub(super) common: Common,
}
