//! Packets that nobody ought to send: nothing breaks, and each is counted by what is wrong with it.

use std::time::Duration;

use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use super::raw::Raw;
use crate::packet::ack::Reason;
use crate::packet::{Flags, PacketType};
use crate::{CallNumber, Config, Read, SecurityIndex, Stats};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_kind_of_nonsense_is_counted() {
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags(0), b"good");
    let call = raw.incoming();
    assert_eq!(raw.endpoint.read(call), Read::Data((&b"good"[..]).into()));
    raw.take();
    let mut before = raw.endpoint.stats();
    let mut check = |raw: &mut Raw, what: &str, count: fn(&Stats) -> u64| {
        let after = raw.endpoint.stats();
        assert_eq!(count(&after), count(&before) + 1, "{what}");
        assert_eq!(raw.events(), [], "{what}");
        before = after;
    };
    for len in [0, 1, 27] {
        raw.endpoint
            .handle(raw.now, raw.peer, None, None, vec![1; len].into());
        check(&mut raw, "truncated header", |stats| stats.malformed);
    }
    let mut octets = raw.header.encode();
    octets[20] = 12;
    raw.endpoint
        .handle(raw.now, raw.peer, None, None, octets.to_vec().into());
    check(&mut raw, "unknown type", |stats| stats.malformed);
    raw.put(PacketType::Ack, 0, Flags(0), &[0; 17]);
    check(&mut raw, "truncated ACK", |stats| stats.malformed);
    raw.put(PacketType::Ack, 0, Flags(0), &{
        let mut body = [0; 30];
        body[17] = 200;
        body
    });
    check(&mut raw, "ACK with too many soft acks", |stats| {
        stats.malformed
    });
    raw.data(2, Flags::JUMBO_PACKET, &[0; 1412]);
    check(&mut raw, "jumbogram without second header", |stats| {
        stats.malformed
    });
    raw.data(0, Flags(0), b"zero");
    check(&mut raw, "sequence 0", |stats| stats.violations);
    raw.data(u32::MAX, Flags(0), b"far");
    check(&mut raw, "absurd sequence", |stats| stats.violations);
    raw.ack(2, "", Reason::Idle, 32);
    check(&mut raw, "ACK of what was not sent", |stats| {
        stats.violations
    });
    raw.ack(1, "1", Reason::Idle, 32);
    check(&mut raw, "soft ACK of what was not sent", |stats| {
        stats.violations
    });
    raw.ack(1, &"0".repeat(255), Reason::Idle, 32);
    check(&mut raw, "ACK of constant length", |stats| stats.violations);
    raw.put(PacketType::Challenge, 0, Flags(0), &[]);
    check(&mut raw, "CHALLENGE in a call", |stats| stats.violations);
    raw.header.call_number = CallNumber(0);
    raw.data(1, Flags(0), b"");
    check(&mut raw, "DATA on the connection", |stats| stats.violations);
    raw.put(PacketType::Response, 0, Flags(0), &[]);
    check(&mut raw, "RESPONSE not asked for", |stats| stats.violations);
    raw.header.call_number = CallNumber(1);
    raw.header.flags = Flags(0);
    raw.data(2, Flags(0), b"from the wrong side");
    check(&mut raw, "wrong direction", |stats| stats.unmatched);
    raw.header.flags = Flags::CLIENT_INITIATED;
    raw.header.security_index = SecurityIndex(2);
    raw.data(2, Flags(0), b"other class");
    check(&mut raw, "other security class", |stats| stats.violations);
    raw.header.security_index = SecurityIndex(0);
    // After all that, the call is as good as before.
    raw.data(2, Flags::LAST_PACKET, b"!");
    assert_eq!(raw.endpoint.read(call), Read::Data((&b"!"[..]).into()));
    assert_eq!(raw.endpoint.read(call), Read::End);
}

