//! `vos copy` and `vos shadow`.

use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, RestoreCookie, TransactionFlags, TransactionId, UnixTime, VolumeId, VolumeType,
};
use afar_xdr::CharArray;

use super::codes::{VNOVOL, VOLSERBADNAME};
use super::entry::new_entry;
use super::event::OrFail;
use super::forward::{Source, Target};
use super::r#move::before;
use super::transaction::{DOOMED, Handle, IN_SERVICE, Removing, name_text};
use super::{Failure, INTERRUPTED, ServerPartition, Vos, complain, say, step};

/// What a copy is to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Its id; without it, a new one.
    pub id: Option<VolumeId>,
    /// It does not come on line.
    pub offline: bool,
    /// It is read-only.
    pub read_only: bool,
    /// It is not made by a clone: the source is busy all the time.
    pub live: bool,
    /// The database does not learn of it: a shadow.
    pub shadow: bool,
    /// A copy that is there gets only what changed.
    pub incremental: bool,
}

/// What a copy has to clean up if it goes no further.
struct Copying {
    source: afsvol::Client,
    destination: afsvol::Client,
    begun: bool,
    clone: Option<VolumeId>,
    source_transaction: Option<TransactionId>,
    clone_transaction: Option<TransactionId>,
    destination_transaction: Option<TransactionId>,
}

impl CopyOptions {
    fn kind(&self) -> VolumeType {
        if self.read_only {
            VolumeType::ReadOnly
        } else {
            VolumeType::ReadWrite
        }
    }
}

impl Vos {
    /// Copies a volume to a new one of this name. Returns the new one's id.
    ///
    /// # Errors
    /// What a server says; then the clone made on the way is gone, and so is what was copied
    /// unless that was said.
    pub async fn copy(
        &self,
        id: VolumeId,
        from: ServerPartition,
        name: &str,
        to: ServerPartition,
        options: &CopyOptions,
    ) -> Result<VolumeId, Failure> {
        let mut copying = Copying {
            source: self.volume_server(from.server),
            destination: self.volume_server(to.server),
            begun: false,
            clone: None,
            source_transaction: None,
            clone_transaction: None,
            destination_transaction: None,
        };
        let copied = self
            .copy_steps(&mut copying, id, from, name, to, options)
            .await;
        if let Err(failure) = copied {
            if failure.0 == INTERRUPTED && copying.begun {
                complain!(self, "\nvos copy: interrupted\n");
            }
            self.calm().recover_copy(&mut copying, id, from).await;
        }
        copied
    }

    async fn copy_steps(
        &self,
        copying: &mut Copying,
        id: VolumeId,
        from: ServerPartition,
        name: &str,
        to: ServerPartition,
        options: &CopyOptions,
    ) -> Result<VolumeId, Failure> {
        let entry = self.entry(id, None).await;
        entry.or_fail_loudly(self, || {
            format!("Could not fetch the entry for the volume  {id} from the VLDB \n")
        })?;
        copying.begun = true;
        let new = self.copy_clone(copying, id, from, options).await?;
        let mut from_date = UnixTime(0);
        if let Some(clone) = copying.clone {
            let source = copying.source.handle();
            let (transaction, made) = self.doom_clone(&source, clone, from).await?;
            copying.clone_transaction = Some(transaction);
            from_date = made;
        }
        let since = self.copy_target(copying, new, name, to, options).await?;
        if options.live {
            from_date = since;
        }
        self.copy_data(
            copying,
            id,
            from,
            (name, new, to),
            (since, from_date),
            options,
        )
        .await?;
        if let Some(clone) = copying.clone.take() {
            let how = Removing {
                what: Some("cloned"),
                ..Removing::default()
            };
            let gone = self
                .delete(&copying.source, clone, from.partition, how)
                .await;
            match gone {
                Ok(_) | Err(VNOVOL) => {}
                Err(code) => {
                    copying.clone = Some(clone);
                    return Err(Failure(code));
                }
            }
        }
        if !options.shadow {
            self.copy_entry(copying, new, name, to, options).await?;
        }
        Ok(new)
    }

