//! `vos move`.
//!
//! The volume is copied from a clone while it is in use, then what changed meanwhile is brought
//! over while it is busy, for a moment. Until the database names the new place, the volume at the
//! old one is what counts; from then on the other.

use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, DestServer, RestoreCookie, TransactionFlags, TransactionId, UnixTime, VldbEntry,
    VldbFlags, VolumeId, VolumeType,
};
use afar_xdr::CharArray;

use super::codes::{VNOVOL, VOLSERBADNAME, VOLSERBADOP, VOLSERVOLMOVED};
use super::entry::{clear, id_of, place, rw_index};
use super::event::OrFail;
use super::forward::{Source, Target};
use super::transaction::{DOOMED, Handle, IN_SERVICE, Removing, forwarding, name_text};
use super::vldb::Hold;
use super::{Failure, INTERRUPTED, ServerPartition, Vos, complain, say, step};

/// Seconds by which clocks may differ, so that no change is missed.
// spec: volumes#incremental-dumps
const CLOCK_SKEW: u32 = 2;

/// A time from which on changes are brought over, before a time on another server's clock.
pub(super) fn before(time: UnixTime) -> UnixTime {
    UnixTime(time.0.saturating_sub(CLOCK_SKEW))
}

/// What a move has to clean up if it goes no further.
struct Moving {
    id: VolumeId,
    from: ServerPartition,
    to: ServerPartition,
    source: afsvol::Client,
    destination: afsvol::Client,
    locked: bool,
    /// It went so far that there may be something to clean up.
    begun: bool,
    /// The destination may hold a copy.
    copied: bool,
    backup: VolumeId,
    clone: Option<VolumeId>,
    source_transaction: Option<TransactionId>,
    clone_transaction: Option<TransactionId>,
    destination_transaction: Option<TransactionId>,
}

/// A move that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveFailure {
    /// Nothing was done.
    #[error("{0}")]
    Refused(Failure),
    /// It failed on the way, or only had to clean up after an earlier one, and has cleaned up; what
    /// could not be is said.
    #[error("{0}")]
    Recovered(Failure),
}

impl Vos {
    /// Moves a read-write volume to another place while it is used. With `live`, not by a clone:
    /// that needs no space for one, but the volume is busy all the time.
    ///
    /// # Errors
    /// What a server says. If it has begun by then, the volume is at one of the places and nothing
    /// of it at the other, or it is said what is left.
    pub async fn move_volume(
        &self,
        id: VolumeId,
        from: ServerPartition,
        to: ServerPartition,
        live: bool,
    ) -> Result<(), MoveFailure> {
        let mut moving = Moving {
            id,
            from,
            to,
            source: self.volume_server(from.server),
            destination: self.volume_server(to.server),
            locked: false,
            begun: false,
            copied: false,
            backup: VolumeId(0),
            clone: None,
            source_transaction: None,
            clone_transaction: None,
            destination_transaction: None,
        };
        match self.move_steps(&mut moving, live).await {
            Ok(()) => Ok(()),
            Err(MoveFailure::Recovered(failure)) => {
                if failure.0 == INTERRUPTED && moving.begun {
                    complain!(self, "\nvos move: interrupted\n");
                }
                self.calm().recover(&mut moving).await;
                Err(MoveFailure::Recovered(failure))
            }
            refused => refused,
        }
    }

    // spec: volumes#moving-a-volume
    async fn move_steps(&self, moving: &mut Moving, live: bool) -> Result<(), MoveFailure> {
        let recover = MoveFailure::Recovered;
        let entry = self.move_check(moving).await?;
        moving.begun = true;
        let (name, from_date) = self.clone_source(moving, live).await.map_err(recover)?;
        self.copy_over(moving, &entry, &name, from_date, live)
            .await
            .map_err(recover)?;
        self.switch(moving, &entry).await.map_err(recover)?;
        self.remove_source(moving).await.map_err(recover)?;
        if entry.flags.contains(VldbFlags::READ_ONLY_EXISTS) {
            complain!(self, "WARNING : readOnly copies still exist \n");
        }
        Ok(())
    }

