//! Beginning transactions; making, removing and changing volumes.

use afar_net::{AbortCode, Endpoint};
use afar_rpc::{Caller, afsvol};
use afar_store::{NewVolume, StoreError, Volume, VolumeChange};
use afar_types::error::VNOVOL;
use afar_types::{
    AttachFlags, PartitionId, TransactionFlags, TransactionId, VolintNameText, VolumeId, VolumeType,
};

use super::origin::Origin;
use super::streams::blocking;
use super::transactions::Use;
use super::{Volser, codes, failed, superuser};
use crate::leases::ClosedVolume;
use crate::volumes::{Held, Hold};

/// The longest name of a volume.
const NAME_MAX: usize = 31;

impl Volser {
    pub(super) async fn trans_create(
        &self,
        caller: &Caller,
        at: &Endpoint,
        request: afsvol::trans_create::Request,
    ) -> Result<TransactionId, AbortCode> {
        superuser(caller)?;
        let afsvol::trans_create::Request {
            volume: id,
            partition,
            flags,
        } = request;
        let hold = hold_of(flags).ok_or(codes::EINVAL)?;
        // Before the volume is looked for: of two callers, one is refused whatever the other finds.
        let reservation = self.transactions.reserve(partition, id)?;
        let volume = self.volume_on(partition, id).await?;
        self.forget_removed(partition, &volume).await?;
        let closed = self.recall_leases(&volume).await?;
        let held = match hold {
            Some(hold) => self.hold(&volume, hold).await?,
            None => None,
        };
        tracing::info!(volume = %id, %partition, flags = flags.0, "transaction begun");
        let transactions = &self.transactions;
        let begun = (Origin::of(caller, at), "TransCreate");
        Ok(transactions.open(reservation, volume, flags, (held, closed), begun))
    }

    /// A volume of a partition.
    async fn volume_on(&self, partition: PartitionId, id: VolumeId) -> Result<Volume, AbortCode> {
        if i32::try_from(partition.0).is_err() {
            return Err(codes::EINVAL);
        }
        let partition = self.served(partition)?.cloned();
        let partition = partition.ok_or(AbortCode(VNOVOL))?;
        blocking(move || match partition.volume(id) {
            // spec: volumes#transactions
            // Callers make the volume then, which is no failure.
            Err(StoreError::NoVolume(_)) => Err(AbortCode(VNOVOL)),
            found => found.map_err(|error| failed("looking for a volume", id, &error)),
        })
        .await
    }

    /// Has clients send what they have changed in a volume and not told anybody; none has a lease in it then.
    async fn recall_leases(&self, volume: &Volume) -> Result<Option<ClosedVolume>, AbortCode> {
        let Some(leases) = &self.config.leases else {
            return Ok(None);
        };
        let (volumes, wanted) = (self.volumes.clone(), volume.clone());
        let may_have_some = blocking(move || {
            // One that is not whole has no clients.
            let state = wanted.state();
            let is_served = volumes.is_served(&wanted);
            Ok(is_served && state.is_ok_and(|state| state.kind == VolumeType::ReadWrite))
        });
        match may_have_some.await? {
            true => Ok(Some(leases.close_volume(volume.id()).await)),
            false => Ok(None),
        }
    }

    /// Keeps clients from a volume, if it is the one they would get by its number.
    async fn hold(&self, volume: &Volume, hold: Hold) -> Result<Option<Held>, AbortCode> {
        let (volumes, wanted) = (self.volumes.clone(), volume.clone());
        let served = blocking(move || Ok(volumes.is_served(&wanted))).await?;
        // Clients use the one on another partition, which nobody works on.
        if !served {
            return Ok(None);
        }
        let held = self.volumes.hold(volume.id(), hold).await;
        held.map(Some).map_err(|_| codes::VOLBUSY)
    }

