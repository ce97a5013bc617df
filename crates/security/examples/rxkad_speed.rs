//! Measures how much payload one core seals and opens, and prints one line of JSON: MB/s of the
//! cipher alone, a packet after the other and 32 at a time; and of rxkad's packets at each level, by
//! how many are sealed at a time.
//!
//! `cargo run --release -p afar-security --example rxkad_speed [SECONDS]`

#![expect(clippy::unwrap_used, reason = "an example stops at the first failure")]
#![expect(clippy::print_stdout, reason = "its result is a line of output")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use afar_rx::packet::{Flags, Header, PacketType};
use afar_rx::security::{ClientSecurity, PacketSecurity, Sealing};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};
use afar_security::fcrypt::Schedule;
use afar_security::rxkad::Client;
use afar_security::{Level, SessionKey, Token, kvno};
use bytes::Bytes;

const PAYLOAD: usize = 1400;
const BATCH: usize = 32;
const KEY: SessionKey = SessionKey::new([0x11, 0x44, 0x77, 0xaa, 0xdd, 0x00, 0x33, 0x66]);

/// The best of many short runs in MB/s: what the core does when nobody else wants it.
fn speed(octets: usize, time: Duration, mut run: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < time {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    octets as f64 / best.as_secs_f64() / 1e6
}

fn header(sequence: u32) -> Header {
    Header {
        epoch: Epoch(0x9a5b_3c21),
        cid: Cid(0x4c6d_8e70),
        call_number: CallNumber(1),
        sequence,
        serial: sequence,
        packet_type: PacketType::Data,
        flags: Flags::default(),
        user_status: 0,
        security_index: SecurityIndex(2),
        checksum: 0,
        service_id: ServiceId(1),
    }
}

fn connection(level: Level) -> Box<dyn PacketSecurity> {
    let token = Token {
        kvno: kvno::K5,
        key: KEY,
        ticket: Bytes::from_static(&[0; 100]),
        start: 0,
        end: u32::MAX,
    };
    let client = Client::new(Arc::new(token), level);
    client.connect(Epoch(0x9a5b_3c21), Cid(0x4c6d_8e70))
}

/// MB/s of payload sealed, so many packets at a time.
fn sealing(level: Level, batch: usize, time: Duration) -> f64 {
    let mut connection = connection(level);
    let mut bodies = vec![vec![0; connection.sealed_len(PAYLOAD)]; batch];
    speed(batch * PAYLOAD, time, || {
        let packet = |(sequence, body)| Sealing {
            header: header(sequence),
            body,
            payload: PAYLOAD,
        };
        let bodies = bodies.iter_mut().map(Vec::as_mut_slice);
        let mut packets: Vec<_> = (1..).zip(bodies).map(packet).collect();
        connection.seal(&mut packets);
    })
}

/// MB/s of payload opened, from packets that share a buffer, as they come from the network.
fn opening(level: Level, time: Duration) -> f64 {
    let mut connection = connection(level);
    let len = connection.sealed_len(PAYLOAD);
    let mut body = vec![0; len];
    let mut packets = [Sealing {
        header: header(1),
        body: &mut body,
        payload: PAYLOAD,
    }];
    connection.seal(&mut packets);
    let [Sealing { header, .. }] = packets;
    let body = Bytes::from(body);
    speed(BATCH * PAYLOAD, time, || {
        for _ in 0..BATCH {
            let opened = connection.open(&header, body.clone()).unwrap();
            assert_eq!(opened.len(), PAYLOAD);
        }
    })
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .map_or(1.0, |text| text.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let cipher = Schedule::new(&KEY);
    let mut bodies = vec![vec![0; PAYLOAD]; BATCH];
    let one = speed(BATCH * PAYLOAD, time, || {
        bodies.iter_mut().for_each(|body| cipher.seal(body));
    });
    let many = speed(BATCH * PAYLOAD, time, || {
        cipher.seal_all(bodies.iter_mut().map(Vec::as_mut_slice));
    });
    let open = speed(BATCH * PAYLOAD, time, || {
        bodies.iter_mut().for_each(|body| cipher.open(body));
    });
    let mut rows = vec![format!(
        r#""fcrypt": {{"seal": {one:.0}, "seal_all": {many:.0}, "open": {open:.0}}}"#
    )];
    for level in Level::ALL {
        let seal = [1, 2, 4, 8, 32, 46]
            .map(|batch| format!(r#""{batch}": {:.0}"#, sealing(level, batch, time)))
            .join(", ");
        let open = opening(level, time);
        rows.push(format!(
            r#""{level}": {{"seal": {{{seal}}}, "open": {open:.0}}}"#
        ));
    }
    println!("{{{}}}", rows.join(", "));
}
