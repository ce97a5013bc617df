//! A whole endpoint, as server and as client with a call running, against datagrams that fit its
//! connection more or less. The input is a list of steps: a packet to take in, or time that passes.
//! Nothing may panic or spin, and memory stays within its bound.

#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_rx::packet::{Flags, HEADER_SIZE, Header, PacketType};
use afar_rx::security::ClientSecurity;
use afar_rx::{
    CallId, CallNumber, Cid, Config, Endpoint, Epoch, Event, Read, RxNull, SecurityIndex, Service,
    ServiceId,
};
use libfuzzer_sys::fuzz_target;

const SERVICE: ServiceId = ServiceId(147);
const MEMORY: u64 = 1 << 20;
/// Sends for one step, far above what windows allow.
const SENDS_MAX: usize = 20_000;

struct Driver {
    endpoint: Endpoint,
    now: Instant,
    header: Header,
    buf: Vec<u8>,
    calls: Vec<CallId>,
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, steps)) = data.split_first() else {
        return;
    };
    let mut driver = Driver::new(mode & 1 == 0, mode & 2 == 0);
    let mut rest = steps;
    while let Some((step, tail)) = rest.split_first_chunk::<8>() {
        rest = driver.step(step, tail);
    }
    for _ in 0..100 {
        driver.pass(Duration::from_secs(10));
    }
});

impl Driver {
    fn new(is_server: bool, extension: bool) -> Self {
        let now = Instant::now();
        let config = Config {
            extension,
            memory_max: MEMORY,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config, now);
        let mut header = Header {
            epoch: Epoch(0x9a5b_3c21),
            cid: Cid(0x4c6d_8e70),
            call_number: CallNumber(1),
            sequence: 1,
            serial: 0,
            packet_type: PacketType::Data,
            flags: Flags::CLIENT_INITIATED,
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: SERVICE,
        };
        let (mut calls, mut buf) = (Vec::new(), Vec::new());
        if is_server {
            endpoint.add_service(Service::new(SERVICE, "fuzz"), vec![Arc::new(RxNull)]);
        } else {
            let security: Arc<dyn ClientSecurity> = Arc::new(RxNull);
            let connection = endpoint.connect(now, peer(0), SERVICE, &security);
            let call = endpoint
                .start_call(now, connection)
                .expect("a channel is free");
            endpoint
                .write(now, call, vec![7; 60_000].into())
                .expect("the call runs");
            endpoint.finish(now, call);
            calls.push(call);
            while endpoint.poll_transmit(now, &mut buf).is_some() {
                if let Ok(sent) = Header::decode(&buf) {
                    header = Header {
                        flags: Flags(0),
                        serial: 0,
                        ..sent
                    };
                }
            }
        }
        Self {
            endpoint,
            now,
            header,
            buf,
            calls,
        }
    }

    /// Does one step and gives what is left of the input.
    fn step<'a>(&mut self, step: &[u8; 8], tail: &'a [u8]) -> &'a [u8] {
        let [kind, flags, sequence, call, length, wait, odd, from] = *step;
        let len = usize::from(length).min(tail.len());
        let (body, rest) = tail.split_at(len);
        self.header.serial += 1;
        let packet_type = PacketType::from_wire(kind % 14).unwrap_or(PacketType::Data);
        let side = Flags(self.header.flags.0 & Flags::CLIENT_INITIATED.0);
        let mut header = Header {
            packet_type,
            // Mostly from the right side, of the first calls and near sequences.
            flags: if odd & 1 == 0 {
                Flags(flags & !1).with(side)
            } else {
                Flags(flags)
            },
            sequence: if odd & 2 == 0 {
                u32::from(sequence)
            } else {
                u32::from(sequence) << 24
            },
            call_number: CallNumber(u32::from(call >> 2) % 4),
            cid: Cid(self.header.cid.0 & !3 | u32::from(call & 3)),
            ..self.header
        };
        if odd & 4 != 0 {
            header.serial = header.serial.wrapping_sub(u32::from(length));
        }
        if odd & 8 != 0 {
            header.cid = Cid(header.cid.0 ^ u32::from(length) << 8);
        }
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(body);
        if odd & 16 != 0 {
            datagram.resize(HEADER_SIZE + 1412 + usize::from(wait), kind);
        }
        self.endpoint
            .handle(self.now, peer(from & 1), None, None, datagram.into());
        self.pass(Duration::from_millis(u64::from(wait) * u64::from(wait) / 4));
        rest
    }

    /// Serves what has happened, then lets time pass.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.serve();
            let mut sends = 0;
            while self
                .endpoint
                .poll_transmit(self.now, &mut self.buf)
                .is_some()
            {
                sends += 1;
                assert!(sends < SENDS_MAX, "sends without end");
            }
            match self.endpoint.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.endpoint.handle_timeout(self.now);
                }
                _ => break,
            }
        }
        self.now = end;
        let calls = self.endpoint.active_calls() as u64 + 8;
        let held = self.endpoint.stats().receive_memory;
        assert!(held <= MEMORY + calls * (128 << 10), "{held} bytes held");
    }

    /// The application: reads every call and answers with what it got.
    fn serve(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { call, .. } => self.calls.push(call),
                Event::Completed(call) | Event::Failed(call, _) => {
                    self.calls.retain(|known| *known != call);
                }
                _ => {}
            }
        }
        for call in self.calls.clone() {
            while let Read::Data(data) = self.endpoint.read(call) {
                self.endpoint.consume(self.now, call, data.len());
                if self.endpoint.write(self.now, call, data).is_err() {
                    break;
                }
            }
            if self.endpoint.read(call) == Read::End {
                self.endpoint.finish(self.now, call);
            }
        }
    }
}

fn peer(index: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 7001 + u16::from(index)))
}
