//! RXAFS, the file server's interface (service 1, port 7000).
//!
//! Its last operations are afar's own, with numbers that no other implementation uses.

use afar_net::AbortCode;
use afar_types::{
    AclText, AfsVolumeInfo, BatchResults, BatchStatuses, CallBack, CallBacks, Capabilities,
    FetchStatus, FetchVolumeStatus, Fid, Fids, FileName, PtsId, Reads, Statuses, StoreStatus,
    StoreVolumeStatus, ViceStatistics, ViceStatistics64, VolSync, VolumeId, VolumeInfo,
};
use afar_xdr::{FixedOpaque, List, Opaque, XdrString, to_bytes};
use bytes::Bytes;

use crate::server::Beside;
use crate::{Caller, FetchSink, Inlet, Outlet, StoreSource};

interface! {
    service 1 "RXAFS";

    /// Reads data of a file, directory or symlink below 2 GiB; for servers without
    /// `fetch_data64`.
    fetch 130 fetch_data(fid: Fid, position: i32, length: i32)
        -> (status: FetchStatus, callback: CallBack, vol_sync: VolSync);
    /// Reads the ACL of a directory, or of the directory a file is in, as text.
    call 131 fetch_acl(fid: Fid) -> (acl: AclText, status: FetchStatus, vol_sync: VolSync);
    /// Reads the status of one fid; comes with a promise.
    call 132 fetch_status(fid: Fid)
        -> (status: FetchStatus, callback: CallBack, vol_sync: VolSync);
    /// Writes data of a file below 4 GiB; for servers without `store_data64`.
    store 133 store_data(
        fid: Fid, attributes: StoreStatus, position: u32, length: u32, file_length: u32,
    ) -> (status: FetchStatus, vol_sync: VolSync);
    /// Replaces the ACL of a directory; what old clients call.
    call 134 old_store_acl(fid: Fid, acl: AclText) -> (status: FetchStatus, vol_sync: VolSync);
    /// Sets attributes.
    call 135 store_status(fid: Fid, attributes: StoreStatus)
        -> (status: FetchStatus, vol_sync: VolSync);
    /// Removes a name of a file or symlink, and the file with its last name.
    call 136 remove_file(directory: Fid, name: FileName)
        -> (directory_status: FetchStatus, vol_sync: VolSync);
    /// Makes an empty file; comes with a promise for it.
    call 137 create_file(directory: Fid, name: FileName, attributes: StoreStatus)
        -> (fid: Fid, status: FetchStatus, directory_status: FetchStatus, callback: CallBack,
            vol_sync: VolSync);
    /// Moves a name within a volume, replacing what has the new name.
    call 138 rename(
        old_directory: Fid, old_name: FileName, new_directory: Fid, new_name: FileName,
    ) -> (old_directory_status: FetchStatus, new_directory_status: FetchStatus,
          vol_sync: VolSync);
    /// Makes a symlink, or a mount point if the mode has no `x` bit.
    call 139 symlink(
        directory: Fid, name: FileName, target: XdrString<1024>, attributes: StoreStatus,
    ) -> (fid: Fid, status: FetchStatus, directory_status: FetchStatus, vol_sync: VolSync);
    /// Gives a file another name in the directory it is in.
    call 140 link(directory: Fid, name: FileName, existing: Fid)
        -> (status: FetchStatus, directory_status: FetchStatus, vol_sync: VolSync);
    /// Makes a directory; comes with a promise for it.
    call 141 make_dir(directory: Fid, name: FileName, attributes: StoreStatus)
        -> (fid: Fid, status: FetchStatus, directory_status: FetchStatus, callback: CallBack,
            vol_sync: VolSync);
    /// Removes an empty directory.
    call 142 remove_dir(directory: Fid, name: FileName)
        -> (directory_status: FetchStatus, vol_sync: VolSync);
    /// Locks a file; what the oldest clients call, with an argument that should be a result.
    call 143 old_set_lock(fid: Fid, kind: i32, vol_sync: VolSync) -> ();
    /// Keeps a lock; what the oldest clients call.
    call 144 old_extend_lock(fid: Fid, vol_sync: VolSync) -> ();
    /// Gives up a lock; what the oldest clients call.
    call 145 old_release_lock(fid: Fid, vol_sync: VolSync) -> ();
    /// Reads the server's counters.
    call 146 get_statistics() -> (statistics: ViceStatistics);
    /// Gives up promises, one for each fid.
    call 147 give_up_call_backs(fids: Fids, callbacks: CallBacks) -> ();
    /// Asks where a volume is. Servers answer VNOVOL, as there is the VLDB for it.
    call 148 get_volume_info(name: FileName) -> (info: VolumeInfo);
    /// Reads quota and usage of a volume and of its partition, and the messages for its users.
    call 149 get_volume_status(volume: VolumeId)
        -> (status: FetchVolumeStatus, name: XdrString<256>, offline_message: XdrString<1024>,
            message_of_the_day: XdrString<1024>);
    /// Sets quotas of a volume, and the messages for its users; an empty text leaves what is
    /// there.
    call 150 set_volume_status(
        volume: VolumeId, status: StoreVolumeStatus, name: XdrString<256>,
        offline_message: XdrString<1024>, message_of_the_day: XdrString<1024>,
    ) -> ();
    /// Tells the name of the volume at the root of the name space.
    call 151 get_root_volume() -> (name: XdrString<256>);
    /// Asks whether a token is good. Not served by anyone.
    call 152 check_token(id: PtsId, token: Opaque<1024>) -> ();
    /// Tells the server's time: a probe every server answers.
    call 153 get_time() -> (seconds: u32, microseconds: u32);
    /// Asks where a volume is, ports included. Servers answer VNOVOL.
    call 154 n_get_volume_info(name: FileName) -> (info: AfsVolumeInfo);
    /// Reads the status of up to 50 fids; fails as a whole if one fails.
    call 155 bulk_status(fids: Fids)
        -> (statuses: Statuses, callbacks: CallBacks, vol_sync: VolSync);
    /// Locks a file, 0 for reading or 1 for writing, for 300 s.
    call 156 set_lock(fid: Fid, kind: i32) -> (vol_sync: VolSync);
    /// Keeps a lock for another 300 s.
    call 157 extend_lock(fid: Fid) -> (vol_sync: VolSync);
    /// Gives up a lock.
    call 158 release_lock(fid: Fid) -> (vol_sync: VolSync);
    /// Tells the version of the collections of counters, 2.
    call 159 x_stats_version() -> (version: i32);
    /// Reads a collection of counters: 0 calls, 1 performance, 2 both, 3 callbacks.
    call 160 get_x_stats(client_version: i32, collection: i32)
        -> (server_version: i32, time: i32, data: List<i32, 1024>);
    /// Looks a name up in a directory; for translators of DFS, others get EINVAL.
    call 161 lookup(directory: Fid, name: FileName)
        -> (fid: Fid, status: FetchStatus, directory_status: FetchStatus, callback: CallBack,
            vol_sync: VolSync);
    /// Has the server forget the CPS of users, and of hosts by IPv4 address.
    call 162 flush_cps(users: List<PtsId, 10>, hosts: List<u32, 10>, spare1: i32)
        -> (spare2: i32, spare3: i32);
    /// Makes a symlink; for translators of DFS, others get EINVAL.
    call 163 dfs_symlink(
        directory: Fid, name: FileName, target: XdrString<1024>, attributes: StoreStatus,
    ) -> (fid: Fid, status: FetchStatus, directory_status: FetchStatus, callback: CallBack,
          vol_sync: VolSync);
    /// Replaces the ACL of a directory.
    call 164 store_acl(fid: Fid, acl: AclText) -> (status: FetchStatus, vol_sync: VolSync);
    /// Reads the status of up to 50 fids. A status with an error code stands for a fid that
    /// failed; both lists are as long as the request's.
    call 65536 inline_bulk_status(fids: Fids)
        -> (statuses: Statuses, callbacks: CallBacks, vol_sync: VolSync);
    /// Reads data of a file, directory or symlink. Less comes than asked for at the end only.
    fetch 65537 fetch_data64(fid: Fid, position: i64, length: i64)
        -> (status: FetchStatus, callback: CallBack, vol_sync: VolSync);
    /// Writes data of a file, whose length becomes at most `file_length` unless the data reaches
    /// further.
    store 65538 store_data64(
        fid: Fid, attributes: StoreStatus, position: u64, length: u64, file_length: u64,
    ) -> (status: FetchStatus, vol_sync: VolSync);
    /// Gives up all promises, as a client does that stops.
    call 65539 give_up_all_call_backs() -> ();
    /// Tells what the server can do beyond the oldest protocol.
    call 65540 get_capabilities() -> (capabilities: Capabilities);
    /// Tells which address of the client is to be called back.
    call 65541 call_back_rx_conn_addr(address: u32) -> ();
    /// Reads up to this many of the server's counters.
    call 65542 get_statistics64(count: i32) -> (statistics: ViceStatistics64);
    /// Asks for an offer of bulk data by TCP, out of band. Both messages are those of docs/protocol/oob.md.
    // spec: oob#the-offer
    call 184156161 oob_offer(question: Opaque<1024>) -> (offer: Opaque<2048>);
    /// Makes many changes of a volume in one commit, or tells what came of them before. The data are the operations:
    /// docs/protocol/batches.md. The note and the word are those of docs/protocol/leases.md, or empty.
    // spec: batches#the-call
    store 184156162 batch(
        volume: VolumeId, series: FixedOpaque<16>, number: u64, length: u32, note: Opaque<65536>,
    ) -> (repeated: bool, results: BatchResults, statuses: BatchStatuses, vol_sync: VolSync,
          word: Opaque<65536>);
    /// Reads a directory, directories in it to this depth, and of what is in them so many statuses, with the data of files
    /// up to `largest` bytes: all in one answer, of at most so many bytes of data. The data are the items of
    /// docs/protocol/trees.md.
    // spec: trees#the-call
    download 184156163 fetch_tree(fid: Fid, depth: u32, entries: u32, bytes: u32, largest: u32)
        -> ();
    /// Renews leases, wishes for some, and gives some back. Both messages are those of docs/protocol/leases.md.
    // spec: leases#messages
    call 184156164 keep_leases(note: Opaque<65536>) -> (word: Opaque<65536>);
    /// Tells a server that has restarted which leases the caller has.
    // spec: leases#restart-of-the-server
    call 184156165 claim_leases(claim: Opaque<393216>) -> (claimed: Opaque<131072>);
    /// Tells what programs of the caller read in a volume, in that order; and reads what others read behind `now` when they
    /// had read `before` ahead of it: so many vnodes of the same volume, with the pages of directories and the data of files
    /// up to `largest` bytes, of at most so many bytes in all. The data are the items of docs/protocol/trees.md.
    // spec: trees#what-follows
    download 184156166 fetch_following(
        before: Fid, now: Fid, read: Reads, entries: u32, bytes: u32, largest: u32,
    ) -> ();
    /// Reads these vnodes, all of one volume, in this order: the pages of directories, and the data of files up to `largest`
    /// bytes, of at most so many bytes in all. The data are the items of docs/protocol/trees.md.
    // spec: trees#many-files
    download 184156167 fetch_files(files: Reads, bytes: u32, largest: u32) -> ();
}

