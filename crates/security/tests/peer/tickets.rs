//! Tickets that go from one implementation to another.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use afar_security::keys::Key;
use afar_security::ticket::{self, Mint, Opened};
use afar_security::{
    EncryptionKey, EncryptionType, KeyRing, Principal, RxkadError, TicketPolicy, kvno,
};
use fastrand::Rng;

use crate::process::{ASN1_ERRORS, Answer, Kind, Peer, Request};
use crate::{key, octets, random};

/// Encryption types of the cell's key that MIT has and this crate writes.
const TYPES: [EncryptionType; 5] = [
    EncryptionType::Aes128Sha1,
    EncryptionType::Aes256Sha1,
    EncryptionType::Aes128Sha2,
    EncryptionType::Aes256Sha2,
    EncryptionType::Rc4,
];
/// Those that OpenAFS 1.8 has, too.
const OLD_TYPES: [EncryptionType; 3] = [
    EncryptionType::Aes128Sha1,
    EncryptionType::Aes256Sha1,
    EncryptionType::Rc4,
];
/// Types of a session's key, and bytes of it.
const SESSIONS: [(i32, usize); 6] = [(16, 24), (17, 16), (18, 32), (19, 16), (20, 32), (23, 16)];

const BATCH: usize = 5_000;
const ROUNDS: usize = 20;

const DAY: u32 = 24 * 60 * 60;

fn now() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u32::try_from(now.unwrap().as_secs()).unwrap()
}

fn at(seconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into())
}

fn service_key(rng: &mut Rng, types: &[EncryptionType]) -> Key {
    let etype = types[rng.usize(..types.len())];
    Key {
        kvno: rng.u32(1..100_000),
        key: EncryptionKey::new(etype.number(), octets(rng, etype.key_len())),
    }
}

fn word(rng: &mut Rng, len: usize) -> String {
    (0..len).map(|_| rng.alphanumeric()).collect()
}

/// A client's name as Kerberos writes it: mostly a user, sometimes a service of a host or one that AFS
/// does not take.
fn client(rng: &mut Rng) -> String {
    let len = rng.usize(1..20);
    let name = word(rng, len);
    match rng.u8(..10) {
        0 => format!("host/{}.{name}.example", word(rng, 5)),
        1 => format!("imap/{name}.example"),
        2 => format!("{name}.x"),
        3 => format!("{name}/a/b"),
        4..7 => format!("{name}/{}", word(rng, 8)),
        _ => name,
    }
}

/// A ticket of MIT's, as it was asked for.
struct Case {
    service: Key,
    client: String,
    realm: String,
    session: EncryptionKey,
    invalid: bool,
    start: u32,
    end: u32,
}

impl Case {
    fn new(rng: &mut Rng, types: &[EncryptionType], start: u32, end: u32) -> Self {
        let (etype, len) = SESSIONS[rng.usize(..SESSIONS.len())];
        Self {
            service: service_key(rng, types),
            client: client(rng),
            realm: word(rng, 12).to_uppercase(),
            session: EncryptionKey::new(etype, octets(rng, len)),
            invalid: rng.u8(..20) == 0,
            start,
            end,
        }
    }

    fn request(&self) -> Request {
        let key = &self.service.key;
        Request::new(Kind::MitMake)
            .int(key.etype().cast_unsigned())
            .octets(key.octets())
            .int(self.service.kvno)
            .octets(format!("afs/test.example@{}", self.realm).as_bytes())
            .octets(format!("{}@{}", self.client, self.realm).as_bytes())
            .int(self.session.etype().cast_unsigned())
            .octets(self.session.octets())
            .int(if self.invalid { 0x0100_0000 } else { 0 })
            .int(self.start)
            .int(self.start)
            .int(self.end)
    }

    fn ring(&self) -> KeyRing {
        KeyRing::of([self.service.clone()])
    }
}

fn open_by_openafs(kvno: u32, service: &Key, ticket: &[u8]) -> Request {
    Request::new(Kind::OpenTicket)
        .int(kvno)
        .int(service.key.etype().cast_unsigned())
        .int(service.kvno)
        .octets(service.key.octets())
        .octets(ticket)
}

/// What OpenAFS found in a ticket.
fn opened(mut answer: Answer) -> Result<Opened, i32> {
    let code = answer.code();
    if code != 0 {
        return Err(code);
    }
    let client = Principal {
        name: answer.text(),
        instance: answer.text(),
        realm: answer.text(),
    };
    let key: [u8; 8] = answer.octets().try_into().unwrap();
    Ok(Opened {
        client,
        key: afar_security::SessionKey::new(key),
        start: answer.int(),
        end: answer.int(),
    })
}

