//! The bytes of docs/protocol/rxkad.md, which others' implementations were seen to have.

use super::*;
use crate::rxkad::response::{Answer, Challenge, Response};
use crate::tests::hex;

/// The answer of the worked example.
pub(super) const ANSWER: Answer = Answer {
    epoch: EPOCH,
    cid: CID,
    calls: [1, 0, 0, 0],
    challenge: 0x1234_5678,
    level: 2,
};

// spec: rxkad#packets
#[test]
fn checksums_of_headers() {
    for level in Level::ALL {
        let protection = protection(level);
        assert_eq!(protection.checksum(&header(0, 1, 1)), 0xd54b);
        assert_eq!(protection.checksum(&header(3, 1, 2)), 0x7726);
    }
}

// spec: rxkad#packets
#[test]
fn bodies() {
    for (level, expected) in [
        (Level::Clear, "00000084"),
        (Level::Auth, "8ec5acfa4543eedf"),
        (Level::Crypt, "0d4b99f4c6e9e20ffd3e11137cc9ef04"),
    ] {
        let payload = hex("00000084");
        let (header, body) = sealed(&mut protection(level), header(0, 1, 1), &payload);
        assert_eq!(body, hex(expected), "{level}");
        assert_eq!(header.checksum, 0xd54b);
        assert_eq!(protection(level).open(&header, body).unwrap(), payload);
    }
}

// spec: rxkad#challenge
#[test]
fn a_challenge() {
    let challenge = Challenge {
        id: 0x1234_5678,
        minimum: 1,
    };
    let body = hex("00000002 12345678 00000001 00000000");
    assert_eq!(challenge.encode(), body);
    assert_eq!(Challenge::decode(&body), Ok(challenge));
}

// spec: rxkad#response
#[test]
fn a_response() {
    let cipher = Schedule::new(&KEY);
    let body = ANSWER.seal(&cipher, 256, &[0x55; 100]).unwrap();
    let fixed = "00000002 00000000
        6a4bf4c9c745ada024d739509e7c78ac3430d863dc143642
        2e9d72047fd62beef5df90505a1218ec
        00000100 00000064";
    assert_eq!(body[..56], hex(fixed));
    assert_eq!(body[56..], [0x55; 100]);

    let mut plain = body[8..48].to_vec();
    cipher.open(&mut plain);
    let expected = "9a5b3c21 4c6d8e70 42119d4d 00000002
        00000001 00000000 00000000 00000000 12345679 00000002";
    assert_eq!(plain, hex(expected));

    let response = Response::decode(&body).unwrap();
    assert_eq!((response.kvno, response.ticket), (256, &[0x55; 100][..]));
    assert_eq!(response.open(&cipher), Ok(ANSWER));
}

#[test]
fn tickets_have_between_32_and_12000_octets() {
    let cipher = Schedule::new(&KEY);
    for (size, expected) in [
        (31, Some(RxkadError::TicketLen)),
        (32, None),
        (12_000, None),
        (12_001, Some(RxkadError::TicketLen)),
    ] {
        let sealed = ANSWER.seal(&cipher, 256, &vec![0; size]);
        assert_eq!(sealed.err(), expected, "{size}");
    }
}

#[test]
fn a_response_cut_off_anywhere_is_short() {
    let body = ANSWER.seal(&Schedule::new(&KEY), 256, &[0; 32]).unwrap();
    for len in 0..body.len() {
        let cause = Response::decode(&body[..len]).unwrap_err();
        assert_eq!(cause, RxkadError::PacketShort, "{len}");
    }
    let padded = [&body[..], &[0; 7]].concat();
    assert_eq!(Response::decode(&padded).unwrap().ticket, [0; 32]);
}

proptest! {
    #![proptest_config(same_each_time())]

    #[test]
    fn any_octets_may_come(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _challenge = Challenge::decode(&body);
        if let Ok(response) = Response::decode(&body) {
            prop_assert!(response.open(&Schedule::new(&KEY)).is_err());
        }
    }

    /// Of what is not sealed, kvno and size are covered by the checksum as well.
    #[test]
    fn no_bit_of_a_response_can_be_changed(bit in 0..56 * 8_usize) {
        let cipher = Schedule::new(&KEY);
        let mut body = ANSWER.seal(&cipher, 256, &[0; 32]).unwrap().to_vec();
        body[bit / 8] ^= 0x80 >> (bit % 8);
        let opened = Response::decode(&body).and_then(|response| response.open(&cipher));
        prop_assert!(opened.is_err());
    }
}
