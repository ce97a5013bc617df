//! Cloning volumes, and making the read-write volume of a clone.

use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::{Caller, afsvol};
use afar_store::{NewClone, StoreError, Volume, VolumeChange, VolumeState};
use afar_types::error::VOFFLINE;
use afar_types::{PartitionId, TransactionId, UnixTime, VolumeId, VolumeType};

use super::change::name;
use super::streams::blocking;
use super::{Volser, codes, failed, superuser};
use crate::volumes::{Hold, Volumes};

/// A clone that is asked for.
struct Wanted {
    id: VolumeId,
    name: String,
    kind: VolumeType,
    /// A read-only volume that goes away with it; 0 is none.
    purge: VolumeId,
}

impl Volser {
    pub(super) async fn clone_volume(
        &self,
        caller: &Caller,
        request: afsvol::clone::Request,
    ) -> Result<VolumeId, AbortCode> {
        let name = name(&request.name)?;
        superuser(caller)?;
        let kind = VolumeType::from_number(request.kind).ok_or(codes::EINVAL)?;
        let id = request.volume;
        if id.is_none() {
            return Err(codes::EINVAL);
        }
        let used = self.transactions.find(request.transaction, "Clone")?;
        // No transaction may begin on the clone before it is whole.
        let _clone = self.transactions.reserve(used.transaction.partition, id)?;
        let source = used.transaction.volume.clone();
        let wanted = Wanted {
            id,
            name,
            kind,
            purge: request.purge_volume,
        };
        tracing::info!(volume = %source.id(), clone = %id, name = wanted.name, %kind, "cloning");
        let volumes = Arc::clone(&self.volumes);
        blocking(move || {
            usable(&source)?;
            make(&volumes, &source, &wanted)
        })
        .await?;
        // Clients can have promises on an earlier volume of this number.
        self.break_callbacks(id).await;
        Ok(id)
    }

    pub(super) async fn reclone(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        id: VolumeId,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let used = self.transactions.find(transaction, "ReClone")?;
        let number = used.transaction.partition;
        let _clone = self.transactions.reserve(number, id)?;
        let source = used.transaction.volume.clone();
        tracing::info!(volume = %source.id(), clone = %id, "bringing a clone up to date");
        let volumes = Arc::clone(&self.volumes);
        blocking(move || {
            let original = usable(&source)?;
            let clone = member(&volumes, &source, id)?;
            // spec: volumes#clones
            if clone.parent != original.parent || clone.kind == VolumeType::ReadWrite {
                return Err(codes::EXDEV);
            }
            let done = source.reclone(id);
            done.map_err(|error| failed("bringing a clone up to date", id, &error))?;
            follow_name(&source, &original, &clone)
        })
        .await?;
        self.break_callbacks(id).await;
        Ok(())
    }

    pub(super) async fn convert_to_read_write(
        &self,
        caller: &Caller,
        number: PartitionId,
        id: VolumeId,
    ) -> Result<(), AbortCode> {
        superuser(caller)?;
        let partition = Arc::clone(self.partition(number)?);
        let volume = blocking(move || match partition.volume(id) {
            Err(StoreError::NoVolume(_)) => Err(codes::ENODEV),
            found => found.map_err(|error| failed("looking for a volume", id, &error)),
        })
        .await?;
        let _reservation = self.transactions.reserve(number, id)?;
        self.forget_removed(number, &volume).await?;
        let _held = self
            .volumes
            .hold(id, Hold::Offline)
            .await
            .map_err(|_| codes::VOLBUSY)?;
        // What they have of the read-only volume is of a volume that goes away.
        self.break_callbacks(id).await;
        let volumes = Arc::clone(&self.volumes);
        let parent = blocking(move || convert(&volumes, &volume)).await?;
        tracing::info!(volume = %id, made = %parent, partition = %number, "read-only volume made read-write");
        self.break_callbacks(parent).await;
        Ok(())
    }
}

/// The header of a volume that may be cloned.
// spec: volumes#clones
fn usable(source: &Volume) -> Result<VolumeState, AbortCode> {
    let state = header(source)?;
    if state.destroy_me || !state.in_service {
        tracing::info!(volume = %source.id(), "out of service, so that it cannot be cloned");
        return Err(AbortCode(VOFFLINE));
    }
    Ok(state)
}

fn header(volume: &Volume) -> Result<VolumeState, AbortCode> {
    let state = volume.state();
    state.map_err(|error| failed("reading a volume's header", volume.id(), &error))
}

