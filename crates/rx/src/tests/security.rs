//! A security class that asks who the client is, and whose packets are larger than their payload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType};
use crate::security::{
    ClientConnection, ClientSecurity, Identity, Overhead, PacketSecurity, Sealing,
    ServerConnection, ServerSecurity,
};
use crate::{
    AbortCode, CallError, CallNumber, Cid, Config, ConnectionId, Epoch, SecurityIndex, Service,
};

const SECOND: Duration = Duration::from_secs(1);
const INDEX: SecurityIndex = SecurityIndex(2);
const BAD_KEY: AbortCode = AbortCode(19_270_405);
const BAD_PACKET: AbortCode = AbortCode(19_270_406);

/// A key with which nothing is sealed any more.
const EXPIRED: u8 = 99;

/// Adds a nonce, flips bits with it, pads to 8 bytes; the header's checksum covers the sequence.
#[derive(Clone, Copy, Debug)]
struct Toy {
    key: u8,
    proved: bool,
}

impl PacketSecurity for Toy {
    fn overhead(&self) -> Overhead {
        Overhead {
            header: 8,
            trailer: 8,
        }
    }

    fn authenticates(&self) -> bool {
        true
    }

    fn sealed_len(&self, payload: usize) -> usize {
        (8 + payload).next_multiple_of(8)
    }

    fn ready(&self) -> Result<(), AbortCode> {
        match self.key {
            EXPIRED => Err(BAD_KEY),
            _ => Ok(()),
        }
    }

    fn seal(&mut self, packets: &mut [Sealing<'_>]) {
        for packet in packets {
            let sequence = packet.header.sequence;
            assert_eq!(packet.body.len(), self.sealed_len(packet.payload));
            packet.body[..4].copy_from_slice(&(packet.payload as u32).to_be_bytes());
            packet.body[4..8].copy_from_slice(&sequence.to_be_bytes());
            packet.body.iter_mut().for_each(|octet| *octet ^= self.key);
            packet.header.checksum = (sequence as u16).wrapping_add(u16::from(self.key));
        }
    }

    fn open(&mut self, header: &Header, payload: Bytes) -> Result<Bytes, AbortCode> {
        if header.checksum != (header.sequence as u16).wrapping_add(u16::from(self.key)) {
            return Err(BAD_PACKET);
        }
        let mut plain: Vec<u8> = payload.iter().map(|octet| octet ^ self.key).collect();
        let len = plain
            .first_chunk()
            .map_or(0, |len| u32::from_be_bytes(*len)) as usize;
        if plain.len() < 8 + len || plain[4..8] != header.sequence.to_be_bytes() {
            return Err(BAD_PACKET);
        }
        plain.truncate(8 + len);
        Ok(Bytes::from(plain).slice(8..))
    }
}

impl ClientSecurity for Toy {
    fn index(&self) -> SecurityIndex {
        INDEX
    }

    fn connect(&self, _: Epoch, _: Cid) -> Box<dyn ClientConnection> {
        Box::new(*self)
    }
}

impl ClientConnection for Toy {
    fn respond(&mut self, calls: [u32; 4], challenge: &[u8]) -> Result<Bytes, AbortCode> {
        assert!(calls.contains(&1), "the first call runs: {calls:?}");
        if challenge != b"who" {
            return Err(BAD_PACKET);
        }
        // As large as the largest Kerberos ticket: more than one network packet.
        Ok(Bytes::from(vec![self.key; 12_000]))
    }
}

impl ServerSecurity for Toy {
    fn index(&self) -> SecurityIndex {
        INDEX
    }

    fn accept(&self, _: Epoch, _: Cid) -> Box<dyn ServerConnection> {
        Box::new(Self {
            proved: false,
            ..*self
        })
    }
}

impl ServerConnection for Toy {
    fn is_authenticated(&self) -> bool {
        self.proved
    }

    fn challenge(&mut self) -> Bytes {
        Bytes::from_static(b"who")
    }

    fn check(&mut self, response: &[u8]) -> Result<[u32; 4], AbortCode> {
        if response != vec![self.key; 12_000] {
            return Err(BAD_KEY);
        }
        self.proved = true;
        Ok([1, 0, 0, 0])
    }

