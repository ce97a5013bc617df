//! Calls on their channels: numbers, ends of every kind, and what comes late.

use std::time::Duration;

use bytes::Bytes;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, pattern};
use super::raw::Raw;
use crate::packet::ack::{Ack, Reason};
use crate::packet::{Flags, PacketType, abort_code};
use crate::{AbortCode, CallError, CallNumber, Config, Event, Read};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn four_channels_then_one_comes_free() {
    let mut pair = Pair::new(1, Link::default());
    let capture = pair.capture();
    let connection = pair.connect();
    let calls: Vec<_> = (0..4)
        .map(|_| pair.call(connection, pattern(100, 1)))
        .collect();
    assert_eq!(
        pair.sides[CLIENT].endpoint.start_call(pair.now, connection),
        None
    );
    for call in calls {
        pair.finish(call, SECOND).unwrap();
    }
    assert_eq!(pair.sides[CLIENT].seen.channel_free, [connection]);
    let mut used: Vec<_> = capture
        .of(CLIENT, PacketType::Data)
        .iter()
        .map(|(header, _)| (header.cid.channel(), header.call_number.0))
        .collect();
    used.sort_unstable();
    assert_eq!(used, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    // The channel that has rested longest is used next, with the next number.
    pair.echo(connection, 100).unwrap();
    let (header, _) = capture.of(CLIENT, PacketType::Data).pop().unwrap();
    assert_eq!(
        (header.cid.channel(), header.call_number),
        (0, CallNumber(2))
    );
}

#[test]
fn many_calls_in_turn_leave_nothing_behind() {
    for config in [Config::default(), old_peer()] {
        let mut pair = Pair::with_configs(1, Link::default(), [config.clone(), config]);
        let connection = pair.connect();
        for len in 0..200 {
            pair.echo(connection, len * 37).unwrap();
        }
        pair.idle(2 * SECOND);
        let stats = pair.sides[SERVER].endpoint.stats();
        assert_eq!((stats.calls_received, stats.calls_completed), (200, 200));
        assert_eq!((stats.violations, stats.data_resent), (0, 0));
        for side in &pair.sides {
            assert_eq!(side.endpoint.active_calls(), 0);
            assert_eq!(side.endpoint.stats().receive_memory, 0);
        }
        let peer = pair.sides[CLIENT].endpoint.peers()[0];
        assert_eq!(peer.in_flight, 0);
    }
}

/// Neither request nor reply needs an acknowledgement of its own in a run of short calls.
#[test]
fn replies_and_next_calls_acknowledge() {
    let mut pair = Pair::new(
        1,
        Link {
            delay: Duration::from_millis(1),
            ..Link::default()
        },
    );
    let connection = pair.connect();
    for _ in 0..20 {
        pair.echo(connection, 100).unwrap();
    }
    let capture = pair.capture();
    // Four channels are used in turn, and a call may rest no longer than an acknowledgement waits.
    for _ in 0..100 {
        pair.echo(connection, 100).unwrap();
    }
    assert_eq!(capture.of(CLIENT, PacketType::Data).len(), 100);
    assert_eq!(capture.of(SERVER, PacketType::Data).len(), 100);
    let acks = capture.acks(SERVER).len();
    assert_eq!(acks, 0, "the reply acknowledges the request");
}

/// The reply's last packet comes again after the call is over: it is acknowledged once more.
#[test]
fn a_finished_call_acknowledges_duplicates() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    assert_eq!(raw.take_of(PacketType::Data).len(), 1);
    raw.data(1, Flags::LAST_PACKET, b"reply");
    assert_eq!(raw.events(), [Event::Readable(call)]);
    assert_eq!(
        raw.endpoint.read(call),
        Read::Data(Bytes::from_static(b"reply"))
    );
    raw.endpoint.consume(raw.now, call, 5);
    assert_eq!(raw.endpoint.read(call), Read::End);
    assert_eq!(raw.events(), [Event::Completed(call)]);
    let acks: Vec<_> = raw
        .wait(Duration::from_millis(400))
        .into_iter()
        .filter(|(_, header, _)| header.packet_type == PacketType::Ack)
        .collect();
    assert_eq!(Ack::decode(&acks.last().unwrap().2).unwrap().first, 2);
    raw.data(1, Flags::LAST_PACKET, b"reply");
    let (_, body) = raw.take_of(PacketType::Ack).remove(0);
    let ack = Ack::decode(&body).unwrap();
    assert_eq!((ack.first, ack.reason), (2, Reason::Duplicate));
    // A PING about it is answered as well.
    raw.ack(2, "", Reason::Ping, 32);
    let (_, body) = raw.take_of(PacketType::Ack).remove(0);
    assert_eq!(Ack::decode(&body).unwrap().reason, Reason::PingResponse);
    assert_eq!(raw.events(), []);
}

