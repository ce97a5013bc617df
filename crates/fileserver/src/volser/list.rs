//! Volumes and partitions as tools show them.

use std::collections::BTreeSet;
use std::sync::Arc;

use afar_net::AbortCode;
use afar_rpc::Caller;
use afar_store::{Partition, StoreError, VolumeState};
use afar_types::{
    DiskPartition64, PartitionId, Partitions, TransDebugInfos, TransactionId, Uniquifier,
    VolintInfo, VolintInfos, VolintName, VolintXInfo, VolintXInfos, VolserStatus, VolumeId,
};
use afar_xdr::CharArray;

use super::streams::blocking;
use super::{Volser, codes, failed};
use crate::space::DiskSpace;

/// Volumes looked up at a time.
const PAGE: usize = 1_000;

/// A form in which a volume is listed.
trait Listed: Default + Send + 'static {
    /// Only its number and whether it can be looked at.
    fn bare(volume: VolumeId, status: i32, name: VolintName) -> Self;
    /// All about it.
    fn full(state: &VolumeState) -> Self;
}

/// Both forms have most fields in common; the others follow in the braces.
macro_rules! listed {
    ($form:ty, |$state:ident| { $($others:tt)* }) => {
        impl Listed for $form {
            fn bare(volume: VolumeId, status: i32, name: VolintName) -> Self {
                Self {
                    name,
                    volume,
                    status,
                    ..Self::default()
                }
            }

            fn full($state: &VolumeState) -> Self {
                Self {
                    name: CharArray::new(&$state.name).unwrap_or_default(),
                    volume: $state.id,
                    kind: $state.kind.number(),
                    backup_id: $state.backup,
                    parent_id: $state.parent,
                    clone_id: $state.clone,
                    status: VolintInfo::OK,
                    copy_date: $state.copy_date,
                    in_use: $state.online,
                    creation_date: $state.creation_date,
                    access_date: $state.access_date,
                    update_date: $state.update_date,
                    backup_date: $state.backup_date,
                    day_use: signed($state.day_use),
                    file_count: signed($state.file_count),
                    max_quota: signed($state.max_quota),
                    size: signed($state.disk_used),
                    $($others)*
                }
            }
        }
    };
}

// spec: volumes#lists-of-volumes
listed!(VolintInfo, |state| {
    needs_salvage: false,
    destroy_me: state.destroy_me,
    flags: 0,
    min_quota: signed(state.min_quota),
    week_use: signed(state.week_use.iter().copied().map(u64::from).sum::<u64>()),
    update_counter: state.update_counter,
    spare: 0,
});

// What kinds of reads and writes there were is not counted.
listed!(VolintXInfo, |state| { ..Self::default() });

impl Volser {
    pub(super) async fn list_volumes(
        &self,
        caller: &Caller,
        partition: PartitionId,
        flags: i32,
    ) -> Result<VolintInfos, AbortCode> {
        let volumes = self.list(caller, partition, flags).await?;
        VolintInfos::new(volumes).map_err(|_| codes::NO_MEMORY)
    }

    pub(super) async fn x_list_volumes(
        &self,
        caller: &Caller,
        partition: PartitionId,
        flags: i32,
    ) -> Result<VolintXInfos, AbortCode> {
        let volumes = self.list(caller, partition, flags).await?;
        VolintXInfos::new(volumes).map_err(|_| codes::NO_MEMORY)
    }

    pub(super) async fn list_one_volume(
        &self,
        caller: &Caller,
        partition: PartitionId,
        volume: VolumeId,
    ) -> Result<VolintInfos, AbortCode> {
        let volume = self.list_one(caller, partition, volume).await?;
        VolintInfos::new(vec![volume]).map_err(|_| codes::NO_MEMORY)
    }

    pub(super) async fn x_list_one_volume(
        &self,
        caller: &Caller,
        partition: PartitionId,
        volume: VolumeId,
    ) -> Result<VolintXInfos, AbortCode> {
        let volume = self.list_one(caller, partition, volume).await?;
        VolintXInfos::new(vec![volume]).map_err(|_| codes::NO_MEMORY)
    }

    /// All volumes of a partition, a page at a time. What happens meanwhile to those further on
    /// shows; a volume that stays is listed once.
    async fn list<T: Listed>(
        &self,
        caller: &Caller,
        number: PartitionId,
        flags: i32,
    ) -> Result<Vec<T>, AbortCode> {
        self.may_query(caller)?;
        let partition = Arc::clone(self.partition(number)?);
        let transactions = Arc::clone(&self.transactions);
        let made = self.lists.make(caller, move || {
            let fail = |error: StoreError| failed("listing volumes", VolumeId(0), &error);
            let mut listed = Vec::new();
            if flags == 0 {
                let ids = ids(&partition).map_err(fail)?;
                let bare = |id| T::bare(id, 0, VolintName::default());
                return Ok(ids.into_iter().map(bare).collect());
            }
            let mut after = VolumeId(0);
            loop {
                let page = partition.states(after, PAGE).map_err(fail)?;
                let Some(last) = page.last() else {
                    return Ok(listed);
                };
                after = last.id;
                let busy = transactions.busy(number);
                listed.extend(page.iter().filter_map(|state| one_of_many(state, &busy)));
            }
        });
        made.await.unwrap_or(Err(codes::EIO))
    }

