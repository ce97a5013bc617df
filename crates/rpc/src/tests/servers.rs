//! Requests and replies of the servers other than file and location servers, word by word.

use std::net::Ipv4Addr;

use afar_net::ServiceId;
use afar_types::{
    AttachFlags, BozoState, BozoText, BozoTime, DestServer, Destinations, Fid, ForwardResults,
    PartitionId, PrAccess, PrEntry, PrIds, PrName, PrNameText, PrNamesAsked, PtsId, ReplicaDest,
    RestoreCookie, StoreVolumeStatus, TransactionId, UnixTime, VolintName, VolintNameText,
    VolumeChanges, VolumeId,
};
use afar_xdr::{Decode, Encode, XdrString, to_bytes};

use super::words;
use crate::client::encode_request;
use crate::{
    INTERFACES, Interface, Kind, Operation, afsvol, bozo, pr, rxafs, rxafscb, rxstats, vl,
};

/// Words, then text padded to whole words, then words.
fn mixed(before: &[u32], text: &str, after: &[u32]) -> Vec<u8> {
    let mut bytes = words(before);
    bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(words(after));
    bytes
}

fn request(operation: &Operation, request: &impl Encode, expected: &[u8]) {
    let bytes = encode_request(operation, request);
    assert_eq!(bytes[..], *expected, "{}", operation.name);
    let interface = INTERFACES
        .iter()
        .find(|interface| interface.name == operation.interface)
        .unwrap();
    let again = (interface.canonical_request)(&bytes).unwrap();
    assert_eq!(again.unwrap(), bytes, "{}", operation.name);
}

fn reply<R: Decode + Encode + PartialEq + std::fmt::Debug>(value: &R, expected: &[u8]) {
    assert_eq!(to_bytes(value)[..], *expected);
    assert_eq!(afar_xdr::from_bytes::<R>(expected).as_ref(), Ok(value));
}

#[test]
fn services_and_numbers_of_rows() {
    let rows = |interface: &&Interface| {
        let ServiceId(service) = interface.service;
        let operations = interface.operations;
        let first = operations.first().unwrap().opcode;
        let last = operations.last().unwrap().opcode;
        (interface.name, service, operations.len(), first, last)
    };
    assert_eq!(
        INTERFACES.iter().map(rows).collect::<Vec<_>>(),
        [
            ("RXAFS", 1, 49, 130, 184_156_167),
            ("RXAFSCB", 1, 19, 204, 184_156_164),
            ("VL", 52, 28, 501, 534),
            ("PR", 73, 23, 500, 530),
            ("AFSVol", 4, 35, 100, 184_156_161),
            ("BOZO", 1, 20, 80, 115),
            ("RXSTATS", 409, 11, 0, 10),
            ("USERS", 24934, 5, 1, 5),
            ("VOTE", 50, 5, 10001, 10007),
            ("EYES", 24935, 1, 1, 1),
        ]
    );
}

#[test]
fn create_volume_and_clone_return_what_they_were_given_and_more() {
    let name = VolintNameText::new("u.alice").unwrap();
    let create = afsvol::create_volume::Request {
        partition: PartitionId(1),
        name: name.clone(),
        kind: 0,
        parent: VolumeId(7),
        volume: VolumeId(8),
    };
    let expected = mixed(&[100, 1], "u.alice", &[0, 7, 8]);
    request(afsvol::create_volume::OPERATION, &create, &expected);
    let created = afsvol::create_volume::Reply {
        volume: VolumeId(8),
        transaction: TransactionId(1),
    };
    reply(&created, &words(&[8, 1]));
    let clone = afsvol::clone::Request {
        transaction: TransactionId(1),
        purge_volume: VolumeId(0),
        kind: 1,
        name,
        volume: VolumeId(9),
    };
    let expected = mixed(&[105, 1, 0, 1], "u.alice", &[9]);
    request(afsvol::clone::OPERATION, &clone, &expected);
}

