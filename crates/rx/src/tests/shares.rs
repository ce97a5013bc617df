//! What one address, one user and all strangers together may take, and that calls end which do not get on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::old_peer;
use super::pair::{CLIENT, Link, Pair, SERVER, SERVICE, pattern};
use super::raw::{Raw, ack};
use crate::packet::ack::Reason;
use crate::packet::{Flags, PacketType};
use crate::{AbortCode, CallId, CallNumber, Cid, Config, Event, RxNull, Service};

const SECOND: Duration = Duration::from_secs(1);
static ANSWER: [u8; 4_000_000] = [7; 4_000_000];

/// An endpoint with a service for so many calls.
fn narrow(config: Config, service: Service) -> Raw {
    let mut raw = Raw::server(config);
    raw.endpoint.add_service(service, vec![Arc::new(RxNull)]);
    raw
}

fn places(max_calls: usize) -> Service {
    Service {
        max_calls,
        ..Service::new(SERVICE, "narrow")
    }
}

fn address(index: u32) -> SocketAddr {
    let [_, _, high, low] = index.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 0, high, low), 7001))
}

/// The first packet of a new call on a connection of its own, from an address that has shown that it is there.
fn begin(raw: &mut Raw, from: SocketAddr, number: u32, flags: Flags) {
    raw.endpoint.believe(raw.now, from.ip());
    begin_unseen(raw, from, number, flags);
}

/// The same from an address that has not.
fn begin_unseen(raw: &mut Raw, from: SocketAddr, number: u32, flags: Flags) {
    raw.peer = from;
    raw.header.cid = Cid(0x10_0000 + (number << 2));
    raw.data(1, flags, b"args");
}

fn incoming(raw: &mut Raw) -> Vec<CallId> {
    let calls = raw.events().into_iter().filter_map(|event| match event {
        Event::Incoming { call, .. } => Some(call),
        _ => None,
    });
    calls.collect()
}

/// Sends what there is to nobody.
fn discard(raw: &mut Raw) {
    let mut buf = Vec::new();
    while raw.endpoint.poll_transmit(raw.now, &mut buf).is_some() {}
}

#[test]
fn the_ports_of_an_address_have_one_share_of_the_places() {
    let mut raw = narrow(Config::default(), places(400));
    for port in 0..500_u16 {
        let from = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 2000 + port));
        begin(&mut raw, from, port.into(), Flags(0));
    }
    assert_eq!(incoming(&mut raw).len(), 64);
    begin(&mut raw, address(7), 1000, Flags(0));
    assert_eq!(incoming(&mut raw).len(), 1);
}

#[test]
fn strangers_leave_places_to_known_clients() {
    let mut raw = narrow(Config::default(), places(100));
    // This one takes its answer.
    begin(&mut raw, address(1), 0, Flags::LAST_PACKET);
    let known = incoming(&mut raw)[0];
    raw.endpoint
        .write(raw.now, known, Bytes::from_static(b"ok"))
        .unwrap();
    raw.endpoint.finish(raw.now, known);
    discard(&mut raw);
    raw.ack(2, "", Reason::Delay, 32);
    assert_eq!(raw.events(), [Event::Completed(known)]);
    for index in 100..300 {
        begin(&mut raw, address(index), index, Flags(0));
    }
    assert_eq!(incoming(&mut raw).len(), 75);
    begin(&mut raw, address(1), 2000, Flags(0));
    assert_eq!(incoming(&mut raw).len(), 1);
}

/// When all places are taken, calls that do nothing make room, without waiting for their limit.
#[test]
fn calls_of_strangers_that_do_nothing_make_room() {
    let mut raw = narrow(Config::default(), places(100));
    for index in 0..75 {
        begin(&mut raw, address(index), index, Flags(0));
    }
    assert_eq!(incoming(&mut raw).len(), 75);
    discard(&mut raw);
    raw.now += 2 * SECOND;
    begin(&mut raw, address(500), 500, Flags::LAST_PACKET);
    let events = raw.events();
    let is_new = |event: &&Event| matches!(event, Event::Incoming { .. });
    assert_eq!(events.iter().filter(is_new).count(), 1, "{events:?}");
    assert!(raw.endpoint.stats().calls_evicted > 0);
}

