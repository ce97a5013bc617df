//! What holds for all bytes. The same properties run as fuzz targets in `fuzz/`.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::raw::Raw;
use crate::packet::ack::{Ack, RANGES_MAX, WINDOW_MAX};
use crate::packet::debug::Question;
use crate::packet::jumbo::{PART_SIZE, Parts};
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType};
use crate::{CallNumber, Cid, Config, Endpoint};

proptest! {
    #[test]
    fn headers(octets in vec(any::<u8>(), 0..64)) {
        match Header::decode(&octets) {
            Ok(header) => {
                let again = header.encode();
                // Types 9 to 11 are one to us.
                prop_assert_eq!(Header::decode(&again), Ok(header));
                prop_assert_eq!(&again[..20], &octets[..20]);
                prop_assert_eq!(&again[21..], &octets[21..HEADER_SIZE]);
            }
            Err(_) => prop_assert!(octets.len() < HEADER_SIZE || PacketType::from_wire(octets[20]).is_none()),
        }
    }

    #[test]
    fn acks(mut octets in vec(any::<u8>(), 0..600), count in any::<u8>(), extend in any::<bool>()) {
        if octets.len() > 17 {
            octets[17] = count;
        }
        let magic = 18 + usize::from(count) + 19;
        if extend && octets.len() > magic + 34 {
            octets[magic..magic + 5].copy_from_slice(b"afar\x01");
            octets[magic + 32] = 0;
        }
        let Some(ack) = Ack::decode(&octets) else {
            prop_assert!(octets.len() < 18 + usize::from(count));
            return Ok(());
        };
        prop_assert_eq!(ack.soft.iter().count(), usize::from(count));
        if let Some(extension) = &ack.extension {
            prop_assert!(extension.ranges.len() <= RANGES_MAX && extension.window <= WINDOW_MAX);
            for range in extension.ranges_from(ack.first) {
                prop_assert!(range.end.wrapping_sub(range.start) <= WINDOW_MAX);
            }
        }
        let mut encoded = Vec::new();
        ack.encode(&mut encoded);
        let mut again = Ack::decode(&encoded).unwrap();
        if ack.trailer.max_datagram_packets.is_none() {
            again.extension = None;
        }
        prop_assert_eq!(again.first, ack.first);
        prop_assert_eq!(again.trailer, ack.trailer);
        prop_assert_eq!(again.extension, ack.extension);
        prop_assert!(again.soft.iter().eq(ack.soft.iter()));
    }

    #[test]
    fn jumbograms(flags in vec(any::<u8>(), 0..50), tail in 0usize..3000, cut in 0usize..3000) {
        let mut header = Raw::server(Config::default()).header;
        (header.sequence, header.serial) = (u32::MAX - 3, 7);
        header.flags = Flags(flags.first().copied().unwrap_or(0));
        let mut body = Vec::new();
        for flag in flags.iter().skip(1) {
            body.extend(vec![*flag; PART_SIZE]);
            body.extend([*flag, 0, 1, 2]);
        }
        body.extend(vec![9; tail]);
        body.truncate(body.len().saturating_sub(cut));
        let total = body.len();
        let mut sum = 0;
        for (index, part) in Parts::new(header, Bytes::from(body)).enumerate() {
            let Ok((part_header, payload)) = part else { return Ok(()) };
            prop_assert_eq!(part_header.sequence, header.sequence.wrapping_add(index as u32));
            prop_assert_eq!(part_header.serial, header.serial + index as u32);
            prop_assert_eq!(part_header.from_client(), header.from_client());
            prop_assert!(!part_header.flags.has(Flags::JUMBO_PACKET) || header.flags.has(Flags::JUMBO_PACKET));
            sum += payload.len() + 4;
        }
        prop_assert_eq!(sum, total + 4);
    }

    #[test]
    fn debug_questions(octets in vec(any::<u8>(), 0..20)) {
        prop_assert_eq!(Question::decode(&octets).is_none(), octets.len() < 8);
        let mut raw = Raw::server(Config::default());
        raw.put(PacketType::Debug, 0, Flags::LAST_PACKET, &octets);
        let answers = raw.take();
        prop_assert!(answers.len() <= 1);
        prop_assert!(answers.iter().all(|(_, body)| body.len() <= 284));
    }

    /// Datagrams near to a running call: whatever they say, memory stays bounded and time passes.
    #[test]
    fn endpoints(packets in vec((0u8..14, any::<u8>(), 0u32..3, 0u32..40, vec(any::<u8>(), 0..80)), 1..60)) {
        for is_server in [true, false] {
            let config = Config { memory_max: 1 << 20, ..Config::default() };
            let mut raw = if is_server {
                Raw::server(config)
            } else {
                let (mut raw, connection) = Raw::client(config);
                let call = raw.endpoint.start_call(raw.now, connection).unwrap();
                raw.endpoint.write(raw.now, call, super::pair::pattern(50_000, 1)).unwrap();
                raw.endpoint.finish(raw.now, call);
                raw.take();
                raw
            };
            for (packet_type, flags, call, number, body) in &packets {
                let Some(packet_type) = PacketType::from_wire(*packet_type) else { continue };
                raw.header.serial += 1;
                let header = Header {
                    packet_type,
                    flags: Flags(*flags),
                    call_number: CallNumber(*call),
                    sequence: *number,
                    cid: Cid(raw.header.cid.0 & !3 | number & 3),
                    ..raw.header
                };
                raw.put_raw(&header, body);
                drain(&mut raw.endpoint);
                raw.wait(std::time::Duration::from_millis(u64::from(*number)));
            }
            prop_assert!(raw.endpoint.stats().receive_memory < 2 << 20);
            raw.wait(std::time::Duration::from_secs(200));
            drain(&mut raw.endpoint);
        }
    }
}

fn drain(endpoint: &mut Endpoint) {
    while endpoint.poll_event().is_some() {}
}