#[test]
fn a_release_to_two_sites() {
    let dest = |transaction, last| ReplicaDest {
        transaction: TransactionId(transaction),
        server: DestServer::new(Ipv4Addr::new(192, 0, 2, last)),
    };
    let cookie = RestoreCookie {
        name: VolintName::new("a.b").unwrap(),
        kind: 1,
        clone_id: VolumeId(0),
        parent_id: VolumeId(7),
    };
    let forward = afsvol::forward_multiple::Request {
        transaction: TransactionId(3),
        from_date: UnixTime(1000),
        destinations: Destinations::new(vec![dest(4, 1), dest(5, 2)]).unwrap(),
        spare: 0,
        cookie,
    };
    let mut expected = words(&[128, 3, 1000, 2]);
    expected.extend(words(&[
        4,
        0xc000_0201,
        7005,
        1,
        5,
        0xc000_0202,
        7005,
        1,
        0,
    ]));
    let mut name = [0; 32];
    name[..3].copy_from_slice(&[0x61, 0x2e, 0x62]);
    expected.extend(words(&name));
    expected.extend(words(&[1, 0, 7]));
    request(afsvol::forward_multiple::OPERATION, &forward, &expected);
    let results = ForwardResults::new(vec![0, -1]).unwrap();
    let results = afsvol::forward_multiple::Reply { results };
    reply(&results, &words(&[2, 0, u32::MAX]));
}

#[test]
fn transactions_dumps_and_changes() {
    let create = afsvol::trans_create::Request {
        volume: VolumeId(7),
        partition: PartitionId(0),
        flags: AttachFlags::OFFLINE,
    };
    request(
        afsvol::trans_create::OPERATION,
        &create,
        &words(&[108, 7, 0, 1]),
    );
    let dump = afsvol::dump_v2::Request {
        transaction: TransactionId(3),
        from_date: UnixTime(0),
        flags: afsvol::OMIT_DIRECTORIES,
    };
    request(afsvol::dump_v2::OPERATION, &dump, &words(&[65538, 3, 0, 1]));
    assert_eq!(afsvol::dump_v2::OPERATION.kind, Kind::Download);
    assert_eq!(afsvol::restore::OPERATION.kind, Kind::Upload);
    assert_eq!(afsvol::restore::Request::MAX_LEN, 8 + 35 * 4);
    let change = afsvol::set_info::Request {
        transaction: TransactionId(3),
        changes: VolumeChanges::default(),
    };
    let bytes = encode_request(afsvol::set_info::OPERATION, &change);
    assert_eq!(
        (bytes.len(), &bytes[..8]),
        (4 + 4 + 220, &words(&[126, 3])[..])
    );
    reply(&afsvol::get_size::Reply { size: 5 << 32 }, &words(&[5, 0]));
    let ask = afsvol::partition_info64::Request {
        name: XdrString::new("/vicepa").unwrap(),
    };
    request(
        afsvol::partition_info64::OPERATION,
        &ask,
        &mixed(&[65539], "/vicepa", &[]),
    );
}

#[test]
fn names_and_ids() {
    let names = PrNamesAsked::new(vec![PrName::new("bob").unwrap()]).unwrap();
    let mut name = [0; 64];
    name[..3].copy_from_slice(&[0x62, 0x6f, 0x62]);
    let ask = pr::name_to_id::Request { names };
    let expected = [words(&[504, 1]), words(&name)].concat();
    request(pr::name_to_id::OPERATION, &ask, &expected);
    let ids = PrIds::new(vec![PtsId::ANONYMOUS]).unwrap();
    reply(
        &pr::name_to_id::Reply { ids: ids.clone() },
        &words(&[1, 32766]),
    );
    let cps = PrIds::new(vec![PtsId(-101), PtsId(5)]).unwrap();
    let known = pr::get_cps::Reply { cps, over: 0 };
    reply(&known, &words(&[2, 0xffff_ff9b, 5, 0]));
    // The word that goes both ways comes last in both.
    let owned = pr::list_owned::Request {
        id: PtsId(5),
        last: 6,
    };
    request(pr::list_owned::OPERATION, &owned, &words(&[517, 5, 6]));
    let owned = pr::list_owned::Reply {
        owned: ids,
        last: 0,
    };
    reply(&owned, &words(&[1, 32766, 0]));
    let change = pr::change_entry::Request {
        id: PtsId(-300),
        name: PrNameText::default(),
        owner: PtsId(5),
        new_id: PtsId(0),
    };
    let expected = words(&[513, 0xffff_fed4, 0, 5, 0]);
    request(pr::change_entry::OPERATION, &change, &expected);
    let fields = pr::set_fields_entry::Request {
        id: PtsId(5),
        mask: PrEntry::SET_ACCESS | PrEntry::SET_N_GROUPS,
        access: PrAccess::USER_DEFAULT,
        n_groups: 7,
        n_users: 0,
        spare: [0; 2],
    };
    let expected = words(&[516, 5, 0x8000_00ff, 0x80, 7, 0, 0, 0]);
    request(pr::set_fields_entry::OPERATION, &fields, &expected);
}