    fn identity(&self) -> Identity {
        match self.proved {
            true => Identity::User("somebody".into()),
            false => Identity::Anonymous,
        }
    }
}

/// A server that has key 7, and a connection of a client with `key`.
fn pair(key: u8) -> (Pair, ConnectionId) {
    let mut pair = Pair::new(
        1,
        Link {
            mtu: 65_507,
            ..Link::default()
        },
    );
    pair.set_up(Box::new(|endpoint| {
        let class = Toy {
            key: 7,
            proved: false,
        };
        endpoint.add_service(Service::new(SERVICE, "toy"), vec![Arc::new(class)]);
    }));
    let server = pair.sides[SERVER].address;
    let class = Toy { key, proved: false };
    let now = pair.now;
    let connection = pair.sides[CLIENT].endpoint.connect(
        now,
        server,
        SERVICE,
        &(Arc::new(class) as Arc<dyn ClientSecurity>),
    );
    (pair, connection)
}

#[test]
fn a_call_that_cannot_be_sealed_fails_at_once() {
    let (mut pair, connection) = pair(EXPIRED);
    let begun = pair.now;
    let error = pair.echo(connection, 1000).unwrap_err();
    assert_eq!(error, CallError::ConnectionAborted(BAD_KEY));
    assert!(pair.now - begun < SECOND, "{:?}", pair.now - begun);
}

#[test]
fn data_waits_until_the_client_is_known() {
    let (mut pair, connection) = pair(7);
    let capture = pair.capture();
    // More packets than are held back.
    pair.echo(connection, 100_000).unwrap();
    pair.echo(connection, 3_000_000).unwrap();
    assert_eq!(capture.of(SERVER, PacketType::Challenge).len(), 1);
    assert_eq!(capture.of(CLIENT, PacketType::Response).len(), 1);
    let stats = pair.sides[SERVER].endpoint.stats();
    assert_eq!((stats.violations, stats.calls_received), (0, 2));
}

/// A small call costs one round trip more, not a retransmission timeout.
#[test]
fn a_challenge_costs_one_round_trip() {
    let (mut pair, connection) = pair(7);
    pair.echo(connection, 100).unwrap();
    assert!(
        pair.elapsed() < Duration::from_millis(21),
        "{:?}",
        pair.elapsed()
    );
}

#[test]
fn lost_challenges_and_responses_are_sent_again() {
    for (side, packet_type) in [
        (SERVER, PacketType::Challenge),
        (CLIENT, PacketType::Response),
    ] {
        let (mut pair, connection) = pair(7);
        let mut lost = 0;
        pair.filter = Some(Box::new(move |from, octets| {
            let hit = from == side && octets[20] == packet_type as u8;
            lost += u32::from(hit);
            !hit || lost > 2
        }));
        pair.echo(connection, 10_000).unwrap();
        assert!(pair.elapsed() < 5 * SECOND, "{:?}", pair.elapsed());
    }
}

#[test]
fn a_client_that_never_answers_is_forgotten() {
    let (mut pair, connection) = pair(7);
    pair.filter = Some(Box::new(|_, octets| {
        octets[20] != PacketType::Response as u8
    }));
    let capture = pair.capture();
    let call = pair.call(connection, pattern(10_000, 1));
    assert!(pair.finish(call, 300 * SECOND).is_err());
    pair.idle(60 * SECOND);
    let challenges = capture.of(SERVER, PacketType::Challenge).len();
    assert!((5..=50).contains(&challenges), "{challenges}");
    assert_eq!(pair.sides[SERVER].seen.incoming, []);
    assert_eq!(pair.sides[SERVER].endpoint.stats().receive_memory, 0);
}

/// Packets of connections that prove nothing fill what there is for them and no more, whatever their number, and
/// a client that answers has its call as soon as ever.
#[test]
fn what_is_held_back_is_bounded() {
    for addresses in [1, 50, 5000_u32] {
        let (mut pair, connection) = pair(7);
        let mut header = Header {
            epoch: Epoch(0x8000_0001),
            cid: Cid(0),
            call_number: CallNumber(1),
            sequence: 0,
            serial: 0,
            packet_type: PacketType::Data,
            flags: Flags::CLIENT_INITIATED,
            user_status: 0,
            security_index: INDEX,
            checksum: 0,
            service_id: SERVICE,
        };
        for index in 0..8000_u32 {
            header.cid = Cid(index << 2);
            let [_, _, high, low] = (index % addresses).to_be_bytes();
            let from = SocketAddr::from(([10, 3, high, low], 7001));
            for sequence in 1..=32 {
                (header.sequence, header.serial) = (sequence, sequence);
                let mut datagram = header.encode().to_vec();
                datagram.extend([0; 1400]);
                pair.inject(SERVER, from, datagram);
            }
        }
        let held = pair.sides[SERVER].endpoint.stats().held_back;
        assert!(held <= Config::default().memory_max / 16, "{held}");
        assert!(held > 1 << 20, "{held}");
        let begun = pair.elapsed();
        pair.echo(connection, 100).unwrap();
        let took = pair.elapsed() - begun;
        assert!(took < Duration::from_millis(21), "{took:?}");
        pair.idle(60 * SECOND);
        assert_eq!(pair.sides[SERVER].endpoint.stats().held_back, 0);
    }
}

#[test]
fn a_wrong_key_aborts_the_connection() {
    let (mut pair, connection) = pair(9);
    let call = pair.call(connection, pattern(100, 1));
    let error = pair.finish(call, 5 * SECOND).unwrap_err();
    assert_eq!(error, CallError::ConnectionAborted(BAD_KEY));
    assert_eq!(pair.sides[SERVER].seen.incoming, []);
    // The connection stays unusable.
    let call = pair.call(connection, pattern(100, 1));
    let error = pair.finish(call, 5 * SECOND).unwrap_err();
    assert_eq!(error, CallError::ConnectionAborted(BAD_KEY));
}

#[test]
fn a_server_that_forgot_asks_again() {
    let (mut pair, connection) = pair(7);
    for _ in 0..5 {
        pair.echo(connection, 10_000).unwrap();
    }
    pair.restart(SERVER);
    pair.echo(connection, 10_000).unwrap();
}

#[test]
fn sealed_packets_fit_the_path() {
    for config in [Config::default(), super::old_peer()] {
        let mut pair = Pair::with_configs(1, Link::default(), [config.clone(), config]);
        pair.set_up(Box::new(|endpoint| {
            let class = Toy {
                key: 7,
                proved: false,
            };
            endpoint.add_service(Service::new(SERVICE, "toy"), vec![Arc::new(class)]);
        }));
        // The handshake's answer is large.
        pair.links = [
            Link {
                mtu: 12_100,
                ..Link::default()
            },
            Link::default(),
        ];
        let (server, now) = (pair.sides[SERVER].address, pair.now);
        let class = Toy {
            key: 7,
            proved: false,
        };
        let connection = pair.sides[CLIENT].endpoint.connect(
            now,
            server,
            SERVICE,
            &(Arc::new(class) as Arc<dyn ClientSecurity>),
        );
        // Nothing is answered before the handshake; then sizes are looked for.
        for _ in 0..3 {
            pair.echo(connection, 100).unwrap();
            pair.idle(SECOND);
        }
        let capture = pair.capture();
        pair.echo(connection, 60_000).unwrap();
        let data = capture.of(CLIENT, PacketType::Data);
        let largest = data
            .iter()
            .map(|(_, body)| HEADER_SIZE + body.len())
            .max()
            .unwrap();
        assert!((1430..=1444).contains(&largest), "{largest}");
        assert!(
            data.iter()
                .all(|(header, body)| header.checksum != 0 && body.len() % 8 == 0)
        );
    }
}

/// What arrives broken is not taken for data, and is sent again.
#[test]
fn broken_packets_are_dropped() {
    let (mut pair, connection) = pair(7);
    pair.echo(connection, 100).unwrap();
    let mut count = 0;
    pair.filter = Some(Box::new(move |_, octets| {
        if octets[20] == PacketType::Data as u8 {
            count += 1;
            octets[24] ^= u8::from(count % 3 == 0);
        }
        true
    }));
    pair.echo(connection, 50_000).unwrap();
    let unsealed = [CLIENT, SERVER].map(|side| pair.sides[side].endpoint.stats().unsealed);
    assert!(unsealed.iter().all(|count| *count > 0), "{unsealed:?}");
}

/// Anybody can put any address and any numbers on a packet.
#[test]
fn a_forged_packet_ends_no_connection() {
    let (mut pair, connection) = pair(7);
    pair.echo(connection, 100).unwrap();
    let capture = pair.capture();
    let call = pair.call(connection, pattern(2_000_000, 1));
    pair.run(Duration::from_millis(30), |_| false);
    let elsewhere = SocketAddr::from(([198, 51, 100, 66], 7001));
    let addresses = [CLIENT, SERVER].map(|side| pair.sides[side].address);
    for (from, to) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
        let mut headers: Vec<Header> = [PacketType::Data, PacketType::Ack]
            .iter()
            .flat_map(|kind| capture.of(from, *kind))
            .map(|(header, _)| header)
            .collect();
        headers.truncate(20);
        for mut header in headers {
            header.packet_type = PacketType::Data;
            header.serial += 1000;
            for sequence in [1, 2, 500, header.sequence + 1] {
                header.sequence = sequence;
                let mut octets = header.encode().to_vec();
                octets.extend([0x55; 64]);
                pair.inject(to, addresses[from], octets.clone());
                pair.inject(to, elsewhere, octets);
            }
        }
    }
    assert!(pair.finish(call, 20 * SECOND).unwrap() == pattern(2_000_000, 1));
    let stats = [CLIENT, SERVER].map(|side| pair.sides[side].endpoint.stats());
    assert!(stats[SERVER].unsealed > 0 && stats[SERVER].moved == 0);
}

/// The holder of the key is the client, wherever it is.
#[test]
fn a_connection_follows_what_its_class_has_authenticated() {
    let (mut pair, connection) = pair(7);
    pair.echo(connection, 10_000).unwrap();
    let capture = pair.capture();
    for moved in 1..5 {
        pair.rebind();
        let begin = pair.elapsed();
        pair.echo(connection, 10_000).unwrap();
        let took = pair.elapsed() - begin;
        assert!(took < Duration::from_millis(200), "{took:?}");
        assert_eq!(pair.sides[SERVER].endpoint.stats().moved, moved);
    }
    // What was sealed once, and comes again from elsewhere, is no sign of it.
    let data = capture.of(CLIENT, PacketType::Data);
    for (header, body) in data {
        let mut octets = header.encode().to_vec();
        octets.extend_from_slice(&body);
        pair.inject(SERVER, SocketAddr::from(([198, 51, 100, 66], 7001)), octets);
    }
    pair.idle(5 * SECOND);
    assert_eq!(pair.sides[SERVER].endpoint.stats().moved, 4);
    pair.echo(connection, 10_000).unwrap();
}
