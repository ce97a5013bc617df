//! `vos syncvldb` and `vos syncserv`: making the database and the servers agree.

mod check;

use std::cmp::Reverse;

use afar_types::{
    ListByAttributes, PartitionId, VldbEntry, VldbFlags, VolintInfo, VolumeId, VolumeType,
};

use super::codes::{EINVAL, ENODEV, VL_NOENT, VOLSERFAILEDOP};
use super::event::OrFail;
use super::{Failure, ServerPartition, Vos, complain, enumerate, step};

/// Which entries or volumes are made to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncScope {
    /// The server.
    pub server: std::net::Ipv4Addr,
    /// One partition of it; else all.
    pub partition: Option<PartitionId>,
    /// Nothing is changed.
    pub dry_run: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Synced {
    /// Entries or volumes looked at.
    pub total: u32,
    /// Of these, such that could not be processed.
    pub failed: u32,
    /// Entries that were changed, or would be.
    pub changed: u32,
}

impl Vos {
    /// Has the database say of each volume of a server that it is there.
    ///
    /// # Errors
    /// What a server says; single volumes' failures are counted only.
    pub async fn sync_vldb(&self, scope: SyncScope) -> Result<Synced, Failure> {
        let mut max_id = VolumeId(0);
        let synced = self.sync_vldb_volumes(scope, &mut max_id).await;
        let raised = self.raise_max_id(max_id, scope.dry_run).await;
        self.end(synced.and_then(|synced| raised.map(|()| synced)))
    }

    async fn sync_vldb_volumes(
        &self,
        scope: SyncScope,
        max_id: &mut VolumeId,
    ) -> Result<Synced, Failure> {
        let partitions = match scope.partition {
            Some(partition) => vec![partition],
            None => self.partitions(scope.server).await.inspect_err(|_| {
                complain!(
                    self,
                    "Could not fetch the list of partitions from the server\n"
                );
            })?,
        };
        step!(self, "Processing volume entries ...\n");
        let server = self.volume_server(scope.server);
        let host = self.name_of(scope.server);
        let mut synced = Synced::default();
        for partition in partitions {
            let at = ServerPartition {
                server: scope.server,
                partition,
            };
            let listed = self.rpc(server.list_volumes(partition, 1)).await;
            let listed = listed.or_fail(self, || {
                "Could not fetch the list of volumes from the server\n".to_owned()
            })?;
            let mut volumes = listed.volumes.into_vec();
            volumes.sort_by_key(order);
            let before = synced.failed;
            for (number, info) in volumes.iter().enumerate() {
                if info.status == 0 {
                    continue;
                }
                let number = number + 1;
                synced.total += 1;
                step!(
                    self,
                    "Processing volume entry {number}: {} ({}) on server {host} {partition}...\n",
                    info.name,
                    info.volume
                );
                match self
                    .check_volume(info, at, scope.dry_run, max_id, None)
                    .await
                {
                    Ok(changed) => {
                        synced.changed += u32::from(changed);
                        step!(self, "...done entry {number}\n\n");
                    }
                    Err(Failure(code)) => {
                        self.explain("", code);
                        synced.failed += 1;
                        step!(self, "...error encountered\n\n");
                    }
                }
            }
            if synced.failed > before {
                complain!(
                    self,
                    "Could not process entries on server {host} partition {partition}\n"
                );
            }
        }
        self.tell_synced(synced, scope.dry_run);
        Ok(synced)
    }

    fn tell_synced(&self, synced: Synced, dry_run: bool) {
        let Synced {
            total,
            failed,
            changed,
        } = synced;
        let what = if dry_run { "Would change" } else { "Changed" };
        step!(
            self,
            "Total entries: {total}, Failed to process {failed}, {what} {changed}\n"
        );
    }