    /// Holds the entry and looks whether the volume is where it is said to be.
    async fn move_check(&self, moving: &mut Moving) -> Result<VldbEntry, MoveFailure> {
        let recover = MoveFailure::Recovered;
        let Moving { id, from, to, .. } = *moving;
        let unknown = || format!("Could not fetch the entry for the volume  {id} from the VLDB \n");
        let entry = self.entry(id, None).await;
        let entry = entry.or_fail_loudly(self, unknown).map_err(recover)?;
        if id_of(&entry, VolumeType::ReadWrite) != id {
            complain!(self, "Only RW volume can be moved\n");
            return Err(recover(Failure(VOLSERBADOP)));
        }
        let kind = Some(VolumeType::ReadWrite);
        let locked = self.lock(id, kind, VldbFlags::MOVE).await;
        let locked =
            locked.or_fail_loudly(self, || format!("Could not lock entry for volume {id} \n"));
        locked.map_err(recover)?;
        moving.locked = true;
        let entry = self.entry(id, kind).await;
        let entry = entry.or_fail_loudly(self, unknown).map_err(recover)?;
        moving.backup = id_of(&entry, VolumeType::Backup);
        if self.rw_match(&entry, from).await.is_none() {
            return Err(self.move_elsewhere(moving, &entry).await);
        }
        if from.partition == to.partition {
            let same = self.is_same_server(from.server, to.server).await;
            let same = same.or_fail_loudly(self, || {
                format!(
                    "Failed to get info about server's {} address(es) from vlserver; \
                     aborting call!\n",
                    from.server
                )
            });
            if same.map_err(recover)? {
                let text = format!("Warning: Moving volume {id} to its home partition ignored!\n");
                self.complain_loudly(VOLSERVOLMOVED, &text);
                return Err(recover(Failure(VOLSERVOLMOVED)));
            }
        }
        Ok(entry)
    }

    /// The volume is not at the source: either it never was, or an earlier move did not remove what
    /// it left there.
    async fn move_elsewhere(&self, moving: &mut Moving, entry: &VldbEntry) -> MoveFailure {
        let Moving { id, from, .. } = *moving;
        if self.rw_match(entry, moving.to).await.is_none() {
            complain!(self, "The volume {id} is not on the specified site. \n");
            complain!(self, "The current site is :");
            if let Some(site) = rw_index(entry) {
                let at = place(&entry.sites[site]);
                let server = self.name_of(at.server);
                complain!(self, " server {server} partition {} \n", at.partition);
            }
            let unlocked = self.unlock_entry(id, None).await.or_fail_loudly(self, || {
                format!(" Could not release lock on the VLDB entry for the volume {id} \n")
            });
            return match unlocked {
                Ok(()) => MoveFailure::Refused(Failure(VOLSERVOLMOVED)),
                Err(failure) => MoveFailure::Recovered(failure),
            };
        }
        moving.begun = true;
        for (id, what) in [(id, "leftover"), (moving.backup, "leftover backup")] {
            let how = Removing {
                what: Some(what),
                ..Removing::default()
            };
            match self.delete(&moving.source, id, from.partition, how).await {
                Ok(_) | Err(VNOVOL) => {}
                Err(code) => return MoveFailure::Recovered(Failure(code)),
            }
        }
        MoveFailure::Recovered(Failure(0))
    }

