//! `vos create`.

use afar_rpc::afsvol;
use afar_types::{TransactionId, VolumeChanges, VolumeId, VolumeType};

use super::codes::VVOLEXISTS;
use super::entry::new_entry;
use super::event::{Answer, OrFail};
use super::transaction::IN_SERVICE;
use super::{Failure, ServerPartition, Vos, complain, step};

/// What a new volume is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// KiB it may use; 0 is no limit.
    pub max_quota: i32,
    /// Its id; without it, a new one.
    pub id: Option<VolumeId>,
    /// The id its read-only volumes will have; without it, a new one; 0 for none yet.
    pub read_only_id: Option<VolumeId>,
}

impl Default for CreateOptions {
    /// No limit and new ids: OpenAFS's 5000 KiB are from when that was a disk's share of a user.
    // spec: volumes#dates-of-a-volume
    fn default() -> Self {
        Self {
            max_quota: 0,
            id: None,
            read_only_id: None,
        }
    }
}

impl Vos {
    /// Makes a read-write volume with an empty root directory, and its entry. Returns its id.
    ///
    /// # Errors
    /// What a server says; then there is neither volume nor entry, unless that was said.
    pub async fn create(
        &self,
        at: ServerPartition,
        name: &str,
        options: &CreateOptions,
    ) -> Result<VolumeId, Failure> {
        let server = self.volume_server(at.server);
        // Its message stands alone.
        if let Some(id) = options.id
            && self.entry(id, None).await.is_ok()
        {
            complain!(self, "Volume ID {id} already exists\n");
            return Err(Failure(VVOLEXISTS));
        }
        let created = self.create_steps(&server, at, name, options).await;
        self.end(created)
    }

    async fn create_steps(
        &self,
        server: &afsvol::Client,
        at: ServerPartition,
        name: &str,
        options: &CreateOptions,
    ) -> Result<VolumeId, Failure> {
        if let Some(id) = options.read_only_id.filter(|id| id.0 != 0) {
            step!(self, "Using RO volume ID {id}.\n");
        }
        let ids = self.create_ids(name, options).await?;
        let [id, ..] = ids;
        let kind = VolumeType::ReadWrite;
        let parent = VolumeId(0);
        let made = self
            .make(
                server,
                at.partition,
                name,
                kind,
                (parent, id),
                Self::PATIENT,
            )
            .await;
        let (id, transaction) = made.or_fail_loudly(self, || {
            format!("Failed to create the volume {name} {id} \n")
        })?;
        let done = self
            .create_within(server, transaction, at, name, ids, options)
            .await;
        if let Err(failure) = done {
            if self.finish(server, transaction).await.is_err() {
                complain!(self, "WARNING: could not end transaction\n");
            }
            return Err(failure);
        }
        self.finish(server, transaction).await.or_fail(self, || {
            format!("Failed to end the transaction on the volume {name} {id}\n")
        })?;
        Ok(id)
    }

    async fn create_ids(
        &self,
        name: &str,
        options: &CreateOptions,
    ) -> Result<[VolumeId; 3], Failure> {
        let none = VolumeId(0);
        if let Some(id) = options.id {
            step!(self, "Using volume ID {id}.\n");
            // The next numbers are taken for granted.
            let mut last = id.0.max(options.read_only_id.map_or(0, |id| id.0));
            let read_only = options.read_only_id.unwrap_or_else(|| {
                last = last.wrapping_add(1);
                VolumeId(last)
            });
            return Ok([id, read_only, VolumeId(last.wrapping_add(1))]);
        }
        let take = async |what: &str| {
            let taken: Answer<_> = self.new_ids(1).await;
            taken.or_fail_loudly(self, || format!("Could not get {what} for volume {name}\n"))
        };
        let id = take("an Id").await?;
        let read_only = match options.read_only_id {
            Some(id) => id,
            None => take("an RO Id").await?,
        };
        let backup = take("a BK Id").await?;
        debug_assert!(id != none, "the server gives ids from 1");
        Ok([id, read_only, backup])
    }

    async fn create_within(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        at: ServerPartition,
        name: &str,
        ids: [VolumeId; 3],
        options: &CreateOptions,
    ) -> Result<(), Failure> {
        let [id, ..] = ids;
        let changes = VolumeChanges {
            max_quota: Some(options.max_quota),
            ..VolumeChanges::default()
        };
        if let Err(code) = self.rpc(server.set_info(transaction, changes)).await {
            self.complain_loudly(code, "Could not change quota, continuing...\n");
        }
        let online = self.set_flags(server, transaction, IN_SERVICE).await;
        online.or_fail_loudly(self, || {
            format!("Could not bring the volume {name} {id} online \n")
        })?;
        step!(self, "Volume {name} {id} created and brought online\n");
        let entry = new_entry(name, at, VolumeType::ReadWrite, ids);
        if let Err(code) = self.create_entry(&entry).await {
            complain!(
                self,
                "Could not create a VLDB entry for the volume {name} {id}\n"
            );
            step!(self, "Deleting the newly created volume {id}\n");
            let vos = self.calm();
            if let Err(code) = vos.rpc(server.delete_volume(transaction)).await {
                tracing::warn!("volume {id} at {} remains: code {code}", at.server);
            }
            return Err(Failure(code));
        }
        step!(self, "Created the VLDB entry for the volume {name} {id}\n");
        Ok(())
    }
}
