//! Changing a datagram of Rx so that it is still worth looking at.

use afar_rx::packet::{HEADER_SIZE, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex};
use fastrand::Rng;

/// Numbers at the edges of what lengths, counts and positions may be.
const EDGES: [u32; 31] = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    15,
    16,
    27,
    28,
    29,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1411,
    1412,
    1413,
    1444,
    65_535,
    65_536,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// Most datagrams are moved to a connection of the sender's own, or they would be dropped unread, as
/// what they belong to has ended; then some of these changes are made: a number of the body becomes one
/// at an edge, a bit is turned, the end is cut off or something put behind it, a field of the header is
/// anything, a piece of the body stands twice.
pub(crate) fn mutate(rng: &mut Rng, datagram: &[u8], number: u32) -> Vec<u8> {
    let mut out = datagram.to_vec();
    if rng.u8(..10) < 7 {
        own(rng, &mut out, number);
    }
    for _ in 0..[0, 1, 1, 2, 3, 5][rng.usize(..6)] {
        change(rng, &mut out);
        if out.is_empty() {
            out.push(0);
        }
    }
    // No more fits into a datagram.
    out.truncate(65_000);
    out
}

/// Makes a packet one of a connection that was not heard of yet, or of one of the last few.
fn own(rng: &mut Rng, out: &mut [u8], number: u32) {
    let Ok(mut header) = Header::decode(out) else {
        return;
    };
    header.epoch = Epoch(0x8000_0007 + (number >> 6));
    header.cid = Cid(rng.u32(..1 << 10) << 2 | header.cid.0 & 3);
    if rng.u8(..10) < 7 {
        header.call_number = CallNumber(1 + rng.u32(..4));
    }
    if header.packet_type == PacketType::Data && rng.u8(..10) < 7 {
        header.sequence = 1;
    }
    header.serial = number.wrapping_add(1);
    if rng.u8(..10) < 8 {
        header.security_index = SecurityIndex(0);
    }
    out[..HEADER_SIZE].copy_from_slice(&header.encode());
}

fn change(rng: &mut Rng, out: &mut Vec<u8>) {
    let len = out.len();
    match rng.u8(..10) {
        0..=2 if len >= HEADER_SIZE + 4 => {
            let at = HEADER_SIZE + 4 * rng.usize(..(len - HEADER_SIZE) / 4);
            let word = EDGES[rng.usize(..EDGES.len())];
            out[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        3 | 4 => out[rng.usize(..len)] ^= 1 << rng.u8(..8),
        5 => out.truncate(rng.usize(1..=len)),
        6 => {
            let more = [1, 3, 4, 100, 1000][rng.usize(..5)];
            out.extend(std::iter::repeat_with(|| rng.u8(..)).take(more));
        }
        7 if len >= HEADER_SIZE => out[rng.usize(8..HEADER_SIZE)] = rng.u8(..),
        _ if len >= HEADER_SIZE + 12 => {
            let from = rng.usize(HEADER_SIZE..len);
            let count = rng.usize(1..=(len - from).min(64));
            let piece = out[from..from + count].to_vec();
            out.splice(from..from, piece);
        }
        _ => {}
    }
}

#[test]
fn mutants_differ_and_are_often_packets() {
    let mut rng = Rng::with_seed(1);
    let mut datagram = vec![0; 100];
    datagram[20] = PacketType::Data as u8;
    let mutants: Vec<_> = (0..1000)
        .map(|number| mutate(&mut rng, &datagram, number))
        .collect();
    let differ = mutants.iter().filter(|mutant| **mutant != datagram).count();
    let packets = mutants
        .iter()
        .filter(|mutant| Header::decode(mutant).is_ok())
        .count();
    assert!(differ > 900 && packets > 700, "{differ}, {packets}");
}
