//! Bytes of packets as peers send them, and as they must leave here.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;

use super::old_peer;
use super::raw::{CID, EPOCH, Raw, ack};
use crate::packet::ack::{Ack, Extension, Range, Reason};
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType, abort_code};
use crate::{AbortCode, CallNumber, Config, SecurityIndex, Service, ServiceId};

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |d: u8| (d as char).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// RXAFS FetchStatus of 536870913.1.1 over rxnull.
// spec: rx#worked-bytes
const FETCH_STATUS: &str = "9a5b3c21 4c6d8e70 00000001 00000001 00000001 | 01 05 00 00 | 0000 0001
    00000084 20000001 00000001 00000001";

/// Of seq 1 to 7, 5 is missing; 1 to 3 are consumed.
// spec: rx#worked-bytes
const ACK_WITH_GAP: &str = "9a5b3c21 4c6d8e70 00000001 00000000 00000009 | 02 20 00 00 | 0000 0001
    0000 0000 | 00000004 | 00000007 | 00000011 | 03 | 04 | 01 00 01 01 | 00 00 00
    000005a4 | 000005a4 | 00000020 | 00000001";

#[test]
fn data_header() {
    let datagram = octets(FETCH_STATUS);
    let header = Header::decode(&datagram).unwrap();
    assert_eq!(
        (header.epoch, header.cid, header.cid.channel()),
        (EPOCH, CID, 0)
    );
    assert_eq!(
        (header.call_number, header.sequence, header.serial),
        (CallNumber(1), 1, 1)
    );
    assert_eq!(header.packet_type, PacketType::Data);
    assert_eq!(
        header.flags,
        Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET)
    );
    assert_eq!(
        (header.security_index, header.service_id),
        (SecurityIndex(0), ServiceId(1))
    );
    assert_eq!(header.encode(), datagram[..HEADER_SIZE]);
}

#[test]
fn request_leaves_as_openafs_sends_it() {
    let (mut raw, connection) = Raw::client(old_peer());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    let request = octets("00000084 20000001 00000001 00000001");
    raw.endpoint
        .write(raw.now, call, request.clone().into())
        .unwrap();
    raw.endpoint.finish(raw.now, call);
    let (mut header, body) = raw.take_of(PacketType::Data).remove(0);
    assert_eq!(body, request);
    // Our own epoch and connection, and an acknowledgement asked of an unknown path.
    assert_eq!(header.flags, Flags(0x07));
    header = Header {
        epoch: EPOCH,
        cid: CID,
        flags: Flags(0x05),
        service_id: ServiceId(1),
        ..header
    };
    assert_eq!(header.encode(), octets(FETCH_STATUS)[..HEADER_SIZE]);
}

#[test]
fn ack_body() {
    let datagram = octets(ACK_WITH_GAP);
    assert_eq!(datagram.len(), 69);
    let decoded = Ack::decode(&datagram[HEADER_SIZE..]).unwrap();
    let mut expected = ack(4, "1011", Reason::OutOfSequence, 32, None);
    expected.serial = 0x11;
    assert_eq!(decoded, expected);
    let mut encoded = Vec::new();
    expected.encode(&mut encoded);
    assert_eq!(encoded, datagram[HEADER_SIZE..]);
}

/// The same acknowledgement, made by the endpoint: all but the numbers that it chooses itself.
#[test]
fn ack_leaves_as_openafs_sends_it() {
    let mut raw = Raw::server(old_peer());
    for sequence in [1, 2, 3, 4] {
        raw.data(sequence, Flags(0), b"x");
    }
    raw.take();
    for sequence in [6, 7] {
        raw.data(sequence, Flags(0), b"x");
    }
    let acks = raw.take_of(PacketType::Ack);
    let (header, body) = acks.last().unwrap();
    assert_eq!(header.flags, Flags::SLOW_START_OK);
    assert_eq!((header.sequence, header.epoch, header.cid), (0, EPOCH, CID));
    let expected = octets(
        "0000 0000 | 00000005 | 00000007 | 00000006 | 03 | 03 | 00 01 01 | 00 00 00
         000005a4 | 000005a4 | 00000020 | 00000001",
    );
    assert_eq!(body[..], expected);
}

#[test]
fn trailer_of_any_length() {
    let full = octets(ACK_WITH_GAP);
    let body = &full[HEADER_SIZE..];
    let end_of_soft = 18 + 4;
    let cut = |len: usize| Ack::decode(&body[..len]).unwrap();
    let trailer = cut(end_of_soft).trailer;
    assert_eq!((trailer.max_mtu, trailer.window), (None, None));
    let trailer = cut(end_of_soft + 3).trailer;
    assert_eq!((trailer.max_mtu, trailer.window), (None, None));
    let trailer = cut(end_of_soft + 3 + 8).trailer;
    assert_eq!((trailer.interface_mtu, trailer.window), (Some(1444), None));
    let trailer = cut(end_of_soft + 3 + 12).trailer;
    assert_eq!(
        (trailer.window, trailer.max_datagram_packets),
        (Some(32), None)
    );
    assert_eq!(cut(body.len()).trailer.max_datagram_packets, Some(1));
    for len in 0..end_of_soft {
        assert_eq!(Ack::decode(&body[..len]), None, "{len} bytes");
    }
}

