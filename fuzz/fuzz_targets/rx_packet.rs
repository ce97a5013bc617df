//! Packets by themselves: headers, acknowledgements, jumbograms, questions of rxdebug.

#![no_main]

use afar_rx::packet::ack::{Ack, RANGES_MAX, WINDOW_MAX};
use afar_rx::packet::debug::{PeerAnswer, Question, Row, StatsAnswer};
use afar_rx::packet::jumbo::Parts;
use afar_rx::packet::{HEADER_SIZE, Header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(header) = Header::decode(data) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let body = data.get(HEADER_SIZE..).unwrap_or_default();
        let mut octets = 0;
        for (index, part) in (0u32..).zip(Parts::new(header, body.to_vec().into())) {
            let Ok((part, payload)) = part else { break };
            assert_eq!(part.sequence, header.sequence.wrapping_add(index));
            assert_eq!(part.from_client(), header.from_client());
            octets += payload.len();
        }
        assert!(octets <= body.len());
        check_ack(body);
    }
    check_ack(data);
    check_answers(data);
    if let Some(question) = Question::decode(data) {
        assert_eq!(
            question == Question::Unknown,
            !(1..=5).contains(&data[3]) || data[..3] != [0; 3]
        );
    }
});

/// Counters of an answer fit into 32 bits, so that they are written as they were read.
fn check_answers(body: &[u8]) {
    if let Some(stats) = StatsAnswer::decode(body) {
        assert_eq!(StatsAnswer::decode(&stats.encode()), Some(stats));
    }
    if let Some(Row::Entry(peer)) = PeerAnswer::decode(body) {
        let Some(Row::Entry(again)) = PeerAnswer::decode(&peer.encode()) else {
            panic!("an entry is none any more");
        };
        assert_eq!(
            (
                again.address,
                again.sent,
                again.resent,
                again.window_packets
            ),
            (peer.address, peer.sent, peer.resent, peer.window_packets)
        );
    }
}

/// What was understood is said again in the same way.
fn check_ack(body: &[u8]) {
    let Some(ack) = Ack::decode(body) else { return };
    if let Some(extension) = &ack.extension {
        assert!(extension.ranges.len() <= RANGES_MAX && extension.window <= WINDOW_MAX);
    }
    let mut encoded = Vec::new();
    ack.encode(&mut encoded);
    let again = Ack::decode(&encoded).expect("what we encode is long enough");
    assert_eq!(
        (again.first, again.previous, again.serial),
        (ack.first, ack.previous, ack.serial)
    );
    assert_eq!(
        (again.reason, again.trailer, &again.extension),
        (ack.reason, ack.trailer, &ack.extension)
    );
    assert!(again.soft.iter().eq(ack.soft.iter()));
}