    /// Takes ids and clones the source.
    async fn copy_clone(
        &self,
        copying: &mut Copying,
        id: VolumeId,
        from: ServerPartition,
        options: &CopyOptions,
    ) -> Result<VolumeId, Failure> {
        let source = copying.source.handle();
        let mut clone = None;
        if !options.live {
            step!(self, "Starting transaction on source volume {id} ...");
            let begun = self
                .begin(&source, id, from.partition, AttachFlags::BUSY)
                .await;
            let transaction = begun.or_fail_loudly(self, || {
                format!("Failed to create transaction on the volume {id}\n")
            })?;
            copying.source_transaction = Some(transaction);
            self.done();
            step!(
                self,
                "Allocating new volume id for clone of volume {id} ..."
            );
            let new = self.new_ids(1).await.or_fail_loudly(self, || {
                format!("Could not get an ID for the clone of volume {id} from the VLDB\n")
            })?;
            self.done();
            clone = Some((new, transaction));
        }
        let new = match options.id {
            Some(new) => new,
            None => {
                step!(self, "Allocating new volume id for copy of volume {id} ...");
                let new = self.new_ids(1).await.or_fail_loudly(self, || {
                    format!("Could not get an ID for the copy of volume {id} from the VLDB\n")
                })?;
                self.done();
                new
            }
        };
        if let Some((clone, transaction)) = clone {
            step!(self, "Cloning source volume {id} ...");
            copying.clone = Some(clone);
            let name = name_text("copy-clone-temp").map_err(Failure)?;
            let kind = VolumeType::ReadOnly.number();
            let cloned = self
                .rpc(source.clone(transaction, VolumeId(0), kind, name, clone))
                .await;
            cloned.or_fail_loudly(self, || format!("Failed to clone the source volume {id}\n"))?;
            self.done();
            step!(self, "Ending the transaction on the source volume {id} ...");
            copying.source_transaction = None;
            let finished = self.finish(&source, transaction).await;
            finished.or_fail_loudly(self, || {
                format!("Failed to end the transaction on the source volume {id}\n")
            })?;
            self.done();
        }
        Ok(new)
    }

    /// Makes the volume at the destination. Returns from when on it needs changes.
    async fn copy_target(
        &self,
        copying: &mut Copying,
        new: VolumeId,
        name: &str,
        to: ServerPartition,
        options: &CopyOptions,
    ) -> Result<UnixTime, Failure> {
        let server = copying.destination.handle();
        let begun = self
            .begin(&server, new, to.partition, AttachFlags::OFFLINE)
            .await;
        if let Ok(there) = begun {
            copying.destination_transaction = Some(there);
            if options.incremental {
                step!(self, "Getting status of pre-existing volume {new} ...");
                let status = self.status(&server, there).await;
                let status = status.or_fail_loudly(self, || {
                    format!("Failed to get the status of the pre-existing volume {new}\n")
                })?;
                self.done();
                return Ok(before(status.update_date));
            }
            step!(
                self,
                "Deleting pre-existing volume {new} on destination ..."
            );
            let deleted = self.rpc(server.delete_volume(there)).await;
            deleted.or_fail_loudly(self, || {
                format!("Could not delete the pre-existing volume {new} on destination\n")
            })?;
            self.done();
            step!(
                self,
                "Ending transaction on pre-existing volume {new} on destination ..."
            );
            copying.destination_transaction = None;
            let finished = self.finish(&server, there).await;
            finished.or_fail_loudly(self, || {
                format!(
                    "Could not end the transaction on pre-existing volume {new} on destination\n"
                )
            })?;
            self.done();
        }
        step!(self, "Creating the destination volume {new} ...");
        let made = self
            .make(&server, to.partition, name, options.kind(), (new, new), 1)
            .await;
        let (_, there) = made.or_fail_loudly(self, || {
            format!("Failed to create the destination volume {new}\n")
        })?;
        copying.destination_transaction = Some(there);
        self.done();
        step!(self, "Setting volume flags on destination volume {new} ...");
        let set = self.set_flags(&server, there, DOOMED).await;
        set.or_fail_loudly(self, || {
            format!("Failed to set the flags on the destination volume {new}\n")
        })?;
        self.done();
        Ok(UnixTime(0))
    }