/// Another volume of the same partition, of which the numbers say that it is one of the group.
fn member(volumes: &Volumes, source: &Volume, id: VolumeId) -> Result<VolumeState, AbortCode> {
    match source.partition().volume(id) {
        Ok(volume) => header(&volume),
        Err(error @ StoreError::NoVolume(_)) => match volumes.find(id) {
            Ok(_) => Err(codes::EXDEV),
            Err(_) => Err(failed("looking for a clone", id, &error)),
        },
        Err(error) => Err(failed("looking for a clone", id, &error)),
    }
}

fn make(volumes: &Volumes, source: &Volume, wanted: &Wanted) -> Result<(), AbortCode> {
    if !wanted.purge.is_none() {
        let purge = member(volumes, source, wanted.purge)?;
        // spec: volumes#clones
        if purge.kind != VolumeType::ReadOnly {
            return Err(codes::EINVAL);
        }
        if purge.parent != header(source)?.parent {
            return Err(codes::EXDEV);
        }
    }
    let partition = source.partition();
    if wanted.purge == wanted.id {
        return renew(source, wanted);
    }
    let elsewhere = volumes.find(wanted.id);
    if elsewhere.is_ok_and(|found| !Arc::ptr_eq(found.partition(), partition)) {
        return Err(codes::EXDEV);
    }
    let new = NewClone::new(wanted.id, wanted.name.clone(), wanted.kind).unfinished();
    let made = if wanted.kind == VolumeType::ReadWrite {
        source.copy(&new)
    } else {
        source.make_clone(&new)
    };
    made.map_err(|error| failed("cloning a volume", wanted.id, &error))?;
    volumes.set_moved(wanted.id, false);
    if !wanted.purge.is_none() {
        let removed = partition.remove_volume(wanted.purge);
        removed.map_err(|error| failed("removing a clone", wanted.purge, &error))?;
    }
    Ok(())
}

/// The clone takes the place of the volume to be purged.
fn renew(source: &Volume, wanted: &Wanted) -> Result<(), AbortCode> {
    let fail = |error: StoreError| failed("cloning a volume", wanted.id, &error);
    let clone = source.partition().volume(wanted.id).map_err(fail)?;
    if wanted.kind == VolumeType::ReadWrite {
        return Err(codes::BADOP);
    }
    source.reclone(wanted.id).map_err(fail)?;
    let change = VolumeChange {
        name: Some(wanted.name.clone()),
        kind: Some(wanted.kind),
        destroy_me: Some(true),
        in_service: Some(false),
        ..VolumeChange::default()
    };
    clone.change(change).map_err(fail)
}

/// A clone that is brought up to date follows its volume's name, which may be another by now.
fn follow_name(
    source: &Volume,
    original: &VolumeState,
    clone: &VolumeState,
) -> Result<(), AbortCode> {
    let suffix = match clone.kind {
        VolumeType::ReadOnly => ".readonly",
        VolumeType::Backup => ".backup",
        VolumeType::ReadWrite => return Ok(()),
    };
    // A name that is too long is cut, as there is no other to take.
    let mut name = original.name.clone();
    name.truncate(afar_store::MAX_VOLUME_NAME - suffix.len());
    name.push_str(suffix);
    if original.kind != VolumeType::ReadWrite || name == clone.name {
        return Ok(());
    }
    let change = VolumeChange {
        name: Some(name),
        ..VolumeChange::default()
    };
    let renamed = source
        .partition()
        .volume(clone.id)
        .and_then(|volume| volume.change(change));
    renamed.map_err(|error| failed("naming a clone", clone.id, &error))
}

/// Makes a read-only volume the read-write one of its group, and gives its number.
fn convert(volumes: &Volumes, volume: &Volume) -> Result<VolumeId, AbortCode> {
    let fail = |error: StoreError| failed("making a volume read-write", volume.id(), &error);
    let state = header(volume)?;
    let parent = state.parent;
    match volumes.find(parent) {
        Ok(_) => return Err(codes::EXDEV),
        Err(StoreError::NoVolume(_)) => {}
        Err(error) => return Err(fail(error)),
    }
    let name = state.name.strip_suffix(".readonly").unwrap_or(&state.name);
    let made = volume.convert_to_read_write(parent, name).map_err(fail)?;
    volumes.set_moved(parent, false);
    // The volume is at least as old as this copy of it, so that not all of it has to be released
    // again.
    let change = VolumeChange {
        clone: Some(state.id),
        creation_date: Some(UnixTime(state.copy_date.0.min(state.creation_date.0))),
        ..VolumeChange::default()
    };
    made.change(change).map_err(fail)?;
    Ok(parent)
}