/// The place that comes free may be given at once to the very call that asked for it, which was in line.
#[test]
fn a_call_in_line_for_which_room_is_made_runs_once() {
    let mut raw = narrow(Config::default(), places(100));
    for index in 0..75 {
        begin(&mut raw, address(index), index, Flags(0));
    }
    assert_eq!(incoming(&mut raw).len(), 75);
    begin(&mut raw, address(500), 500, Flags::LAST_PACKET);
    assert_eq!(incoming(&mut raw), []);
    discard(&mut raw);
    raw.now += 2 * SECOND;
    // It is sent once more.
    begin(&mut raw, address(500), 500, Flags::LAST_PACKET);
    assert_eq!(incoming(&mut raw).len(), 1);
}

/// Whatever clients and the application do, a call is offered once and ends once, and its place comes back.
#[test]
fn places_come_back() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut raw = narrow(Config::default(), places(20));
        let mut running = Vec::new();
        for step in 0..400 {
            let index = rng.u32(0..40);
            raw.header.call_number = CallNumber(1 + step / 50);
            match rng.u8(0..10) {
                0..=4 => {
                    let flags = Flags(rng.u8(0..2) * Flags::LAST_PACKET.0);
                    begin(&mut raw, address(index % 12), index, flags);
                }
                5 => pass(&mut raw, SECOND * rng.u32(0..4)),
                6 => {
                    raw.peer = address(index % 12);
                    raw.header.cid = Cid(0x10_0000 + (index << 2));
                    raw.put(PacketType::Abort, 0, Flags(0), &7_i32.to_be_bytes());
                }
                7 if !running.is_empty() => {
                    let call = running.swap_remove(rng.usize(0..running.len()));
                    raw.endpoint.abort(raw.now, call, AbortCode(7));
                }
                _ => {
                    if let Some(call) = rng.choice(&running) {
                        let answer = Bytes::from_static(b"ok");
                        let _ended = raw.endpoint.write(raw.now, *call, answer);
                        raw.endpoint.finish(raw.now, *call);
                    }
                }
            }
            discard(&mut raw);
            follow(&mut raw, &mut running, seed);
        }
        while let Some(call) = running.pop() {
            raw.endpoint.abort(raw.now, call, AbortCode(7));
            follow(&mut raw, &mut running, seed);
        }
        pass(&mut raw, 120 * SECOND);
        assert_eq!(raw.endpoint.active_calls(), 0, "seed {seed}");
        for index in 100..200 {
            begin(&mut raw, address(index), index, Flags(0));
        }
        assert_eq!(incoming(&mut raw).len(), 15, "seed {seed}");
    }
}

/// Lets time go by, in which nobody hears what is sent.
fn pass(raw: &mut Raw, time: Duration) {
    let until = raw.now + time;
    while let Some(at) = raw.endpoint.poll_timeout().filter(|at| *at <= until) {
        raw.now = raw.now.max(at);
        raw.endpoint.handle_timeout(raw.now);
        discard(raw);
    }
    raw.now = until;
}

/// Keeps the list of the calls that the application has.
fn follow(raw: &mut Raw, running: &mut Vec<CallId>, seed: u64) {
    for event in raw.events() {
        match event {
            Event::Incoming { call, .. } => {
                assert!(!running.contains(&call), "seed {seed}: offered twice");
                running.push(call);
            }
            Event::Failed(call, _) | Event::Completed(call) => {
                let place = running.iter().position(|known| *known == call);
                running.swap_remove(place.expect("a call ends that runs"));
            }
            _ => {}
        }
    }
}