    async fn copy_data(
        &self,
        copying: &mut Copying,
        id: VolumeId,
        from: ServerPartition,
        (name, new, to): (&str, VolumeId, ServerPartition),
        (since, from_date): (UnixTime, UnixTime),
        options: &CopyOptions,
    ) -> Result<(), Failure> {
        let (source, destination) = (copying.source.handle(), copying.destination.handle());
        let Some(there) = copying.destination_transaction else {
            return Err(Failure(VNOVOL));
        };
        let cookie = RestoreCookie {
            name: CharArray::new(name).map_err(|_| Failure(VOLSERBADNAME))?,
            kind: options.kind().number(),
            ..RestoreCookie::default()
        };
        let target = Target {
            id: new,
            server: self.dest_server(to.server),
            transaction: there,
            cookie,
        };
        let at_source = Source {
            id,
            at: from,
            server: &source,
            clone: copying.clone,
            transaction: &mut copying.source_transaction,
            clone_transaction: &mut copying.clone_transaction,
        };
        let here = self.forward_clone(at_source, since, &target).await?;
        let incremental = if options.live { "" } else { " incremental" };
        step!(
            self,
            "Doing the{incremental} dump from source to destination for volume {id} ... "
        );
        let forwarded = self
            .rpc(source.forward(here, from_date, target.server, there, target.cookie))
            .await;
        forwarded.or_fail_loudly(self, || {
            format!("Failed to do the{incremental} dump from old site to new site\n")
        })?;
        self.done();
        step!(self, "Setting volume flags on destination volume {new} ...");
        let flags = match options.offline {
            true => TransactionFlags::OUT_OF_SERVICE,
            false => IN_SERVICE,
        };
        let set = self.set_flags(&destination, there, flags).await;
        set.or_fail_loudly(self, || {
            "Failed to set the flags to make destination volume online\n".to_owned()
        })?;
        self.done();
        step!(self, "Ending transaction on destination volume {new} ...");
        copying.destination_transaction = None;
        let finished = self.finish(&destination, there).await;
        finished.or_fail_loudly(self, || {
            format!("Failed to end the transaction on the destination volume {new}\n")
        })?;
        self.done();
        step!(self, "Ending transaction on source volume {id} ...");
        copying.source_transaction = None;
        let finished = self.finish(&source, here).await;
        finished.or_fail_loudly(self, || {
            format!("Failed to end the transaction on the source volume {id}\n")
        })?;
        self.done();
        Ok(())
    }

    async fn copy_entry(
        &self,
        copying: &Copying,
        new: VolumeId,
        name: &str,
        to: ServerPartition,
        options: &CopyOptions,
    ) -> Result<(), Failure> {
        let none = VolumeId(0);
        let read_only = if options.read_only { new } else { none };
        let entry = new_entry(name, to, options.kind(), [new, read_only, none]);
        if let Err(code) = self.create_entry(&entry).await {
            complain!(
                self,
                "Could not create a VLDB entry for the volume {name} {new}\n"
            );
            step!(self, "Deleting the newly created volume {new}\n");
            let how = Removing::default();
            let vos = self.calm();
            // What is wrong with that has been said by then.
            let _told = vos
                .delete(&copying.destination, new, to.partition, how)
                .await;
            return Err(Failure(code));
        }
        step!(self, "Created the VLDB entry for the volume {name} {new}\n");
        Ok(())
    }

    async fn recover_copy(&self, copying: &mut Copying, id: VolumeId, from: ServerPartition) {
        if copying.begun {
            say!(
                self,
                "vos copy: operation interrupted, cleanup in progress...\n"
            );
            say!(self, "clear transaction contexts\n");
        }
        let Copying {
            source,
            destination,
            ..
        } = copying;
        let open = [
            (copying.clone_transaction.take(), &*source, "clone"),
            (
                copying.destination_transaction.take(),
                &*destination,
                "destination",
            ),
            (copying.source_transaction.take(), &*source, "source"),
        ];
        for (transaction, server, what) in open {
            if let Some(transaction) = transaction {
                step!(self, "Recovery: Ending transaction on {what} volume ...");
                // A volume that is not whole is marked to be removed, and is so at the end.
                let _ended = self.finish(server, transaction).await;
                self.done();
            }
        }
        step!(self, "Recovery: Accessing VLDB.\n");
        if self.entry(id, None).await.is_err() {
            say!(self, "FATAL: VLDB access error: abort cleanup\n");
        }
        if let Some(clone) = copying.clone {
            let how = Removing {
                what: Some("clone"),
                prefix: "Recovery:",
                ..Removing::default()
            };
            // What is wrong with that has been said by then.
            let _told = self.delete(source, clone, from.partition, how).await;
        }
        if copying.begun {
            say!(self, "cleanup complete - user verify desired result\n");
        }
    }
}
