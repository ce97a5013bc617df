//! `vos release`.
//!
//! The read-write volume is cloned, and the clone is dumped to all read-only sites at once, each
//! getting what changed since its last release. Which sites have the new version is recorded in the
//! entry after each step, so that clients use no other, and so that a release that was interrupted
//! goes on where it stopped: the clone is still there, and only sites without the new version get
//! it. A volume that has not changed since all its sites were released is left alone.

mod decide;
mod forward;

use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, SiteFlags, TransactionId, UnixTime, VldbEntry, VldbFlags, VolserStatus, VolumeId,
    VolumeType,
};

use super::codes::{VL_RERELEASE, VNOVOL, VOLSERBADOP, VOLSERBADRELEASE, VOLSERNOVOL};
use super::entry::{address, id_of, rw_index, set, set_id};
use super::event::OrFail;
use super::transaction::{Cloning, Handle, IN_SERVICE, Removing};
use super::vldb::Hold;
use super::{Failure, ServerPartition, Vos, complain, enumerate, is_name_valid, step};

use decide::Completeness;

/// What to do although it may not be needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReleaseOptions {
    /// Clone again and bring all sites up to date.
    pub reclone: bool,
    /// Dump everything, not only what changed.
    pub full_dumps: bool,
}

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// All sites had the current version already.
    Unchanged,
    /// These sites got it, by their places in the entry's list.
    Sites(Vec<usize>),
}

/// A release on its way.
struct Releasing {
    id: VolumeId,
    from: ServerPartition,
    source: afsvol::Client,
    options: ReleaseOptions,
    locked: bool,
    entry: VldbEntry,
    /// The sites' flags before anything was done.
    flags_before: Vec<SiteFlags>,
    rw_index: usize,
    /// The read-only site beside the read-write volume, whose volume is the clone.
    ro_index: Option<usize>,
    clone: VolumeId,
    clone_exists: bool,
    completeness: Completeness,
    /// Only sites that never had the volume are filled.
    just_new_sites: bool,
    tried_just_new_sites: bool,
    /// When the read-write volume was made.
    rw_created: UnixTime,
    clone_transaction: Option<TransactionId>,
    clone_status: VolserStatus,
    released: Vec<usize>,
}

impl Vos {
    /// Brings all read-only sites of a volume up to date.
    ///
    /// # Errors
    /// What a server says; VOLSERBADRELEASE if some sites could not be reached. Calling it again
    /// goes on with those.
    pub async fn release(
        &self,
        id: VolumeId,
        from: ServerPartition,
        options: ReleaseOptions,
    ) -> Result<Released, Failure> {
        let mut locked = false;
        let released = self.release_locked(id, from, options, &mut locked).await;
        let mut result = released;
        if locked {
            let unlocked = self.unlock_entry(id, Some(VolumeType::ReadWrite)).await;
            let unlocked = unlocked.or_fail(self, || {
                format!("Could not release lock on the VLDB entry for volume {id}\n")
            });
            if let Err(failure) = unlocked {
                result = result.and(Err(failure));
            }
        }
        self.end(result)
    }

    async fn release_locked(
        &self,
        id: VolumeId,
        from: ServerPartition,
        options: ReleaseOptions,
        locked: &mut bool,
    ) -> Result<Released, Failure> {
        let kind = Some(VolumeType::ReadWrite);
        match self.lock(id, kind, VldbFlags::RELEASE).await {
            // The last one was not finished.
            // spec: afs-rpc#held-entries
            Err(VL_RERELEASE) => {}
            answer => answer.or_fail(self, || {
                format!("Could not lock the VLDB entry for the volume {id}.\n")
            })?,
        }
        *locked = true;
        let mut releasing = self.release_begin(id, from, options).await?;
        if self.is_unchanged(&releasing).await {
            step!(self, "Volume {id} has not changed since its last release\n");
            return Ok(Released::Unchanged);
        }
        let mut result = self.release_steps(&mut releasing).await;
        if let Some(transaction) = releasing.clone_transaction.take() {
            let ended = self.finish(&releasing.source, transaction).await;
            let ended = ended.or_fail(self, || {
                let clone = releasing.clone;
                format!("Failed to end transaction on the release clone {clone}\n")
            });
            result = result.and(ended);
        }
        *locked = releasing.locked;
        result.map(|()| Released::Sites(releasing.released))
    }

