//! RXAFS, the file server's interface (service 1, port 7000).

use afar_types::{
    AclText, CallBack, CallBacks, Capabilities, FetchStatus, FetchVolumeStatus, Fid, Fids,
    FileName, Statuses, StoreStatus, VolSync, VolumeId,
};
use afar_xdr::XdrString;

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
    /// Gives up promises, one for each fid.
    call 147 give_up_call_backs(fids: Fids, callbacks: CallBacks) -> ();
    /// Reads quota and usage of a volume and of its partition, and the messages for its users.
    call 149 get_volume_status(volume: VolumeId)
        -> (status: FetchVolumeStatus, name: XdrString<256>, offline_message: XdrString<1024>,
            message_of_the_day: XdrString<1024>);
    /// Tells the name of the volume at the root of the name space.
    call 151 get_root_volume() -> (name: XdrString<256>);
    /// Tells the server's time: a probe every server answers.
    call 153 get_time() -> (seconds: u32, microseconds: u32);
    /// Reads the status of up to 50 fids; fails as a whole if one fails.
    call 155 bulk_status(fids: Fids)
        -> (statuses: Statuses, callbacks: CallBacks, vol_sync: VolSync);
    /// Locks a file, 0 for reading or 1 for writing, for 300 s.
    call 156 set_lock(fid: Fid, kind: i32) -> (vol_sync: VolSync);
    /// Keeps a lock for another 300 s.
    call 157 extend_lock(fid: Fid) -> (vol_sync: VolSync);
    /// Gives up a lock.
    call 158 release_lock(fid: Fid) -> (vol_sync: VolSync);
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
}
