//! `vos rename`.

use afar_types::{AttachFlags, SiteFlags, VldbEntry, VldbFlags, VolumeId, VolumeType};
use afar_xdr::CharArray;

use super::codes::{VL_BADENTRY, VOLSERBADNAME, VOLSERVLDB_ERROR};
use super::entry::{ALL_OPERATIONS, id_of, place, rw_index};
use super::event::OrFail;
use super::transaction::name_text;
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, step};

impl Vos {
    /// Gives a group of volumes another name, in the database and at all its sites. The entry is
    /// one that was just read.
    ///
    /// # Errors
    /// What a server says. Calling it again gives the rest of the volumes their name.
    pub async fn rename(&self, entry: &VldbEntry, old: &str, new: &str) -> Result<(), Failure> {
        let (id, kind) = (
            id_of(entry, VolumeType::ReadWrite),
            Some(VolumeType::ReadWrite),
        );
        let locked = self.lock(id, kind, VldbFlags::DELETE).await;
        let locked = locked.or_fail(self, || {
            format!(" Could not lock the VLDB entry for the  volume {id} \n")
        });
        self.end(locked)?;
        let mut renamed = self.rename_locked(entry, old, new).await;
        if let Err(code) = self.unlock_entry(id, kind).await {
            complain!(
                self,
                "Could not unlock the VLDB entry for the volume {new} {id}\n"
            );
            renamed = renamed.and(Err(Failure(code)));
        }
        self.end(renamed)
    }

    async fn rename_locked(&self, entry: &VldbEntry, old: &str, new: &str) -> Result<(), Failure> {
        let (id, kind) = (
            id_of(entry, VolumeType::ReadWrite),
            Some(VolumeType::ReadWrite),
        );
        let mut expected = entry.clone();
        expected.flags.0 = expected.flags.0 & !ALL_OPERATIONS | VldbFlags::DELETE.0;
        let mut now = self.entry(id, kind).await.or_fail(self, || {
            format!("Could not obtain the VLDB entry for the volume {id}\n")
        })?;
        if now != expected {
            complain!(
                self,
                "VLDB entry for volume {id} has changed; please reissue the command.\n"
            );
            return Err(Failure(VL_BADENTRY));
        }
        now.name = CharArray::new(new).map_err(|_| Failure(VOLSERBADNAME))?;
        let replaced = self.replace_entry(id, kind, &now, Hold::Keep).await;
        replaced.or_fail(self, || format!("Could not update VLDB entry for {id}\n"))?;
        step!(self, "Recorded the new name {new} in VLDB\n");
        let exists = |kind| now.flags.contains(VldbFlags::exists(kind));
        if exists(VolumeType::ReadWrite) {
            let at = self.rw_place(&now, "the rw volume", "in VLDB")?;
            self.rename_volume(at, id, "rw", new, now.volume_ids, VolumeType::ReadWrite)
                .await?;
            step!(self, "Renamed rw volume {old} to {new}\n");
        }
        let none = VolumeId(0);
        let ids = [id, none, none];
        if exists(VolumeType::Backup) {
            let at = self.rw_place(&now, "the backup volume", "in the VLDB")?;
            let name = format!("{new}.backup");
            let backup = id_of(&now, VolumeType::Backup);
            self.rename_volume(at, backup, "backup", &name, ids, VolumeType::Backup)
                .await?;
            step!(self, "Renamed backup volume to {name} \n");
        }
        if exists(VolumeType::ReadOnly) {
            let name = format!("{new}.readonly");
            let read_only = id_of(&now, VolumeType::ReadOnly);
            for site in &now.sites {
                if !site.flags.contains(SiteFlags::READ_ONLY) {
                    continue;
                }
                let at = place(site);
                self.rename_volume(at, read_only, "ro", &name, ids, VolumeType::ReadOnly)
                    .await?;
                let host = self.name_of(at.server);
                step!(self, "Renamed RO volume {name} on host {host}\n");
            }
        }
        Ok(())
    }

    fn rw_place(
        &self,
        entry: &VldbEntry,
        what: &str,
        place_of: &str,
    ) -> Result<ServerPartition, Failure> {
        let Some(index) = rw_index(entry) else {
            complain!(
                self,
                "There is a serious discrepancy {place_of} entry for {what} {}\n",
                id_of(entry, VolumeType::ReadWrite)
            );
            complain!(self, "try building VLDB from scratch\n");
            return Err(Failure(VOLSERVLDB_ERROR));
        };
        Ok(place(&entry.sites[index]))
    }

    /// Gives one volume its name.
    async fn rename_volume(
        &self,
        at: ServerPartition,
        id: VolumeId,
        what: &str,
        name: &str,
        [parent, clone, backup]: [VolumeId; 3],
        kind: VolumeType,
    ) -> Result<(), Failure> {
        let server = self.volume_server(at.server);
        let begun = self
            .begin(&server, id, at.partition, AttachFlags::OFFLINE)
            .await;
        let transaction = begun.or_fail(self, || {
            format!("Could not start transaction on the {what} volume {id}\n")
        })?;
        let set = match name_text(name) {
            Ok(name) => {
                let kind = kind.number();
                let set = server.set_ids_types(transaction, name, kind, parent, clone, backup);
                self.rpc(set).await.map(|_| ())
            }
            Err(_) => Err(VOLSERBADNAME),
        };
        let set = set.or_fail(self, || {
            format!("Could not  set parameters on the {what} volume {id}\n")
        });
        let finished = self.finish(&server, transaction).await.or_fail(self, || {
            format!("Could not  end transaction on the {what} volume {id}\n")
        });
        set.and(finished)
    }
}
