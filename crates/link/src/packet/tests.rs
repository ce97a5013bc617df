//! Super-packets are cut as a network card would, and every checksum holds.
#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers in sample packets"
)]

use super::*;

const PAYLOAD: usize = 4_000;
const MSS: u16 = 1_448;

struct Sample {
    vnet: VnetHeader,
    data: Vec<u8>,
    transport: usize,
    header_len: usize,
}

/// A super-packet as the kernel would hand it over.
fn sample(version: u8, udp: bool) -> Sample {
    let transport = if version == 4 { 20 } else { 40 };
    let header_len = transport + if udp { 8 } else { 32 };
    let mut data = vec![0; header_len];
    let total = header_len + PAYLOAD;
    if version == 4 {
        data[0] = 0x45;
        data[1] = 0x02;
        put(&mut data, 2, total);
        put(&mut data, 4, 0xfffe);
        data[6] = 0x40;
        data[8] = 64;
        data[9] = if udp { 17 } else { 6 };
        data[12..20].copy_from_slice(&[10, 99, 1, 1, 10, 99, 1, 2]);
        fix_ipv4_checksum(&mut data);
    } else {
        data[0] = 0x60;
        data[1] = 0x20;
        put(&mut data, 4, total - 40);
        data[6] = if udp { 17 } else { 6 };
        data[7] = 64;
        data[8..40].copy_from_slice(&std::array::from_fn::<u8, 32, _>(|i| i as u8 * 7));
    }
    put(&mut data, transport, 5001);
    put(&mut data, transport + 2, 40_000);
    if udp {
        put(&mut data, transport + 4, 8 + PAYLOAD);
    } else {
        data[transport + 4..transport + 8].copy_from_slice(&0xffff_fc00_u32.to_be_bytes());
        data[transport + 12] = 8 << 4;
        data[transport + 13] = TCP_CWR | 0x10 | TCP_PSH | TCP_FIN;
    }
    data.extend((0..PAYLOAD).map(|i| (i * 31 % 251) as u8));
    let vnet = VnetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: match (udp, version) {
            (true, _) => GSO_UDP_L4,
            (false, 4) => GSO_TCP4 | GSO_ECN,
            _ => GSO_TCP6,
        },
        header_len: header_len as u16,
        gso_size: MSS,
        checksum_start: transport as u16,
        checksum_offset: if udp { 6 } else { 16 },
    };
    Sample {
        vnet,
        data,
        transport,
        header_len,
    }
}

/// The bytes a receiver would see, checksum finished.
fn wire(packet: &Packet, range: Range<usize>, mark: bool) -> (VnetHeader, Vec<u8>) {
    let mut bytes = Vec::new();
    let (vnet, rest) = packet.assemble(range, mark, &mut bytes);
    bytes.extend_from_slice(rest);
    finish_checksum(
        &mut bytes,
        vnet.checksum_start.into(),
        vnet.checksum_offset.into(),
    );
    (vnet, bytes)
}

/// Checks IP and transport checksum the way a receiver does.
fn checksums_hold(bytes: &[u8], transport: usize, udp: bool) -> bool {
    let ip = bytes[0] >> 4 == 6 || fold(sum(&bytes[..20])) == 0xffff;
    let len = bytes.len() - transport;
    let protocol = if udp { UDP } else { TCP };
    ip && fold(pseudo_header(bytes, protocol, len) + sum(&bytes[transport..])) == 0xffff
}

fn every_sample() -> impl Iterator<Item = (u8, bool, Sample)> {
    [(4, false), (6, false), (4, true), (6, true)]
        .into_iter()
        .map(|(v, udp)| (v, udp, sample(v, udp)))
}

#[test]
fn cutting_gives_all_the_payload_with_good_checksums() {
    for (version, udp, sample) in every_sample() {
        let packet = Packet::new(sample.vnet, sample.data.clone());
        assert!(packet.is_super());
        assert_eq!(packet.is_udp_super(), udp);
        let mut payload = Vec::new();
        let mut lengths = Vec::new();
        for (range, len) in packet.wire_packets() {
            let (vnet, bytes) = wire(&packet, range.clone(), false);
            assert_eq!((vnet.gso_type, vnet.gso_size), (GSO_NONE, 0));
            assert_eq!(bytes.len(), len as usize);
            assert_eq!(packet.wire_bytes(&range), bytes.len());
            assert!(
                checksums_hold(&bytes, sample.transport, udp),
                "v{version} udp {udp}"
            );
            let said = match version {
                4 => usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
                _ => usize::from(u16::from_be_bytes([bytes[4], bytes[5]])) + 40,
            };
            assert_eq!(said, bytes.len());
            payload.extend_from_slice(&bytes[sample.header_len..]);
            lengths.push(bytes.len() - sample.header_len);
        }
        assert_eq!(payload, sample.data[sample.header_len..]);
        assert_eq!(lengths, [1448, 1448, 1104]);
    }
}

#[test]
fn tcp_sequence_flags_and_identification_go_on() {
    let sample = sample(4, false);
    let packet = Packet::new(sample.vnet, sample.data);
    let seen: Vec<_> = packet
        .wire_packets()
        .map(|(range, _)| {
            let (_, b) = wire(&packet, range, false);
            let sequence = u32::from_be_bytes([b[24], b[25], b[26], b[27]]);
            (u16::from_be_bytes([b[4], b[5]]), sequence, b[33])
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0xfffe, 0xffff_fc00, TCP_CWR | 0x10),
            (0xffff, 0xffff_fc00_u32.wrapping_add(1448), 0x10),
            (
                0,
                0xffff_fc00_u32.wrapping_add(2896),
                0x10 | TCP_PSH | TCP_FIN
            ),
        ]
    );
}