impl<S: Service> Server<S> {
    /// Serves `fetch_data64` for a client whose data does not pass through a call: checked, counted and told in the
    /// audit as one that does. Data that was announced and not given to the outlet fails it.
    ///
    /// # Errors
    /// With the code that a call would have been aborted with.
    pub async fn fetch_out_of_band(
        &self,
        caller: &Caller,
        request: fetch_data64::Request,
        outlet: &mut dyn Outlet,
    ) -> Result<fetch_data64::Reply, AbortCode> {
        let arguments: Bytes = to_bytes(&request);
        let mut beside = Beside::begin(OPERATIONS, fetch_data64::OPERATION, caller, &arguments);
        let began = beside.began;
        let serving = async {
            let mut data = FetchSink::out_of_band(outlet, request.length)?;
            let served = crate::Serving::new(fetch_data64::OPERATION, caller, request.subject());
            let serving = Service::fetch_data64(&*self.service, caller, request, &mut data);
            let result = interface!(@run self served began serving);
            let end = crate::audit::End::new(began, Some(data.sent()), &result);
            interface!(@audit fetch_data64 caller arguments end);
            beside.sent_bytes = data.sent_beside();
            let reply = result?;
            data.is_whole()?;
            Ok(reply)
        };
        let result = serving.await;
        Service::served(&*self.service, &beside.end(caller, &result));
        result
    }

    /// The same of `store_data64`, for a client whose data comes by an inlet.
    ///
    /// # Errors
    /// With the code that a call would have been aborted with.
    pub async fn store_out_of_band(
        &self,
        caller: &Caller,
        request: store_data64::Request,
        inlet: &mut dyn Inlet,
    ) -> Result<store_data64::Reply, AbortCode> {
        let arguments: Bytes = to_bytes(&request);
        let mut beside = Beside::begin(OPERATIONS, store_data64::OPERATION, caller, &arguments);
        let began = beside.began;
        let serving = async {
            let mut data = StoreSource::out_of_band(inlet, request.length)?;
            let served = crate::Serving::new(store_data64::OPERATION, caller, request.subject());
            let serving = Service::store_data64(&*self.service, caller, request, &mut data);
            let result = interface!(@run self served began serving);
            let end = crate::audit::End::new(began, Some(data.received()), &result);
            interface!(@audit store_data64 caller arguments end);
            beside.received_bytes += data.received_beside();
            result
        };
        let result = serving.await;
        Service::served(&*self.service, &beside.end(caller, &result));
        result
    }
}