#[test]
fn what_bos_status_asks() {
    let instance = BozoText::new("fs").unwrap();
    let ask = bozo::get_status::Request { instance };
    request(bozo::get_status::OPERATION, &ask, &mixed(&[83], "fs", &[]));
    let status = bozo::get_status::Reply {
        state: BozoState::Normal,
        description: BozoText::new("file server running").unwrap(),
    };
    reply(&status, &mixed(&[1], "file server running", &[]));
    assert_eq!(bozo::get_instance_info::Reply::MIN_LEN, 4 + 17 * 4);
    assert_eq!(bozo::list_keys::Reply::MAX_LEN, 4 + 32 + 16);
    let never = bozo::get_restart_time::Reply {
        time: BozoTime::never(),
    };
    reply(&never, &words(&[16, 0, 0, 0, 0]));
    assert_eq!(bozo::get_log::OPERATION.kind, Kind::Download);
}

#[test]
fn the_counters_of_rpcs() {
    let ask = rxstats::retrieve_peer_rpc_stats::Request { client_version: 1 };
    request(
        rxstats::retrieve_peer_rpc_stats::OPERATION,
        &ask,
        &words(&[1, 1]),
    );
    let canonical = rxstats::canonical_reply(0, &words(&[1, 2, 3, 0, 0]));
    assert_eq!(canonical.unwrap().unwrap()[..], words(&[1, 2, 3, 0, 0]));
    assert_eq!(rxstats::name(0), Some("retrieve_process_rpc_stats"));
    assert_eq!(rxstats::name(10), Some("clear_peer_rpc_stats"));
}

#[test]
fn file_and_location_servers_have_their_rare_operations() {
    let set = rxafs::set_volume_status::Request {
        volume: VolumeId(7),
        status: StoreVolumeStatus {
            mask: StoreVolumeStatus::SET_MAX_QUOTA,
            min_quota: 0,
            max_quota: 5000,
        },
        name: XdrString::default(),
        offline_message: XdrString::default(),
        message_of_the_day: XdrString::new("hi").unwrap(),
    };
    let expected = mixed(&[150, 7, 2, 0, 5000, 0, 0], "hi", &[]);
    request(rxafs::set_volume_status::OPERATION, &set, &expected);
    let lock = rxafs::old_extend_lock::Request {
        fid: Fid::new(1, 2, 3),
        vol_sync: Default::default(),
    };
    let expected = words(&[144, 1, 2, 3, 0, 0, 0, 0, 0, 0]);
    request(rxafs::old_extend_lock::OPERATION, &lock, &expected);
    assert_eq!(rxafs::get_statistics::Reply::MAX_LEN, 580);
    assert_eq!(rxafscb::get_lock::Reply::MAX_LEN, 24 * 4);
    assert_eq!(rxafscb::get_ce::Reply::MAX_LEN, 22 * 4);
    assert_eq!(rxafscb::get_ce64::Reply::MAX_LEN, 23 * 4);
    let change = vl::change_addr::Request {
        old: u32::MAX,
        new: 0x7f00_0001,
    };
    request(
        vl::change_addr::OPERATION,
        &change,
        &words(&[516, u32::MAX, 0x7f00_0001]),
    );
    assert_eq!(vl::get_stats::Reply::MAX_LEN, 4 * 116);
    assert_eq!(vl::update_entry::Request::MAX_LEN, 4 * (3 + 120));
    let empty = vl::canonical_reply(523, &words(&[0, 0]));
    assert_eq!(empty.unwrap().unwrap()[..], words(&[0, 0]));
}

#[test]
fn what_anyone_may_send_is_bounded() {
    let rows = INTERFACES.iter().flat_map(|interface| interface.operations);
    let large: Vec<_> = rows
        .filter(|row| row.request_max_len > 8192)
        .map(|row| (row.name, row.request_max_len))
        .collect();
    let lists = [
        ("batch", 65_572),
        ("keep_leases", 65_540),
        ("claim_leases", 393_220),
        ("recall_leases", 65_540),
        ("name_to_id", 1_280_004),
        ("id_to_name", 2_000_004),
        ("set_keys", 65_672),
    ];
    assert_eq!(large, lists);
}

#[test]
fn what_servers_may_send_is_bounded() {
    for interface in INTERFACES {
        for row in interface.operations {
            assert!(
                row.reply_max_len <= 400 << 20,
                "{}: {}",
                row.name,
                row.reply_max_len
            );
        }
    }
}
