//! `vos backup` and `vos clone`.

use afar_rpc::afsvol;
use afar_types::{AttachFlags, PartitionId, VldbEntry, VldbFlags, VolumeId, VolumeType};

use super::codes::VOLSERBADNAME;
use super::entry::{ALL_OPERATIONS, id_of, set, set_id};
use super::event::OrFail;
use super::transaction::{Cloning, IN_SERVICE};
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, is_name_valid, step};

/// How far a backup came.
#[derive(Default)]
struct Progress {
    locked: bool,
    /// What the entry is to say.
    changed: Option<VldbEntry>,
}

/// What a clone is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// Its id; without it, a new one.
    pub id: Option<VolumeId>,
    /// Its name; without it, its parent's with `.clone`.
    pub name: Option<String>,
    /// Its type; a backup volume unless said otherwise.
    pub kind: Option<VolumeType>,
    /// It does not come on line.
    pub offline: bool,
}

impl Vos {
    /// Makes the backup volume of a read-write one, or brings it up to date.
    ///
    /// # Errors
    /// What a server says.
    pub async fn backup(&self, at: ServerPartition, id: VolumeId) -> Result<(), Failure> {
        let mut progress = Progress::default();
        let mut made = self.backup_steps(at, id, &mut progress).await;
        if progress.locked {
            let vos = self.calm();
            let kind = Some(VolumeType::ReadWrite);
            let released = match &progress.changed {
                Some(entry) => vos
                    .replace_entry(id, kind, entry, Hold::Release)
                    .await
                    .or_fail(self, || {
                        format!("Could not update the VLDB entry for the volume {id} \n")
                    }),
                None => vos.unlock_entry(id, kind).await.or_fail(self, || {
                    format!("Could not unlock the VLDB entry for the volume {id} \n")
                }),
            };
            made = made.and(released);
        }
        self.end(made)
    }

    async fn backup_steps(
        &self,
        at: ServerPartition,
        id: VolumeId,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let fetch = async || {
            let entry = self.entry(id, Some(VolumeType::ReadWrite)).await;
            entry.or_fail(self, || {
                format!("Could not fetch the entry for the volume {id} from the VLDB \n")
            })
        };
        let mut entry = fetch().await?;
        let backup_exists = |entry: &VldbEntry| entry.flags.contains(VldbFlags::BACKUP_EXISTS);
        if !backup_exists(&entry)
            || entry.flags.0 & ALL_OPERATIONS != 0
            || id_of(&entry, VolumeType::Backup).0 == 0
        {
            let locked = self
                .lock(id, Some(VolumeType::ReadWrite), VldbFlags::BACKUP)
                .await;
            locked.or_fail(self, || {
                format!("Could not lock the VLDB entry for the volume {id}\n")
            })?;
            progress.locked = true;
            entry = fetch().await?;
        }
        let name = entry.name.to_string();
        if !is_name_valid(&name) {
            complain!(self, "Name of the volume {name} exceeds the size limit\n");
            return Err(Failure(VOLSERBADNAME));
        }
        let mut backup = id_of(&entry, VolumeType::Backup);
        if backup.0 == 0 {
            backup = self.new_ids(1).await.or_fail(self, || {
                format!("Could not allocate ID for the backup volume of  {id} from the VLDB\n")
            })?;
            set_id(&mut entry, VolumeType::Backup, backup);
            progress.changed = Some(entry.clone());
        }
        let server = self.volume_server(at.server);
        let how = Cloning {
            kind: VolumeType::Backup,
            id: backup,
            what: "backup",
            name: &format!("{name}.backup"),
            status: false,
        };
        let cloned = self.clone_volume(&server, id, at.partition, how).await;
        cloned.map_err(Failure)?;
        if !backup_exists(&entry) {
            set(&mut entry.flags, VldbFlags::BACKUP_EXISTS);
            progress.changed = Some(entry);
        }
        self.clone_online(&server, at.partition, backup, "backup")
            .await
    }

    /// Brings a clone on line.
    async fn clone_online(
        &self,
        server: &afsvol::Client,
        partition: PartitionId,
        id: VolumeId,
        what: &str,
    ) -> Result<(), Failure> {
        let begun = self
            .begin(server, id, partition, AttachFlags::OFFLINE)
            .await;
        let transaction = begun.or_fail(self, || {
            format!("Failed to start a transaction on the {what} volume {id}\n")
        })?;
        let online = self.set_flags(server, transaction, IN_SERVICE).await;
        let online = online.or_fail(self, || {
            format!("Could not mark the {what} volume {id} on line \n")
        });
        let finished = self.finish(server, transaction).await;
        online?;
        finished.or_fail(self, || {
            format!("Failed to end the transaction on the {what} volume {id}\n")
        })
    }

    /// Makes a clone of a volume, or brings one up to date. The database does not learn of it.
    ///
    /// # Errors
    /// What a server says.
    pub async fn make_clone(
        &self,
        at: ServerPartition,
        id: VolumeId,
        options: &CloneOptions,
    ) -> Result<VolumeId, Failure> {
        let made = self.clone_steps(at, id, options).await;
        self.end(made)
    }

    async fn clone_steps(
        &self,
        at: ServerPartition,
        id: VolumeId,
        options: &CloneOptions,
    ) -> Result<VolumeId, Failure> {
        let server = self.volume_server(at.server);
        let name = match &options.name {
            Some(name) => name.clone(),
            None => {
                let listed = self.rpc(server.list_one_volume(at.partition, id)).await;
                let listed =
                    listed.or_fail(self, || format!("Could not get info for volume {id}\n"))?;
                let name = listed.volumes.first().map(|info| info.name);
                let name = name.unwrap_or_default().to_string();
                format!("{}.clone", name.get(..25).unwrap_or(&name))
            }
        };
        let clone = match options.id {
            Some(clone) => clone,
            None => {
                step!(
                    self,
                    "Allocating new volume id for clone of volume {id} ..."
                );
                let clone = self.new_ids(1).await.or_fail_loudly(self, || {
                    format!("Could not get an ID for the clone of volume {id} from the VLDB\n")
                })?;
                self.done();
                clone
            }
        };
        let how = Cloning {
            kind: options.kind.unwrap_or(VolumeType::Backup),
            id: clone,
            what: "clone",
            name: &name,
            status: false,
        };
        let cloned = self.clone_volume(&server, id, at.partition, how).await;
        cloned.map_err(Failure)?;
        if !options.offline {
            self.clone_online(&server, at.partition, clone, "clone")
                .await?;
        }
        Ok(clone)
    }
}