    /// Makes sure that the database gives no id to a new volume that some volume has already.
    async fn raise_max_id(&self, found: VolumeId, dry_run: bool) -> Result<(), Failure> {
        if found.0 == 0 {
            return Ok(());
        }
        let known = self.new_ids(0).await.or_fail(self, || {
            "Could not get the highest allocated volume id from the VLDB\n".to_owned()
        })?;
        if found <= known || dry_run {
            return Ok(());
        }
        let raised = self.new_ids(found.0 - known.0 + 1).await;
        raised.map(|_| ()).or_fail(self, || {
            "Error in increasing highest allocated volume id in VLDB\n".to_owned()
        })
    }

    /// Makes one entry agree with the servers it names, and with another server if one is given.
    /// Nothing is said of steps unless `verbose`.
    ///
    /// # Errors
    /// What a server says.
    pub async fn sync_volume(
        &self,
        name: &str,
        server: Option<std::net::Ipv4Addr>,
        partition: Option<PartitionId>,
        dry_run: bool,
    ) -> Result<(), Failure> {
        let mut max_id = VolumeId(0);
        let synced = self
            .sync_volume_steps(name, server, partition, dry_run, &mut max_id)
            .await;
        let raised = self.raise_max_id(max_id, dry_run).await;
        let synced = synced.and(raised);
        match synced {
            Ok(()) => step!(self, "...done entry\n"),
            Err(_) => step!(self, "...error encountered"),
        }
        self.end(synced)
    }

    async fn sync_volume_steps(
        &self,
        name: &str,
        server: Option<std::net::Ipv4Addr>,
        partition: Option<PartitionId>,
        dry_run: bool,
        max_id: &mut VolumeId,
    ) -> Result<(), Failure> {
        if server.is_none() && partition.is_some() {
            return Err(Failure(EINVAL));
        }
        let mut entry = match self.entry_by_name(name).await {
            Ok(entry) => Some(entry),
            Err(VL_NOENT) => None,
            Err(code) => {
                complain!(self, "Could not access the VLDB for volume {name}\n");
                return Err(Failure(code));
            }
        };
        step!(self, "Processing VLDB entry {name} ...\n");
        self.tell_before(entry.as_ref());
        let (mut changed, mut deleted) = (false, false);
        if let Some(entry) = &mut entry {
            let checked = self.check_entry(entry, dry_run).await;
            let checked = checked.inspect_err(|_| {
                let name = entry.name;
                complain!(self, "Could not process VLDB entry for volume {name}\n");
            })?;
            changed |= checked.changed;
            deleted = checked.deleted;
        }
        if let Some(server) = server {
            let mut entry_now = entry.clone();
            changed |= self
                .sync_with_server(name, server, partition, dry_run, &mut entry_now, max_id)
                .await?;
            entry = entry_now;
        }
        step!(self, "-- status after --\n");
        match &entry {
            _ if deleted => step!(self, "\n**entry deleted**\n"),
            Some(entry) if changed => {
                step!(self, "{}", enumerate(entry, &|server| self.name_of(server)));
            }
            _ => step!(self, "\n**no change**\n"),
        }
        step!(self, "\n_______________________________\n");
        Ok(())
    }

    /// Looks for the volumes of a group on a server.
    async fn sync_with_server(
        &self,
        name: &str,
        server: std::net::Ipv4Addr,
        partition: Option<PartitionId>,
        dry_run: bool,
        entry: &mut Option<VldbEntry>,
        max_id: &mut VolumeId,
    ) -> Result<bool, Failure> {
        let partitions = match partition {
            Some(partition) => vec![partition],
            None => self.partitions(server).await?,
        };
        let mut ids: Vec<VolumeId> = name.parse().into_iter().collect();
        if let Some(entry) = entry.as_ref() {
            ids.extend(entry.volume_ids);
        }
        let mut changed = false;
        for id in ids.into_iter().filter(|id| id.0 != 0) {
            for &partition in &partitions {
                let at = ServerPartition { server, partition };
                let client = self.volume_server(server);
                let found = match self.rpc(client.list_one_volume(partition, id)).await {
                    Ok(found) => found.volumes.into_vec().pop(),
                    Err(ENODEV) => None,
                    Err(code) => {
                        complain!(self, "Could not query server\n");
                        return Err(Failure(code));
                    }
                };
                if let Some(info) = found {
                    let known = Some(&mut *entry);
                    changed |= self.check_volume(&info, at, dry_run, max_id, known).await?;
                }
            }
        }
        Ok(changed)
    }

