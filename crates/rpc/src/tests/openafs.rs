//! What OpenAFS's own programs send, word for word: a test a message.
//!
//! The words were captured (tcpdump, first packet of each call) from OpenAFS 1.8.9: a cache manager
//! (`afsd.fuse`), `vos` and `pts`, which worked on its servers (`cargo xtask openafs up --noauth`); beside them
//! are the opcodes of `src/fsint/afsint.xg`, `afscbint.xg`, `src/vlserver/vldbint.xg`, `src/ptserver/ptint.xg` and
//! `src/volser/volint.xg`. What the programs do not send, they marshal by the same definitions.
//!
//! Where afar sends something else for the same cause, it is meant to:
//!
//! - `GetEntryByNameN` instead of `GetEntryByNameU` and `GetAddrsU` for where a volume is: one question, known
//!   by all servers.
//! - A new file's group is left to the server, its mode has no bits for the type of the file; a cut file is one call
//!   (StoreData64), not two (StoreStatus before it); what a lock is about is asked for by those who lock only.
//! - `ReplaceEntryN` lets go of the entry, so that no `ReleaseLock` follows; entries are zero where OpenAFS
//!   sends what its stack had there. `pts` does not look the same name up twice, nor a list of no ids.
//! - A UUID's bytes are not sign-extended, which depends on OpenAFS's processor; receivers take eight bits.

use afar_types::{
    AclText, AfsUuid, AttachFlags, CallBacks, Fid, Fids, FileName, ListAddrByAttributes,
    ListByAttributes, NvldbEntry, PartitionId, PrIds, PrName, PrNameText, PrNamesAsked, PtsId,
    SiteFlags, StoreStatus, TransactionFlags, TransactionId, UnixTime, VldbFlags, VolintNameText,
    VolumeId, VolumeName,
};
use afar_xdr::{CharArray, XdrString};

use super::words;
use crate::client::encode_request;
use crate::{afsvol, pr, rxafs, rxafscb, vl};

const DIRECTORY: Fid = Fid::new(7, 1, 1);
const FILE: Fid = Fid::new(7, 4, 203);

/// Tests of messages: what is sent for which cause, the operation, its arguments, and the words.
macro_rules! sent {
    ($($(#[doc = $cause:literal])* $test:ident: $interface:ident::$operation:ident { $($field:ident: $value:expr),* $(,)? } = $words:expr;)*) => {$(
        $(#[doc = $cause])*
        #[test]
        fn $test() {
            let request = $interface::$operation::Request { $($field: $value),* };
            let bytes = encode_request($interface::$operation::OPERATION, &request);
            assert_eq!(bytes[..], words(&$words)[..]);
        }
    )*};
}

fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

fn volume(name: &str) -> VolumeName {
    VolumeName::new(name).unwrap()
}

fn partition() -> PartitionId {
    "/vicepa".parse().unwrap()
}

fn asked(names: &[&str]) -> PrNamesAsked {
    let names = names.iter().map(|name| PrName::new(*name).unwrap());
    PrNamesAsked::new(names.collect::<Vec<_>>()).unwrap()
}

fn user(name: &str) -> PrNameText {
    PrNameText::new(name).unwrap()
}

fn volume_text(name: &str) -> VolintNameText {
    VolintNameText::new(name).unwrap()
}

/// Words, and so many zeros behind them.
fn padded(start: &[u32], zeros: usize) -> Vec<u32> {
    [start, &vec![0; zeros]].concat()
}

/// A name, a character a word.
fn characters(name: &str, room: usize) -> Vec<u32> {
    let mut all: Vec<u32> = name.bytes().map(u32::from).collect();
    all.resize(room, 0);
    all
}

/// Of `echo hello > a` and the like.
fn mode_and_time(mode: u32) -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MOD_TIME | StoreStatus::SET_MODE,
        client_mod_time: UnixTime(0x6b08_07dc),
        unix_mode_bits: mode,
        ..StoreStatus::default()
    }
}

fn time() -> StoreStatus {
    StoreStatus {
        mask: StoreStatus::SET_MOD_TIME,
        client_mod_time: UnixTime(0x6b08_07dc),
        ..StoreStatus::default()
    }
}

