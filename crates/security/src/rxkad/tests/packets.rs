//! Packets that come as they were sent, and others.

use super::*;
use crate::rxkad::packet::{overhead, sealed_len};

/// Opening with both what can be changed in place and what cannot.
fn opened(by: &Protection, header: &Header, body: &Bytes) -> Result<Bytes, RxkadError> {
    let shared = by.open(header, body.clone());
    let alone = by.open(header, Bytes::from(body.to_vec()));
    assert_eq!(shared, alone);
    alone
}

// spec: rxkad#levels
#[test]
fn a_body_has_what_its_level_adds() {
    for level in Level::ALL {
        let added = overhead(level);
        for payload in 0..2000 {
            let len = sealed_len(level, payload);
            let least = added.header + payload;
            assert!((least..=least + added.trailer).contains(&len));
            match level {
                Level::Clear => assert_eq!(len, payload),
                Level::Auth => assert_eq!(len, (payload + 4).max(8)),
                Level::Crypt => assert!(len.is_multiple_of(8)),
            }
        }
    }
}

/// By a checksum of 16 bits alone nobody takes a connection along to another address.
#[test]
fn what_opens_is_a_proof_but_at_clear() {
    for level in Level::ALL {
        let protection = protection(level);
        assert_eq!(protection.authenticates(), level != Level::Clear, "{level}");
        let status = protection.status();
        assert_eq!((status.kind, i32::from(status.level)), (3, level.number()));
        assert_eq!(status.expires, END);
    }
}

#[test]
fn a_body_of_any_length_may_come() {
    for level in Level::ALL {
        let protection = protection(level);
        let mut header = header(1, 7, 3);
        header.checksum = protection.checksum(&header);
        for len in 0..100 {
            let result = opened(&protection, &header, &vec![0; len].into());
            let expected = match level {
                Level::Clear => None,
                _ if len < 8 => Some(RxkadError::PacketShort),
                _ => Some(RxkadError::SealedIncon),
            };
            assert_eq!(result.err(), expected, "{level} {len}");
        }
    }
}

#[test]
fn a_packet_has_no_more_payload_than_it_has() {
    for (level, fits) in [(Level::Auth, 12), (Level::Crypt, 8)] {
        for (says, expected) in [(fits, None), (fits + 1, Some(RxkadError::DataLen))] {
            let protection = protection(level);
            let mut header = header(0, 1, 2);
            header.checksum = protection.checksum(&header);
            let word = (1 ^ 2) << 16 | says;
            let mut body = [0; 16];
            body[..4].copy_from_slice(&u32::to_be_bytes(word));
            match level {
                Level::Crypt => protection.cipher().seal(&mut body),
                _ => {
                    let first = body.first_chunk_mut().unwrap();
                    let block = u64::from_be_bytes(*first);
                    *first = protection.cipher().encrypt_block(block).to_be_bytes();
                }
            }
            let result = opened(&protection, &header, &body.to_vec().into());
            assert_eq!(result.err(), expected, "{level} {says}");
        }
    }
}

#[test]
fn what_is_behind_the_payload_does_not_matter() {
    let protection = protection(Level::Crypt);
    let mut header = header(0, 1, 2);
    header.checksum = protection.checksum(&header);
    let mut body = *b"\0\x03\0\x03junkabcjunk more";
    protection.cipher().seal(&mut body[..16]);
    let result = opened(&protection, &header, &body[..16].to_vec().into());
    assert_eq!(&result.unwrap()[..], b"abc");
}

#[test]
fn headers_without_or_with_another_checksum_are_refused() {
    for level in Level::ALL {
        let mut protection = protection(level);
        let (good, body) = sealed(&mut protection, header(2, 3, 4), b"hello");
        for checksum in [0, good.checksum ^ 1, good.checksum ^ 0x8000] {
            let bad = Header { checksum, ..good };
            let result = opened(&protection, &bad, &body);
            assert_eq!(result.err(), Some(RxkadError::SealedIncon));
        }
        assert_eq!(&opened(&protection, &good, &body).unwrap()[..], b"hello");
    }
}

