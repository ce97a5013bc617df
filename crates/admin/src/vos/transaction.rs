//! Transactions on volumes, and what is done with a volume within one.

use std::net::Ipv4Addr;
use std::time::Duration;

use afar_rpc::afsvol;
use afar_types::{
    AttachFlags, PartitionId, TransactionFlags, TransactionId, VolintNameText, VolserStatus,
    VolumeId, VolumeType,
};

use super::codes::{EINVAL, VNOVOL, VOLSERVOLBUSY};
use super::event::Answer;
use super::{Vos, complain, step};

/// How often a busy volume is tried.
const TRIES: u64 = 3;

/// To be removed unless somebody says otherwise, and not on line.
pub(super) const DOOMED: TransactionFlags =
    TransactionFlags(TransactionFlags::DELETE_ON_SALVAGE.0 | TransactionFlags::OUT_OF_SERVICE.0);
/// On line.
pub(super) const IN_SERVICE: TransactionFlags = TransactionFlags(0);

/// What a clone is made as.
pub(super) struct Cloning<'a> {
    pub(super) kind: VolumeType,
    pub(super) id: VolumeId,
    /// For messages, such as `backup`.
    pub(super) what: &'a str,
    pub(super) name: &'a str,
    /// The state of its parent is wanted.
    pub(super) status: bool,
}

/// How a volume is removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Removing<'a> {
    /// For messages, such as `the backup`; without it, none are given of the steps.
    pub(super) what: Option<&'a str>,
    /// Before each message.
    pub(super) prefix: &'a str,
    /// Where clients are sent.
    pub(super) forward: Option<Ipv4Addr>,
    /// The state before is wanted.
    pub(super) status: bool,
}

/// A volume's name as an argument.
pub(super) fn name_text(name: &str) -> Answer<VolintNameText> {
    VolintNameText::new(name).map_err(|_| EINVAL)
}

impl Vos {
    /// Begins a transaction; a busy volume is tried again for a while.
    pub(super) async fn begin(
        &self,
        server: &afsvol::Client,
        volume: VolumeId,
        partition: PartitionId,
        flags: AttachFlags,
    ) -> Answer<TransactionId> {
        for retried in 1..=TRIES {
            let begun = self
                .rpc(server.trans_create(volume, partition, flags))
                .await;
            match begun {
                Err(VOLSERVOLBUSY) => {
                    tokio::time::sleep(Duration::from_secs(retried)).await;
                }
                begun => return begun.map(|reply| reply.transaction),
            }
        }
        Err(VOLSERVOLBUSY)
    }

    /// Makes a volume; while its id is busy, that is tried again.
    pub(super) async fn make(
        &self,
        server: &afsvol::Client,
        partition: PartitionId,
        name: &str,
        kind: VolumeType,
        (parent, id): (VolumeId, VolumeId),
        tries: u64,
    ) -> Answer<(VolumeId, TransactionId)> {
        let name = name_text(name)?;
        let mut retried = 1;
        loop {
            let made = server.create_volume(partition, name.clone(), kind.number(), parent, id);
            match self.rpc(made).await {
                Err(VOLSERVOLBUSY) if retried < tries => {
                    tokio::time::sleep(Duration::from_secs(retried)).await;
                    retried += 1;
                }
                made => return made.map(|reply| (reply.volume, reply.transaction)),
            }
        }
    }

    /// How often [`make`](Self::make) tries for those who wait.
    pub(super) const PATIENT: u64 = TRIES;

    /// Ends a transaction. That is never interrupted.
    pub(super) async fn finish(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
    ) -> Answer<()> {
        match self
            .calm()
            .rpc(server.end_trans(transaction))
            .await?
            .return_code
        {
            0 => Ok(()),
            code => Err(code),
        }
    }

    pub(super) async fn status(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
    ) -> Answer<VolserStatus> {
        let status = self.rpc(server.get_status(transaction)).await;
        status.map(|reply| reply.status)
    }

    pub(super) async fn set_flags(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        flags: TransactionFlags,
    ) -> Answer<()> {
        let set = self.rpc(server.set_flags(transaction, flags)).await;
        set.map(|_| ())
    }

    /// Removes a volume; VNOVOL if it is not there, of which nothing is said. Returns what state
    /// it had, if that is wanted.
    pub(super) async fn delete(
        &self,
        server: &afsvol::Client,
        volume: VolumeId,
        partition: PartitionId,
        how: Removing<'_>,
    ) -> Answer<VolserStatus> {
        let Removing { what, prefix, .. } = how;
        if let Some(what) = what {
            step!(self, "{prefix}Deleting {what} volume {volume} ...");
        }
        let begun = self
            .begin(server, volume, partition, AttachFlags::OFFLINE)
            .await;
        let transaction = match begun {
            Ok(transaction) => transaction,
            Err(VNOVOL) => return Err(VNOVOL),
            Err(code) => {
                let text = format!("{prefix}Failed to start transaction on {volume}\n");
                self.complain_loudly(code, &text);
                return Err(code);
            }
        };
        let mut deleted = self.delete_within(server, transaction, volume, how).await;
        if let Err(code) = self.finish(server, transaction).await {
            complain!(
                self,
                "{prefix}Could not end transaction on {} volume {volume} \n",
                what.unwrap_or("the")
            );
            if deleted.is_ok() {
                deleted = Err(code);
            }
        }
        if what.is_some() && deleted.is_ok() {
            self.done();
        }
        deleted
    }