    /// Makes all entries that name a server agree with what is there.
    ///
    /// # Errors
    /// What the location server says, or VOLSERFAILEDOP if an entry could not be processed.
    pub async fn sync_server(&self, scope: SyncScope) -> Result<Synced, Failure> {
        let mut attributes = ListByAttributes {
            mask: 1,
            server: scope.server.into(),
            ..ListByAttributes::default()
        };
        if let Some(partition) = scope.partition {
            attributes.partition = partition;
            attributes.mask |= 2;
        }
        step!(self, "Processing VLDB entries ...\n");
        let mut synced = Synced::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let (entries, following) = self.entries(attributes, from).await.inspect_err(|_| {
                complain!(self, "Could not access the VLDB for attributes\n");
            })?;
            next = following;
            for (number, mut entry) in entries.into_iter().enumerate() {
                let number = number + 1;
                synced.total += 1;
                step!(self, "Processing VLDB entry {number} ...\n");
                step!(self, "_______________________________\n");
                self.tell_status_before(Some(&entry));
                match self.check_entry(&mut entry, scope.dry_run).await {
                    Ok(checked) => {
                        synced.changed += u32::from(checked.changed);
                        self.tell_after(checked, &entry);
                        step!(self, "...done entry {number}\n\n");
                    }
                    Err(Failure(code)) => {
                        self.explain("", code);
                        let name = entry.name;
                        complain!(self, "Could not process VLDB entry for volume {name}\n");
                        synced.failed += 1;
                        step!(self, "...error encountered\n\n");
                    }
                }
            }
        }
        self.tell_synced(synced, scope.dry_run);
        match synced.failed {
            0 => Ok(synced),
            _ => Err(Failure(VOLSERFAILEDOP)),
        }
    }

    fn tell_before(&self, entry: Option<&VldbEntry>) {
        step!(self, "_______________________________\n");
        self.tell_status_before(entry);
    }

    fn tell_status_before(&self, entry: Option<&VldbEntry>) {
        step!(self, "\n-- status before -- \n");
        let any = |entry: &VldbEntry| {
            let exists = VolumeType::ALL.map(VldbFlags::exists);
            exists.iter().any(|&flag| entry.flags.contains(flag))
        };
        match entry {
            None => step!(self, "\n**does not exist**\n"),
            Some(entry) if any(entry) => {
                step!(self, "{}", enumerate(entry, &|server| self.name_of(server)));
            }
            Some(_) => {}
        }
        step!(self, "\n");
    }

    fn tell_after(&self, checked: check::Checked, entry: &VldbEntry) {
        step!(self, "-- status after --\n");
        if checked.deleted {
            step!(self, "\n**entry deleted**\n");
        } else if checked.changed {
            step!(self, "{}", enumerate(entry, &|server| self.name_of(server)));
        } else {
            step!(self, "\n**no change**\n");
        }
        step!(self, "\n_______________________________\n");
    }
}

/// Groups with the greatest id first; in each the read-write volume, then the backup.
fn order(info: &VolintInfo) -> (Reverse<VolumeId>, u8, Reverse<VolumeId>) {
    let kind = VolumeType::from_number(info.kind);
    let group = match kind {
        Some(VolumeType::ReadWrite) => info.volume,
        _ => info.parent_id,
    };
    let rank = match kind {
        Some(VolumeType::ReadWrite) => 0,
        Some(VolumeType::Backup) => 1,
        Some(VolumeType::ReadOnly) | None => 2,
    };
    (Reverse(group), rank, Reverse(info.volume))
}