    pub(super) async fn create_volume(
        &self,
        caller: &Caller,
        at: &Endpoint,
        request: afsvol::create_volume::Request,
    ) -> Result<afsvol::create_volume::Reply, AbortCode> {
        let name = name(&request.name)?;
        superuser(caller)?;
        let (id, number) = (request.volume, request.partition);
        if i32::try_from(number.0).is_err() {
            return Err(codes::EINVAL);
        }
        let kind = VolumeType::from_number(request.kind).ok_or(codes::EINVAL)?;
        if id.is_none() {
            // spec: volumes#making-and-filling-a-volume
            return Err(codes::E2BIG);
        }
        let parent = if request.parent.is_none() {
            id
        } else {
            request.parent
        };
        let mut new = NewVolume::new(id, name.clone())
            .kind(kind, parent)
            .unfinished();
        // spec: volumes#making-and-filling-a-volume
        if kind == VolumeType::ReadWrite && request.parent == id {
            // A dump is going to be restored into it.
            new = new.without_root();
        }
        let reservation = self.transactions.reserve(number, id)?;
        let partition = self.volumes.partition(number).cloned();
        let partition = partition.ok_or(codes::EIO)?;
        let volumes = self.volumes.clone();
        let volume = blocking(move || {
            // The read-write volume of a group may be elsewhere on this server: then it moves.
            let made = volumes.create_on(&partition, &new, parent == id);
            made.map_err(|error| match failed("making a volume", id, &error) {
                codes::BADNAME => codes::BADNAME,
                _ => codes::EIO,
            })
        })
        .await?;
        let held = self.hold(&volume, Hold::Offline).await?;
        tracing::info!(volume = %id, name, %kind, partition = %number, "volume made");
        let flags = AttachFlags::default();
        let begun = (Origin::of(caller, at), "CreateVolume");
        let transaction = self
            .transactions
            .open(reservation, volume, flags, (held, None), begun);
        if let Some(previous) = self.removed.take(number, id)
            && let Ok(used) = self.transactions.find(transaction, "CreateVolume")
        {
            used.keep(previous);
        }
        Ok(afsvol::create_volume::Reply {
            volume: id,
            transaction,
        })
    }

