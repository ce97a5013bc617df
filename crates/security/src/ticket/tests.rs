//! Tickets made here are opened, and nothing else is.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::parts::{
    Components, EncTicketPart, EncryptedData, FLAG_INVALID, FLAG_TRANSITED_CHECKED, NewPart,
};
use super::seal::seal;
use super::*;
use crate::kerberos::{EncryptionKey, EncryptionType, des};
use crate::keys::{Key, KeyError, KeyRing};
use crate::{RxkadError, kvno};

const NOW: u32 = 1_800_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.into())
}

fn key(kvno: u32, etype: EncryptionType) -> Key {
    Key {
        kvno,
        key: EncryptionKey::random(etype),
    }
}

fn ring() -> KeyRing {
    KeyRing::of([key(7, EncryptionType::Aes256Sha1)])
}

fn alice() -> Mint<'static> {
    Mint {
        client: "alice",
        realm: "EXAMPLE.ORG",
        cell: "example.org",
        start: NOW - 60,
        end: NOW + 3600,
    }
}

fn opened(kvno: u32, ticket: &[u8], keys: &KeyRing) -> Result<Opened, RxkadError> {
    open(kvno, ticket, keys, &TicketPolicy::default(), now())
}

/// A part that is opened, to be changed and be refused.
fn part(key: &EncryptionKey) -> NewPart<'_> {
    NewPart {
        flags: FLAG_TRANSITED_CHECKED,
        key,
        realm: "EXAMPLE.ORG",
        client: Components::new("alice", None),
        start: NOW - 60,
        end: NOW + 3600,
    }
}