    /// Reads the entry and checks that it makes sense to release the volume.
    async fn release_begin(
        &self,
        id: VolumeId,
        from: ServerPartition,
        options: ReleaseOptions,
    ) -> Result<Releasing, Failure> {
        let kind = Some(VolumeType::ReadWrite);
        let entry = self.entry(id, kind).await;
        let mut entry = entry.or_fail(self, || {
            format!("Could not fetch the entry for the volume {id} from the VLDB.\n")
        })?;
        step!(
            self,
            "{}",
            enumerate(&entry, &|server| self.name_of(server))
        );
        let name = entry.name.to_string();
        let refuse = |text: String| {
            complain!(self, "{text}");
            Err(Failure(VOLSERBADOP))
        };
        if !is_name_valid(&name) {
            return refuse(format!(
                "Volume name {name} is too long, rename before releasing.\n"
            ));
        }
        if id_of(&entry, VolumeType::ReadWrite) != id {
            return refuse(format!(
                "The volume {id} being released is not a read-write volume.\n"
            ));
        }
        if entry.sites.len() <= 1 {
            return refuse(format!(
                "Volume {id} has no replicas - release operation is meaningless!\n"
            ));
        }
        let ro_index = self.ro_match(&entry, from).await;
        let Some(rw_index) = rw_index(&entry) else {
            complain!(self, "There is no RW volume \n");
            return Err(Failure(VOLSERNOVOL));
        };
        if id_of(&entry, VolumeType::ReadOnly).0 == 0 {
            let new = self.new_ids(1).await.or_fail(self, || {
                format!("Cant allocate ID for RO volume of {name}\n")
            })?;
            set_id(&mut entry, VolumeType::ReadOnly, new);
            let replaced = self.replace_entry(id, kind, &entry, Hold::Keep).await;
            replaced.or_fail(self, || {
                format!("Could not update vldb entry for {name}.\n")
            })?;
        }
        Ok(Releasing {
            id,
            from,
            source: self.volume_server(from.server),
            options,
            locked: true,
            flags_before: entry.sites.iter().map(|site| site.flags).collect(),
            entry,
            rw_index,
            ro_index,
            clone: VolumeId(0),
            clone_exists: false,
            completeness: Completeness::default(),
            just_new_sites: false,
            tried_just_new_sites: false,
            rw_created: UnixTime(0),
            clone_transaction: None,
            clone_status: VolserStatus::default(),
            released: Vec::new(),
        })
    }

    // spec: volumes#releasing-a-volume
    async fn release_steps(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        self.decide(releasing).await?;
        self.tell_decision(releasing);
        let complete = releasing.completeness.is_complete();
        if complete {
            self.mark_sites(releasing).await?;
        }
        if complete && !(releasing.just_new_sites && releasing.clone_exists) {
            self.release_clone(releasing).await?;
        }
        if releasing.just_new_sites {
            step!(
                self,
                "RW vol has not changed; only releasing to new RO sites\n"
            );
            releasing.completeness = Completeness::default();
        } else if releasing.tried_just_new_sites {
            step!(self, "RW vol has changed; releasing to all sites\n");
        }
        self.open_clone(releasing).await?;
        self.forward_all(releasing).await?;
        self.release_end(releasing).await
    }

    /// Clones the read-write volume.
    async fn release_clone(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let Releasing { id, from, .. } = *releasing;
        let clone = releasing.clone;
        let permanent = format!("{}.readonly", releasing.entry.name);
        let (what, name) = match releasing.ro_index {
            Some(_) => ("permanent RO", permanent.as_str()),
            None => ("temporary RO", "readonly-clone-temp"),
        };
        let how = Cloning {
            kind: VolumeType::ReadOnly,
            id: clone,
            what,
            name,
            status: true,
        };
        let source = releasing.source.handle();
        let status = self.clone_volume(&source, id, from.partition, how).await;
        let status = status.map_err(Failure)?;
        if releasing.just_new_sites && self.rw_updated(releasing).await != Some(status.update_date)
        {
            releasing.just_new_sites = false;
            releasing.unmark_sites();
        }
        releasing.rw_created = status.creation_date;
        releasing.entry.clone_id = clone;
        let Some(ro_index) = releasing.ro_index else {
            return Ok(());
        };
        self.release_online(&source, releasing).await?;
        releasing.mark_released(ro_index);
        let name = releasing.entry.name;
        step!(self, "Replacing VLDB entry for {name}...");
        let kind = Some(VolumeType::ReadWrite);
        let replaced = self
            .replace_entry(id, kind, &releasing.entry, Hold::Keep)
            .await;
        replaced.or_fail(self, || {
            format!("Could not update vldb entry for {name}.\n")
        })?;
        self.done();
        Ok(())
    }