#[test]
fn a_higher_call_number_ends_the_call_before() {
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags(0), b"never finished");
    let old = raw.incoming();
    raw.header.call_number = CallNumber(2);
    raw.data(1, Flags::LAST_PACKET, b"next");
    let events = raw.events();
    assert!(
        matches!(events[0], Event::Failed(call, _) if call == old),
        "{events:?}"
    );
    let Event::Incoming { call, .. } = events[1] else {
        panic!("{events:?}")
    };
    assert_eq!(
        raw.endpoint.read(call),
        Read::Data(Bytes::from_static(b"next"))
    );
    // Packets of the old one change nothing.
    raw.header.call_number = CallNumber(1);
    raw.data(2, Flags::LAST_PACKET, b"late");
    assert_eq!(raw.events(), []);
    assert_eq!(raw.endpoint.active_calls(), 1);
}

#[test]
fn a_higher_call_number_completes_a_reply_in_flight() {
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags::LAST_PACKET, b"q");
    let call = raw.incoming();
    while raw.endpoint.read(call) != Read::End {}
    raw.endpoint.finish(raw.now, call);
    assert_eq!(raw.take_of(PacketType::Data).len(), 1);
    raw.header.call_number = CallNumber(2);
    raw.data(1, Flags::LAST_PACKET, b"q");
    assert_eq!(raw.events()[0], Event::Completed(call));
}

#[test]
fn a_server_aborts_and_says_so_again() {
    let mut pair = Pair::new(1, Link::default());
    pair.serve = |_| Err(AbortCode(49_733_376));
    let connection = pair.connect();
    let call = pair.call(connection, pattern(5000, 1));
    let error = pair.finish(call, SECOND).unwrap_err();
    assert_eq!(error, CallError::Aborted(AbortCode(49_733_376)));

    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags::LAST_PACKET, b"q");
    let call = raw.incoming();
    raw.endpoint.abort(raw.now, call, AbortCode(7));
    assert_eq!(
        abort_code(&raw.take_of(PacketType::Abort)[0].1),
        AbortCode(7)
    );
    // The ABORT was lost: the client sends its request again.
    raw.data(1, Flags::LAST_PACKET, b"q");
    let (header, body) = raw.take_of(PacketType::Abort).remove(0);
    assert_eq!(
        (header.call_number, abort_code(&body)),
        (CallNumber(1), AbortCode(7))
    );
    assert_eq!(raw.events(), []);
    // An ABORT is never answered.
    raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 1]);
    assert_eq!(raw.take(), []);
}

/// A lost ABORT costs no more than the client's next packet, in either direction.
#[test]
fn lost_aborts_are_made_good() {
    for side in [CLIENT, SERVER] {
        let mut pair = Pair::new(1, Link::default());
        pair.serve = |_| Err(AbortCode(5));
        let mut lost = 0;
        pair.filter = Some(Box::new(move |from, octets| {
            let abort = from == side && octets[20] == PacketType::Abort as u8;
            lost += u32::from(abort);
            !abort || lost > 1
        }));
        let connection = pair.connect();
        let call = pair.call(connection, pattern(100, 1));
        let error = pair.finish(call, 3 * SECOND).unwrap_err();
        assert_eq!(error, CallError::Aborted(AbortCode(5)));
        assert!(pair.elapsed() < 2 * SECOND, "{:?}", pair.elapsed());
    }
}

/// Half a reply has arrived, then an ABORT, and only then is the application's turn.
#[test]
fn a_failed_call_does_not_look_complete() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.take();
    raw.data(1, Flags(0), b"half");
    raw.put(PacketType::Abort, 0, Flags(0), &[0, 0, 0, 5]);
    assert_eq!(raw.endpoint.read(call), Read::Pending);
    let events = raw.events();
    let failed = Event::Failed(call, CallError::Aborted(AbortCode(5)));
    assert_eq!(events.last(), Some(&failed));
    assert_eq!(raw.endpoint.read(call), Read::Pending);
}