/// What becomes of a part changed like this.
fn fate(change: impl FnOnce(&mut NewPart<'_>)) -> Result<Opened, RxkadError> {
    let session = EncryptionKey::random(EncryptionType::Aes128Sha1);
    let keys = ring();
    let mut part = part(&session);
    change(&mut part);
    let ticket = seal(&keys, &part, |data: &EncryptedData<'_>| data.encode()).unwrap();
    opened(kvno::K5_ENC_PART, &ticket, &keys)
}

/// Any bytes, encrypted as a ticket's part would be.
fn sealed(plain: &[u8], key: &Key) -> Vec<u8> {
    let cipher = crate::kerberos::encrypt(&key.key, 2, plain).unwrap();
    let data = EncryptedData {
        etype: key.key.etype(),
        kvno: key.kvno,
        cipher: &cipher,
    };
    data.encode().to_vec()
}

#[test]
fn a_printed_ticket_is_the_superuser_s() {
    let keys = ring();
    let token = print(&keys).unwrap();
    assert_eq!(token.kvno, 213);
    let opened = opened(token.kvno, &token.ticket, &keys).unwrap();
    assert_eq!(opened.client.to_string(), "afs");
    assert_eq!((opened.start, opened.end), (0, 0x7fff_ffff));
    assert_eq!((opened.start, opened.end), (token.start, token.end));
    assert!(opened.key == token.key);
    assert!(!des::is_weak(token.key.octets()));
}

#[test]
fn a_minted_ticket_is_its_client_s() {
    for etype in [
        EncryptionType::Aes128Sha1,
        EncryptionType::Aes256Sha1,
        EncryptionType::Aes128Sha2,
        EncryptionType::Aes256Sha2,
        EncryptionType::Rc4,
    ] {
        let keys = KeyRing::of([key(300, etype)]);
        let minted = mint(&keys, &alice()).unwrap();
        assert_eq!(minted.ticket, minted.token.ticket);
        assert_eq!(minted.service, ["afs", "example.org"]);
        assert_eq!(minted.client, ["alice"]);
        assert_eq!(minted.session.etype(), 18);
        let opened = opened(kvno::K5, &minted.ticket, &keys).unwrap();
        assert_eq!(opened.client.to_string(), "alice@EXAMPLE.ORG");
        assert_eq!((opened.start, opened.end), (NOW - 60, NOW + 3600));
        assert!(opened.key == minted.token.key);
        assert!(Some(opened.key) == session_key(&minted.session));
    }
    let request = Mint {
        client: "root/admin",
        ..alice()
    };
    let keys = ring();
    let minted = mint(&keys, &request).unwrap();
    assert_eq!(minted.client, ["root", "admin"]);
    let opened = opened(kvno::K5, &minted.ticket, &keys).unwrap();
    assert_eq!(opened.client.local_name(), "root.admin");
}

#[test]
fn tickets_that_servers_would_refuse_are_not_made() {
    let long = "x".repeat(64);
    for request in [
        Mint {
            client: "",
            ..alice()
        },
        Mint {
            client: "a/b/c",
            ..alice()
        },
        Mint {
            client: "a/",
            ..alice()
        },
        Mint {
            client: "alice@EXAMPLE.ORG",
            ..alice()
        },
        Mint {
            client: &long,
            ..alice()
        },
        Mint {
            realm: "",
            ..alice()
        },
        Mint {
            realm: &long,
            ..alice()
        },
        Mint {
            cell: "",
            ..alice()
        },
        Mint {
            start: 0,
            ..alice()
        },
        Mint {
            end: NOW - 60,
            ..alice()
        },
        Mint {
            end: NOW + 31 * 86400,
            ..alice()
        },
    ] {
        let refused = mint(&ring(), &request);
        assert!(
            matches!(refused, Err(KeyError::NoSuchTicket { .. })),
            "{request:?}"
        );
    }
}

#[test]
fn without_a_key_there_is_no_ticket() {
    let des = KeyRing::of([key(1, EncryptionType::DesCrc)]);
    for keys in [KeyRing::of([]), des] {
        assert!(matches!(print(&keys), Err(KeyError::NoKey { .. })));
        assert!(matches!(mint(&keys, &alice()), Err(KeyError::NoKey { .. })));
    }
}

#[test]
fn the_key_must_be_known_and_right() {
    let keys = ring();
    let token = print(&keys).unwrap();
    // Another key of the same number.
    assert_eq!(
        opened(213, &token.ticket, &ring()),
        Err(RxkadError::BadTicket)
    );
    // Another number, another type, no key.
    for others in [
        KeyRing::of([key(8, EncryptionType::Aes256Sha1)]),
        KeyRing::of([key(7, EncryptionType::Aes128Sha1)]),
        KeyRing::of([]),
    ] {
        assert_eq!(
            opened(213, &token.ticket, &others),
            Err(RxkadError::UnknownKey)
        );
    }
    // Two keys of the same number, as in a keytab with `afs` and `afs/cell`.
    let right = keys.newest().unwrap();
    let both = KeyRing::of([key(7, EncryptionType::Aes256Sha1), right]);
    assert!(opened(213, &token.ticket, &both).is_ok());
}

#[test]
fn the_sort_of_ticket_must_be_right() {
    let keys = ring();
    let printed = print(&keys).unwrap().ticket;
    let minted = mint(&keys, &alice()).unwrap().ticket;
    assert_eq!(opened(256, &printed, &keys), Err(RxkadError::BadTicket));
    assert_eq!(opened(213, &minted, &keys), Err(RxkadError::BadTicket));
    for kvno in [0, 1, 7, 212, 214, 255, 257, 511, u32::MAX] {
        assert_eq!(
            opened(kvno, &minted, &keys),
            Err(RxkadError::UnknownKey),
            "{kvno}"
        );
    }
    for kvno in [213, 256] {
        assert_eq!(opened(kvno, &[], &keys), Err(RxkadError::BadTicket));
        assert_eq!(
            opened(kvno, &[0x30; 12_000], &keys),
            Err(RxkadError::BadTicket)
        );
        assert_eq!(
            opened(kvno, &[0x30; 12_001], &keys),
            Err(RxkadError::TicketLen)
        );
    }
}

#[test]
fn octets_behind_a_ticket_do_not_matter() {
    let keys = ring();
    for (kvno, ticket) in [
        (213, print(&keys).unwrap().ticket),
        (256, mint(&keys, &alice()).unwrap().ticket),
    ] {
        assert!(opened(kvno, &[&ticket[..], &[0; 3]].concat(), &keys).is_ok());
        for len in 0..ticket.len() {
            assert_eq!(
                opened(kvno, &ticket[..len], &keys),
                Err(RxkadError::BadTicket)
            );
        }
    }
}

#[test]
fn what_a_ticket_says_is_checked_in_order() {
    use RxkadError::{BadTicket, Expired, NoAuth};
    let times = |start, end| {
        fate(|part| (part.start, part.end) = (start, end)).map(|opened| (opened.start, opened.end))
    };
    assert_eq!(times(NOW - 60, NOW), Ok((NOW - 60, NOW)));
    // Unlike the start, the end has no fifteen minutes more.
    assert_eq!(times(NOW - 60, NOW - 1), Err(Expired));
    assert_eq!(times(NOW + 900, NOW + 3600), Ok((NOW + 900, NOW + 3600)));
    assert_eq!(times(NOW + 901, NOW + 3600), Err(NoAuth));
    assert_eq!(times(NOW, NOW + 31 * 86400), Err(BadTicket));
    assert_eq!(times(0, NOW + 31 * 86400), Ok((0, NOW + 31 * 86400)));
    assert_eq!(times(NOW + 5, NOW + 5), Err(BadTicket));

    assert_eq!(fate(|part| part.flags |= FLAG_INVALID), Err(NoAuth));
    let invalid_and_expired = |part: &mut NewPart<'_>| {
        part.flags |= FLAG_INVALID;
        part.end = NOW - 1;
    };
    assert_eq!(fate(invalid_and_expired), Err(NoAuth));
    let dotted_and_expired = |part: &mut NewPart<'_>| {
        part.client = Components::new("root.admin", None);
        part.end = NOW - 1;
    };
    assert_eq!(fate(dotted_and_expired), Err(BadTicket));
    let long = "R".repeat(64);
    let short = EncryptionKey::new(18, vec![0; 6]);
    let null = EncryptionKey::new(0, vec![0; 32]);
    assert_eq!(
        fate(|part| part.client = Components::new("", None)),
        Err(BadTicket)
    );
    let session = EncryptionKey::random(EncryptionType::Aes256Sha1);
    for bad in [
        NewPart {
            realm: &long,
            ..part(&session)
        },
        part(&short),
        part(&null),
    ] {
        let keys = ring();
        let ticket = seal(&keys, &bad, |data: &EncryptedData<'_>| data.encode()).unwrap();
        assert_eq!(opened(213, &ticket, &keys), Err(BadTicket));
    }
}

#[test]
fn dotted_names_are_taken_where_allowed() {
    let keys = ring();
    let request = Mint {
        client: "first.last",
        ..alice()
    };
    let ticket = mint(&keys, &request).unwrap().ticket;
    assert_eq!(opened(256, &ticket, &keys), Err(RxkadError::BadTicket));
    let policy = TicketPolicy {
        allow_dotted_principals: true,
        ..TicketPolicy::default()
    };
    let opened = open(256, &ticket, &keys, &policy, now()).unwrap();
    assert_eq!(opened.client.name, "first.last");
}

#[test]
fn des_is_refused_unless_it_is_allowed() {
    let secret = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];
    let keys = KeyRing::of([Key {
        kvno: 3,
        key: EncryptionKey::new(1, secret.to_vec()),
    }]);
    let allowed = TicketPolicy {
        danger_allow_des: true,
        ..TicketPolicy::default()
    };
    let session = EncryptionKey::random(EncryptionType::DesCrc);
    for (etype, checksum) in [
        (1, des::Checksum::Crc32),
        (2, des::Checksum::Md4),
        (3, des::Checksum::Md5),
    ] {
        let cipher = des::encrypt_for_tests(checksum, secret, &part(&session).encode());
        let data = |kvno| {
            EncryptedData {
                etype,
                kvno,
                cipher: &cipher,
            }
            .encode()
        };
        assert_eq!(opened(213, &data(3), &keys), Err(RxkadError::UnknownKey));
        let opened = open(213, &data(3), &keys, &allowed, now()).unwrap();
        assert_eq!(opened.client.name, "alice");
        let unknown = open(213, &data(4), &keys, &allowed, now());
        assert_eq!(unknown, Err(RxkadError::UnknownKey));
    }
}