#[test]
fn padding_of_mtu_probes_is_ignored() {
    let mut body = octets(ACK_WITH_GAP)[HEADER_SIZE..].to_vec();
    let plain = Ack::decode(&body);
    body.resize(1444 - HEADER_SIZE, 0);
    assert_eq!(Ack::decode(&body), plain);
    body.resize(9000, 0xff);
    assert_eq!(Ack::decode(&body), plain);
}

/// The worked example of docs/protocol/rx-extension.md.
// spec: rx-extension#worked-bytes
const EXTENDED_ACK: &str = "0000 0000 | 00000004 | 0000000a | 00000011 | 03 | 07
    01 00 01 01 00 00 01 | 00 00 00
    000005a4 | 000005a4 | 000000ff | 00000001
    61666172 | 01 | 03 | 003a
    00000ba3 | 0000ffe3 | 000004d2 | 00000002 | 00000009 | 00000001 | 0003
    00000006 00000007 | 00000002 00000004 | 00000000 00000001";

#[test]
fn extension_body() {
    let mut expected = ack(4, "1011001", Reason::OutOfSequence, 255, None);
    expected.serial = 0x11;
    let range = |start, end| Range { start, end };
    expected.extension = Some(Extension {
        shares: 3,
        window: 2979,
        datagram_max: 65_507,
        ack_delay_us: 1234,
        duplicates: 2,
        ecn_ect0: 9,
        ecn_ce: 1,
        ranges: vec![range(6, 7), range(2, 4), range(0, 1)],
    });
    let body = octets(EXTENDED_ACK);
    let mut encoded = Vec::new();
    expected.encode(&mut encoded);
    assert_eq!(encoded, body);
    assert_eq!(Ack::decode(&body), Some(expected.clone()));
    // A later version may append to the block, and anything may follow it.
    let mut longer = body.clone();
    let (version, length) = (18 + 7 + 3 + 16 + 4, 18 + 7 + 3 + 16 + 7);
    longer[version] = 2;
    longer[length] += 6;
    longer.extend([0xaa; 20]);
    assert_eq!(Ack::decode(&longer), Some(expected.clone()));
    // What is cut short or says more ranges than it has is no extension, and the rest still holds.
    expected.extension = None;
    for len in body.len() - 58..body.len() {
        assert_eq!(
            Ack::decode(&body[..len]),
            Some(expected.clone()),
            "{len} bytes"
        );
    }
}

#[test]
fn aborts() {
    assert_eq!(abort_code(&octets("fffffe39")), AbortCode::RXGEN_OPCODE);
    assert_eq!(abort_code(&octets("01260b09")), AbortCode(19_270_409));
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags::LAST_PACKET, b"\0\0\0\x63");
    let call = raw.incoming();
    raw.take();
    raw.endpoint.abort(raw.now, call, AbortCode::RXGEN_OPCODE);
    let (header, body) = raw.take().remove(0);
    assert_eq!(
        (header.packet_type, header.flags),
        (PacketType::Abort, Flags(0))
    );
    assert_eq!((header.call_number, header.sequence), (CallNumber(1), 0));
    assert_eq!(body[..], octets("fffffe39"));
}

#[test]
fn version_and_nat_pings() {
    let mut raw = Raw::server(Config {
        version: "afar test".to_owned(),
        ..Config::default()
    });
    raw.header.call_number = CallNumber(0);
    raw.put(PacketType::Version, 0, Flags(0), &[0]);
    let (header, body) = raw.take().remove(0);
    assert_eq!(
        (header.packet_type, header.flags),
        (PacketType::Version, Flags(0))
    );
    assert_eq!(body.len(), 56);
    assert_eq!(&body[..10], b"afar test\0");
    // NAT keep-alives of OpenAFS and Linux have no CLIENT_INITIATED.
    raw.header.flags = Flags(0);
    raw.put(PacketType::Version, 0, Flags::LAST_PACKET, &[0]);
    assert_eq!(raw.take(), []);
}

#[test]
fn unknown_services_are_refused_and_aborts_never_answered() {
    let mut raw = Raw::server(Config::default());
    raw.header.service_id = ServiceId(9);
    raw.data(1, Flags::LAST_PACKET, b"");
    let (header, body) = raw.take().remove(0);
    assert_eq!((header.packet_type, header.serial), (PacketType::Abort, 0));
    assert_eq!(header.call_number, CallNumber(1));
    assert!(!header.from_client());
    assert_eq!(body[..], (-2i32).to_be_bytes());
    raw.put(PacketType::Abort, 0, Flags(0), &[0; 4]);
    assert_eq!(raw.take(), []);
}

