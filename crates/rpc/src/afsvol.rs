//! AFSVol, the volume server's interface (service 4, port 7005).
//!
//! A volume is worked on within a transaction, which holds it against others and decides with its
//! end what the file server does with it. Volume types are 0 read-write, 1 read-only, 2 backup.
//!
//! Its last operation is afar's own, with a number that no other implementation uses.

use afar_net::AbortCode;
use afar_types::{
    AttachFlags, DestServer, Destinations, DiskPartition, DiskPartition64, ForwardResults,
    PartitionId, PartitionIds, Partitions, RestoreCookie, TransDebugInfos, TransactionFlags,
    TransactionId, UnixTime, VolintInfos, VolintNameText, VolintXInfos, VolserStatus,
    VolumeChanges, VolumeId,
};
use afar_xdr::{Opaque, XdrString, to_bytes};
use bytes::Bytes;

use crate::server::Beside;
use crate::{Caller, DownloadSink, Inlet, Outlet, UploadSource};

interface! {
    service 4 "AFSVol";

    /// Makes a volume with this id, which must not be 0, out of service and with a transaction on
    /// it. A read-write volume whose parent is its own id stays without a root directory, until a
    /// dump is restored into it.
    call 100 create_volume(
        partition: PartitionId, name: VolintNameText, kind: i32, parent: VolumeId,
        volume: VolumeId,
    ) -> (volume: VolumeId, transaction: TransactionId);
    /// Removes the transaction's volume.
    call 101 delete_volume(transaction: TransactionId) -> ();
    /// Fills the transaction's volume from a dump, which follows. Flag 1 stands for an
    /// incremental dump; servers see that by themselves.
    upload 102 restore(transaction: TransactionId, flags: i32, cookie: RestoreCookie) -> ();
    /// Dumps what changed since a time, or all with time 0, into a transaction of another server.
    call 103 forward(
        transaction: TransactionId, from_date: UnixTime, destination: DestServer,
        destination_transaction: TransactionId, cookie: RestoreCookie,
    ) -> ();
    /// Ends a transaction; the volume comes on line unless it is out of service.
    call 104 end_trans(transaction: TransactionId) -> (return_code: i32);
    /// Makes a clone with this id, which must not be 0, out of service. The volume to purge goes
    /// away with it; 0 is none.
    call 105 clone(
        transaction: TransactionId, purge_volume: VolumeId, kind: i32, name: VolintNameText,
        volume: VolumeId,
    ) -> (volume: VolumeId);
    /// Decides what becomes of the volume; flags not given are cleared.
    call 106 set_flags(transaction: TransactionId, flags: TransactionFlags) -> ();
    /// Tells what becomes of the volume.
    call 107 get_flags(transaction: TransactionId) -> (flags: TransactionFlags);
    /// Begins a transaction on a volume. Without the volume it fails with VNOVOL, by which
    /// callers know to make one.
    call 108 trans_create(volume: VolumeId, partition: PartitionId, flags: AttachFlags)
        -> (transaction: TransactionId);
    /// Dumps what changed since a time, and all directories; all with time 0.
    download 109 dump(transaction: TransactionId, from_date: UnixTime) -> ();
    /// Not served by anyone.
    call 110 get_nth_volume(index: i32) -> (volume: VolumeId, partition: PartitionId);
    /// Has the file server tell clients that the volume has moved. `vos` sends the new server's
    /// IPv4 address with its bytes in the order of its own machine; nobody makes use of it.
    call 111 set_forwarding(transaction: TransactionId, new_site: u32) -> ();
    /// Tells the volume's name.
    call 112 get_name(transaction: TransactionId) -> (name: XdrString<256>);
    /// Tells the volume's state.
    call 113 get_status(transaction: TransactionId) -> (status: VolserStatus);
    /// Does nothing.
    call 114 signal_restore(name: VolintNameText, kind: i32, parent: VolumeId, clone_id: VolumeId)
        -> ();
    /// Lists the partitions up to `/vicepz`; for servers without `x_list_partitions`.
    call 115 list_partitions() -> (partitions: PartitionIds);
    /// Lists the volumes of a partition: with flag 1 all about them, else their ids only.
    call 116 list_volumes(partition: PartitionId, flags: i32) -> (volumes: VolintInfos);
    /// Gives the volume a name, a type, and the ids of its group.
    call 117 set_ids_types(
        transaction: TransactionId, name: VolintNameText, kind: i32, parent: VolumeId,
        clone_id: VolumeId, backup_id: VolumeId,
    ) -> ();
    /// Lists the transactions.
    call 118 monitor() -> (transactions: TransDebugInfos);
    /// Tells size and free space of a partition by its path, up to 2 TiB.
    call 119 partition_info(name: XdrString<4096>) -> (partition: DiskPartition);
    /// Makes a clone that exists the same as the volume is now.
    call 120 re_clone(transaction: TransactionId, clone_id: VolumeId) -> ();
    /// Lists one volume.
    call 121 list_one_volume(partition: PartitionId, volume: VolumeId) -> (volumes: VolintInfos);
    /// Removes a volume in whatever state, without a transaction.
    call 122 nuke_volume(partition: PartitionId, volume: VolumeId) -> ();
    /// Sets when the volume was made.
    call 123 set_date(transaction: TransactionId, creation_date: UnixTime) -> ();
    /// Lists the volumes of a partition with statistics; flags as of `list_volumes`.
    call 124 x_list_volumes(partition: PartitionId, flags: i32) -> (volumes: VolintXInfos);
    /// Lists one volume with statistics.
    call 125 x_list_one_volume(partition: PartitionId, volume: VolumeId)
        -> (volumes: VolintXInfos);
    /// Sets quota, dates and counters of the volume.
    call 126 set_info(transaction: TransactionId, changes: VolumeChanges) -> ();
    /// Lists the partitions.
    call 127 x_list_partitions() -> (partitions: Partitions);
    /// Dumps into transactions of several servers at once. The results have a code for each
    /// destination; one that fails does not stop the others.
    call 128 forward_multiple(
        transaction: TransactionId, from_date: UnixTime, destinations: Destinations, spare: i32,
        cookie: RestoreCookie,
    ) -> (results: ForwardResults);
    /// Makes the read-write volume of a read-only one, which takes the group's first id.
    call 65536 convert_ro_to_rw_volume(partition: PartitionId, volume: VolumeId) -> ();
    /// Tells how many bytes a dump since this time would have.
    call 65537 get_size(transaction: TransactionId, from_date: UnixTime) -> (size: u64);
    /// Dumps as `dump` does; with flag 1, of the directories only those that changed.
    download 65538 dump_v2(transaction: TransactionId, from_date: UnixTime, flags: i32) -> ();
    /// Tells size and free space of a partition by its path.
    call 65539 partition_info64(name: XdrString<4096>) -> (partition: DiskPartition64);
    /// Moves the directory with vnode number `vnode` of a volume into a new volume. The data is
    /// text for the user, ended by a NUL.
    download 65547 split_volume(
        volume: VolumeId, new_volume: VolumeId, vnode: u32, verbose: i32,
    ) -> ();
    /// Asks for an offer of volume data by TCP, out of band. Both messages are those of docs/protocol/oob.md.
    // spec: oob#the-offer
    call 184156161 oob_offer(question: Opaque<1024>) -> (offer: Opaque<2048>);
}