    /// Brings the clone on line, which is the read-only volume beside the read-write one.
    async fn release_online(
        &self,
        source: &afsvol::Client,
        releasing: &Releasing,
    ) -> Result<(), Failure> {
        let (clone, partition) = (releasing.clone, releasing.from.partition);
        step!(self, "Starting transaction on RO clone volume {clone}...");
        let begun = self
            .begin(source, clone, partition, AttachFlags::OFFLINE)
            .await;
        let transaction = begun.or_fail(self, || {
            format!("Failed to start transaction on volume {clone}\n")
        })?;
        self.done();
        step!(self, "Setting volume flags for volume {clone}...");
        let online = self.set_flags(source, transaction, IN_SERVICE).await;
        self.done();
        step!(self, "Ending transaction on volume {clone}...");
        let finished = self.finish(source, transaction).await;
        finished.or_fail(self, || {
            format!("Failed to end transaction on RO clone {clone}\n")
        })?;
        self.done();
        online.or_fail(self, || format!("Could not bring volume {clone} on line\n"))
    }

    /// Begins the transaction that everything is dumped from.
    async fn open_clone(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let (clone, partition) = (releasing.clone, releasing.from.partition);
        let source = releasing.source.handle();
        step!(self, "Starting transaction on cloned volume {clone}...");
        let begun = self
            .begin(&source, clone, partition, AttachFlags::BUSY)
            .await;
        let opened = match begun {
            Ok(transaction) => {
                releasing.clone_transaction = Some(transaction);
                self.status(&source, transaction).await
            }
            Err(code) => Err(code),
        };
        match opened {
            Ok(status) => {
                releasing.clone_status = status;
                self.done();
                Ok(())
            }
            Err(_) if !releasing.completeness.is_complete() => {
                let id = releasing.id;
                complain!(
                    self,
                    "Old clone is inaccessible. Try vos release -f {id}.\n"
                );
                Err(Failure(VOLSERNOVOL))
            }
            Err(code) => {
                complain!(self, "Failed to create transaction on the release clone\n");
                Err(Failure(code))
            }
        }
    }

    /// Removes the clone and the marks if all sites have the new version; says which have not.
    async fn release_end(&self, releasing: &mut Releasing) -> Result<(), Failure> {
        let (id, kind) = (releasing.id, Some(VolumeType::ReadWrite));
        if let Some(transaction) = releasing.clone_transaction.take()
            && let Err(code) = self.finish(&releasing.source, transaction).await
        {
            self.explain("Failed to end transaction on rw volume: ", code);
        }
        let update = || format!(" Could not update VLDB entry for volume {id}\n");
        let is_old = |flags: SiteFlags| !flags.contains(SiteFlags::NEW_REPLICA);
        let old = releasing
            .entry
            .sites
            .iter()
            .filter(|site| is_old(site.flags));
        let old: Vec<_> = old.copied().collect();
        if !old.is_empty() {
            let count = old.len();
            complain!(
                self,
                "The volume {id} could not be released to the following {count} sites:\n"
            );
            for site in old {
                let server = self.name_of(address(&site));
                complain!(self, "\t{server:>35} {}\n", site.partition);
            }
            let replaced = self
                .replace_entry(id, kind, &releasing.entry, Hold::Keep)
                .await;
            replaced.or_fail(self, update)?;
            return Err(Failure(VOLSERBADRELEASE));
        }
        releasing.entry.clone_id = VolumeId(0);
        if releasing.ro_index.is_none() {
            let (clone, partition) = (releasing.clone, releasing.from.partition);
            step!(self, "Deleting the releaseClone {clone} ...");
            let how = Removing::default();
            match self.delete(&releasing.source, clone, partition, how).await {
                Ok(_) | Err(VNOVOL) => {}
                deleted => {
                    deleted.or_fail(self, || format!("Failed to delete volume {clone}.\n"))?;
                }
            }
            self.done();
        }
        for site in &mut releasing.entry.sites {
            site.flags = site.flags.without(SiteFlags::NEW_REPLICA);
        }
        step!(self, "updating VLDB ...");
        let replaced = self
            .replace_entry(id, kind, &releasing.entry, Hold::Release)
            .await;
        replaced.or_fail(self, update)?;
        releasing.locked = false;
        self.done();
        Ok(())
    }
}

impl Releasing {
    /// A site has the new version.
    fn mark_released(&mut self, index: usize) {
        let site = &mut self.entry.sites[index];
        site.flags = site
            .flags
            .with(SiteFlags::NEW_REPLICA)
            .without(SiteFlags::DONT_USE);
        set(&mut self.entry.flags, VldbFlags::READ_ONLY_EXISTS);
        self.released.push(index);
    }

    /// No site has the new version but the read-write one.
    fn unmark_sites(&mut self) {
        for site in &mut self.entry.sites {
            site.flags = site
                .flags
                .without(SiteFlags::NEW_REPLICA)
                .with(SiteFlags::DONT_USE);
        }
        let site = &mut self.entry.sites[self.rw_index];
        site.flags = site
            .flags
            .with(SiteFlags::NEW_REPLICA)
            .without(SiteFlags::DONT_USE);
    }
}
