mod openafs;
mod servers;

use afar_types::{AfsUuid, CallBack, CallBackType, CallBacks, Fid, Fids, StoreStatus, VolumeName};
use afar_xdr::{Decode, to_bytes};
use proptest::prelude::*;

use crate::client::encode_request;
use crate::{INTERFACES, Kind, Operation, rxafs, rxafscb, vl};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn get_entry_by_name_u_asks_for_root_cell() {
    let name = VolumeName::new("root.cell").unwrap();
    let request = vl::get_entry_by_name_u::Request { name };
    let bytes = encode_request(vl::get_entry_by_name_u::OPERATION, &request);
    assert_eq!(bytes[..], *b"\0\0\x02\x0f\0\0\0\x09root.cell\0\0\0");
    assert_eq!(vl::get_entry_by_name_u::Reply::MIN_LEN, 1048);
    assert_eq!(vl::get_entry_by_name_u::Reply::MAX_LEN, 1048);
}

#[test]
fn fetch_data64_asks_with_two_words_a_number() {
    let request = rxafs::fetch_data64::Request {
        fid: Fid::new(7, 8, 9),
        position: 0,
        length: 65536,
    };
    let bytes = encode_request(rxafs::fetch_data64::OPERATION, &request);
    assert_eq!(bytes[..], words(&[0x1_0001, 7, 8, 9, 0, 0, 0, 0x1_0000]));
    assert_eq!(rxafs::fetch_data64::Reply::MAX_LEN, 120);
}

#[test]
fn store_data64_has_60_bytes_before_and_108_after_the_data() {
    let request = rxafs::store_data64::Request {
        fid: Fid::new(7, 8, 9),
        attributes: StoreStatus::default(),
        position: 1 << 32,
        length: 1,
        file_length: (1 << 32) + 1,
    };
    let bytes = encode_request(rxafs::store_data64::OPERATION, &request);
    assert_eq!(bytes.len(), 4 + 12 + 24 + 24);
    assert_eq!(bytes[40..48], words(&[1, 0]));
    assert_eq!(rxafs::store_data64::Reply::MAX_LEN, 84 + 24);
}

#[test]
fn inline_bulk_status_takes_4_and_12_bytes_a_fid() {
    let fids = Fids::new(vec![Fid::new(1, 1, 1); 50]).unwrap();
    let request = rxafs::inline_bulk_status::Request { fids };
    let bytes = encode_request(rxafs::inline_bulk_status::OPERATION, &request);
    assert_eq!(bytes.len(), 4 + 4 + 12 * 50);
    let longest = rxafs::inline_bulk_status::Reply::MAX_LEN;
    assert_eq!(longest, 4 + 84 * 50 + 4 + 12 * 50 + 24);
}

#[test]
fn capabilities_of_a_full_server() {
    let reply = words(&[1, 7]);
    assert_eq!(
        rxafs::canonical_reply(65540, &reply).unwrap().unwrap()[..],
        reply
    );
}

#[test]
fn call_back_breaks_with_and_without_the_second_list() {
    let fids = Fids::new(vec![Fid::new(7, 8, 9)]).unwrap();
    let dropped = CallBack {
        version: 1,
        expires_in: 0,
        kind: CallBackType::Dropped,
    };
    let callbacks = CallBacks::new(vec![dropped]).unwrap();
    let request = rxafscb::call_back::Request {
        fids: fids.clone(),
        callbacks,
    };
    let bytes = encode_request(rxafscb::call_back::OPERATION, &request);
    assert_eq!(bytes[..], words(&[0xcc, 1, 7, 8, 9, 1, 1, 0, 3]));
    let request = rxafscb::call_back::Request {
        fids,
        callbacks: CallBacks::default(),
    };
    let bytes = encode_request(rxafscb::call_back::OPERATION, &request);
    assert_eq!(bytes[..], words(&[0xcc, 1, 7, 8, 9, 0]));
}

#[test]
fn tell_me_about_yourself_answers_432_bytes_and_capabilities() {
    let host = afar_types::InterfaceAddr::new(AfsUuid::default(), &[]);
    let capabilities = afar_types::Capabilities::new(vec![1]).unwrap();
    let reply = rxafscb::tell_me_about_yourself::Reply { host, capabilities };
    let bytes = to_bytes(&reply);
    assert_eq!((bytes.len(), &bytes[432..]), (440, &words(&[1, 1])[..]));
}

#[test]
fn operations_are_found_by_opcode_and_listed_once() {
    assert_eq!(rxafs::name(65536), Some("inline_bulk_status"));
    assert_eq!(vl::name(527), Some("get_entry_by_name_u"));
    assert_eq!(rxafscb::name(999), None);
    assert_eq!(rxafs::fetch_data::OPERATION.kind, Kind::Fetch);
    for interface in INTERFACES {
        let ascending = |pair: &[&Operation]| pair[0].opcode < pair[1].opcode;
        let name = interface.name;
        assert!(interface.operations.windows(2).all(ascending), "{name}");
        assert!(interface.operations.iter().all(|row| row.interface == name));
    }
}

#[test]
fn requests_of_unknown_operations_and_cut_requests() {
    assert_eq!(rxafs::canonical_request(&words(&[9])), Ok(None));
    let error = rxafs::canonical_request(&words(&[132, 1, 2])).unwrap_err();
    assert_eq!((error.offset, error.what), (12, "Fid.uniquifier"));
}

/// Every row's decoders on these bytes; what decodes is canonical from then on.
fn decode_all(bytes: &[u8]) {
    for interface in INTERFACES {
        for operation in interface.operations {
            let whole = [&operation.opcode.to_be_bytes()[..], bytes].concat();
            if let Ok(once) = (interface.canonical_request)(&whole) {
                let once = once.unwrap();
                let again = (interface.canonical_request)(&once);
                assert_eq!(again.unwrap().unwrap(), once);
            }
            if let Ok(once) = (interface.canonical_reply)(operation.opcode, bytes) {
                let once = once.unwrap();
                let again = (interface.canonical_reply)(operation.opcode, &once);
                assert_eq!(again.unwrap().unwrap(), once);
            }
        }
    }
}

#[test]
fn every_row_reads_zeros() {
    let zeros = vec![0; 8192];
    for interface in INTERFACES {
        for row in interface.operations {
            let whole = [&row.opcode.to_be_bytes()[..], &zeros].concat();
            let request = (interface.canonical_request)(&whole).unwrap().unwrap();
            // What is left are fields of fixed size, and a zero for each list and string.
            // Only of set_info's are some without a meaning, and not kept.
            let kept = request[..] == whole[..request.len()];
            assert!(kept || row.name == "set_info", "{}", row.name);
            assert!(request.len() - 4 <= row.request_max_len, "{}", row.name);
            let reply = (interface.canonical_reply)(row.opcode, &zeros);
            let reply = reply.unwrap().unwrap();
            assert!(reply.iter().all(|&byte| byte == 0), "{}", row.name);
            assert!(reply.len() <= row.reply_max_len, "{}", row.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_requests_and_replies_never_panic(
        start in prop::collection::vec(0u32..60, 0..20),
        rest in prop::collection::vec(any::<u8>(), 0..2400),
    ) {
        let mut bytes = words(&start);
        bytes.extend(rest);
        decode_all(&bytes);
    }
}
