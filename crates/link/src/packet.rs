//! Packets as a TUN device gives and takes them, and their cutting into wire packets.
//!
//! With offloads on, the kernel hands over what it would hand a network card that segments: one
//! TCP or UDP super-packet of up to 64 KiB behind a `virtio_net_hdr` that says how to cut it, with
//! the checksum left to be finished. Sources: the VIRTIO specification 1.2, §5.1.6 "Device
//! Operation" (header, GSO types, partial checksums); RFC 9293 (TCP), RFC 768, RFC 791, RFC 8200,
//! RFC 3168 (what segmentation does to CWR).

use std::ops::Range;

/// Bytes of the header before each packet.
pub const VNET_LEN: usize = 10;
/// Largest IP packet.
pub const PACKET_MAX: usize = 65_535;
/// Most header bytes of a packet that can be cut: IPv4 or IPv6 with extensions, then TCP.
const HEADER_MAX: usize = 512;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP: u32 = 6;
const UDP: u32 = 17;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// The `virtio_net_hdr` in front of a packet: fields in the machine's byte order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Bit 0: the checksum is to be finished.
    pub flags: u8,
    /// How to cut the packet.
    pub gso_type: u8,
    /// Bytes of all headers, a hint.
    pub header_len: u16,
    /// Payload bytes of each wire packet.
    pub gso_size: u16,
    /// Where the checksum begins to cover.
    pub checksum_start: u16,
    /// Where the checksum stands, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Reads a header.
    pub fn decode(bytes: [u8; VNET_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// Writes a header.
    pub fn encode(&self) -> [u8; VNET_LEN] {
        let mut bytes = [0; VNET_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [
            self.header_len,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (at, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            at.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn checksum_is_partial(&self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
}

/// How a super-packet is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    /// Bytes of the IP and transport headers, which each wire packet repeats.
    header_len: usize,
    /// Where the transport header begins.
    transport: usize,
    /// Payload bytes of each wire packet but the last.
    segment: usize,
    udp: bool,
}

/// A packet read from the kernel, which stands for one wire packet or several.
#[derive(Debug)]
pub struct Packet {
    vnet: VnetHeader,
    cut: Option<Cut>,
    data: Vec<u8>,
}

impl Packet {
    /// Takes a packet and the header before it. A header that does not fit the packet is not
    /// believed: the packet then counts as one wire packet and goes on as it came.
    pub fn new(vnet: VnetHeader, data: Vec<u8>) -> Self {
        let cut = Self::find_cut(&vnet, &data);
        Self { vnet, cut, data }
    }

    fn find_cut(vnet: &VnetHeader, data: &[u8]) -> Option<Cut> {
        let version = data.first()? >> 4;
        let udp = match (vnet.gso_type & !GSO_ECN, version) {
            (GSO_TCP4, 4) | (GSO_TCP6, 6) => false,
            (GSO_UDP_L4, 4 | 6) => true,
            _ => return None,
        };
        let ip_len = match version {
            4 => usize::from(data[0] & 15) * 4,
            _ => 40,
        };
        let transport = usize::from(vnet.checksum_start);
        let transport_len = match udp {
            true => 8,
            false => usize::from(data.get(transport + 12)? >> 4) * 4,
        };
        let header_len = transport + transport_len;
        let fits = ip_len >= 20
            && (transport == ip_len || version == 6 && transport > ip_len)
            && (udp || transport_len >= 20)
            && header_len <= HEADER_MAX
            && header_len < data.len()
            && data.len() <= PACKET_MAX
            && vnet.gso_size > 0
            && vnet.checksum_is_partial();
        fits.then_some(Cut {
            header_len,
            transport,
            segment: usize::from(vnet.gso_size),
            udp,
        })
    }

    /// True if this stands for several wire packets, or for one the kernel called a super-packet.
    pub fn is_super(&self) -> bool {
        self.cut.is_some()
    }

    /// True if it is a UDP super-packet.
    pub fn is_udp_super(&self) -> bool {
        self.cut.is_some_and(|cut| cut.udp)
    }

    /// True if the IP header says that the ends understand congestion marks (RFC 3168 §5).
    pub fn is_ecn_capable(&self) -> bool {
        match self.data[..] {
            [first, second, ..] if first >> 4 == 4 => second & 3 != 0,
            [first, second, ..] if first >> 4 == 6 => second & 0x30 != 0,
            _ => false,
        }
    }

    /// The wire packets this stands for, as ranges of payload, with their lengths as IP packets.
    pub fn wire_packets(&self) -> impl Iterator<Item = (Range<usize>, u32)> + use<> {
        let (header_len, segment) = match self.cut {
            Some(cut) => (cut.header_len, cut.segment),
            None => (0, self.data.len().max(1)),
        };
        let payload = self.data.len() - header_len;
        (0..payload).step_by(segment).map(move |from| {
            let to = (from + segment).min(payload);
            (
                from..to,
                u32::try_from(header_len + to - from).unwrap_or(u32::MAX),
            )
        })
    }

    /// Bytes on the wire of the packets with this payload.
    pub fn wire_bytes(&self, range: &Range<usize>) -> usize {
        match self.cut {
            None => range.len(),
            Some(cut) => range.len() + range.len().div_ceil(cut.segment) * cut.header_len,
        }
    }

    /// Gives the buffer back for another packet.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Fills `head` with the headers for the payload `range`, which begins and ends where wire
    /// packets do, and returns what goes before and behind it. With `mark` the packets carry the
    /// congestion-experienced mark.
    pub fn assemble<'a>(
        &'a self,
        range: Range<usize>,
        mark: bool,
        head: &mut Vec<u8>,
    ) -> (VnetHeader, &'a [u8]) {
        head.clear();
        let Some(cut) = self.cut else {
            let mut rest = &self.data[range];
            if mark {
                let (header, payload) = rest.split_at(self.ip_header_len());
                head.extend_from_slice(header);
                set_congestion_experienced(head);
                rest = payload;
            }
            return (self.vnet, rest);
        };
        let payload = &self.data[cut.header_len..];
        let last = range.end == payload.len();
        head.extend_from_slice(&self.data[..cut.header_len]);
        cut.rewrite(head, &range, last);
        if mark {
            set_congestion_experienced(head);
        }
        let several = range.len() > cut.segment;
        let vnet = VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: if several {
                self.vnet.gso_type & !GSO_ECN
            } else {
                GSO_NONE
            },
            gso_size: if several { self.vnet.gso_size } else { 0 },
            header_len: u16::try_from(cut.header_len).unwrap_or(0),
            ..self.vnet
        };
        (vnet, &payload[range])
    }

    /// The bytes of one wire packet with a good checksum and then one bit, chosen by `choice`,
    /// flipped behind the IP header, so that the receiving kernel sees it as a wire's damage.
    pub fn assemble_damaged(&self, range: Range<usize>, mark: bool, choice: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (vnet, rest) = self.assemble(range, mark, &mut bytes);
        bytes.extend_from_slice(rest);
        if vnet.checksum_is_partial() {
            finish_checksum(
                &mut bytes,
                vnet.checksum_start.into(),
                vnet.checksum_offset.into(),
            );
        }
        let from = self.ip_header_len();
        let bits = (bytes.len() - from) as u64 * 8;
        if bits > 0 {
            let bit = choice % bits;
            let at = from + usize::try_from(bit / 8).unwrap_or(0);
            bytes[at] ^= 1 << (bit % 8);
        }
        bytes
    }

    /// Bytes of the IP header without extensions, never more than there are.
    fn ip_header_len(&self) -> usize {
        let len = match self.data.first() {
            Some(first) if first >> 4 == 4 => usize::from(first & 15) * 4,
            _ => 40,
        };
        len.min(self.data.len())
    }
}

impl Cut {
    /// Turns the headers of the super-packet into those of the packets with this payload.
    fn rewrite(&self, head: &mut [u8], range: &Range<usize>, last: bool) {
        let segments = range.start / self.segment;
        let total = self.header_len + range.len();
        if head[0] >> 4 == 4 {
            put(head, 2, total);
            let id = usize::from(u16::from_be_bytes([head[4], head[5]])) + segments;
            put(head, 4, id);
            fix_ipv4_checksum(head);
        } else {
            put(head, 4, total - 40);
        }
        let transport_len = total - self.transport;
        let at = self.transport;
        if self.udp {
            put(head, at + 4, transport_len);
        } else {
            let sequence: [u8; 4] = [head[at + 4], head[at + 5], head[at + 6], head[at + 7]];
            // The payload is below 64 KiB.
            let offset = u32::try_from(range.start).unwrap_or(0);
            let sequence = u32::from_be_bytes(sequence).wrapping_add(offset);
            head[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            if range.start > 0 {
                head[at + 13] &= !TCP_CWR;
            }
            if !last {
                head[at + 13] &= !(TCP_FIN | TCP_PSH);
            }
        }
        // The receiver of a partial checksum expects the folded sum of the pseudo-header there.
        let sum = pseudo_header(head, if self.udp { UDP } else { TCP }, transport_len);
        put(
            head,
            at + if self.udp { 6 } else { 16 },
            usize::from(fold(sum)),
        );
    }
}

/// Writes the low 16 bits of `value`, big-endian.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low 16 bits are what is asked for"
)]
fn put(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Adds up 16-bit words as the Internet checksum does (RFC 1071), without folding. The sum of a
/// largest packet fits 32 bits.
fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let even: u32 = words
        .by_ref()
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let odd = words
        .remainder()
        .first()
        .map_or(0, |&last| u32::from(last) << 8);
    even + odd
}

/// Folds a sum into 16 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "folded to 16 bits just before"
)]
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of the pseudo-header: addresses, protocol, length.
fn pseudo_header(head: &[u8], protocol: u32, transport_len: usize) -> u32 {
    let addresses = if head[0] >> 4 == 4 {
        &head[12..20]
    } else {
        &head[8..40]
    };
    sum(addresses) + protocol + u32::try_from(transport_len).unwrap_or(0)
}

fn fix_ipv4_checksum(head: &mut [u8]) {
    let len = (usize::from(head[0] & 15) * 4).min(head.len());
    put(head, 10, 0);
    let checksum = !fold(sum(&head[..len]));
    put(head, 10, usize::from(checksum));
}

/// Completes a partial checksum in place. A UDP checksum of 0 would mean none, and is sent as
/// its other form (RFC 768); for TCP both forms are equal to the receiver.
fn finish_checksum(bytes: &mut [u8], start: usize, offset: usize) {
    if start + offset + 2 > bytes.len() {
        return;
    }
    let checksum = match !fold(sum(&bytes[start..])) {
        0 => 0xffff,
        other => other,
    };
    put(bytes, start + offset, usize::from(checksum));
}

/// Sets both ECN bits of an IP header.
fn set_congestion_experienced(head: &mut [u8]) {
    match head.first().map(|first| first >> 4) {
        Some(4) if head.len() >= 20 => {
            head[1] |= 3;
            fix_ipv4_checksum(head);
        }
        Some(6) if head.len() >= 40 => head[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