/// The last packet's place cannot be changed, and nothing comes after it.
#[test]
fn a_stream_ends_once() {
    let mut raw = Raw::server(Config::default());
    raw.data(3, Flags::LAST_PACKET, b"c");
    raw.data(4, Flags(0), b"d");
    raw.data(2, Flags::LAST_PACKET, b"b");
    assert_eq!(raw.endpoint.stats().violations, 2);
    raw.data(2, Flags(0), b"b");
    raw.data(1, Flags(0), b"a");
    let call = raw.incoming();
    let mut stream = Vec::new();
    while let Read::Data(data) = raw.endpoint.read(call) {
        stream.extend_from_slice(&data);
    }
    assert_eq!(stream, b"abc");
}

#[test]
fn a_reply_before_the_request_is_sent_is_dropped() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint
        .write(raw.now, call, pattern(100_000, 1))
        .unwrap();
    raw.take();
    raw.data(1, Flags::LAST_PACKET, b"early");
    assert_eq!(raw.endpoint.stats().violations, 1);
    assert_eq!(raw.events(), []);
    assert_eq!(raw.endpoint.read(call), Read::Pending);
    // A reply to a call that was never begun.
    raw.header.call_number = CallNumber(9);
    raw.data(1, Flags::LAST_PACKET, b"?");
    assert_eq!(raw.endpoint.stats().violations, 2);
}

/// Bits flip in headers and acknowledgements; what has no checksum could not be noticed in data,
/// so damaged data is dropped as UDP's checksum would.
#[test]
fn calls_survive_damaged_packets() {
    for seed in 0..super::seeds(30) {
        let mut pair = Pair::new(
            seed,
            Link {
                mtu: 1472,
                ..Link::default()
            },
        );
        let mut random = fastrand::Rng::with_seed(seed);
        pair.filter = Some(Box::new(move |_, octets| {
            if random.f64() > 0.02 {
                return true;
            }
            // A probe of a size that is cut would prove a size that does not get through.
            if octets[20] != PacketType::Ack as u8 || octets.len() > 1000 {
                return false;
            }
            // An ACK must not seem to come for another call, or end this one as an ABORT.
            let at = random.usize(21..octets.len());
            octets[at] ^= 1 << random.u8(0..8);
            if random.bool() {
                octets.truncate(random.usize(28..=octets.len()));
            }
            // A lie about what has arrived is believed, as it is from any peer: keep those out.
            let told = octets
                .get(28 + 4..28 + 8)
                .map(|first| first == [0, 0, 0, 0]);
            !(at >= 28 && at < 28 + 18 + usize::from(*octets.get(28 + 17).unwrap_or(&0)))
                && told != Some(true)
                && !in_ranges(octets, at)
        }));
        let connection = pair.connect();
        for len in [10, 100_000, 3000] {
            let data = pattern(len, seed);
            let call = pair.call(connection, data.clone());
            let reply = pair.finish(call, 120 * SECOND);
            assert!(
                reply.as_ref() == Ok(&data),
                "seed {seed}: {:?}",
                reply.map(|r| r.len())
            );
        }
    }
}

/// Whether that byte lies in the extension, whose ranges are lies when damaged.
fn in_ranges(octets: &[u8], at: usize) -> bool {
    octets
        .windows(4)
        .position(|magic| magic == b"afar")
        .is_some_and(|start| at >= start)
}

/// Bytes without any sense, at a server and a client with calls running.
#[test]
fn random_octets() {
    for seed in 0..super::seeds(20) {
        let mut pair = Pair::new(seed, Link::default());
        let connection = pair.connect();
        let mut random = fastrand::Rng::with_seed(seed);
        let data = pattern(200_000, seed);
        let call = pair.call(connection, data.clone());
        let addresses = [pair.sides[CLIENT].address, pair.sides[SERVER].address];
        for _ in 0..2000 {
            let side = random.usize(0..2);
            let mut octets = vec![0; random.usize(0..1500)];
            random.fill(&mut octets);
            if octets.len() > 20 {
                octets[20] = random.u8(0..15);
            }
            pair.inject(side, addresses[1 - side], octets);
        }
        assert!(
            pair.finish(call, 60 * SECOND).unwrap() == data,
            "seed {seed}"
        );
    }
}
