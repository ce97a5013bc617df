//! VL, the volume location interface (service 52, port 7003).
//!
//! A name of digits only is a volume id in every lookup by name. A volume type of -1 means any.

use afar_types::{
    AddrsU, AfsUuid, Chain, ListAddrByAttributes, ListByAttributes, NvldbEntries, NvldbEntry,
    UvldbEntry, VitalVlHeader, VlCallBack, VldStats, VldbEntriesO, VldbEntryO, VldbUpdateEntry,
    VolumeId, VolumeName,
};
use afar_xdr::List;

interface! {
    service 52 "VL";

    /// Makes an entry; for servers without `create_entry_n`.
    call 501 create_entry(entry: VldbEntryO) -> ();
    /// Removes an entry.
    call 502 delete_entry(volume: VolumeId, kind: i32) -> ();
    /// Looks a volume up by id; for servers without `get_entry_by_id_n`.
    call 503 get_entry_by_id(volume: VolumeId, kind: i32) -> (entry: VldbEntryO);
    /// Looks a volume up by name; for servers without the later forms.
    call 504 get_entry_by_name_o(name: VolumeName) -> (entry: VldbEntryO);
    /// Takes this many volume ids in a row and returns the first.
    call 505 get_new_volume_id(count: u32) -> (first: VolumeId);
    /// Replaces an entry and, if asked, lets go of it; for servers without `replace_entry_n`.
    call 506 replace_entry(volume: VolumeId, kind: i32, entry: VldbEntryO, release: i32) -> ();
    /// Changes parts of an entry and, if asked, lets go of it.
    call 507 update_entry(volume: VolumeId, kind: i32, update: VldbUpdateEntry, release: i32)
        -> ();
    /// Holds an entry for an operation.
    call 508 set_lock(volume: VolumeId, kind: i32, operation: i32) -> ();
    /// Lets go of an entry.
    call 509 release_lock(volume: VolumeId, kind: i32, release: i32) -> ();
    /// Reads the entry after this place of the database, 0 for the first; the next place is 0 at
    /// the end.
    call 510 list_entry(previous_index: i32)
        -> (count: i32, next_index: i32, entry: VldbEntryO);
    /// Lists entries with these attributes; for servers without `list_attributes_n`.
    call 511 list_attributes(attributes: ListByAttributes)
        -> (count: u32, entries: VldbEntriesO);
    /// Lists entries with these attributes, one after the other.
    call 512 linked_list(attributes: ListByAttributes)
        -> (count: u32, entries: Chain<VldbEntryO, 262_144>);
    /// Reads the server's counters.
    call 513 get_stats() -> (stats: VldStats, header: VitalVlHeader);
    /// Asks whether the server is there.
    call 514 probe_server() -> ();
    /// Lists the addresses of file servers. One above 0xff000000 stands for a server with several
    /// addresses, which `get_addrs_u` tells by its index.
    call 515 get_addrs(handle: i32, spare: i32)
        -> (unused: VlCallBack, count: u32, addresses: List<u32, 500>);
    /// Replaces a server's address by another; with 0xffffffff as the old one, removes the other.
    call 516 change_addr(old: u32, new: u32) -> ();
    /// Makes an entry.
    call 517 create_entry_n(entry: NvldbEntry) -> ();
    /// Looks a volume up by id; its servers come as addresses.
    call 518 get_entry_by_id_n(volume: VolumeId, kind: i32) -> (entry: NvldbEntry);
    /// Looks a volume up by name; its servers come as addresses.
    call 519 get_entry_by_name_n(name: VolumeName) -> (entry: NvldbEntry);
    /// Replaces an entry and, if asked, lets go of it.
    call 520 replace_entry_n(volume: VolumeId, kind: i32, entry: NvldbEntry, release: i32) -> ();
    /// Reads the entry after this place of the database; places as of `list_entry`.
    call 521 list_entry_n(previous_index: i32)
        -> (count: i32, next_index: i32, entry: NvldbEntry);
    /// Lists entries with these attributes; `list_attributes_n2` can do so by parts.
    call 522 list_attributes_n(attributes: ListByAttributes)
        -> (count: u32, entries: NvldbEntries);
    /// Lists entries with these attributes, one after the other.
    call 523 linked_list_n(attributes: ListByAttributes)
        -> (count: u32, entries: Chain<NvldbEntry, 262_144>);
    /// Changes parts of an entry by its name and, if asked, lets go of it.
    call 524 update_entry_by_name(name: VolumeName, update: VldbUpdateEntry, release: i32) -> ();
    /// Looks a volume up by name; its servers come as UUIDs.
    call 527 get_entry_by_name_u(name: VolumeName) -> (entry: UvldbEntry);
    /// Tells the database which addresses a file server has.
    call 532 register_addrs(server: AfsUuid, spare: i32, addresses: List<u32, 500>) -> ();
    /// Asks for a server's addresses.
    call 533 get_addrs_u(attributes: ListAddrByAttributes) -> (addresses: AddrsU);
    /// Lists entries with these attributes whose name matches, from `start_index` on, up to 500
    /// at a time; `next_index` is -1 at the end.
    call 534 list_attributes_n2(attributes: ListByAttributes, name: VolumeName, start_index: i32)
        -> (count: u32, entries: List<NvldbEntry, 500>, next_index: i32);
}