#[test]
fn a_client_cancels() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    let call = pair.call(connection, pattern(3_000_000, 1));
    pair.run(Duration::from_millis(30), |_| false);
    pair.sides[CLIENT].to_write.clear();
    let now = pair.now;
    pair.sides[CLIENT]
        .endpoint
        .abort(now, call, AbortCode::RX_USER_ABORT);
    pair.idle(SECOND);
    let failed: Vec<_> = pair.sides[SERVER].seen.failed.values().copied().collect();
    assert_eq!(failed, [CallError::Aborted(AbortCode::RX_USER_ABORT)]);
    assert!(!pair.has_ended(call), "no event follows");
    for side in &pair.sides {
        assert_eq!(side.endpoint.active_calls(), 0);
        assert_eq!(side.endpoint.stats().receive_memory, 0);
    }
    // The channel is good for the next call.
    pair.echo(connection, 1000).unwrap();
}

#[test]
fn a_connection_is_closed() {
    let mut pair = Pair::new(1, Link::default());
    let connection = pair.connect();
    let call = pair.call(connection, pattern(3_000_000, 1));
    pair.run(Duration::from_millis(30), |_| false);
    let now = pair.now;
    pair.sides[CLIENT].endpoint.close(now, connection);
    assert_eq!(pair.finish(call, SECOND), Err(CallError::Closed));
    pair.idle(SECOND);
    assert_eq!(pair.sides[SERVER].seen.failed.len(), 1);
    assert_eq!(
        pair.sides[CLIENT].endpoint.start_call(pair.now, connection),
        None
    );
}

#[test]
fn a_connection_abort_fails_all_calls() {
    let (mut raw, connection) = Raw::client(Config::default());
    let calls = [(); 3].map(|()| raw.endpoint.start_call(raw.now, connection).unwrap());
    calls
        .iter()
        .for_each(|call| raw.endpoint.finish(raw.now, *call));
    raw.take();
    raw.header.call_number = CallNumber(0);
    raw.put(PacketType::Abort, 0, Flags(0), &19_270_409i32.to_be_bytes());
    let error = CallError::ConnectionAborted(AbortCode(19_270_409));
    assert_eq!(raw.events(), calls.map(|call| Event::Failed(call, error)));
    assert_eq!(raw.take(), []);
}

#[test]
fn busy_is_only_a_sign_of_life() {
    let (mut raw, connection) = Raw::client(Config::default());
    let call = raw.endpoint.start_call(raw.now, connection).unwrap();
    raw.endpoint.finish(raw.now, call);
    raw.take();
    for _ in 0..30 {
        raw.wait(2 * SECOND);
        raw.put(PacketType::Busy, 0, Flags(0), &[]);
    }
    assert_eq!(raw.events(), [], "60 s of BUSY and no end");
    raw.wait(31 * SECOND);
    assert_eq!(raw.events(), [Event::Failed(call, CallError::Dead)]);
}

#[test]
fn ack_all_ends_a_reply() {
    let mut raw = Raw::server(Config::default());
    raw.data(1, Flags::LAST_PACKET, b"q");
    let call = raw.incoming();
    while raw.endpoint.read(call) != Read::End {}
    raw.endpoint
        .write(raw.now, call, pattern(10_000, 1))
        .unwrap();
    raw.endpoint.finish(raw.now, call);
    let sent = raw.wait(Duration::from_millis(100));
    assert!(
        sent.iter().any(|(_, header, _)| header.sequence == 8),
        "{sent:?}"
    );
    raw.put(PacketType::AckAll, 0, Flags(0), &[]);
    assert_eq!(raw.events(), [Event::Completed(call)]);
    assert_eq!(raw.wait(5 * SECOND), []);
}

/// An old call's number wraps at 32 bits on nobody's watch: a client that starts high is served.
#[test]
fn numbers_may_start_anywhere() {
    let mut raw = Raw::server(Config::default());
    raw.header.call_number = CallNumber(4_000_000_000);
    raw.data(1, Flags::LAST_PACKET, b"q");
    let call = raw.incoming();
    assert_eq!(
        raw.endpoint.read(call),
        Read::Data(Bytes::from_static(b"q"))
    );
}