#[test]
fn types_that_are_not_here_are_unknown() {
    let keys = KeyRing::of([Key {
        kvno: 3,
        key: EncryptionKey::new(26, vec![0; 32]),
    }]);
    for etype in [26, 16, 0, -1, i32::MAX, i32::MIN] {
        let data = EncryptedData {
            etype,
            kvno: 3,
            cipher: &[0; 64],
        };
        assert_eq!(
            opened(213, &data.encode(), &keys),
            Err(RxkadError::UnknownKey)
        );
    }
}

#[test]
fn a_left_out_number_is_zero_and_a_negative_one_is_big() {
    let zero = key(0, EncryptionType::Aes128Sha1);
    let session = EncryptionKey::random(EncryptionType::Aes128Sha1);
    let with = sealed(&part(&session).encode(), &zero);
    // SEQUENCE { [0] etype, [1] kvno, .. }: cut [1], which is A1 03 02 01 00.
    let at = with
        .windows(5)
        .position(|w| w == [0xa1, 3, 2, 1, 0])
        .unwrap();
    let mut without = [&with[..at], &with[at + 5..]].concat();
    assert_eq!(without[..2], [0x30, 0x81], "a length in one byte");
    without[2] -= 5;
    assert!(opened(213, &without, &KeyRing::of([zero])).is_ok());

    let big = key(0x8000_0001, EncryptionType::Aes128Sha1);
    let cipher = crate::kerberos::encrypt(&big.key, 2, &part(&session).encode()).unwrap();
    let ticket = EncryptedData {
        etype: 17,
        kvno: big.kvno,
        cipher: &cipher,
    }
    .encode();
    let keys = KeyRing::of([big]);
    assert!(opened(213, &ticket, &keys).is_ok());
    let at = ticket.windows(3).position(|w| w == [0xa1, 7, 2]).unwrap();
    // 00 80 00 00 01 as four bytes is negative.
    let mut negative = [&ticket[..at], &[0xa1, 6, 2, 4], &ticket[at + 5..]].concat();
    negative[2] -= 1;
    assert!(opened(213, &negative, &keys).is_ok());
}