/// A client that has taken nothing yet is not sent, and nothing is kept ready for it, but a few packets.
#[test]
fn an_answer_that_nobody_takes_is_small() {
    let mut raw = narrow(Config::default(), places(100));
    begin(&mut raw, address(1), 1, Flags::LAST_PACKET);
    let call = incoming(&mut raw)[0];
    let granted = raw.endpoint.granted(call);
    assert!(granted <= 16 << 10, "{granted}");
    let mut written = 0;
    loop {
        let piece = Bytes::from(vec![0; 4096]);
        written += piece.len();
        let room = raw.endpoint.write(raw.now, call, piece).unwrap();
        discard(&mut raw);
        if !room && !raw.events().contains(&Event::Writable(call)) {
            break;
        }
    }
    assert!(written <= 20 << 10, "{written}");
    assert!(raw.endpoint.stats().memory <= 64 << 10);
    // What it takes opens the queue.
    raw.ack(7, "", Reason::Delay, 32);
    assert!(raw.events().contains(&Event::Writable(call)));
    let room = raw
        .endpoint
        .write(raw.now, call, Bytes::from(vec![0; 200_000]));
    assert!(room.unwrap());
    assert!(raw.endpoint.granted(call) > 256 << 10);
}

/// All that clients of one address, and of very many, have us keep stays within the memory for it, and one
/// that is known has its call and its data meanwhile.
#[test]
fn what_all_clients_have_us_keep_is_bounded() {
    let max = 64 << 20;
    for ports in [true, false] {
        let config = Config {
            memory_max: max,
            ..Config::default()
        };
        let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), config]);
        pair.serve = |_| Ok(Bytes::from_static(&ANSWER));
        let connection = pair.connect();
        pair.echo_of(connection, 4_000_000);
        let mut header = Raw::server(Config::default()).header;
        for index in 0..5000_u32 {
            header.cid = Cid(index << 2);
            (header.sequence, header.serial) = (1, 1);
            header.flags = Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET);
            let mut datagram = header.encode().to_vec();
            datagram.extend([0; 100]);
            let from = match ports {
                true => SocketAddr::from(([10, 9, 9, 9], 1024 + index as u16)),
                false => address(index + 4096),
            };
            pair.inject(SERVER, from, datagram);
        }
        let memory = pair.sides[SERVER].endpoint.stats().memory;
        assert!(memory <= max * 3 / 4 + (8 << 20), "{memory} of {max}");
        let begun = pair.elapsed();
        pair.echo_of(connection, 4_000_000);
        let took = pair.elapsed() - begun;
        assert!(took < SECOND, "{took:?}");
    }
}

#[test]
fn a_request_that_never_comes_ends_the_call() {
    let mut raw = narrow(Config::default(), places(100));
    begin(&mut raw, address(1), 1, Flags(0));
    let call = incoming(&mut raw)[0];
    raw.endpoint.read(call);
    raw.endpoint.consume(raw.now, call, 4);
    let ended = (0..200).find(|_| {
        // It lives, and every half minute it even sends a packet.
        raw.ack(1, "", Reason::Ping, 32);
        raw.wait(5 * SECOND);
        !raw.events().is_empty()
    });
    let ended = ended.expect("the call ends") * 5;
    assert!((50..=70).contains(&ended), "{ended} s");
    assert_eq!(raw.endpoint.active_calls(), 0);
}

#[test]
fn an_answer_that_is_never_taken_ends_the_call() {
    let mut raw = narrow(old_peer(), places(100));
    begin(&mut raw, address(1), 1, Flags::LAST_PACKET);
    let call = incoming(&mut raw)[0];
    // The program takes its time, which is not the client's.
    for _ in 0..40 {
        raw.ack(1, "", Reason::Ping, 32);
        raw.wait(5 * SECOND);
    }
    assert_eq!(incoming(&mut raw), []);
    assert_eq!(raw.endpoint.active_calls(), 1);
    raw.endpoint
        .write(raw.now, call, Bytes::from(vec![0; 100_000]))
        .unwrap();
    let ended = (0..200).find(|_| {
        raw.ack(1, "", Reason::Ping, 32);
        raw.wait(5 * SECOND);
        let failed = |event: &Event| matches!(event, Event::Failed(..));
        raw.events().iter().any(failed)
    });
    let ended = ended.expect("the call ends") * 5;
    assert!((50..=70).contains(&ended), "{ended} s");
}

