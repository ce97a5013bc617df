//! What a server makes of clients, of thieves and of those who change what they send.

use std::sync::Arc;

use afar_rx::Identity;
use afar_rx::security::{ClientConnection, ClientSecurity, ServerConnection, ServerSecurity};

use super::*;
use crate::keys::Key;
use crate::rxkad::response::{Answer, Challenge};
use crate::rxkad::{Client, Refusals, Server};
use crate::ticket::{self, Mint};
use crate::{EncryptionKey, Identities, KeyRing, Token};

const CALLS: [u32; 4] = [3, 0, 1, 0];

fn ring(kvno: u32, octet: u8) -> Arc<KeyRing> {
    let key = EncryptionKey::new(18, vec![octet; 32]);
    Arc::new(KeyRing::of([Key { kvno, key }]))
}

fn server_with(keys: Arc<KeyRing>) -> Server {
    Server::new(keys, Arc::new(Identities::new("example.org"))).clock(clock)
}

fn server() -> Server {
    server_with(ring(5, 0x55))
}

fn token() -> Token {
    let request = Mint {
        client: "alice",
        realm: "EXAMPLE.ORG",
        cell: "example.org",
        start: START,
        end: END,
    };
    ticket::mint(&ring(5, 0x55), &request).unwrap().token
}

/// Both ends of a connection, before anything was sent.
struct Pair {
    client: Box<dyn ClientConnection>,
    server: Box<dyn ServerConnection>,
    token: Token,
    refusals: Refusals,
}

impl Pair {
    fn new(token: Token, level: Level, server: &Server) -> Self {
        let client = Client::new(Arc::new(token.clone()), level).clock(clock);
        Self {
            client: client.connect(EPOCH, CID),
            server: server.accept(EPOCH, CID),
            token,
            refusals: server.refusals(),
        }
    }

    fn usual() -> Self {
        Self::new(token(), Level::Crypt, &server())
    }

    fn response(&mut self) -> Bytes {
        let challenge = self.server.challenge();
        self.client.respond(CALLS, &challenge).unwrap()
    }

    /// The answer the client would give.
    fn answer(&mut self) -> Answer {
        let challenge = Challenge::decode(&self.server.challenge()).unwrap();
        Answer {
            epoch: EPOCH,
            cid: CID,
            calls: CALLS,
            challenge: challenge.id,
            level: 2,
        }
    }

    /// The response of the token's owner, whose fixed part was changed before it was summed up and
    /// sealed.
    fn response_with(&mut self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let cipher = Schedule::new(&self.token.key);
        let mut body = self.response().to_vec();
        cipher.open(&mut body[8..48]);
        body[16..20].fill(0);
        change(&mut body[..56]);
        let mut sum = 1_000_003_u32;
        for octet in &body[..56] {
            sum = sum.wrapping_mul(0x1020_4081).wrapping_add((*octet).into());
        }
        body[16..20].copy_from_slice(&sum.to_be_bytes());
        cipher.seal(&mut body[8..48]);
        body
    }

    /// Sees to it that the server refuses this response for this cause and no other, and is none
    /// the worse for it.
    #[track_caller]
    fn refuses(&mut self, response: &[u8], cause: RxkadError) {
        let before = self.refusals.count(cause);
        assert_eq!(self.server.check(response), Err(cause.code()), "{cause}");
        assert_eq!(self.refusals.count(cause), before + 1);
        assert!(!self.server.is_authenticated());
        assert_eq!(self.server.identity(), Identity::Anonymous);
    }
}

fn word(at: usize, value: u32) -> impl FnOnce(&mut [u8]) {
    move |fixed| fixed[at..at + 4].copy_from_slice(&value.to_be_bytes())
}

#[test]
fn a_client_proves_who_it_is_and_packets_pass_both_ways() {
    for level in Level::ALL {
        for minimum in Level::ALL.into_iter().filter(|minimum| *minimum <= level) {
            let server = server().minimum(minimum);
            assert_eq!(server.index(), INDEX);
            let mut pair = Pair::new(token(), level, &server);
            let (question, sealed_question) = sealed(&mut *pair.client, header(0, 3, 1), b"who?");
            let response = pair.response();
            assert_eq!(pair.server.check(&response), Ok(CALLS));
            assert!(pair.server.is_authenticated());
            assert_eq!(pair.server.identity(), Identity::User("alice".into()));
            assert_eq!(pair.server.overhead(), pair.client.overhead());
            let opened = pair.server.open(&question, sealed_question).unwrap();
            assert_eq!(&opened[..], b"who?");
            let long = [0xa5; 1400];
            assert_eq!(pair.server.ready(), Ok(()));
            let (reply, sealed_reply) = sealed(&mut *pair.server, header(0, 3, 1), &long);
            assert_eq!(sealed_reply[100..] == long[100..], level == Level::Clear);
            let opened = pair.client.open(&reply, sealed_reply).unwrap();
            assert_eq!(&opened[..], long);
            assert_eq!(pair.refusals.iter().map(|(_, count)| count).sum::<u64>(), 0);
        }
    }
}

