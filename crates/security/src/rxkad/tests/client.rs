//! What a client makes of challenges.

use std::sync::Arc;

use afar_rx::security::{ClientConnection, ClientSecurity};

use super::*;
use crate::rxkad::Client;
use crate::rxkad::response::{Answer, Challenge, Response};
use crate::{Token, kvno};

fn connection(level: Level) -> Box<dyn ClientConnection> {
    let token = Token {
        kvno: kvno::K5,
        key: KEY,
        ticket: Bytes::from(vec![0x55; 100]),
        start: START,
        end: END,
    };
    let client = Client::new(Arc::new(token), level).clock(clock);
    assert_eq!(client.index(), INDEX);
    client.connect(EPOCH, CID)
}

fn challenge(minimum: i32) -> Bytes {
    let id = u32::MAX;
    Challenge { id, minimum }.encode()
}

fn refused(cause: RxkadError) -> Result<Bytes, AbortCode> {
    Err(cause.code())
}

#[test]
fn the_answer_has_the_level_the_client_chose() {
    for level in Level::ALL {
        for minimum in [i32::MIN, 0, level.number()] {
            let mut connection = connection(level);
            let body = connection.respond([1, 2, 3, 4], &challenge(minimum));
            let body = body.unwrap();
            let response = Response::decode(&body).unwrap();
            assert_eq!((response.kvno, response.ticket), (256, &[0x55; 100][..]));
            let answer = Answer {
                calls: [1, 2, 3, 4],
                challenge: u32::MAX,
                level: level.number(),
                ..wire::ANSWER
            };
            assert_eq!(response.open(&Schedule::new(&KEY)), Ok(answer));
        }
    }
}

#[test]
fn a_higher_level_than_chosen_is_refused() {
    for level in Level::ALL {
        for minimum in [level.number() + 1, 3, i32::MAX] {
            let answer = connection(level).respond([1, 0, 0, 0], &challenge(minimum));
            assert_eq!(answer, refused(RxkadError::LevelFail), "{level} {minimum}");
        }
    }
}

#[test]
fn challenges_of_other_forms_are_refused() {
    let whole = challenge(0);
    for len in 0..whole.len() {
        let answer = connection(Level::Crypt).respond([1, 0, 0, 0], &whole[..len]);
        assert_eq!(answer, refused(RxkadError::PacketShort), "{len}");
    }
    let mut newer = whole.to_vec();
    newer[3] = 3;
    let answer = connection(Level::Crypt).respond([1, 0, 0, 0], &newer);
    assert_eq!(answer, refused(RxkadError::Inconsistency));
    let longer = [&whole[..], b"more"].concat();
    let answer = connection(Level::Crypt).respond([1, 0, 0, 0], &longer);
    assert!(answer.is_ok());
}

#[test]
fn call_numbers_beyond_what_servers_take_are_not_sent() {
    let mut connection = connection(Level::Crypt);
    let calls = [1, 0, 0x8000_0000, 0];
    let answer = connection.respond(calls, &challenge(0));
    assert_eq!(answer, refused(RxkadError::Inconsistency));
}

#[test]
fn nothing_is_done_with_an_expired_token() {
    NOW.set(END);
    let mut connection = connection(Level::Clear);
    assert_eq!(connection.ready(), Err(RxkadError::Expired.code()));
    let answer = connection.respond([1, 0, 0, 0], &challenge(0));
    assert_eq!(answer, refused(RxkadError::Expired));
}

/// Servers take a client without for one that knows the old challenge only.
#[test]
fn the_first_packet_has_its_checksum_already() {
    let mut connection = connection(Level::Crypt);
    let (header, _) = sealed(&mut *connection, header(0, 1, 1), b"hello");
    assert_eq!(header.checksum, 0xd54b);
}