#[test]
fn neighbours_are_joined_again() {
    for (_, udp, sample) in every_sample() {
        let packet = Packet::new(sample.vnet, sample.data.clone());
        let (vnet, bytes) = wire(&packet, 1448..PAYLOAD, false);
        assert_eq!(vnet.gso_size, MSS);
        assert_eq!(vnet.gso_type, sample.vnet.gso_type & !GSO_ECN);
        assert_eq!(usize::from(vnet.header_len), sample.header_len);
        assert!(checksums_hold(&bytes, sample.transport, udp));
        assert_eq!(
            bytes[sample.header_len..],
            sample.data[sample.header_len + 1448..]
        );
        assert_eq!(
            packet.wire_bytes(&(1448..PAYLOAD)),
            bytes.len() + sample.header_len
        );
    }
}

#[test]
fn the_whole_joined_again_is_what_came() {
    let sample = sample(6, true);
    let mut before = sample.data.clone();
    finish_checksum(&mut before, 40, 6);
    let packet = Packet::new(sample.vnet, sample.data);
    let (_, after) = wire(&packet, 0..PAYLOAD, false);
    let (mut a, mut b) = (before, after);
    put(&mut a, 46, 0);
    put(&mut b, 46, 0);
    assert_eq!(a, b);
}

#[test]
fn marks_keep_the_checksums_good() {
    for (version, udp, sample) in every_sample() {
        let packet = Packet::new(sample.vnet, sample.data);
        assert!(packet.is_ecn_capable());
        let (_, bytes) = wire(&packet, 0..1448, true);
        let bits = if version == 4 {
            bytes[1] & 3
        } else {
            bytes[1] >> 4 & 3
        };
        assert_eq!(bits, 3);
        assert!(checksums_hold(&bytes, sample.transport, udp));
    }
}

#[test]
fn damage_is_one_bit_that_the_checksum_shows() {
    for (_, udp, sample) in every_sample() {
        let packet = Packet::new(sample.vnet, sample.data);
        let (_, good) = wire(&packet, 1448..2896, false);
        for choice in [0, 1, 12_345, u64::MAX] {
            let bad = packet.assemble_damaged(1448..2896, false, choice);
            let flipped: u32 = good
                .iter()
                .zip(&bad)
                .map(|(a, b)| (a ^ b).count_ones())
                .sum();
            assert_eq!(flipped, 1);
            assert_eq!(good[..sample.transport], bad[..sample.transport]);
            assert!(!checksums_hold(&bad, sample.transport, udp));
        }
    }
}

#[test]
fn a_plain_packet_goes_on_as_it_came() {
    let Sample { mut vnet, data, .. } = sample(4, true);
    vnet.gso_type = GSO_NONE;
    let packet = Packet::new(vnet, data.clone());
    assert!(!packet.is_super());
    let ranges: Vec<_> = packet.wire_packets().collect();
    assert_eq!(ranges, [(0..data.len(), data.len() as u32)]);
    let mut head = Vec::new();
    let (same, rest) = packet.assemble(0..data.len(), false, &mut head);
    assert_eq!((same, rest, head.len()), (vnet, &data[..], 0));
    let (_, rest) = packet.assemble(0..data.len(), true, &mut head);
    assert_eq!(head.len() + rest.len(), data.len());
    assert_eq!(head[1] & 3, 3);
    assert_eq!(fold(sum(&head[..20])), 0xffff);
}

#[test]
fn headers_that_do_not_fit_are_not_believed() {
    for (_, _, sample) in every_sample() {
        let mut bad = Vec::new();
        bad.push(VnetHeader {
            gso_size: 0,
            ..sample.vnet
        });
        bad.push(VnetHeader {
            flags: 0,
            ..sample.vnet
        });
        bad.push(VnetHeader {
            gso_type: 3,
            ..sample.vnet
        });
        for start in [0, 1, 19, 39, 4_000, 60_000, u16::MAX] {
            bad.push(VnetHeader {
                checksum_start: start,
                ..sample.vnet
            });
        }
        for vnet in bad {
            let packet = Packet::new(vnet, sample.data.clone());
            assert!(!packet.is_super(), "{vnet:?}");
            assert_eq!(packet.wire_packets().count(), 1);
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut header = [0; VNET_LEN];
        rng.fill(&mut header);
        let mut data = vec![0; rng.usize(..200)];
        rng.fill(&mut data);
        if let Some(first) = data.first_mut() {
            *first = rng.choice([0x45, 0x60, 0x4f, 0xff]).unwrap();
        }
        header[1] = rng.u8(..6);
        header[6..8].copy_from_slice(&rng.u16(..80).to_ne_bytes());
        header[4..6].copy_from_slice(&rng.u16(..50).to_ne_bytes());
        let packet = Packet::new(VnetHeader::decode(header), data);
        assert_eq!(VnetHeader::decode(header).encode(), header);
        let mut head = Vec::new();
        for (range, len) in packet.wire_packets() {
            let (_, rest) = packet.assemble(range.clone(), true, &mut head);
            assert_eq!(head.len() + rest.len(), len as usize);
            let damaged = packet.assemble_damaged(range, packet.is_ecn_capable(), rng.u64(..));
            assert_eq!(damaged.len(), len as usize);
        }
    }
}