#[test]
fn who_has_the_cells_key_is_the_cell() {
    let token = ticket::print(&ring(5, 0x55)).unwrap();
    let mut pair = Pair::new(token, Level::Crypt, &server());
    let response = pair.response();
    assert!(pair.server.check(&response).is_ok());
    assert_eq!(pair.server.identity(), Identity::Superuser);
}

#[test]
fn nothing_passes_before_the_proof() {
    let mut pair = Pair::usual();
    let refused = RxkadError::Inconsistency.code();
    assert_eq!(pair.server.ready(), Err(refused));
    let (header, body) = sealed(&mut *pair.client, header(0, 3, 1), b"who?");
    assert_eq!(pair.server.open(&header, body), Err(refused));
    assert_eq!(pair.server.identity(), Identity::Anonymous);
    assert_eq!(pair.refusals.count(RxkadError::Inconsistency), 2);
}

#[test]
fn each_connection_has_one_challenge_of_its_own() {
    let server = server().minimum(Level::Auth);
    let mut connections: Vec<_> = (0..50).map(|_| server.accept(EPOCH, CID)).collect();
    let mut challenges: Vec<Bytes> = connections.iter_mut().map(|c| c.challenge()).collect();
    for (connection, challenge) in connections.iter_mut().zip(&challenges) {
        assert_eq!(connection.challenge(), challenge);
        assert_eq!(challenge.len(), 16);
        assert_eq!(Challenge::decode(challenge).unwrap().minimum, 1);
    }
    challenges.sort();
    challenges.dedup();
    assert_eq!(challenges.len(), 50);
}

// spec: rxkad#response
#[test]
fn responses_of_other_forms_are_refused() {
    let mut pair = Pair::usual();
    let whole = pair.response();
    for len in 0..whole.len() {
        pair.refuses(&whole[..len], RxkadError::PacketShort);
    }
    for size in [0, 31, 12_001, 0x8000_0000, u32::MAX] {
        let body = pair.response_with(word(52, size));
        pair.refuses(&body, RxkadError::TicketLen);
    }
    let body = pair.response_with(word(52, 12_000));
    pair.refuses(&body, RxkadError::PacketShort);
    for version in [0, 1, 3, u32::MAX] {
        let body = pair.response_with(word(0, version));
        pair.refuses(&body, RxkadError::Inconsistency);
    }
    assert!(pair.server.check(&whole).is_ok());
}

#[test]
fn tickets_of_other_keys_are_refused() {
    for (ring, cause) in [
        (ring(6, 0x55), RxkadError::UnknownKey),
        (ring(5, 0x56), RxkadError::BadTicket),
        (Arc::new(KeyRing::of([])), RxkadError::UnknownKey),
    ] {
        let mut pair = Pair::new(token(), Level::Crypt, &server_with(ring));
        let response = pair.response();
        pair.refuses(&response, cause);
    }
    let mut pair = Pair::usual();
    for (kvno, cause) in [
        (5, RxkadError::UnknownKey),
        (213, RxkadError::BadTicket),
        (257, RxkadError::UnknownKey),
    ] {
        let body = pair.response_with(word(48, kvno));
        pair.refuses(&body, cause);
    }
    let mut body = pair.response().to_vec();
    let last = body.len() - 1;
    body[last] ^= 1;
    pair.refuses(&body, RxkadError::BadTicket);
}

// spec: rxkad#times
#[test]
fn tickets_are_taken_in_their_time() {
    for (now, cause) in [
        (START - 901, Some(RxkadError::NoAuth)),
        (START - 900, None),
        (END - 1, None),
        (END, Some(RxkadError::Expired)),
        (END + 1, Some(RxkadError::Expired)),
        (END + 901, Some(RxkadError::Expired)),
    ] {
        let mut pair = Pair::usual();
        let response = pair.response();
        NOW.set(now);
        match cause {
            Some(cause) => pair.refuses(&response, cause),
            None => assert!(pair.server.check(&response).is_ok(), "{now}"),
        }
        NOW.set(START + 60);
    }
}

#[test]
fn a_thief_of_a_ticket_has_nothing() {
    let mut pair = Pair::usual();
    let answer = pair.answer();
    let guessed = Schedule::new(&SessionKey::new([0x02; 8]));
    let body = answer
        .seal(&guessed, pair.token.kvno, &pair.token.ticket)
        .unwrap();
    pair.refuses(&body, RxkadError::SealedIncon);
}

#[test]
fn a_changed_answer_is_refused() {
    let mut pair = Pair::usual();
    let whole = pair.response();
    for at in 8..48 {
        let mut body = whole.to_vec();
        body[at] ^= 0x10;
        pair.refuses(&body, RxkadError::SealedIncon);
    }
    // Under the right key and with the right sum, but of another place.
    for (at, value) in [
        (8, EPOCH.0 ^ 1),
        (12, CID.0 ^ 4),
        (12, CID.0 | 1),
        (20, 0),
        (20, 3),
        (24, 0x8000_0000),
        (36, u32::MAX),
    ] {
        let body = pair.response_with(word(at, value));
        pair.refuses(&body, RxkadError::SealedIncon);
    }
    // The sum alone.
    let cipher = Schedule::new(&pair.token.key);
    let mut body = whole.to_vec();
    cipher.open(&mut body[8..48]);
    body[19] ^= 1;
    cipher.seal(&mut body[8..48]);
    pair.refuses(&body, RxkadError::SealedIncon);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let mut pair = Pair::usual();
    let id = pair.answer().challenge;
    for answer in [id, id.wrapping_add(2), 0, 1] {
        let body = pair.response_with(word(40, answer));
        pair.refuses(&body, RxkadError::OutOfSequence);
    }
}