#[test]
fn no_checksum_is_0() {
    let protection = protection(Level::Clear);
    let checksums = (1..200_000).map(|n| protection.checksum(&header(0, 1, n)));
    // 0 would come up three times on average; its place is taken by 1.
    assert_eq!(checksums.filter(|checksum| *checksum == 0).count(), 0);
}

// spec: rxkad#times
#[test]
fn a_connection_ends_with_its_token() {
    for level in Level::ALL {
        NOW.set(END - 1);
        let mut protection = protection(level);
        let (header, body) = sealed(&mut protection, header(0, 1, 1), b"hello");
        assert_eq!(protection.ready(), Ok(()));
        assert!(opened(&protection, &header, &body).is_ok());
        NOW.set(END);
        assert_eq!(protection.ready(), Err(RxkadError::Expired));
        let result = opened(&protection, &header, &body);
        assert_eq!(result.err(), Some(RxkadError::Expired));
    }
}

#[test]
fn nothing_secret_is_printed() {
    let text = format!("{:?}", protection(Level::Crypt));
    assert_eq!(
        text.split(", expires").next(),
        Some("Protection { level: Crypt")
    );
    assert!(text.ends_with(" }, .. }"), "{text}");
}

proptest! {
    #![proptest_config(same_each_time())]

    #[test]
    fn packets_arrive_as_they_were_sent(
        level in any_level(),
        payloads in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..1500), 0..4_u32, 1_u32.., 1_u32..), 1..20),
    ) {
        let protection = protection(level);
        let mut bodies: Vec<Vec<u8>> = payloads
            .iter()
            .map(|(payload, ..)| {
                let mut body = vec![0; sealed_len(level, payload.len())];
                let front = overhead(level).header;
                body[front..front + payload.len()].copy_from_slice(payload);
                body
            })
            .collect();
        let mut packets: Vec<Sealing<'_>> = bodies
            .iter_mut()
            .zip(&payloads)
            .map(|(body, (payload, channel, call, sequence))| Sealing {
                header: header(*channel, *call, *sequence),
                body,
                payload: payload.len(),
            })
            .collect();
        protection.seal(&mut packets);
        let headers: Vec<Header> = packets.iter().map(|packet| packet.header).collect();
        for ((header, body), (payload, ..)) in headers.iter().zip(bodies).zip(&payloads) {
            prop_assert_eq!(&opened(&protection, header, &body.into()).unwrap(), payload);
        }
    }

    #[test]
    fn a_packet_in_another_place_is_refused(
        level in any_level(),
        (channel, call, sequence) in (0..4_u32, any::<u32>(), any::<u32>()),
        bit in 0..64,
    ) {
        let mut protection = protection(level);
        let (sent, body) = sealed(&mut protection, header(channel, call, sequence), b"hello");
        let mut came = sent;
        match bit {
            // The two highest bits of a sequence are not covered; no call gets there.
            0..30 => came.sequence ^= 1 << bit,
            30..32 => came.cid.0 ^= 1 << (bit - 30),
            _ => came.call_number.0 ^= 1 << (bit - 32),
        }
        prop_assert_eq!(opened(&protection, &came, &body), Err(RxkadError::SealedIncon));
    }

    /// Only a change of the first block is sure to be noticed. One of a later block of a level
    /// "crypt" packet makes noise of the payload from there on, and at level "auth" it changes the
    /// payload in that place. That is all there is to rxkad's integrity.
    #[test]
    fn a_changed_body(
        crypt: bool,
        payload in proptest::collection::vec(any::<u8>(), 5..200),
        bit: proptest::sample::Index,
    ) {
        let level = if crypt { Level::Crypt } else { Level::Auth };
        let mut protection = protection(level);
        let (header, body) = sealed(&mut protection, header(0, 5, 6), &payload);
        let bit = bit.index(body.len() * 8);
        let mut body = body.to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        let result = opened(&protection, &header, &body.into());
        if bit < 64 {
            prop_assert_eq!(result, Err(RxkadError::SealedIncon));
        } else {
            let changed = result.unwrap();
            prop_assert_eq!(changed.len(), payload.len());
            let first = if crypt { bit / 64 * 8 - 8 } else { bit / 8 - 4 };
            prop_assert_eq!(&changed[..first], &payload[..first]);
            prop_assert_ne!(changed, payload);
        }
    }
}
