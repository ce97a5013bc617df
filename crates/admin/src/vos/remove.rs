//! `vos remove` and `vos zap`.

use afar_types::{VldbEntry, VldbFlags, VolumeId, VolumeType};

use super::codes::{VL_NOENT, VNOVOL, VOLSERNOVOL};
use super::entry::{clear, id_of, rw_index};
use super::event::OrFail;
use super::transaction::Removing;
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, enumerate, step};

/// What the database has to do with the volume that is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InDatabase {
    Yes,
    No,
    /// There is an entry, which names other places.
    Elsewhere,
}

/// How far a removal came.
struct Progress {
    locked: bool,
    on_disk: bool,
    in_database: InDatabase,
}

impl Vos {
    /// Removes a volume at a place, and what its entry says of it there; with a read-write
    /// volume, also its backup volume.
    ///
    /// # Errors
    /// What a server says, or VOLSERNOVOL if there is neither volume nor site.
    pub async fn remove(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let mut progress = Progress {
            locked: false,
            on_disk: true,
            in_database: InDatabase::Yes,
        };
        let mut removed = self.remove_steps(at, id, &mut progress).await;
        if let Err(Failure(code)) = removed {
            self.complain_loudly(code, "\n");
        }
        let elsewhere = match progress.in_database {
            InDatabase::Elsewhere => "on server and partition",
            _ => "",
        };
        match (progress.on_disk, progress.in_database == InDatabase::Yes) {
            (false, false) => {
                let text = format!("Volume {id} does not exist {elsewhere}\n");
                self.complain_loudly(VOLSERNOVOL, &text);
                removed = removed.and(Err(Failure(VOLSERNOVOL)));
            }
            (false, true) => {
                complain!(
                    self,
                    "WARNING: Volume {id} did not exist on the partition\n"
                );
            }
            (true, false) => {
                complain!(
                    self,
                    "WARNING: Volume {id} does not exist in VLDB {elsewhere}\n"
                );
            }
            (true, true) => {}
        }
        if progress.locked {
            let unlocked = self.unlock_entry(id, None).await;
            let unlocked = unlocked.or_fail_loudly(self, || {
                format!("Could not release the lock on the VLDB entry for the volume {id} \n")
            });
            removed = removed.and(unlocked);
        }
        removed
    }

    async fn remove_steps(
        &self,
        at: ServerPartition,
        id: VolumeId,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let entry = match self.lock(id, None, VldbFlags::DELETE).await {
            Err(VL_NOENT) => {
                progress.in_database = InDatabase::No;
                None
            }
            locked => {
                locked.or_fail_loudly(self, || {
                    format!("Could not lock VLDB entry for the volume {id}\n")
                })?;
                progress.locked = true;
                let entry = self.entry(id, None).await;
                let entry = entry.or_fail_loudly(self, || {
                    format!("Could not fetch VLDB entry for volume {id}\n")
                })?;
                step!(
                    self,
                    "{}",
                    enumerate(&entry, &|server| self.name_of(server))
                );
                Some(entry)
            }
        };
        let server = self.volume_server(at.server);
        let the = Removing {
            what: Some("the"),
            ..Removing::default()
        };
        match self.delete(&server, id, at.partition, the).await {
            Ok(_) => {}
            Err(VNOVOL) => progress.on_disk = false,
            Err(code) => return Err(Failure(code)),
        }
        let Some(mut entry) = entry else {
            return Ok(());
        };
        let Some(kind) = self.forget_site(at, id, &mut entry).await? else {
            progress.in_database = InDatabase::Elsewhere;
            return Ok(());
        };
        let exists = |kind| entry.flags.contains(VldbFlags::exists(kind));
        if entry.sites.is_empty()
            || !(exists(VolumeType::ReadOnly) || exists(VolumeType::ReadWrite))
        {
            step!(
                self,
                "Last reference to the VLDB entry for {id} - deleting entry\n"
            );
            let deleted = self.delete_entry(id, kind).await;
            deleted.or_fail_loudly(self, || {
                format!("Could not delete the VLDB entry for the volume {id} \n")
            })?;
        } else {
            let replaced = self
                .replace_entry(id, Some(kind), &entry, Hold::Release)
                .await;
            replaced.or_fail_loudly(self, || {
                format!("Could not update the VLDB entry for the volume {id} \n")
            })?;
        }
        progress.locked = false;
        Ok(())
    }

