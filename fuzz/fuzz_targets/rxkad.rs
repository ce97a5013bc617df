//! rxkad between a client and a server: any challenge, any response, any packet; and true ones with
//! some bits wrong, which must be refused.

#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use afar_rx::packet::Header;
use afar_rx::security::{ClientSecurity, Sealing, ServerSecurity};
use afar_rx::{Cid, Epoch};
use afar_security::keys::Key;
use afar_security::ticket::{Mint, mint};
use afar_security::{EncryptionKey, Identities, KeyRing, Level, Token, rxkad};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

const NOW: u32 = 1_800_000_000;
const PLACE: (Epoch, Cid) = (Epoch(0x9a5b_3c21), Cid(0x4c6d_8e70));

struct World {
    server: rxkad::Server,
    token: Arc<Token>,
}

fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.into())
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let key = Key {
        kvno: 1,
        key: EncryptionKey::new(18, vec![7; 32]),
    };
    let keys = Arc::new(KeyRing::of([key]));
    let request = Mint {
        client: "alice",
        realm: "EXAMPLE.ORG",
        cell: "example.org",
        start: NOW - 60,
        end: NOW + 3600,
    };
    let token = Arc::new(mint(&keys, &request).expect("a ticket as any").token);
    let identities = Arc::new(Identities::new("example.org"));
    World {
        server: rxkad::Server::new(keys, identities).clock(clock),
        token,
    }
});

/// These bytes with some bits changed by the fuzzer's.
fn damaged(octets: &[u8], damage: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    for change in damage.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % octets.len().max(1);
        if let Some(octet) = octets.get_mut(at) {
            *octet ^= change[2];
        }
    }
    octets
}

fuzz_target!(|data: &[u8]| {
    let Some((form, data)) = data.split_first() else {
        return;
    };
    let level = Level::ALL[usize::from(form >> 4) % 3];
    let client = rxkad::Client::new(Arc::clone(&WORLD.token), level).clock(clock);
    let mut client = client.connect(PLACE.0, PLACE.1);
    let mut server = WORLD.server.accept(PLACE.0, PLACE.1);
    let challenge = server.challenge();
    match form % 4 {
        0 => drop(client.respond([1, 0, 0, 0], data)),
        1 => {
            assert!(server.check(data).is_err(), "nobody can guess a response");
            return;
        }
        _ => {}
    }
    let response = client
        .respond([1, 0, 0, 0], &challenge)
        .expect("a true challenge");
    if form % 4 == 2 {
        let wrong = damaged(&response, data);
        // The four bytes behind the version mean nothing, and of the ticket only what is encrypted
        // counts; the rest of it is addressed to nobody.
        let same = |part: std::ops::Range<usize>| wrong[part.clone()] == response[part];
        if !same(0..4) || !same(8..56) {
            assert!(server.check(&wrong).is_err(), "a damaged response is taken");
        }
        return;
    }
    server.check(&response).expect("a true response");
    let header = first_header();
    let mut body = vec![0; client.sealed_len(data.len())];
    let room = client.overhead().header;
    body[room..room + data.len()].copy_from_slice(data);
    let mut packets = [Sealing {
        header,
        body: &mut body,
        payload: data.len(),
    }];
    client.seal(&mut packets);
    let header = packets[0].header;
    let opened = server.open(&header, Bytes::from(body.clone()));
    assert_eq!(opened.as_deref(), Ok(data), "what is sealed opens");
    // Whatever comes with a right checksum of the header is no reason to panic.
    drop(server.open(&header, Bytes::copy_from_slice(data)));
    drop(server.open(&header, Bytes::from(damaged(&body, data))));
});

/// The header of a call's first packet.
fn first_header() -> Header {
    Header {
        epoch: PLACE.0,
        cid: PLACE.1,
        call_number: afar_rx::CallNumber(1),
        sequence: 1,
        serial: 1,
        packet_type: afar_rx::packet::PacketType::Data,
        flags: afar_rx::packet::Flags(1),
        user_status: 0,
        security_index: afar_rx::SecurityIndex(2),
        checksum: 0,
        service_id: afar_rx::ServiceId(1),
    }
}
