//! Verbs that change one volume or its entry.

use std::io::{self, BufRead};
use std::time::Duration;

use afar_admin::vos::words::error_text;
use afar_admin::vos::{
    CloneOptions, CreateOptions, Failure, NAME_MAX, ReleaseOptions, ServerPartition, base_name,
    is_name_valid,
};
use afar_types::error::VL_NOENT;
use afar_types::{
    AttachFlags, SiteFlags, SiteServer, TransactionFlags, TransactionId, VldbFlags, VolumeChanges,
    VolumeId, VolumeType,
};

use super::args::{
    AddsiteArgs, BackupArgs, ChangelocArgs, CloneArgs, ConvertRoToRwArgs, CreateArgs, EndtransArgs,
    LockArgs, OfflineArgs, OnlineArgs, ReleaseArgs, RemoveArgs, RemsiteArgs, RenameArgs,
    SetfieldsArgs, UnlockArgs, ZapArgs,
};
use super::{Context, Outcome, Quit, err, out};
use crate::units::parse_kib;

const CANT_FIND: &str = "vos: can't find volume ID or name";
const CANT_FIND_VOLUME: &str = "vos: can't find volume";
const UNKNOWN: &str = "Unknown volume ID or name";

/// Whether a read-write volume may have this name, as far as its end goes.
pub(super) fn has_no_suffix(name: &str) -> bool {
    base_name(name) == name
}

pub(super) fn is_numeric(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a line from standard input; its first letter is the answer.
pub(super) fn answer() -> Option<char> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    line.chars().next().map(|c| c.to_ascii_lowercase())
}