    async fn list_one<T: Listed>(
        &self,
        caller: &Caller,
        number: PartitionId,
        id: VolumeId,
    ) -> Result<T, AbortCode> {
        self.may_query(caller)?;
        let partition = Arc::clone(self.partition(number)?);
        let transactions = Arc::clone(&self.transactions);
        blocking(move || {
            let found = partition.volume(id).and_then(|volume| volume.state());
            let state = match found {
                Err(StoreError::NoVolume(_)) => return Err(codes::ENODEV),
                found => found.map_err(|error| failed("listing a volume", id, &error))?,
            };
            if transactions.is_busy(number, id) {
                return Ok(T::bare(id, VolintInfo::BUSY, VolintName::default()));
            }
            if state.destroy_me {
                // Not a volume to speak of: tools see that it could not be attached.
                let name = CharArray::new(format!("V{:010}.vol", id.0)).unwrap_or_default();
                return Ok(T::bare(id, 0, name));
            }
            Ok(T::full(&state))
        })
        .await
    }

    pub(super) fn partition_numbers(&self, caller: &Caller) -> Result<Partitions, AbortCode> {
        self.may_query(caller)?;
        let numbers: BTreeSet<_> = self
            .volumes
            .partitions()
            .map(|(number, _)| number)
            .collect();
        Partitions::new(numbers.into_iter().collect::<Vec<_>>()).map_err(|_| codes::NO_MEMORY)
    }

    pub(super) async fn partition_info(
        &self,
        caller: &Caller,
        name: &[u8],
    ) -> Result<DiskPartition64, AbortCode> {
        self.may_query(caller)?;
        let mut partitions = self.volumes.partitions();
        let found = partitions.find(|(number, _)| number.to_string().as_bytes() == name);
        let (number, partition) = found.ok_or(codes::ILLEGAL_PARTITION)?;
        let partition = Arc::clone(partition);
        blocking(move || usage(number, &partition)).await
    }

    pub(super) fn monitor(&self, caller: &Caller) -> Result<TransDebugInfos, AbortCode> {
        self.may_query(caller)?;
        let mut transactions = self.transactions.list();
        transactions.truncate(TransDebugInfos::MAX);
        TransDebugInfos::new(transactions).map_err(|_| codes::NO_MEMORY)
    }

    pub(super) async fn status(
        &self,
        caller: &Caller,
        transaction: TransactionId,
        procedure: &'static str,
    ) -> Result<VolumeState, AbortCode> {
        self.may_query(caller)?;
        let used = self.transactions.find(transaction, procedure)?;
        let volume = used.transaction.volume.clone();
        blocking(move || {
            let state = volume.state();
            state.map_err(|error| failed("reading a volume's header", volume.id(), &error))
        })
        .await
    }
}

fn ids(partition: &Partition) -> Result<Vec<VolumeId>, StoreError> {
    let mut ids = Vec::new();
    loop {
        let after = ids.last().copied().unwrap_or(VolumeId(0));
        let page = partition.volume_ids(after, PAGE)?;
        if page.is_empty() {
            return Ok(ids);
        }
        ids.extend(page);
    }
}

/// Volumes that are half made are not listed; of those that are worked on only the numbers are
/// known.
fn one_of_many<T: Listed>(state: &VolumeState, busy: &BTreeSet<VolumeId>) -> Option<T> {
    if busy.contains(&state.id) {
        return Some(T::bare(state.id, VolintInfo::BUSY, VolintName::default()));
    }
    (!state.destroy_me).then(|| T::full(state))
}

/// Size and free space in KiB, without what the file system keeps for root.
fn usage(number: PartitionId, partition: &Partition) -> Result<DiskPartition64, AbortCode> {
    let space = DiskSpace::of(partition.path()).map_err(|error| {
        tracing::warn!(partition = %number, "asking for its space failed: {error}");
        codes::EIO
    })?;
    let kib = |kib| i64::try_from(kib).unwrap_or(i64::MAX);
    let name = CharArray::new(number.to_string()).unwrap_or_default();
    Ok(DiskPartition64::new(
        name,
        name,
        kib(space.total),
        kib(space.free),
    ))
}

/// A volume's header as GetStatus gives it.
pub(super) fn volser_status(state: &VolumeState) -> VolserStatus {
    VolserStatus {
        volume: state.id,
        next_uniquifier: Uniquifier(state.uniquifier.saturating_add(1)),
        kind: state.kind.number(),
        parent_id: state.parent,
        clone_id: state.clone,
        backup_id: state.backup,
        restored_from_id: state.restored_from,
        max_quota: signed(state.max_quota),
        min_quota: signed(state.min_quota),
        owner: state.owner,
        creation_date: state.creation_date,
        access_date: state.access_date,
        update_date: state.update_date,
        expiration_date: state.expiration_date,
        backup_date: state.backup_date,
        copy_date: state.copy_date,
    }
}

/// A number in a signed word, or the largest there is.
fn signed(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}