/// Flag of [`dump_v2`]: leave out the directories that did not change.
pub const OMIT_DIRECTORIES: i32 = 1;

impl<S: Service> Server<S> {
    /// Serves `dump_v2` for a client whose data does not pass through a call: checked, counted and told in the audit as
    /// one that does. Returns the bytes of the dump.
    ///
    /// # Errors
    /// With the code that a call would have been aborted with.
    pub async fn dump_out_of_band(
        &self,
        caller: &Caller,
        request: dump_v2::Request,
        outlet: &mut dyn Outlet,
    ) -> Result<u64, AbortCode> {
        let arguments: Bytes = to_bytes(&request);
        let mut beside = Beside::begin(OPERATIONS, dump_v2::OPERATION, caller, &arguments);
        let began = beside.began;
        let mut data = DownloadSink::out_of_band(outlet);
        let served = crate::Serving::new(dump_v2::OPERATION, caller, request.subject());
        let serving = Service::dump_v2(&*self.service, caller, request, &mut data);
        let result = interface!(@run self served began serving);
        let sent = data.sent();
        let end = crate::audit::End::new(began, Some(sent), &result);
        interface!(@audit dump_v2 caller arguments end);
        beside.sent_bytes = sent;
        Service::served(&*self.service, &beside.end(caller, &result));
        result.map(|dump_v2::Reply {}| sent)
    }

    /// The same of `restore`, for a client whose data comes by an inlet.
    ///
    /// # Errors
    /// With the code that a call would have been aborted with.
    pub async fn restore_out_of_band(
        &self,
        caller: &Caller,
        request: restore::Request,
        inlet: &mut dyn Inlet,
    ) -> Result<restore::Reply, AbortCode> {
        let arguments: Bytes = to_bytes(&request);
        let mut beside = Beside::begin(OPERATIONS, restore::OPERATION, caller, &arguments);
        let began = beside.began;
        let mut data = UploadSource::out_of_band(inlet);
        let served = crate::Serving::new(restore::OPERATION, caller, request.subject());
        let serving = Service::restore(&*self.service, caller, request, &mut data);
        let result = interface!(@run self served began serving);
        let end = crate::audit::End::new(began, Some(data.received()), &result);
        interface!(@audit restore caller arguments end);
        beside.received_bytes += data.received_beside();
        Service::served(&*self.service, &beside.end(caller, &result));
        result
    }
}