    async fn delete_within(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        volume: VolumeId,
        how: Removing<'_>,
    ) -> Answer<VolserStatus> {
        let prefix = how.prefix;
        let told = |answer: Answer<()>, text: String| {
            answer.inspect_err(|&code| self.complain_loudly(code, &text))
        };
        let mut status = VolserStatus::default();
        if how.status {
            let got = self.status(server, transaction).await;
            let got = got.map(|got| status = got);
            told(
                got,
                format!("{prefix}Could not get timestamp from volume {volume}\n"),
            )?;
        }
        let set = self.set_flags(server, transaction, DOOMED).await;
        told(
            set,
            format!("{prefix}Could not set flags on volume {volume} \n"),
        )?;
        if let Some(forward) = how.forward {
            step!(self, "{prefix}Setting volume forwarding pointer ...");
            // A server that cannot is no reason to keep the volume.
            let _refused = self
                .rpc(server.set_forwarding(transaction, forwarding(forward)))
                .await;
            self.done();
        }
        let deleted = self
            .rpc(server.delete_volume(transaction))
            .await
            .map(|_| ());
        told(
            deleted,
            format!("{prefix}Could not delete volume {volume}\n"),
        )?;
        Ok(status)
    }

    /// Makes a clone, or makes one that is there the same as its parent again.
    pub(super) async fn clone_volume(
        &self,
        server: &afsvol::Client,
        volume: VolumeId,
        partition: PartitionId,
        how: Cloning<'_>,
    ) -> Answer<VolserStatus> {
        let Cloning { what, id, .. } = how;
        let begun = self
            .begin(server, id, partition, AttachFlags::OFFLINE)
            .await;
        let exists = match begun {
            Ok(previous) => {
                if let Err(code) = self.finish(server, previous).await {
                    complain!(
                        self,
                        "Could not end transaction on the previous {what} volume {id}\n"
                    );
                    return Err(code);
                }
                true
            }
            Err(VNOVOL) => false,
            Err(code) => {
                self.complain_loudly(code, &format!("Could not reach the {what} volume {id}\n"));
                return Err(code);
            }
        };
        let begun = self
            .begin(server, volume, partition, AttachFlags::BUSY)
            .await;
        let transaction = begun.inspect_err(|_| {
            complain!(
                self,
                "Could not start a transaction on the volume {volume}\n"
            );
        })?;
        let mut cloned = self
            .clone_within(server, transaction, volume, exists, how)
            .await;
        if let Err(code) = self.finish(server, transaction).await {
            complain!(self, "Could not end transaction on the volume {volume}\n");
            if cloned.is_ok() {
                cloned = Err(code);
            }
        }
        cloned
    }

    async fn clone_within(
        &self,
        server: &afsvol::Client,
        transaction: TransactionId,
        volume: VolumeId,
        exists: bool,
        how: Cloning<'_>,
    ) -> Answer<VolserStatus> {
        let Cloning { what, id, .. } = how;
        if exists {
            step!(self, "Re-cloning {what} volume {id} ...");
            let cloned = self.rpc(server.re_clone(transaction, id)).await;
            cloned.inspect_err(|&code| {
                let text = format!("Could not re-clone {what} volume {id}\n");
                self.complain_loudly(code, &text);
            })?;
        } else {
            step!(self, "Creating a new {what} clone {id} ...");
            let name = name_text(how.name)?;
            let none = VolumeId(0);
            let kind = how.kind.number();
            let cloned = self
                .rpc(server.clone(transaction, none, kind, name, id))
                .await;
            cloned.inspect_err(|_| {
                complain!(self, "Failed to clone the volume {volume}\n");
            })?;
        }
        self.done();
        if !how.status {
            return Ok(VolserStatus::default());
        }
        step!(self, "Getting status of parent volume {volume}...");
        let status = self.status(server, transaction).await.inspect_err(|_| {
            complain!(
                self,
                "Failed to get the status of the parent volume {volume}\n"
            );
        })?;
        self.done();
        Ok(status)
    }
}

/// A server's address as SetForwarding takes it.
pub(super) fn forwarding(server: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(server.octets())
}

/// Another handle of a client: its own `clone` is the volume operation.
pub(super) trait Handle {
    /// The handle.
    fn handle(&self) -> Self;
}

impl Handle for afsvol::Client {
    fn handle(&self) -> Self {
        Clone::clone(self)
    }
}
