//! PR, the protection server's interface (service 73, port 7002): users, groups, memberships.
//!
//! A list of groups comes with a word `over` that is not 0 if the list was cut.

use afar_types::{
    PrAccess, PrDebugEntry, PrEntries, PrEntry, PrIds, PrNameText, PrNames, PrNamesAsked,
    PrUpdateEntry, PtsId,
};

interface! {
    service 73 "PR";

    /// Makes a user or, with a negative id, a group with this id.
    call 500 i_new_entry(name: PrNameText, id: PtsId, owner: PtsId) -> ();
    /// Tells where an entry is in the database's file.
    call 501 where_is_it(id: PtsId) -> (position: i32);
    /// Reads the entry at this place of the database's file.
    call 502 dump_entry(position: i32) -> (entry: PrDebugEntry);
    /// Adds a user to a group.
    call 503 add_to_group(user: PtsId, group: PtsId) -> ();
    /// Looks ids up by name, one for each: 32766 where a name is not known.
    call 504 name_to_id(names: PrNamesAsked) -> (ids: PrIds);
    /// Looks names up by id, one for each: the id's digits where it is not known.
    call 505 id_to_name(ids: PrIds) -> (names: PrNames);
    /// Removes a user or group.
    call 506 delete(id: PtsId) -> ();
    /// Removes a user from a group.
    call 507 remove_from_group(user: PtsId, group: PtsId) -> ();
    /// Tells a user's CPS: all ids by which ACLs may grant the user rights, ascending.
    call 508 get_cps(id: PtsId) -> (cps: PrIds, over: i32);
    /// Makes a user (flag 0) or group (flag 2) and returns its id.
    call 509 new_entry(name: PrNameText, flag: i32, owner: PtsId) -> (id: PtsId);
    /// Tells the greatest ids given out.
    call 510 list_max() -> (user: PtsId, group: PtsId);
    /// Sets the greatest id given out, of groups if the flag has 2.
    call 511 set_max(id: PtsId, flag: i32) -> ();
    /// Reads an entry.
    call 512 list_entry(id: PtsId) -> (entry: PrEntry);
    /// Changes name, owner and id; an empty name and 0 leave what is there.
    call 513 change_entry(id: PtsId, name: PrNameText, owner: PtsId, new_id: PtsId) -> ();
    /// Lists the members of a group, or the groups a user is in.
    call 514 list_elements(id: PtsId) -> (elements: PrIds, over: i32);
    /// Tells whether a user is in a group.
    call 515 is_a_member_of(user: PtsId, group: PtsId) -> (member: i32);
    /// Changes access and quotas, those of which bits are in the mask: `SET_*` of [`PrEntry`].
    call 516 set_fields_entry(
        id: PtsId, mask: u32, access: PrAccess, n_groups: i32, n_users: i32,
        spare: [i32; 2],
    ) -> ();
    /// Lists the groups an id owns, or with id 0 those whose owner is gone. More are listed from
    /// `last` on, unless it comes back as 0.
    call 517 list_owned(id: PtsId, last: i32) -> (owned: PrIds, last: i32);
    /// Tells the CPS of a user at a host, by the host's IPv4 address.
    call 518 get_cps2(id: PtsId, host: u32) -> (cps: PrIds, over: i32);
    /// Tells the groups a host is in, by its IPv4 address; none is no error.
    call 519 get_host_cps(host: u32) -> (cps: PrIds, over: i32);
    /// Repairs an entry, found by id or, with id 0, by name.
    call 520 update_entry(id: PtsId, name: PrNameText, update: PrUpdateEntry) -> ();
    /// Lists users (flag 1) and groups (flag 2) from an index on; the next index is -1 at the
    /// end.
    call 521 list_entries(flags: i32, start_index: i32)
        -> (entries: PrEntries, next_start_index: i32);
    /// Lists the groups a group is in.
    call 530 list_super_groups(id: PtsId) -> (groups: PrIds, over: i32);
}
