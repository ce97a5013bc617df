//! Clients and servers of rxkad, and those who stand between them.

mod client;
mod packets;
mod server;
mod wire;

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use afar_rx::packet::{Flags, Header, PacketType};
use afar_rx::security::{Overhead, PacketSecurity, Sealing};
use afar_rx::{AbortCode, CallNumber, Cid, Epoch, ServiceId};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::INDEX;
use super::packet::{self, Protection};
use crate::fcrypt::Schedule;
use crate::{Level, RxkadError, SessionKey};

/// The connection of the worked examples in docs/protocol/rxkad.md.
const KEY: SessionKey = SessionKey::new([0x11, 0x44, 0x77, 0xaa, 0xdd, 0x00, 0x33, 0x66]);
const EPOCH: Epoch = Epoch(0x9a5b_3c21);
const CID: Cid = Cid(0x4c6d_8e70);

const START: u32 = 1_800_000_000;
const END: u32 = START + 36_000;

thread_local! {
    static NOW: Cell<u32> = const { Cell::new(START + 60) };
}

/// The time this thread's test has set; a minute after [`START`] until then.
fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.get().into())
}

fn protection(level: Level) -> Protection {
    Protection::new(Schedule::new(&KEY), level, (EPOCH, CID), END, clock)
}

/// As both sides' connections do it, less the counting of refusals.
impl PacketSecurity for Protection {
    fn overhead(&self) -> Overhead {
        packet::overhead(self.level())
    }

    fn sealed_len(&self, payload: usize) -> usize {
        packet::sealed_len(self.level(), payload)
    }

    fn ready(&self) -> Result<(), AbortCode> {
        Self::ready(self).map_err(RxkadError::code)
    }

    fn seal(&mut self, packets: &mut [Sealing<'_>]) {
        Self::seal(self, packets);
    }

    fn open(&mut self, header: &Header, body: Bytes) -> Result<Bytes, AbortCode> {
        Self::open(self, header, body).map_err(RxkadError::code)
    }
}

fn header(channel: u32, call: u32, sequence: u32) -> Header {
    Header {
        epoch: EPOCH,
        cid: Cid(CID.0 | channel),
        call_number: CallNumber(call),
        sequence,
        serial: 9,
        packet_type: PacketType::Data,
        flags: Flags::default(),
        user_status: 0,
        security_index: INDEX,
        checksum: 0,
        service_id: ServiceId(1),
    }
}

/// The body of a packet as the engine has it made, and the header with its checksum.
fn sealed(by: &mut dyn PacketSecurity, header: Header, payload: &[u8]) -> (Header, Bytes) {
    let mut body = vec![0; by.sealed_len(payload.len())];
    let front = by.overhead().header;
    body[front..front + payload.len()].copy_from_slice(payload);
    let mut packets = [Sealing {
        header,
        body: &mut body,
        payload: payload.len(),
    }];
    by.seal(&mut packets);
    let [Sealing { header, .. }] = packets;
    (header, body.into())
}

/// Checksums have 16 bits: with other random bits in each run, one run in some thousands would find
/// a change that is not noticed.
fn same_each_time() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(0x7278_6b61),
        ..ProptestConfig::default()
    }
}

fn any_level() -> impl Strategy<Value = Level> {
    proptest::sample::select(&Level::ALL[..])
}