    /// Clones the source, so that it can be copied at leisure. Returns the volume's name, and from
    /// when on changes must be brought over afterwards.
    async fn clone_source(
        &self,
        moving: &mut Moving,
        live: bool,
    ) -> Result<(String, UnixTime), Failure> {
        let Moving { id, from, .. } = *moving;
        let source = moving.source.handle();
        step!(self, "Starting transaction on source volume {id} ...");
        let begun = self
            .begin(&source, id, from.partition, AttachFlags::BUSY)
            .await;
        let transaction = begun.or_fail_loudly(self, || {
            format!("Failed to create transaction on the volume {id}\n")
        })?;
        moving.source_transaction = Some(transaction);
        self.done();
        if !live {
            step!(
                self,
                "Allocating new volume id for clone of volume {id} ..."
            );
            let clone = self.new_ids(1).await.or_fail_loudly(self, || {
                format!("Could not get an ID for the clone of volume {id} from the VLDB\n")
            })?;
            self.done();
            step!(self, "Cloning source volume {id} ...");
            moving.clone = Some(clone);
            let name = name_text("move-clone-temp").map_err(Failure)?;
            let kind = VolumeType::ReadOnly.number();
            let cloned = self
                .rpc(source.clone(transaction, VolumeId(0), kind, name, clone))
                .await;
            cloned.or_fail_loudly(self, || format!("Failed to clone the source volume {id}\n"))?;
            self.done();
        }
        let name = self.rpc(source.get_name(transaction)).await;
        let name = name.or_fail_loudly(self, || {
            format!("Failed to get the name of the volume {id}\n")
        })?;
        step!(self, "Ending the transaction on the source volume {id} ...");
        moving.source_transaction = None;
        let finished = self.finish(&source, transaction).await;
        finished.or_fail_loudly(self, || {
            format!("Failed to end the transaction on the source volume {id}\n")
        })?;
        self.done();
        let from_date = match moving.clone {
            Some(clone) => {
                let doomed = self.doom_clone(&source, clone, from).await?;
                moving.clone_transaction = Some(doomed.0);
                doomed.1
            }
            None => UnixTime(0),
        };
        Ok((name.name.to_string(), from_date))
    }

    /// Begins a transaction on a clone that is to be removed in the end. Returns when it was made,
    /// less the difference of clocks.
    pub(super) async fn doom_clone(
        &self,
        source: &afsvol::Client,
        clone: VolumeId,
        at: ServerPartition,
    ) -> Result<(TransactionId, UnixTime), Failure> {
        step!(
            self,
            "Starting transaction on the cloned volume {clone} ..."
        );
        let begun = self
            .begin(source, clone, at.partition, AttachFlags::OFFLINE)
            .await;
        let transaction = begun.or_fail_loudly(self, || {
            format!("Failed to start a transaction on the cloned volume{clone}\n")
        })?;
        self.done();
        let status = async {
            step!(self, "Setting flags on cloned volume {clone} ...");
            let set = self.set_flags(source, transaction, DOOMED).await;
            set.or_fail_loudly(self, || {
                format!("Could not set flags on the cloned volume {clone}\n")
            })?;
            self.done();
            step!(self, "Getting status of cloned volume {clone} ...");
            let status = self.status(source, transaction).await;
            let status = status.or_fail_loudly(self, || {
                format!("Failed to get the status of the cloned volume {clone}\n")
            })?;
            self.done();
            Ok(status)
        };
        match status.await {
            Ok(status) => Ok((transaction, before(status.creation_date))),
            Err(failure) => {
                // The clone itself is removed by whoever made it.
                let _gone = self.finish(source, transaction).await;
                Err(failure)
            }
        }
    }