    pub(super) async fn delete_volume(
        &self,
        caller: &Caller,
        transaction: TransactionId,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "DeleteVolume")?;
        used.writable()?;
        let id = used.transaction.volume.id();
        self.remove_for_now(&used).await?;
        used.set_deleted();
        tracing::info!(volume = %id, partition = %used.transaction.partition, "volume removed");
        self.break_callbacks(id).await;
        Ok(())
    }

    pub(super) async fn nuke_volume(
        &self,
        caller: &Caller,
        number: PartitionId,
        id: VolumeId,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        if number.0 >= PartitionId::COUNT {
            return Err(codes::NOVOL);
        }
        let partition = self.served(number)?.cloned();
        let partition = partition.filter(|_| !id.is_none()).ok_or(codes::EINVAL)?;
        blocking(move || match partition.remove_volume(id) {
            Ok(()) => Ok(()),
            Err(StoreError::NoVolume(_)) => Err(codes::ENOENT),
            Err(error) => Err(failed("removing a volume by force", id, &error)),
        })
        .await?;
        tracing::warn!(volume = %id, partition = %number, "volume removed by force");
        self.break_callbacks(id).await;
        Ok(())
    }

    pub(super) async fn set_flags(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        flags: TransactionFlags,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "SetFlags")?;
        used.writable()?;
        let doomed = flags.contains(TransactionFlags::DELETE_ON_SALVAGE);
        let out = flags.contains(TransactionFlags::OUT_OF_SERVICE);
        let volume = used.transaction.volume.clone();
        let state = blocking(move || Ok(volume.state().ok())).await?;
        // Before the header says so, so that nobody sees the volume out of service in between.
        let takes = out && state.as_ref().is_some_and(|state| state.in_service);
        if takes {
            used.set_moving(true);
        }
        if let Some(state) = state.filter(|state| !state.destroy_me) {
            if doomed {
                used.note_in_service(state.in_service);
            }
            let taken_out = state.in_service || used.was_taken_out();
            used.note_taken_out(taken_out && out && !doomed);
        }
        let change = VolumeChange {
            destroy_me: Some(doomed),
            in_service: Some(!out),
            ..VolumeChange::default()
        };
        let changed = self
            .change_header(&used, "setting a volume's flags", change)
            .await;
        // What could not be taken out of service can be read as before.
        let is_back = if changed.is_ok() { !out } else { takes };
        if is_back {
            used.set_moving(false);
        }
        changed?;
        // That the volume is gone is not for callers to say.
        used.set_flags(TransactionFlags(flags.0 & !TransactionFlags::DELETED.0));
        tracing::info!(volume = %used.transaction.volume.id(), flags = flags.0, "volume's flags set");
        Ok(())
    }

    // spec: volumes#sending-a-volume
    pub(super) async fn set_forwarding(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        site: u32,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "SetForwarding")?;
        let id = used.transaction.volume.id();
        self.volumes.set_moved(id, true);
        used.set_forwarded();
        tracing::info!(volume = %id, site = format_args!("{site:#010x}"), "volume moved away");
        // Clients that only listen would not learn it otherwise.
        self.break_callbacks(id).await;
        Ok(())
    }

    pub(super) async fn set_ids_types(
        &self,
        caller: &Caller,
        request: afsvol::set_ids_types::Request,
    ) -> Result<(), AbortCode> {
        let name = name(&request.name)?;
        superuser(caller)?;
        let used = self.transactions.find(request.transaction, "SetIdsTypes")?;
        used.writable()?;
        let kind = VolumeType::from_number(request.kind).ok_or(codes::EINVAL)?;
        self.check_kind(&used, kind).await?;
        let change = VolumeChange {
            name: Some(name.clone()),
            kind: Some(kind),
            parent: Some(request.parent),
            clone: Some(request.clone_id),
            backup: Some(request.backup_id),
            ..VolumeChange::default()
        };
        self.change_header(&used, "setting a volume's name and group", change)
            .await?;
        tracing::info!(volume = %used.transaction.volume.id(), name, %kind, "volume's name and group set");
        Ok(())
    }

    /// Whether the volume can be of this kind: what takes changes and what does not are stored
    /// differently, and only a restore makes one of the other.
    async fn check_kind(&self, used: &Use, kind: VolumeType) -> Result<(), AbortCode> {
        let volume = used.transaction.volume.clone();
        let state = blocking(move || {
            let state = volume.state();
            state.map_err(|error| failed("reading a volume's header", volume.id(), &error))
        });
        let is = state.await?.kind;
        if (is == VolumeType::ReadWrite) != (kind == VolumeType::ReadWrite) {
            return Err(codes::BADOP);
        }
        Ok(())
    }

    pub(super) async fn set_date(
        &self,
        caller: &Caller,
        request: afsvol::set_date::Request,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(request.transaction, "SetDate")?;
        used.writable()?;
        let change = VolumeChange {
            creation_date: Some(request.creation_date),
            ..VolumeChange::default()
        };
        self.change_header(&used, "setting a volume's date", change)
            .await
    }

    pub(super) async fn set_info(
        &self,
        caller: &Caller,
        request: afsvol::set_info::Request,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(request.transaction, "SetStatus")?;
        used.writable()?;
        let asked = request.changes;
        let change = VolumeChange {
            max_quota: unsigned(asked.max_quota)?.map(u64::from),
            day_use: unsigned(asked.day_use)?,
            creation_date: asked.creation_date,
            update_date: asked.update_date,
            update_counter: asked.update_counter,
            ..VolumeChange::default()
        };
        self.change_header(&used, "setting a volume's quota and dates", change)
            .await?;
        tracing::info!(volume = %used.transaction.volume.id(), changes = ?asked, "volume's quota and dates set");
        Ok(())
    }
}

/// What clients get meanwhile, in the order in which the flags count; `None` if none of them says
/// so. A transaction that only reads a volume keeps no client from it, as dumps are of one moment anyway.
// spec: volumes#transactions
fn hold_of(flags: AttachFlags) -> Option<Option<Hold>> {
    if flags.contains(AttachFlags::CREATE) {
        Some(Some(Hold::Offline))
    } else if flags.contains(AttachFlags::BUSY) {
        Some(Some(Hold::Busy))
    } else if flags.contains(AttachFlags::READ_ONLY) {
        Some(None)
    } else if flags.contains(AttachFlags::OFFLINE) {
        Some(Some(Hold::Offline))
    } else {
        None
    }
}

/// A volume's name, if it can be one. The store looks at its letters.
pub(super) fn name(text: &VolintNameText) -> Result<String, AbortCode> {
    let bytes = text.as_bytes();
    if bytes.len() > NAME_MAX {
        return Err(codes::BADNAME);
    }
    let name = std::str::from_utf8(bytes).map_err(|_| codes::BADNAME)?;
    Ok(name.to_owned())
}

fn unsigned(number: Option<i32>) -> Result<Option<u32>, AbortCode> {
    number
        .map(|number| u32::try_from(number).map_err(|_| codes::EINVAL))
        .transpose()
}