/// The part of a ticket of an MIT KDC with all optional fields, of another session.
#[test]
fn optional_fields_are_passed_over() {
    let session = EncryptionKey::random(EncryptionType::Aes256Sha1);
    let plain = part(&session).encode();
    let extra = crate::tests::hex(
        // renew-till, caddr with an address, authorization-data with an entry.
        "a8 11 18 0f 3230323730313136303830303030 5a
         a9 11 30 0f 30 0d a003 020102 a106 0404 7f000001
         aa 11 30 0f 30 0d a003 020101 a106 0404 61626364",
    );
    let inner = &plain[6..];
    assert_eq!((plain[0], plain[3]), (0x63, 0x30));
    let sequence = der::element(0x30, &[inner, &extra]);
    let whole = der::element(0x63, &[&sequence]);
    let decoded = EncTicketPart::decode(&whole).unwrap();
    assert_eq!(decoded.end, i64::from(NOW) + 3600);
    // The same in another order, or with something unknown behind, is not DER of a ticket.
    for wrong in [
        &[&extra[19..], &extra[..19]].concat()[..],
        &[&extra[..], &[0xab, 0]].concat(),
    ] {
        let sequence = der::element(0x30, &[inner, wrong]);
        let whole = der::element(0x63, &[&sequence]);
        assert!(EncTicketPart::decode(&whole).is_none());
    }
}

proptest! {
    #[test]
    fn random_tickets_never_panic(
        kvno in prop::sample::select(&[0, 213, 256][..]),
        ticket in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        prop_assert!(opened(kvno, &ticket, &ring()).is_err());
    }

    #[test]
    fn altered_tickets_never_panic_nor_change_hands(
        whole: bool,
        at: prop::sample::Index,
        octet: u8,
    ) {
        let keys = ring();
        let (kvno, ticket) = if whole {
            (256, mint(&keys, &alice()).unwrap().ticket)
        } else {
            (213, print(&keys).unwrap().ticket)
        };
        let original = opened(kvno, &ticket, &keys).unwrap();
        let mut altered = ticket.to_vec();
        altered[at.index(ticket.len())] = octet;
        if let Ok(opened) = opened(kvno, &altered, &keys) {
            // The realm and the service in plain text may be anything.
            prop_assert_eq!(opened, original);
        }
    }

    /// A holder of the key may have written anything into the encrypted part.
    #[test]
    fn altered_parts_never_panic(
        at: prop::sample::Index,
        octet: u8,
        cut: prop::sample::Index,
    ) {
        let session = EncryptionKey::random(EncryptionType::Aes256Sha1);
        let key = key(7, EncryptionType::Aes256Sha1);
        let mut plain = part(&session).encode().to_vec();
        let at = at.index(plain.len());
        plain[at] = octet;
        let keys = KeyRing::of([key.clone()]);
        drop(opened(213, &sealed(&plain, &key), &keys));
        let cut = &plain[..cut.index(plain.len())];
        prop_assert_eq!(opened(213, &sealed(cut, &key), &keys), Err(RxkadError::BadTicket));
    }

    #[test]
    fn random_parts_never_panic(plain in prop::collection::vec(any::<u8>(), 0..300)) {
        let key = key(7, EncryptionType::Aes256Sha1);
        let keys = KeyRing::of([key.clone()]);
        prop_assert_eq!(opened(213, &sealed(&plain, &key), &keys), Err(RxkadError::BadTicket));
    }
}