#[test]
fn tickets_of_mit_open_here_as_in_openafs() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    let policy = TicketPolicy::default();
    let now = now();
    let mut good = 0;
    for _ in 0..ROUNDS {
        let case = |_| {
            let start = now - rng.u32(0..10 * DAY);
            let end = now + rng.u32(100..10 * DAY);
            Case::new(&mut rng, &TYPES, start, end)
        };
        let cases: Vec<Case> = (0..BATCH).map(case).collect();
        let tickets: Vec<Vec<u8>> = peer
            .ask(cases.iter().map(Case::request))
            .into_iter()
            .map(|mut answer| answer.octets())
            .collect();
        let requests = cases.iter().zip(&tickets);
        let requests =
            requests.map(|(case, ticket)| open_by_openafs(kvno::K5, &case.service, ticket));
        let answers = peer.ask(requests);
        for ((case, ticket), answer) in cases.iter().zip(&tickets).zip(answers) {
            let found = ticket::open(kvno::K5, ticket, &case.ring(), &policy, at(now));
            let found = found.map_err(|error| error.code().0);
            let expected = opened(answer);
            let etype = case.service.key.etype();
            // OpenAFS 1.8 has no SHA-2.
            if matches!(etype, 19 | 20) {
                assert_eq!(expected, Err(RxkadError::UnknownKey.code().0));
                if let Ok(found) = found {
                    assert_eq!(Some(found.key), ticket::session_key(&case.session));
                    assert_eq!((found.start, found.end), (case.start, case.end));
                    good += 1;
                }
                continue;
            }
            good += usize::from(expected.is_ok());
            assert_eq!(found, expected, "{}@{}: {etype}", case.client, case.realm);
        }
    }
    assert!(good > ROUNDS * BATCH / 2, "only {good} were good");
}

#[test]
fn tickets_minted_here_open_with_mit_and_openafs() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    let now = now();
    for _ in 0..ROUNDS {
        let case = |_| {
            let service = service_key(&mut rng, &TYPES);
            let ring = Arc::new(KeyRing::of([service.clone()]));
            let len = rng.usize(1..20);
            // Services of a host have other names in AFS: none begins with this letter.
            let name = format!("U{}", word(&mut rng, len));
            let instance = word(&mut rng, 4);
            let client = [name.clone(), format!("{name}/{instance}")][rng.usize(..2)].clone();
            let (start, end) = (now - rng.u32(0..DAY), now + rng.u32(100..20 * DAY));
            let mint = Mint {
                client: &client,
                realm: "TEST.EXAMPLE",
                cell: "test.example",
                start,
                end,
            };
            let minted = ticket::mint(&ring, &mint).unwrap();
            (service, client, minted, (start, end))
        };
        let cases: Vec<_> = (0..BATCH).map(case).collect();
        let by_mit = peer.ask(cases.iter().map(|(service, _, minted, _)| {
            Request::new(Kind::MitOpen)
                .int(service.key.etype().cast_unsigned())
                .octets(service.key.octets())
                .int(service.kvno)
                .octets(b"afs/test.example@TEST.EXAMPLE")
                .octets(&minted.ticket)
        }));
        for ((_, client, minted, times), mut answer) in cases.iter().zip(by_mit) {
            assert_eq!(answer.code(), 0);
            assert_eq!(answer.text(), format!("{client}@TEST.EXAMPLE"));
            assert_eq!(answer.code(), minted.session.etype());
            assert_eq!(answer.octets(), minted.session.octets());
            assert_eq!((answer.int(), answer.int()), *times);
        }
        let by_openafs = peer.ask(
            cases
                .iter()
                .map(|(service, _, minted, _)| open_by_openafs(kvno::K5, service, &minted.ticket)),
        );
        for ((service, client, minted, times), answer) in cases.iter().zip(by_openafs) {
            let found = opened(answer);
            if matches!(service.key.etype(), 19 | 20) {
                assert_eq!(found, Err(RxkadError::UnknownKey.code().0));
                continue;
            }
            let found = found.unwrap();
            assert_eq!(found.client.local_name(), client.replace('/', "."));
            assert_eq!(found.key, minted.token.key);
            assert_eq!((found.start, found.end), *times);
        }
    }
}