    /// Takes the volume at that place out of its entry; `None` if it is not there. Returns which
    /// member of the group it was.
    async fn forget_site(
        &self,
        at: ServerPartition,
        id: VolumeId,
        entry: &mut VldbEntry,
    ) -> Result<Option<VolumeType>, Failure> {
        let exists = |entry: &VldbEntry, kind| entry.flags.contains(VldbFlags::exists(kind));
        if id == id_of(entry, VolumeType::Backup) {
            if !exists(entry, VolumeType::Backup) || self.rw_match(entry, at).await.is_none() {
                return Ok(None);
            }
            step!(self, "Marking the backup volume {id} deleted in the VLDB\n");
            clear(&mut entry.flags, VldbFlags::BACKUP_EXISTS);
            return Ok(Some(VolumeType::Backup));
        }
        if id == id_of(entry, VolumeType::ReadOnly) {
            let Some(site) = self.ro_match(entry, at).await else {
                return Ok(None);
            };
            step!(
                self,
                "Marking the readonly volume {id} deleted in the VLDB\n"
            );
            entry.sites.remove(site);
            let mut sites = entry.sites.iter();
            if !sites.any(|site| site.flags.contains(afar_types::SiteFlags::READ_ONLY)) {
                clear(&mut entry.flags, VldbFlags::READ_ONLY_EXISTS);
            }
            return Ok(Some(VolumeType::ReadOnly));
        }
        if id != id_of(entry, VolumeType::ReadWrite)
            || !exists(entry, VolumeType::ReadWrite)
            || self.rw_match(entry, at).await.is_none()
        {
            return Ok(None);
        }
        let backup = id_of(entry, VolumeType::Backup);
        if backup.0 != 0 {
            let server = self.volume_server(at.server);
            let how = Removing {
                what: Some("the backup"),
                ..Removing::default()
            };
            match self.delete(&server, backup, at.partition, how).await {
                Ok(_) | Err(VNOVOL) => {}
                Err(code) => return Err(Failure(code)),
            }
        }
        let and_backup = match exists(entry, VolumeType::Backup) {
            true => ", and its backup volume,",
            false => "",
        };
        step!(
            self,
            "Marking the readwrite volume {id}{and_backup} deleted in the VLDB\n"
        );
        if let Some(site) = rw_index(entry) {
            entry.sites.remove(site);
        }
        clear(&mut entry.flags, VldbFlags::BACKUP_EXISTS);
        clear(&mut entry.flags, VldbFlags::READ_WRITE_EXISTS);
        if exists(entry, VolumeType::ReadOnly) {
            complain!(self, "WARNING: ReadOnly copy(s) may still exist\n");
        }
        Ok(Some(VolumeType::ReadWrite))
    }

    /// Removes a volume at a place, whatever the database says of it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn zap(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        let how = Removing {
            what: Some("the"),
            ..Removing::default()
        };
        let deleted = self.delete(&server, id, at.partition, how).await;
        if deleted == Err(VNOVOL) {
            self.complain_loudly(VNOVOL, &format!("Failed to start transaction on {id}\n"));
        }
        self.end(deleted.map(|_| ()).map_err(Failure))
    }

    /// Removes all traces of a volume in whatever state.
    ///
    /// # Errors
    /// The server's code, of which nothing is said.
    pub async fn nuke(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        let nuked = self.rpc(server.nuke_volume(at.partition, id)).await;
        nuked.map(|_| ()).map_err(Failure)
    }
}