    /// Makes the volume at the destination and fills it, first from the clone.
    async fn copy_over(
        &self,
        moving: &mut Moving,
        entry: &VldbEntry,
        name: &str,
        from_date: UnixTime,
        live: bool,
    ) -> Result<(), Failure> {
        let Moving { id, from, to, .. } = *moving;
        let source = moving.source.handle();
        let destination = moving.destination.handle();
        moving.copied = true;
        let how = Removing {
            what: Some("pre-existing destination"),
            ..Removing::default()
        };
        match self.delete(&destination, id, to.partition, how).await {
            Ok(_) | Err(VNOVOL) => {}
            Err(code) => return Err(Failure(code)),
        }
        step!(self, "Creating the destination volume {id} ...");
        let kind = VolumeType::ReadWrite;
        let made = self
            .make(&destination, to.partition, name, kind, (id, id), 1)
            .await;
        let (_, there) = made.or_fail_loudly(self, || {
            format!("Failed to create the destination volume {id}\n")
        })?;
        moving.destination_transaction = Some(there);
        self.done();
        step!(self, "Setting volume flags on destination volume {id} ...");
        let set = self.set_flags(&destination, there, DOOMED).await;
        set.or_fail_loudly(self, || {
            format!("Failed to set the flags on the destination volume {id}\n")
        })?;
        self.done();
        let cookie = RestoreCookie {
            name: CharArray::new(name).map_err(|_| Failure(VOLSERBADNAME))?,
            kind: VolumeType::ReadWrite.number(),
            clone_id: VolumeId(0),
            parent_id: id_of(entry, VolumeType::ReadWrite),
        };
        let target = Target {
            id,
            server: self.dest_server(to.server),
            transaction: there,
            cookie,
        };
        let at_source = Source {
            id,
            at: from,
            server: &source,
            clone: moving.clone,
            transaction: &mut moving.source_transaction,
            clone_transaction: &mut moving.clone_transaction,
        };
        let here = self.forward_clone(at_source, UnixTime(0), &target).await?;
        let incremental = if live { "" } else { " incremental" };
        step!(
            self,
            "Doing the{incremental} dump from source to destination for volume {id} ... "
        );
        let forwarded = self
            .rpc(source.forward(here, from_date, target.server, there, target.cookie))
            .await;
        forwarded.or_fail_loudly(self, || {
            format!(
                "Failed to do the{incremental} dump from rw volume on old site to rw volume on \
                 newsite\n"
            )
        })?;
        self.done();
        Ok(())
    }

    /// Takes the source off line, brings the destination on line, and has the database say so.
    async fn switch(&self, moving: &mut Moving, entry: &VldbEntry) -> Result<(), Failure> {
        let Moving { id, to, .. } = *moving;
        // From here on it is shorter to go on than to go back.
        let vos = self.calm();
        let (Some(here), Some(there)) = (moving.source_transaction, moving.destination_transaction)
        else {
            return Err(Failure(VOLSERBADOP));
        };
        step!(self, "Setting volume flags on old source volume {id} ...");
        let set = vos
            .set_flags(&moving.source, here, TransactionFlags::OUT_OF_SERVICE)
            .await;
        set.or_fail_loudly(self, || {
            "Failed to set the flags to make old source volume offline\n".to_owned()
        })?;
        self.done();
        step!(self, "Setting volume flags on new source volume {id} ...");
        let set = vos.set_flags(&moving.destination, there, IN_SERVICE).await;
        set.or_fail_loudly(self, || {
            "Failed to set the flags to make new source volume online\n".to_owned()
        })?;
        self.done();
        step!(self, "Ending transaction on destination volume {id} ...");
        moving.destination_transaction = None;
        let finished = vos.finish(&moving.destination, there).await;
        finished.or_fail_loudly(self, || {
            format!("Failed to end the transaction on the volume {id} on the new site\n")
        })?;
        self.done();
        let mut new = entry.clone();
        if let Some(site) = rw_index(&new) {
            new.sites[site].server = afar_types::SiteServer::Address(to.server);
            new.sites[site].partition = to.partition;
        }
        clear(&mut new.flags, VldbFlags::BACKUP_EXISTS);
        step!(self, "Releasing lock on VLDB entry for volume {id} ...");
        let replaced = vos.replace_entry(id, None, &new, Hold::Release).await;
        replaced.or_fail(self, || {
            format!(
                " Could not release the lock on the VLDB entry for the volume {} {id} \n",
                new.name
            )
        })?;
        moving.locked = false;
        self.done();
        Ok(())
    }