impl Context<'_> {
    /// Says what is wrong with a name for a new volume.
    pub(super) fn new_name(&self, name: &str) -> Outcome {
        if !is_name_valid(name) {
            err!("vos: the name of the root volume {name} exceeds the size limit of {NAME_MAX}\n");
        } else if !has_no_suffix(name) {
            err!("Illegal volume name {name}, should not end in .readonly or .backup\n");
        } else if is_numeric(name) {
            err!("Illegal volume name {name}, should not be a number\n");
        } else {
            return Ok(());
        }
        Err(Quit::RETURN)
    }

    fn number(&self, text: &str, what: &str) -> Result<VolumeId, Quit> {
        if !is_numeric(text) {
            err!("vos: Given {what} {text} should be numeric.\n");
            return Err(Quit::RETURN);
        }
        text.parse().map_err(|_| {
            err!("vos: bad integer specified for volume ID.\n");
            Quit::RETURN
        })
    }

    pub(super) async fn create(&self, args: &CreateArgs) -> Outcome {
        let server = self.server(&args.server, "host", Quit::RETURN)?;
        let at = self
            .partition_there(server, &args.partition, Quit::RETURN)
            .await?;
        self.new_name(&args.name)?;
        if self.vos.entry_by_name(&args.name).await.is_ok() {
            err!("Volume {} already exists\n", args.name);
            self.diagnose("create", Failure(0), Quit::RETURN);
            return Err(Quit::RETURN);
        }
        let mut options = CreateOptions::default();
        if let Some(quota) = &args.maxquota {
            options.max_quota = parse_kib(quota).ok_or_else(|| {
                err!("vos: bad integer specified for quota.\n");
                Quit::RETURN
            })?;
        }
        if let Some(id) = &args.id {
            options.id = Some(self.number(id, "volume ID")?).filter(|id| id.0 != 0);
        }
        if let Some(id) = &args.roid {
            options.read_only_id = Some(self.number(id, "RO volume ID")?);
        }
        let made = self.vos.create(at, &args.name, &options).await;
        let id = made.map_err(|code| self.diagnose("create", code, Quit::RETURN))?;
        out!(
            "Volume {id} created on partition {} of {}\n",
            at.partition,
            args.server
        );
        if args.maxquota.is_none() {
            out!(
                "It has no quota; `afar vos setfields {} -maxquota KIB` sets one\n",
                args.name
            );
        }
        Ok(())
    }

    pub(super) async fn remove(&self, args: &RemoveArgs) -> Outcome {
        let server = match &args.server {
            Some(name) => Some(self.server(name, "server", Quit::RETURN)?),
            None => None,
        };
        let partition = match (&args.partition, server) {
            (Some(name), Some(server)) => {
                let at = self.partition_there(server, name, Quit::RETURN).await?;
                Some(at.partition)
            }
            (Some(name), None) => Some(self.partition(name, Quit::RETURN)?),
            (None, _) => None,
        };
        let id = match self.vos.volume_id(&args.id).await {
            Ok(id) if id.0 != 0 => id,
            found => {
                err!("Can't find volume name '{}' in VLDB\n", args.id);
                if let Err(code) = found {
                    err!("{}", error_text(code));
                }
                return Err(Quit::RETURN);
            }
        };
        let at = match (server, partition) {
            (Some(server), Some(partition)) => ServerPartition { server, partition },
            (server, partition) => self.find_site(args, id, server, partition).await?,
        };
        let removed = self.vos.remove(at, id).await;
        removed.map_err(|code| self.diagnose("remove", code, Quit::RETURN))?;
        let host = self.hosts.name_of(at.server);
        out!(
            "Volume {id} on partition {} server {host} deleted\n",
            at.partition
        );
        Ok(())
    }

    /// The only place where a volume is that fits what was said of it.
    async fn find_site(
        &self,
        args: &RemoveArgs,
        id: VolumeId,
        server: Option<std::net::Ipv4Addr>,
        partition: Option<afar_types::PartitionId>,
    ) -> Result<ServerPartition, Quit> {
        let entry = self.vos.entry(id, None).await.map_err(|code| {
            err!(
                "Could not fetch the entry for volume {id} from VLDB\n{}",
                error_text(code)
            );
            Quit::RETURN
        })?;
        let no_match = || {
            err!("VLDB: Volume '{}' no match\n", args.id);
            Quit::RETURN
        };
        let kind = entry
            .kind_of(id)
            .filter(|&kind| entry.flags.contains(VldbFlags::exists(kind)))
            .ok_or_else(no_match)?;
        let flag = match kind {
            VolumeType::ReadOnly => SiteFlags::READ_ONLY,
            VolumeType::ReadWrite | VolumeType::Backup => SiteFlags::READ_WRITE,
        };
        let places = entry.sites.iter().filter_map(|site| match site.server {
            SiteServer::Address(address) if site.flags.contains(flag) => Some(ServerPartition {
                server: address,
                partition: site.partition,
            }),
            _ => None,
        });
        let mut fitting = places.filter(|at| {
            server.is_none_or(|server| server == at.server)
                && partition.is_none_or(|partition| partition == at.partition)
        });
        let found = fitting.next().ok_or_else(no_match)?;
        if kind == VolumeType::ReadOnly && fitting.next().is_some() {
            err!("VLDB: Volume '{}' matches more than one RO\n", args.id);
            return Err(Quit::RETURN);
        }
        Ok(found)
    }

    pub(super) async fn rename(&self, args: &RenameArgs) -> Outcome {
        let (old, new) = (&args.oldname, &args.newname);
        let entry = self.vos.entry_by_name(old).await.map_err(|code| {
            err!(
                "vos: Could not find entry for volume {old}\n{}",
                error_text(code)
            );
            Quit::EXIT
        })?;
        let [id, ..] = entry.volume_ids;
        match self.vos.entry_by_name(new).await {
            Ok(other) if other.volume_ids[0] != id => {
                let other = other.volume_ids[0];
                err!(
                    "vos: Cannot rename volume {old} ({id}) to {new}; volume {new} ({other}) \
                     already exists\n"
                );
                return Err(Quit::EXIT);
            }
            Ok(_) | Err(VL_NOENT) => {}
            Err(code) => {
                err!(
                    "vos: Could not check entry for volume {new}\n{}",
                    error_text(code)
                );
                return Err(Quit::EXIT);
            }
        }
        let suffix = |name: &str| {
            err!("Illegal volume name {name}, should not end in .readonly or .backup\n");
            Err(Quit::EXIT)
        };
        if !has_no_suffix(old) {
            return suffix(old);
        }
        if !is_name_valid(new) {
            err!("vos: the new volume name {new} exceeds the size limit of {NAME_MAX}\n");
            return Err(Quit::EXIT);
        }
        if !has_no_suffix(new) {
            return suffix(new);
        }
        if is_numeric(new) {
            err!("Illegal volume name {new}, should not be a number\n");
            return Err(Quit::EXIT);
        }
        let renamed = self.vos.rename(&entry, old, new).await;
        renamed.map_err(|code| self.diagnose("rename", code, Quit::EXIT))?;
        out!("Renamed volume {old} to {new}\n");
        Ok(())
    }

    pub(super) async fn backup(&self, args: &BackupArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let found = self.vos.locate(id).await.map_err(|_| Quit::EXIT)?;
        if found.kind != VolumeType::ReadWrite {
            err!("{} not RW volume\n", args.id);
            return Err(Quit::EXIT);
        }
        self.session.stop_in_order();
        let made = self.vos.backup(found.place, id).await;
        made.map_err(|code| self.diagnose("backup", code, Quit::RETURN))?;
        out!("Created backup volume for {} \n", args.id);
        Ok(())
    }

    pub(super) async fn clone_volume(&self, args: &CloneArgs) -> Outcome {
        let id = self.volume_id(&args.id, CANT_FIND, Quit::RETURN).await?;
        let at = match (&args.server, &args.partition) {
            (None, None) => self.vos.locate(id).await.map_err(|_| Quit::RETURN)?.place,
            (Some(server), Some(partition)) => {
                let server = self.server(server, "server", Quit::RETURN)?;
                self.partition_there(server, partition, Quit::RETURN)
                    .await?
            }
            _ => {
                err!("Must specify both -server and -partition options\n");
                return Err(Quit::RETURN);
            }
        };
        if let Some(name) = &args.toname {
            if name.len() > 31 {
                err!("vos: the name of the root volume {name} exceeds the size limit of 31\n");
                return Err(Quit::RETURN);
            }
            if is_numeric(name) {
                err!("Illegal volume name {name}, should not be a number\n");
                return Err(Quit::RETURN);
            }
        }
        let clone = match &args.toid {
            Some(typed) => Some(self.volume_id(typed, CANT_FIND, Quit::RETURN).await?),
            None => None,
        };
        if args.readonly && args.readwrite {
            err!("vos: cannot specify that a volume be -readwrite and -readonly\n");
            return Err(Quit::RETURN);
        }
        let kind = match (args.readonly, args.readwrite) {
            (true, _) => Some(VolumeType::ReadOnly),
            (_, true) => Some(VolumeType::ReadWrite),
            _ => None,
        };
        let options = CloneOptions {
            id: clone,
            name: args.toname.clone(),
            kind,
            offline: args.offline,
        };
        self.session.stop_in_order();
        let made = self.vos.make_clone(at, id, &options).await;
        made.map_err(|code| self.diagnose("clone", code, Quit::RETURN))?;
        out!("Created clone for volume {}\n", args.id);
        Ok(())
    }

    pub(super) async fn release(&self, args: &ReleaseArgs) -> Outcome {
        if args.stayonline {
            err!("vos: -stayonline not supported\n");
            return Err(Quit::RETURN);
        }
        let id = self
            .volume_id(&args.id, CANT_FIND_VOLUME, Quit::RETURN)
            .await?;
        let found = self.vos.locate(id).await.map_err(|_| Quit::RETURN)?;
        if found.kind != VolumeType::ReadWrite {
            err!("{} not a RW volume\n", args.id);
            return Err(Quit::RETURN);
        }
        let name = found.entry.name.to_string();
        if !is_name_valid(&name) {
            err!("Volume name {name} is too long, rename before releasing\n");
            return Err(Quit::RETURN);
        }
        let options = ReleaseOptions {
            reclone: args.force || args.force_reclone,
            full_dumps: args.force,
        };
        self.session.stop_in_order();
        let released = self.vos.release(id, found.place, options).await;
        released.map_err(|code| self.diagnose("release", code, Quit::RETURN))?;
        out!("Released volume {} successfully\n", args.id);
        Ok(())
    }

    pub(super) async fn addsite(&self, args: &AddsiteArgs) -> Outcome {
        let base = base_name(&args.id);
        let id = self.site_volume(base, &args.id).await?;
        let read_only = match &args.roid {
            Some(typed) => match self.vos.volume_id(base_name(typed)).await {
                Ok(id) if id.0 != 0 => Some(id),
                _ => {
                    err!("vos: invalid ro volume id '{typed}'\n");
                    return Err(Quit::EXIT);
                }
            },
            None => None,
        };
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        let at = self
            .partition_to_note(server, &args.partition, Quit::EXIT)
            .await?;
        let added = self.vos.add_site(at, id, read_only, args.valid).await;
        added.map_err(|code| self.diagnose("addsite", code, Quit::EXIT))?;
        out!(
            "Added replication site {} {} for volume {}\n",
            args.server,
            at.partition,
            args.id
        );
        Ok(())
    }

    async fn site_volume(&self, base: &str, typed: &str) -> Result<VolumeId, Quit> {
        match self.vos.volume_id(base).await {
            Ok(VolumeId(0)) => {
                err!("{CANT_FIND_VOLUME} '{typed}'\n");
                Err(Quit::EXIT)
            }
            Ok(id) => Ok(id),
            Err(code) => {
                err!("{}", error_text(code));
                Err(Quit::EXIT)
            }
        }
    }

    pub(super) async fn remsite(&self, args: &RemsiteArgs) -> Outcome {
        let id = self.site_volume(base_name(&args.id), &args.id).await?;
        let server = self.server_as_typed(&args.server, "server", Quit::EXIT)?;
        let partition = self.partition(&args.partition, Quit::EXIT)?;
        let at = ServerPartition { server, partition };
        let removed = self.vos.remove_site(at, id).await;
        removed.map_err(|code| self.diagnose("remsite", code, Quit::EXIT))?;
        out!(
            "Removed replication site {} {partition} for volume {}\n",
            args.server,
            args.id
        );
        Ok(())
    }

    pub(super) async fn changeloc(&self, args: &ChangelocArgs) -> Outcome {
        let id = self
            .volume_id(&args.id, CANT_FIND_VOLUME, Quit::EXIT)
            .await?;
        let server = self.server(&args.server, "server", Quit::EXIT)?;
        let at = self
            .partition_to_note(server, &args.partition, Quit::EXIT)
            .await?;
        let changed = self.vos.change_location(at, id).await;
        changed.map_err(|code| self.diagnose("changeloc", code, Quit::EXIT))?;
        out!(
            "Changed location to {} {} for volume {}\n",
            args.server,
            at.partition,
            args.id
        );
        Ok(())
    }

    pub(super) async fn lock(&self, args: &LockArgs) -> Outcome {
        let id = self
            .volume_id(&args.id, CANT_FIND_VOLUME, Quit::EXIT)
            .await?;
        self.vos.hold(id).await.map_err(|Failure(code)| {
            err!(
                "Could not lock VLDB entry for volume {}\n{}",
                args.id,
                error_text(code)
            );
            Quit::EXIT
        })?;
        out!("Locked VLDB entry for volume {}\n", args.id);
        Ok(())
    }

    pub(super) async fn unlock(&self, args: &UnlockArgs) -> Outcome {
        let id = self
            .volume_id(&args.id, CANT_FIND_VOLUME, Quit::EXIT)
            .await?;
        let unlocked = self.vos.unlock(id).await;
        unlocked.map_err(|code| self.diagnose("unlock", code, Quit::EXIT))?;
        out!("Released lock on vldb entry for volume {}\n", args.id);
        Ok(())
    }

    pub(super) async fn zap(&self, args: &ZapArgs) -> Outcome {
        if args.force {
            return self.nuke(args).await;
        }
        let id = self
            .volume_id(&args.id, CANT_FIND_VOLUME, Quit::EXIT)
            .await?;
        self.partition(&args.partition, Quit::EXIT)?;
        let server = self.server(&args.server, "host", Quit::EXIT)?;
        let at = self
            .partition_there(server, &args.partition, Quit::EXIT)
            .await?;
        let mut backup = VolumeId(0);
        if let Ok(entry) = self.vos.entry(id, None).await {
            if id == entry.volume_ids[0] {
                backup = entry.volume_ids[2];
            }
            err!(
                "Warning: Entry for volume number {id} exists in VLDB (but we're zapping it \
                 anyway!)\n"
            );
        }
        let diagnose = |code| self.diagnose("zap", code, Quit::EXIT);
        if args.backup {
            if backup.0 == 0
                && let Ok(info) = self.vos.volume(at, id).await
                && info.parent_id == id
            {
                backup = info.backup_id;
            }
            if backup.0 != 0 {
                self.vos.zap(at, backup).await.map_err(diagnose)?;
                out!("Backup Volume {backup} deleted\n");
            }
        }
        self.vos.zap(at, id).await.map_err(diagnose)?;
        out!("Volume {id} deleted\n");
        Ok(())
    }

    async fn nuke(&self, args: &ZapArgs) -> Outcome {
        let server = self.server(&args.server, "server", Quit::RETURN)?;
        let partition = args.partition.parse().map_err(|_| {
            err!(
                "vos: could not parse '{}' as a partition name",
                args.partition
            );
            Quit::RETURN
        })?;
        let id = match self.vos.volume_id(&args.id).await {
            Ok(id) if id.0 != 0 => id,
            Ok(_) => {
                err!("vos: could not parse '{}' as a numeric volume ID", args.id);
                return Err(Quit::RETURN);
            }
            Err(code) => {
                err!("{}", error_text(code));
                return Err(Quit::RETURN);
            }
        };
        out!("vos: forcibly removing all traces of volume {id}, please wait...");
        match self
            .vos
            .nuke(ServerPartition { server, partition }, id)
            .await
        {
            Ok(()) => {
                out!("done.\n");
                Ok(())
            }
            Err(Failure(code)) => {
                out!("failed with code {code}.\n");
                Err(Quit::RETURN)
            }
        }
    }

    pub(super) async fn setfields(&self, args: &SetfieldsArgs) -> Outcome {
        let id = self.volume_id(&args.id, UNKNOWN, Quit::RETURN).await?;
        let entry = self.vos.entry(id, Some(VolumeType::ReadWrite)).await;
        let entry = entry.map_err(|_| {
            err!("Could not fetch the entry for volume number {id} from VLDB \n");
            Quit::RETURN
        })?;
        let mut sites = entry.sites.iter();
        let site = sites.find(|site| site.flags.contains(SiteFlags::READ_WRITE));
        let Some((SiteServer::Address(server), partition)) =
            site.map(|site| (site.server, site.partition))
        else {
            err!("Volume {} does not exist in VLDB\n\n", args.id);
            return Err(Quit::RETURN);
        };
        let mut changes = VolumeChanges::default();
        if let Some(quota) = &args.maxquota {
            changes.max_quota = Some(parse_kib(quota).ok_or_else(|| {
                err!("invalid quota value\n");
                Quit::RETURN
            })?);
        }
        changes.day_use = args.clearuse.then_some(0);
        changes.update_counter = args.clear_vol_up_counter.then_some(0);
        if changes == VolumeChanges::default() {
            err!("Nothing to set.\n");
            return Err(Quit::RETURN);
        }
        let at = ServerPartition { server, partition };
        self.vos.set_fields(at, id, changes).await.map_err(|_| {
            err!("Could not update volume info fields for volume number {id}\n");
            Quit::RETURN
        })
    }

    pub(super) async fn online(&self, args: &OnlineArgs) -> Outcome {
        let server = self.server(&args.server, "server", Quit::RETURN)?;
        let partition = self.partition(&args.partition, Quit::RETURN)?;
        let id = self.volume_id(&args.id, UNKNOWN, Quit::RETURN).await?;
        let at = ServerPartition { server, partition };
        let flags = TransactionFlags(0);
        self.set_volume(at, id, AttachFlags::OFFLINE, flags, Duration::ZERO)
            .await
    }

    async fn set_volume(
        &self,
        at: ServerPartition,
        id: VolumeId,
        attach: AttachFlags,
        flags: TransactionFlags,
        time: Duration,
    ) -> Outcome {
        let set = self.vos.set_volume(at, id, attach, flags, time).await;
        set.map_err(|Failure(code)| {
            err!("Failed to set volume. Code = {code}\n");
            Quit::RETURN
        })
    }

    pub(super) async fn offline(&self, args: &OfflineArgs) -> Outcome {
        let server = self.server(&args.server, "server", Quit::RETURN)?;
        let partition = self.partition(&args.partition, Quit::RETURN)?;
        let id = self.volume_id(&args.id, UNKNOWN, Quit::RETURN).await?;
        let seconds = args.sleep.as_ref().map(|text| text.parse().unwrap_or(0));
        if args.busy && seconds.is_none() {
            err!("-sleep option must be used with -busy flag\n");
            return Err(Quit::RETURN);
        }
        let time = Duration::from_secs(seconds.unwrap_or(0));
        let attach = match args.busy {
            true => AttachFlags::BUSY,
            false => AttachFlags::OFFLINE,
        };
        let flags = match time.is_zero() && !args.busy {
            true => TransactionFlags::OUT_OF_SERVICE,
            false => TransactionFlags(0),
        };
        self.set_volume(
            ServerPartition { server, partition },
            id,
            attach,
            flags,
            time,
        )
        .await
    }

    pub(super) async fn endtrans(&self, args: &EndtransArgs) -> Outcome {
        let server = self.server(&args.server, "host", Quit::RETURN)?;
        let transaction: TransactionId = args.transaction.parse().map_err(|_| {
            err!("vos: bad integer specified for transaction ID.\n");
            Quit::RETURN
        })?;
        let ended = self.vos.end_transaction(server, transaction).await;
        ended.map_err(|code| self.diagnose("endtrans", code, Quit::RETURN))
    }

    pub(super) async fn convert(&self, args: &ConvertRoToRwArgs) -> Outcome {
        let server = self.server(&args.server, "host", Quit::RETURN)?;
        let at = self
            .partition_there(server, &args.partition, Quit::RETURN)
            .await?;
        let id = self.volume_id(&args.id, UNKNOWN, Quit::RETURN).await?;
        let entry = self.vos.entry(id, None).await.map_err(|code| {
            err!("Could not fetch the entry for volume {id} from VLDB\n");
            err!("convertROtoRW {}", error_text(code));
            Quit::RETURN
        })?;
        let read_only = entry.volume_ids[1];
        let ro = self.vos.ro_on_server(&entry, at).await;
        match ro.map_err(|_| Quit::RETURN)? {
            None => err!("Warning: RO volume didn't exist in vldb!\n"),
            Some(index) if entry.sites[index].partition != at.partition => err!(
                "Warning: RO volume should be in partition {} instead of {} (vldb)\n",
                entry.sites[index].partition.0,
                at.partition.0
            ),
            Some(_) => {}
        }
        let mut sites = entry.sites.iter();
        if let Some(site) = sites.find(|site| site.flags.contains(SiteFlags::READ_WRITE)) {
            let host = match site.server {
                SiteServer::Address(address) => self.hosts.name_of(address),
                SiteServer::Uuid { uuid, .. } => uuid.to_string(),
            };
            err!(
                "VLDB indicates that a RW volume exists already on {host} in partition {}.\n",
                site.partition
            );
            if !args.force {
                err!("Overwrite this VLDB entry? [y|n] (n)\n");
                if answer() != Some('y') {
                    err!("aborted.\n");
                    return Err(Quit::RETURN);
                }
            }
        }
        let converted = self.vos.convert_to_read_write(at, read_only, &entry).await;
        converted.map_err(|_| Quit::RETURN)
    }
}