/// A reply for every kind of question, of exactly the size that the tool expects.
#[test]
fn debug_questions() {
    use crate::packet::debug::Question;
    let mut raw = Raw::server(Config {
        monitors: vec![[192, 0, 2, 7].into()],
        ..Config::default()
    });
    raw.endpoint
        .add_service(Service::new(ServiceId(1), "other"), Vec::new());
    raw.data(1, Flags(0), b"unfinished");
    let peer = raw.peer;
    raw.take();
    raw.header.flags = Flags::CLIENT_INITIATED;
    let mut ask = |question: Question| {
        raw.put(PacketType::Debug, 0, Flags::LAST_PACKET, &question.encode());
        let (header, body) = raw.take().remove(0);
        assert_eq!(
            (header.packet_type, header.flags),
            (PacketType::Debug, Flags::LAST_PACKET)
        );
        body
    };
    let word = |body: &Bytes, at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
    let stats = ask(Question::Stats);
    assert_eq!((stats.len(), stats[14], word(&stats, 8)), (56, b'S', 1));
    for all in [false, true] {
        let connection = ask(Question::Connection { index: 0, all });
        assert_eq!(connection.len(), 176);
        assert_eq!(connection[..4], [192, 0, 2, 7]);
        assert_eq!(
            (word(&connection, 4), word(&connection, 132)),
            (CID.0, EPOCH.0)
        );
        // Channel 0: call 1, active, receiving, with input.
        assert_eq!(
            (word(&connection, 12), connection[40], connection[44]),
            (1, 2, 2)
        );
        assert_eq!(connection[52], 1);
        let end = ask(Question::Connection { index: 1, all });
        assert_eq!((end.len(), word(&end, 4)), (176, u32::MAX));
    }
    let stats = ask(Question::RxStats);
    assert_eq!(
        (stats.len(), word(&stats, 96), word(&stats, 224)),
        (284, 1, 1)
    );
    let answer = ask(Question::Peer { index: 0 });
    assert_eq!(
        (answer.len(), &answer[4..6]),
        (132, &peer.port().to_be_bytes()[..])
    );
    let end = ask(Question::Peer { index: 1 });
    assert_eq!((end.len(), word(&end, 0)), (132, u32::MAX));
    assert_eq!(
        ask(Question::Unknown)[..],
        [0xff, 0xff, 0xff, 0xf8, 0xff, 0xff, 0xff, 0xf8]
    );
}

/// What connections could be taken over with is told to this machine and to monitors, and of a client's endpoint
/// nothing to anybody else.
#[test]
fn secrets_are_told_to_this_machine_and_to_monitors() {
    use crate::packet::debug::Question;
    let host = |last| IpAddr::from([192, 0, 2, last]);
    let (stranger, monitor, ours) = (host(7), host(8), host(9));
    for debug_for_all in [true, false] {
        let mut raw = Raw::server(Config {
            debug_for_all,
            monitors: vec![monitor],
            ..Config::default()
        });
        raw.data(1, Flags(0), b"unfinished");
        raw.take();
        raw.header.flags = Flags::CLIENT_INITIATED;
        let question = Question::Connection {
            index: 0,
            all: true,
        }
        .encode();
        for (from, is_trusted) in [
            (stranger, false),
            (monitor, true),
            (ours, true),
            (IpAddr::from([127, 0, 0, 1]), true),
        ] {
            let header = Header {
                packet_type: PacketType::Debug,
                ..raw.header
            };
            let datagram = [&header.encode()[..], &question].concat();
            raw.endpoint.handle(
                raw.now,
                (from, 7001).into(),
                Some(ours),
                None,
                datagram.into(),
            );
            let answer = raw.take_all().pop().map(|(_, _, body)| body);
            let Some(body) = answer else {
                assert!(!debug_for_all && !is_trusted);
                continue;
            };
            assert!(debug_for_all || is_trusted);
            // Listed it is in any case, with where it comes from and what it does.
            assert_eq!((&body[..4], body[40]), (&[192, 0, 2, 7][..], 2));
            let mut words = body
                .chunks(4)
                .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
            let is_told = words.any(|word| [EPOCH.0, CID.0].contains(&word));
            let numbers = body[8..28].iter().any(|byte| *byte != 0);
            assert_eq!((is_told, numbers), (is_trusted, is_trusted), "{from}");
        }
        raw.put(PacketType::Version, 0, Flags(0), &[0]);
        assert_eq!(raw.take().len(), 1);
    }
}

/// Many questions at once are not all answered; the rate recovers.
#[test]
fn debug_answers_are_limited() {
    let mut raw = Raw::server(Config {
        debug_for_all: true,
        ..Config::default()
    });
    let body = crate::packet::debug::Question::Stats.encode();
    let mut answered = 0;
    for _ in 0..10_000 {
        raw.put(PacketType::Debug, 0, Flags::LAST_PACKET, &body);
        answered += raw.take().len();
    }
    assert!((100..1000).contains(&answered), "{answered}");
    raw.wait(Duration::from_secs(1));
    raw.put(PacketType::Debug, 0, Flags::LAST_PACKET, &body);
    assert_eq!(raw.take().len(), 1);
    // An answer is not a question.
    raw.header.flags = Flags(0);
    raw.put(PacketType::Debug, 0, Flags::LAST_PACKET, &body);
    assert_eq!(raw.take(), []);
}