// spec: rxkad#response
#[test]
fn a_response_cannot_be_replayed() {
    let mut pair = Pair::usual();
    let captured = pair.response();
    assert!(pair.server.check(&captured).is_ok());

    // On a new connection, which nobody can give the same number and challenge.
    for (epoch, cid) in [(EPOCH, Cid(CID.0 + 4)), (Epoch(EPOCH.0 + 1), CID)] {
        let mut other = Pair::usual();
        other.server = server().accept(epoch, cid);
        let refused = other.server.check(&captured);
        assert_eq!(refused, Err(RxkadError::SealedIncon.code()));
        assert!(!other.server.is_authenticated());
    }
    // On a connection of the same number, after the server has forgotten the first.
    Pair::usual().refuses(&captured, RxkadError::OutOfSequence);

    // On the connection itself; nor can somebody else take it over.
    let bob = Mint {
        client: "bob",
        realm: "EXAMPLE.ORG",
        cell: "example.org",
        start: START,
        end: END,
    };
    let token = ticket::mint(&ring(5, 0x55), &bob).unwrap().token;
    let answer = pair.answer();
    let of_bob = answer
        .seal(&Schedule::new(&token.key), token.kvno, &token.ticket)
        .unwrap();
    for response in [captured, of_bob] {
        let refused = pair.server.check(&response);
        assert_eq!(refused, Err(RxkadError::OutOfSequence.code()));
        assert_eq!(pair.server.identity(), Identity::User("alice".into()));
    }
    assert_eq!(pair.refusals.count(RxkadError::OutOfSequence), 2);
}

// spec: rxkad#levels
#[test]
fn no_level_below_the_least_is_taken() {
    for minimum in Level::ALL {
        let server = server().minimum(minimum);
        let mut pair = Pair::new(token(), Level::Crypt, &server);
        for level in [i32::MIN, -1, 0, 1, 2, 3, i32::MAX] {
            if (minimum.number()..=2).contains(&level) {
                continue;
            }
            let body = pair.response_with(word(44, level.cast_unsigned()));
            pair.refuses(&body, RxkadError::LevelFail);
        }
    }
}

#[test]
fn who_changes_a_challenge_cannot_lower_the_level() {
    let server = server().minimum(Level::Crypt);
    let with_minimum = |challenge: Bytes, minimum| {
        let challenge = Challenge {
            minimum,
            ..Challenge::decode(&challenge).unwrap()
        };
        challenge.encode()
    };
    // The client wants more than it is asked for.
    let mut pair = Pair::new(token(), Level::Crypt, &server);
    let lowered = with_minimum(pair.server.challenge(), 0);
    let response = pair.client.respond(CALLS, &lowered).unwrap();
    assert!(pair.server.check(&response).is_ok());
    assert_eq!(pair.server.overhead().header, 8);
    // The server wants more than the client was told.
    let mut pair = Pair::new(token(), Level::Auth, &server);
    let lowered = with_minimum(pair.server.challenge(), 0);
    let response = pair.client.respond(CALLS, &lowered).unwrap();
    pair.refuses(&response, RxkadError::LevelFail);
    // And raising it gets nothing but the refusal that the level is for.
    let raised = with_minimum(pair.server.challenge(), 2);
    let refused = pair.client.respond(CALLS, &raised);
    assert_eq!(refused, Err(RxkadError::LevelFail.code()));
}

#[test]
fn refused_packets_are_counted_by_cause() {
    let mut pair = Pair::usual();
    let response = pair.response();
    assert!(pair.server.check(&response).is_ok());
    let (header, body) = sealed(&mut *pair.client, header(0, 3, 1), b"who?");
    let unsummed = Header {
        checksum: 0,
        ..header
    };
    for (header, body, now, cause) in [
        (unsummed, &body[..], START, RxkadError::SealedIncon),
        (header, &body[..4], START, RxkadError::PacketShort),
        (header, &body[..], END, RxkadError::Expired),
    ] {
        NOW.set(now);
        let refused = pair.server.open(&header, Bytes::copy_from_slice(body));
        assert_eq!(refused, Err(cause.code()));
        assert_eq!(pair.refusals.count(cause), 1);
    }
    assert_eq!(pair.server.ready(), Err(RxkadError::Expired.code()));
    let counted: Vec<_> = pair.refusals.iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(
        counted,
        [
            (RxkadError::PacketShort, 1),
            (RxkadError::Expired, 2),
            (RxkadError::SealedIncon, 1)
        ]
    );
}