/// As `vos create` makes it.
fn entry() -> NvldbEntry {
    let mut entry = NvldbEntry {
        name: CharArray::new("v1").unwrap(),
        n_servers: 1,
        volume_id: [0x2000_0000, 0x2000_0001, 0x2000_0002].map(VolumeId),
        flags: VldbFlags(0x1000),
        ..NvldbEntry::default()
    };
    entry.server_number[0] = 0x0a61_0001;
    entry.server_flags[0] = SiteFlags(4);
    entry
}

fn entry_words() -> Vec<u32> {
    let mut all = characters("v1", 65);
    all.push(1);
    all.extend(padded(&[0x0a61_0001], 12));
    all.extend([0; 13]);
    all.extend(padded(&[4], 12));
    all.extend([0x2000_0000, 0x2000_0001, 0x2000_0002, 0, 0x1000]);
    all.extend([0; 9]);
    all
}

sent! {
    /// A cache manager.
    fetch_status: rxafs::fetch_status { fid: DIRECTORY } = [132, 7, 1, 1];
    fetch_data64: rxafs::fetch_data64 { fid: FILE, position: 0, length: 0x4_0000 }
        = [65537, 7, 4, 203, 0, 0, 0, 0x4_0000];
    inline_bulk_status: rxafs::inline_bulk_status { fids: Fids::new(vec![Fid::new(7, 2, 2)]).unwrap() }
        = [65536, 1, 7, 2, 2];
    create_file: rxafs::create_file { directory: DIRECTORY, name: name("a"), attributes: mode_and_time(0o644) }
        = [137, 7, 1, 1, 1, 0x6100_0000, 9, 0x6b08_07dc, 0, 0, 0o644, 0];
    store_data64: rxafs::store_data64 { fid: FILE, attributes: time(), position: 0, length: 6, file_length: 6 }
        = [65538, 7, 4, 203, 1, 0x6b08_07dc, 0, 0, 0, 0, 0, 0, 0, 6, 0, 6];
    /// `truncate -s 2`.
    store_data64_cuts: rxafs::store_data64 { fid: FILE, attributes: time(), position: 2, length: 0, file_length: 2 }
        = [65538, 7, 4, 203, 1, 0x6b08_07dc, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2];
    /// `chmod 600`.
    store_status: rxafs::store_status {
        fid: FILE,
        attributes: StoreStatus { mask: StoreStatus::SET_MODE, unix_mode_bits: 0o600, ..StoreStatus::default() },
    } = [135, 7, 4, 203, 8, 0, 0, 0, 0o600, 0];
    make_dir: rxafs::make_dir { directory: DIRECTORY, name: name("d"), attributes: mode_and_time(0o750) }
        = [141, 7, 1, 1, 1, 0x6400_0000, 9, 0x6b08_07dc, 0, 0, 0o750, 0];
    symlink: rxafs::symlink {
        directory: DIRECTORY, name: name("link"), target: XdrString::new("a").unwrap(),
        attributes: mode_and_time(0o755),
    } = [139, 7, 1, 1, 4, 0x6c69_6e6b, 1, 0x6100_0000, 9, 0x6b08_07dc, 0, 0, 0o755, 0];
    link: rxafs::link { directory: DIRECTORY, name: name("b"), existing: FILE }
        = [140, 7, 1, 1, 1, 0x6200_0000, 7, 4, 203];
    rename: rxafs::rename {
        old_directory: DIRECTORY, old_name: name("b"), new_directory: DIRECTORY, new_name: name("c"),
    } = [138, 7, 1, 1, 1, 0x6200_0000, 7, 1, 1, 1, 0x6300_0000];
    remove_file: rxafs::remove_file { directory: DIRECTORY, name: name("c") }
        = [136, 7, 1, 1, 1, 0x6300_0000];
    remove_dir: rxafs::remove_dir { directory: DIRECTORY, name: name("d") }
        = [142, 7, 1, 1, 1, 0x6400_0000];
    get_capabilities: rxafs::get_capabilities {} = [65540];
    give_up_all_call_backs: rxafs::give_up_all_call_backs {} = [65539];
    set_lock: rxafs::set_lock { fid: FILE, kind: 1 } = [156, 7, 4, 203, 1];
    extend_lock: rxafs::extend_lock { fid: FILE } = [157, 7, 4, 203];
    release_lock: rxafs::release_lock { fid: FILE } = [158, 7, 4, 203];
    get_volume_status: rxafs::get_volume_status { volume: VolumeId(7) } = [149, 7];
    fetch_acl: rxafs::fetch_acl { fid: DIRECTORY } = [131, 7, 1, 1];
    /// `fs setacl`: the text with its NUL.
    store_acl: rxafs::store_acl { fid: DIRECTORY, acl: AclText::new(b"0\n0\n\0").unwrap() }
        = [164, 7, 1, 1, 5, 0x300a_300a, 0];

    /// A file server. What it asks clients, and when, is tested beside it.
    call_back: rxafscb::call_back { fids: Fids::new(vec![FILE]).unwrap(), callbacks: CallBacks::default() }
        = [204, 1, 7, 4, 203, 0];
    init_call_back_state: rxafscb::init_call_back_state {} = [205];
    probe: rxafscb::probe {} = [206];
    who_are_you: rxafscb::who_are_you {} = [212];
    tell_me_about_yourself: rxafscb::tell_me_about_yourself {} = [65538];
    init_call_back_state3: rxafscb::init_call_back_state3 { server: AfsUuid::from_bytes([1; 16]) }
        = [213, 0x0101_0101, 0x0101, 0x0101, 1, 1, 1, 1, 1, 1, 1, 1];
    probe_uuid: rxafscb::probe_uuid { client: AfsUuid::from_bytes([1; 16]) }
        = [214, 0x0101_0101, 0x0101, 0x0101, 1, 1, 1, 1, 1, 1, 1, 1];

    get_entry_by_name_u: vl::get_entry_by_name_u { name: volume("root.cell") }
        = [527, 9, 0x726f_6f74, 0x2e63_656c, 0x6c00_0000];
    /// For each server of an entry.
    get_addrs_u: vl::get_addrs_u {
        attributes: ListAddrByAttributes {
            mask: 4, uuid: AfsUuid::from_bytes([1; 16]), ..ListAddrByAttributes::default()
        },
    } = [533, 4, 0, 0, 0, 0x0101_0101, 0x0101, 0x0101, 1, 1, 1, 1, 1, 1, 1, 1];
    /// `vos listaddrs`.
    get_addrs_u_by_index: vl::get_addrs_u {
        attributes: ListAddrByAttributes { mask: 2, index: 1, ..ListAddrByAttributes::default() },
    } = padded(&[533, 2, 0, 1], 12);
    get_addrs: vl::get_addrs { handle: 0, spare: 0 } = [515, 0, 0];
    probe_server: vl::probe_server {} = [514];
    get_entry_by_name_n: vl::get_entry_by_name_n { name: volume("v1") } = [519, 2, 0x7631_0000];
    get_entry_by_id_n: vl::get_entry_by_id_n { volume: VolumeId(0x2000_0000), kind: -1 }
        = [518, 0x2000_0000, u32::MAX];
    get_new_volume_id: vl::get_new_volume_id { count: 1 } = [505, 1];
    create_entry_n: vl::create_entry_n { entry: entry() } = [vec![517], entry_words()].concat();
    replace_entry_n: vl::replace_entry_n { volume: VolumeId(0x2000_0000), kind: 0, entry: entry(), release: 7 }
        = [vec![520, 0x2000_0000, 0], entry_words(), vec![7]].concat();
    /// `vos release`.
    vl_set_lock: vl::set_lock { volume: VolumeId(0x2000_0000), kind: 0, operation: 0x20 }
        = [508, 0x2000_0000, 0, 32];
    vl_release_lock: vl::release_lock { volume: VolumeId(0x2000_0000), kind: 0, release: 7 }
        = [509, 0x2000_0000, 0, 7];
    delete_entry: vl::delete_entry { volume: VolumeId(0x2000_0003), kind: 0 } = [502, 0x2000_0003, 0];
    /// `vos listvldb`.
    list_attributes_n2: vl::list_attributes_n2 {
        attributes: ListByAttributes::default(), name: volume(""), start_index: 0,
    } = padded(&[534], 8);

    name_to_id: pr::name_to_id { names: asked(&["bob", "ann:g"]) }
        = [vec![504, 2], characters("bob", 64), characters("ann:g", 64)].concat();
    id_to_name: pr::id_to_name { ids: PrIds::new(vec![PtsId(-204), PtsId(32766)]).unwrap() }
        = [505, 2, 0xffff_ff34, 32766];
    i_new_entry: pr::i_new_entry { name: user("ann"), id: PtsId(77), owner: PtsId(0) }
        = [500, 3, 0x616e_6e00, 77, 0];
    new_entry: pr::new_entry { name: user("ann:g"), flag: 2, owner: PtsId(77) }
        = [509, 5, 0x616e_6e3a, 0x6700_0000, 2, 77];
    add_to_group: pr::add_to_group { user: PtsId(78), group: PtsId(-206) } = [503, 78, 0xffff_ff32];
    remove_from_group: pr::remove_from_group { user: PtsId(78), group: PtsId(-206) }
        = [507, 78, 0xffff_ff32];
    pr_delete: pr::delete { id: PtsId(78) } = [506, 78];
    /// A file server, of each user and host.
    get_cps: pr::get_cps { id: PtsId(78) } = [508, 78];
    get_host_cps: pr::get_host_cps { host: 0x0a61_0002 } = [519, 0x0a61_0002];
    where_is_it: pr::where_is_it { id: PtsId(78) } = [501, 78];
    pr_list_entry: pr::list_entry { id: PtsId(77) } = [512, 77];
    /// `pts rename`.
    change_entry: pr::change_entry { id: PtsId(78), name: user("rob"), owner: PtsId(0), new_id: PtsId(0) }
        = [513, 78, 3, 0x726f_6200, 0, 0];
    list_elements: pr::list_elements { id: PtsId(78) } = [514, 78];
    is_a_member_of: pr::is_a_member_of { user: PtsId(77), group: PtsId(-204) } = [515, 77, 0xffff_ff34];
    list_owned: pr::list_owned { id: PtsId(77), last: 0 } = [517, 77, 0];
    list_max: pr::list_max {} = [510];
    set_max: pr::set_max { id: PtsId(500), flag: 0 } = [511, 500, 0];
    list_entries: pr::list_entries { flags: 1, start_index: 0 } = [521, 1, 0];

    /// `vos create`.
    create_volume: afsvol::create_volume {
        partition: partition(), name: volume_text("v1"), kind: 0, parent: VolumeId(0), volume: VolumeId(0x2000_0000),
    } = [100, 0, 2, 0x7631_0000, 0, 0, 0x2000_0000];
    set_flags: afsvol::set_flags { transaction: TransactionId(1), flags: TransactionFlags(0) }
        = [106, 1, 0];
    end_trans: afsvol::end_trans { transaction: TransactionId(1) } = [104, 1];
    delete_volume: afsvol::delete_volume { transaction: TransactionId(21) } = [101, 21];
    trans_create: afsvol::trans_create { volume: VolumeId(0x2000_0000), partition: partition(), flags: AttachFlags(2) }
        = [108, 0x2000_0000, 0, 2];
    /// `vos release`.
    clone: afsvol::clone {
        transaction: TransactionId(7), purge_volume: VolumeId(0), kind: 1, name: volume_text("v1.readonly"),
        volume: VolumeId(0x2000_0001),
    } = [105, 7, 0, 1, 11, 0x7631_2e72, 0x6561_646f, 0x6e6c_7900, 0x2000_0001];
    get_status: afsvol::get_status { transaction: TransactionId(7) } = [113, 7];
    /// `vos rename`.
    set_ids_types: afsvol::set_ids_types {
        transaction: TransactionId(15), name: volume_text("v3"), kind: 0, parent: VolumeId(0x2000_0003),
        clone_id: VolumeId(0x2000_0004), backup_id: VolumeId(0x2000_0005),
    } = [117, 15, 2, 0x7633_0000, 0, 0x2000_0003, 0x2000_0004, 0x2000_0005];
    set_date: afsvol::set_date { transaction: TransactionId(19), creation_date: UnixTime(0x6b08_06e4) }
        = [123, 19, 0x6b08_06e4];
    list_volumes: afsvol::list_volumes { partition: partition(), flags: 1 } = [116, 0, 1];
    list_one_volume: afsvol::list_one_volume { partition: partition(), volume: VolumeId(0x2000_0000) }
        = [121, 0, 0x2000_0000];
    x_list_partitions: afsvol::x_list_partitions {} = [127];
    partition_info64: afsvol::partition_info64 { name: XdrString::new("/vicepa").unwrap() }
        = [65539, 7, 0x2f76_6963, 0x6570_6100];
    monitor: afsvol::monitor {} = [118];
    dump: afsvol::dump { transaction: TransactionId(17), from_date: UnixTime(0) } = [109, 17, 0];
    get_size: afsvol::get_size { transaction: TransactionId(16), from_date: UnixTime(0) }
        = [65537, 16, 0];
}