    /// Removes the volume at its old place, its backup, and the clone.
    async fn remove_source(&self, moving: &mut Moving) -> Result<(), Failure> {
        let Moving { id, from, to, .. } = *moving;
        let vos = self.calm();
        let source = moving.source.handle();
        if let Some(here) = moving.source_transaction {
            if to.server != from.server {
                step!(self, "Setting forwarding pointer for volume {id} ...");
                let set = vos
                    .rpc(source.set_forwarding(here, forwarding(to.server)))
                    .await;
                set.or_fail_loudly(self, || {
                    format!("Failed to set the forwarding pointer for the volume {id}\n")
                })?;
                self.done();
            }
            step!(self, "Deleting old volume {id} on source ...");
            let deleted = vos.rpc(source.delete_volume(here)).await;
            deleted.or_fail_loudly(self, || {
                format!("Failed to delete the old volume {id} on source\n")
            })?;
            self.done();
            step!(
                self,
                "Ending transaction on old volume {id} on the source ..."
            );
            moving.source_transaction = None;
            let finished = vos.finish(&source, here).await;
            finished.or_fail_loudly(self, || {
                format!("Failed to end the transaction on the old volume {id} on the source\n")
            })?;
            self.done();
        }
        let clone = moving.clone.map(|clone| (clone, "cloned"));
        let leftovers = [Some((moving.backup, "source backup")), clone];
        for (id, what) in leftovers.into_iter().flatten() {
            let how = Removing {
                what: Some(what),
                ..Removing::default()
            };
            match vos.delete(&source, id, from.partition, how).await {
                Ok(_) | Err(VNOVOL) => {}
                Err(code) => return Err(Failure(code)),
            }
        }
        Ok(())
    }

    /// After a failure, goes back to where the database says the volume is.
    async fn recover(&self, moving: &mut Moving) {
        let id = moving.id;
        if moving.begun {
            say!(
                self,
                "vos move: operation interrupted, cleanup in progress...\n"
            );
            say!(self, "clear transaction contexts\n");
        }
        self.recover_transactions(moving).await;
        step!(self, "Recovery: Accessing VLDB.\n");
        let Ok(entry) = self.entry(id, None).await else {
            say!(self, "FATAL: VLDB access error: abort cleanup\n");
            if moving.begun {
                self.tell_leftovers(moving);
                say!(self, "cleanup complete - user verify desired result\n");
            }
            return;
        };
        if !moving.begun {
            return;
        }
        if self.rw_match(&entry, moving.from).await.is_some() {
            self.recover_source(moving).await;
        } else {
            self.recover_destination(moving).await;
        }
        if let Some(clone) = moving.clone {
            let (source, partition) = (&moving.source, moving.from.partition);
            self.recover_delete(source, clone, partition, "clone", "Recovery:")
                .await;
        }
        say!(self, "cleanup complete - user verify desired result\n");
    }

    async fn recover_transactions(&self, moving: &mut Moving) {
        let id = moving.id;
        if std::mem::take(&mut moving.locked) {
            step!(self, "Recovery: Releasing VLDB lock on volume {id} ...");
            if self.unlock_entry(id, None).await.is_err() {
                complain!(self, "The entry is still locked: run vos unlock {id}\n");
            }
            self.done();
        }
        if let Some(transaction) = moving.clone_transaction.take() {
            step!(self, "Recovery: Ending transaction on clone volume ...");
            let _ended = self.finish(&moving.source, transaction).await;
            self.done();
        }
        if let Some(transaction) = moving.destination_transaction.take() {
            step!(
                self,
                "Recovery: Ending transaction on destination volume ..."
            );
            let _ended = self.finish(&moving.destination, transaction).await;
            self.done();
        }
        if let Some(transaction) = moving.source_transaction.take() {
            step!(self, "Recovery: Setting volume flags on source volume ...");
            let _set = self
                .set_flags(&moving.source, transaction, IN_SERVICE)
                .await;
            self.done();
            step!(self, "Recovery: Ending transaction on source volume ...");
            let _ended = self.finish(&moving.source, transaction).await;
            self.done();
        }
    }