/// A long call at 100 kB/s and 230 ms, each way, takes ten minutes and more, and is no idle one.
#[test]
fn a_slow_client_keeps_its_call() {
    for client in [Config::default(), old_peer()] {
        let link = Link {
            delay: Duration::from_millis(115),
            rate: 100_000,
            queue: 200_000,
            ..Link::default()
        };
        let mut pair = Pair::with_configs(1, link, [client, Config::default()]);
        let connection = pair.connect();
        let data = pattern(30_000_000, 1);
        let call = pair.call(connection, data.clone());
        assert!(pair.finish(call, 3600 * SECOND).unwrap() == data);
        assert!(pair.elapsed() > 600 * SECOND, "{:?}", pair.elapsed());
    }
}

/// Calls of peers that have not shown that they are there are bounded, the newest of them are looked at.
#[test]
fn calls_of_addresses_that_do_not_answer_are_bounded() {
    let service = Service {
        check_reach: true,
        ..places(100)
    };
    let mut raw = narrow(Config::default(), service);
    for index in 0..30_000 {
        begin_unseen(&mut raw, address(index), index, Flags::LAST_PACKET);
        if index < 29_999 {
            discard(&mut raw);
        }
    }
    assert!(raw.endpoint.active_calls() <= 8192);
    assert_eq!(incoming(&mut raw), []);
    let (ping, _) = raw.take().pop().expect("the last one is asked");
    let mut answer = ack(1, "", Reason::PingResponse, 32, None);
    answer.serial = ping.serial;
    let mut body = Vec::new();
    answer.encode(&mut body);
    raw.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &body);
    assert_eq!(incoming(&mut raw).len(), 1, "the last one is there");
    raw.now += 20 * SECOND;
    raw.endpoint.handle_timeout(raw.now);
    assert_eq!(raw.endpoint.active_calls(), 1);
}

/// One address opens connections from all its ports; those of others are not forgotten for them.
#[test]
fn the_connections_of_an_address_make_room_for_each_other() {
    let config = Config {
        server_connections_max: 2000,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, Link::default(), [Config::default(), config]);
    let connection = pair.connect();
    pair.echo(connection, 1000).unwrap();
    let mut header = Raw::server(Config::default()).header;
    for index in 0..20_000_u32 {
        header.cid = Cid(index << 2);
        (header.sequence, header.serial) = (1, 1);
        header.flags = Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET);
        let mut datagram = header.encode().to_vec();
        datagram.extend([0; 10]);
        let from = SocketAddr::from(([10, 9, 9, 9], 1024 + index as u16));
        pair.inject(SERVER, from, datagram);
        // Each is answered, so that none has a call for long.
        if index % 50 == 0 {
            pair.idle(Duration::from_millis(1));
        }
    }
    let capture = pair.capture();
    pair.echo(connection, 1000).unwrap();
    // The server has not forgotten the connection: the serials go on.
    let serials = capture.of(SERVER, PacketType::Data);
    assert!(serials[0].0.serial > 2, "{:?}", serials[0].0);
    let known = pair.sides[SERVER].endpoint.peers().len();
    assert!(known <= 600, "{known}");
    assert_eq!(pair.sides[CLIENT].seen.failed.len(), 0);
}

/// A network of large packets, and so little memory that a call may have less queued than fills one.
#[test]
fn an_answer_goes_on_that_may_not_fill_a_packet() {
    let link = Link {
        mtu: 65_507,
        ..Link::default()
    };
    let tight = Config {
        memory_max: 1 << 20,
        ..Config::default()
    };
    let mut pair = Pair::with_configs(1, link, [Config::default(), tight]);
    pair.serve = |_| Ok(pattern(1_000_000, 1));
    let connection = pair.connect();
    for _ in 0..5 {
        let call = pair.call(connection, pattern(100, 1));
        let reply = pair.finish(call, 10 * SECOND);
        assert_eq!(reply.map(|reply| reply.len()), Ok(1_000_000));
    }
}