#[test]
fn tickets_that_servers_print_open_on_both_sides() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    let policy = TicketPolicy::default();
    for _ in 0..4 {
        let case = |_| {
            let service = service_key(&mut rng, &OLD_TYPES);
            let session = key(&mut rng);
            let printed = ticket::print(&KeyRing::of([service.clone()])).unwrap();
            (service, session, printed)
        };
        let cases: Vec<_> = (0..BATCH).map(case).collect();
        // Theirs here.
        let answers = peer.ask(cases.iter().map(|(service, session, _)| {
            Request::new(Kind::MakeTicket)
                .int(service.key.etype().cast_unsigned())
                .int(service.kvno)
                .octets(service.key.octets())
                .octets(b"afs")
                .octets(b"")
                .octets(b"")
                .int(0)
                .int(0x7fff_ffff)
                .octets(session)
        }));
        for ((service, session, _), mut answer) in cases.iter().zip(answers) {
            assert_eq!(answer.code(), 0);
            let ring = KeyRing::of([service.clone()]);
            let made = answer.octets();
            let found = ticket::open(kvno::K5_ENC_PART, &made, &ring, &policy, at(now()));
            let found = found.unwrap();
            assert_eq!(
                (found.client.name.as_str(), found.client.realm.as_str()),
                ("afs", "")
            );
            assert_eq!(found.key.octets(), session);
        }
        // Ours there.
        let answers =
            peer.ask(cases.iter().map(|(service, _, printed)| {
                open_by_openafs(printed.kvno, service, &printed.ticket)
            }));
        for ((_, _, printed), answer) in cases.iter().zip(answers) {
            let found = opened(answer).unwrap();
            assert_eq!(
                (found.client.name.as_str(), found.client.realm.as_str()),
                ("afs", "")
            );
            assert_eq!(found.key, printed.key);
        }
    }
}

#[test]
fn broken_tickets_are_refused_on_both_sides() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    let policy = TicketPolicy::default();
    let now = now();
    let (mut refused, mut differing) = (0, 0);
    for _ in 0..4 {
        let cases: Vec<Case> = (0..BATCH)
            .map(|_| Case::new(&mut rng, &OLD_TYPES, now - 100, now + 1000))
            .collect();
        let tickets: Vec<Vec<u8>> = peer
            .ask(cases.iter().map(Case::request))
            .into_iter()
            .map(|mut answer| {
                let mut ticket = answer.octets();
                for _ in 0..rng.usize(1..=2) {
                    let at = rng.usize(..ticket.len());
                    ticket[at] ^= 1 << rng.u8(..8);
                }
                ticket
            })
            .collect();
        let requests = cases.iter().zip(&tickets);
        let requests =
            requests.map(|(case, ticket)| open_by_openafs(kvno::K5, &case.service, ticket));
        let answers = peer.ask(requests);
        for ((case, ticket), answer) in cases.iter().zip(&tickets).zip(answers) {
            let expected = opened(answer);
            let found = ticket::open(kvno::K5, ticket, &case.ring(), &policy, at(now));
            let found = found.map_err(|error| error.code().0);
            match (found, expected) {
                // What is not encrypted is not protected: the service's name, for one.
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(_), Err(_)) => refused += 1,
                // We may be stricter about the form of what is not encrypted.
                (Err(_), Ok(_)) => differing += 1,
                // And more lenient, as what is not read cannot harm: the service's name.
                (Ok(found), Err(code)) => {
                    assert!(ASN1_ERRORS.contains(&code), "{code}: {ticket:x?}");
                    assert_eq!(Some(found.key), ticket::session_key(&case.session));
                    differing += 1;
                }
            }
        }
    }
    assert!(refused > 2 * BATCH, "only {refused} were refused");
    assert!(
        differing < BATCH / 2,
        "{differing} of {} are refused on one side only",
        4 * BATCH
    );
}

#[test]
fn times_are_judged_as_openafs_does() {
    let Some(mut peer) = Peer::start() else {
        return;
    };
    let mut rng = random();
    let policy = TicketPolicy::default();
    for _ in 0..4 {
        let now = now();
        let case = |_| {
            let any = [(); 2].map(|()| now - 70 * DAY + rng.u32(0..140 * DAY));
            let near = [(); 2].map(|()| now - 2000 + rng.u32(0..4000));
            let starts = [any[0], any[0], near[0], 0];
            let ends = [any[1], any[1], near[1], u32::MAX];
            let (start, end) = (starts[rng.usize(..4)], ends[rng.usize(..4)]);
            Case::new(&mut rng, &OLD_TYPES[..1], start, end)
        };
        let mut cases: Vec<Case> = (0..BATCH).map(case).collect();
        for case in &mut cases {
            case.client = "alice".to_owned();
            case.invalid = false;
        }
        let mut answers = peer.ask(cases.iter().flat_map(|case| {
            let times = Request::new(Kind::Times).int(case.start).int(case.end);
            [case.request(), times.int(now)]
        }));
        for (case, pair) in cases.iter().zip(answers.chunks_mut(2)) {
            let ticket = pair[0].octets();
            let expected = match pair[1].code() {
                // The reader of tickets is stricter, and comes first.
                _ if case.end < now => Some(RxkadError::Expired),
                1.. => None,
                0 => Some(RxkadError::NoAuth),
                -1 => Some(RxkadError::Expired),
                _ => Some(RxkadError::BadTicket),
            };
            let found = ticket::open(kvno::K5, &ticket, &case.ring(), &policy, at(now));
            assert_eq!(
                found.err(),
                expected,
                "{} to {}, {now}",
                case.start,
                case.end
            );
        }
    }
}