    /// The volume stays at the source: the destination's copy goes.
    async fn recover_source(&self, moving: &Moving) {
        let Moving { id, from, to, .. } = *moving;
        say!(
            self,
            "move incomplete - attempt cleanup of target partition - no guarantee\n"
        );
        if moving.copied {
            let (server, what) = (&moving.destination, "destination");
            self.recover_delete(server, id, to.partition, what, "Recovery:")
                .await;
        }
        let source = &moving.source;
        step!(
            self,
            "Recovery: Creating transaction on source volume {id} ..."
        );
        match self
            .begin(source, id, from.partition, AttachFlags::BUSY)
            .await
        {
            Ok(transaction) => {
                self.done();
                step!(self, "Recovery: Setting flags on source volume {id} ...");
                let online = self.set_flags(source, transaction, IN_SERVICE).await;
                self.done();
                step!(
                    self,
                    "Recovery: Ending transaction on source volume {id} ..."
                );
                let ended = self.finish(source, transaction).await;
                self.done();
                if online.and(ended).is_err() {
                    self.tell_online(moving);
                }
            }
            Err(_) => {
                step!(
                    self,
                    "\nRecovery: Unable to start transaction on source volume {id}.\n"
                );
                self.tell_online(moving);
            }
        }
    }

    /// The volume is at the destination: what is left at the source goes.
    async fn recover_destination(&self, moving: &Moving) {
        let Moving { id, from, to, .. } = *moving;
        say!(
            self,
            "move complete - attempt cleanup of source partition - no guarantee\n"
        );
        let (source, partition) = (&moving.source, from.partition);
        self.recover_delete(source, moving.backup, partition, "backup", "Recovery:")
            .await;
        let how = Removing {
            what: Some("source"),
            forward: (to.server != from.server).then_some(to.server),
            ..Removing::default()
        };
        match self.delete(source, id, partition, how).await {
            Ok(_) => {}
            Err(VNOVOL) => {
                let text = format!("Failed to start transaction on {id}\n");
                self.complain_loudly(VNOVOL, &text);
            }
            Err(_) => self.tell_zap(from, id),
        }
    }

    async fn recover_delete(
        &self,
        server: &afsvol::Client,
        id: VolumeId,
        partition: afar_types::PartitionId,
        what: &str,
        prefix: &str,
    ) {
        let how = Removing {
            what: Some(what),
            prefix,
            ..Removing::default()
        };
        match self.delete(server, id, partition, how).await {
            Ok(_) => {}
            Err(VNOVOL) => {
                let text = format!("Recovery: Failed to start transaction on {id}\n");
                self.complain_loudly(VNOVOL, &text);
            }
            Err(_) => {
                if let std::net::IpAddr::V4(server) = server.connection().peer().ip() {
                    self.tell_zap(ServerPartition { server, partition }, id);
                }
            }
        }
    }

    fn tell_zap(&self, at: ServerPartition, id: VolumeId) {
        let (server, partition) = (self.name_of(at.server), at.partition);
        complain!(
            self,
            "Volume {id} remains on {server} {partition}: run vos zap {server} {partition} {id}\n"
        );
    }

    fn tell_online(&self, moving: &Moving) {
        let Moving { id, from, .. } = *moving;
        let (server, partition) = (self.name_of(from.server), from.partition);
        complain!(
            self,
            "Volume {id} may be off line: run vos online {server} {partition} {id}\n"
        );
    }

    /// What may be left where nobody knows which place counts.
    fn tell_leftovers(&self, moving: &Moving) {
        if moving.copied {
            let (from, to) = (
                self.name_of(moving.from.server),
                self.name_of(moving.to.server),
            );
            complain!(
                self,
                "Volume {} may be on both servers. When the location servers answer again, run \
                 vos move again, or vos syncvldb {from} and vos syncvldb {to}\n",
                moving.id
            );
        }
        if let Some(clone) = moving.clone {
            self.tell_zap(moving.from, clone);
        }
    }

    /// A volume server as a destination of dumps.
    pub(super) fn dest_server(&self, server: std::net::Ipv4Addr) -> DestServer {
        DestServer {
            port: self.servers.volume_port().into(),
            ..DestServer::new(server)
        }
    }
}
