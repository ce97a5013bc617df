//! How long a NAT or firewall lets a server's packets through to a client that is silent.
//!
//! A server answers a connection at the address where it began, whoever asks it on. So one socket begins a connection
//! and keeps silent, and after a while another asks on: what then comes to the first came through a mapping that was
//! idle for so long. OpenAFS's servers send their answer there, and afar's a question whether the client still is
//! there. The calls ask for an operation that does not exist, which is the least that they can ask for.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use afar_rx::packet::ack::{Ack, Reason, SoftAcks, Trailer};
use afar_rx::packet::{Flags, HEADER_SIZE, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::calls::LOCATION_PORT;
use super::wire::any;
use crate::measured::Nat;

/// Silences tried, all at the same time. The first shows whether the server does what this relies on.
const SILENCES_S: [u64; 7] = [1, 10, 20, 30, 60, 90, 120];
/// How long an answer may take, and how often the question is sent meanwhile.
const ANSWER: Duration = Duration::from_millis(2500);
const EVERY: Duration = Duration::from_millis(700);
/// An operation that no service has.
const NO_OPERATION: u32 = 0x7fff_fff0;
/// The largest packet that is of use.
const PACKET_MAX: usize = 2048;

/// A connection made by hand, at two sockets.
struct Probe {
    peer: SocketAddr,
    /// What all its packets begin with.
    header: Header,
    serial: u32,
}

/// Tries silences of up to two minutes; `None` if the server does not do what this relies on.
///
/// # Errors
/// Those of opening sockets.
pub(crate) async fn nat(peer: SocketAddr) -> io::Result<Option<Nat>> {
    let mut probes = JoinSet::new();
    for silence in SILENCES_S {
        probes.spawn(async move { (silence, Probe::new(peer).run(silence).await) });
    }
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for (silence, came) in probes.join_all().await {
        match came? {
            Some(true) => kept.push(silence),
            Some(false) => lost.push(silence),
            None => {}
        }
    }
    // spec: rx#keepalive
    if !kept.contains(&SILENCES_S[0]) {
        return Ok(None);
    }
    let lost_s = lost.iter().min().copied();
    let is_before = |silence: &u64| lost_s.is_none_or(|lost| *silence < lost);
    Ok(Some(Nat {
        kept_s: kept.into_iter().filter(is_before).max(),
        lost_s,
    }))
}

impl Probe {
    fn new(peer: SocketAddr) -> Self {
        // spec: rx#epochs-and-connection-ids
        let epoch = fastrand::u32(..) | 1 << 31;
        let service_id = match peer.port() {
            LOCATION_PORT => afar_rpc::vl::SERVICE,
            _ => afar_rpc::rxafs::SERVICE,
        };
        let header = Header {
            epoch: Epoch(epoch & !(1 << 30)),
            cid: Cid(fastrand::u32(..) & !3),
            call_number: CallNumber(1),
            sequence: 1,
            serial: 0,
            packet_type: PacketType::Data,
            flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id,
        };
        Self {
            peer,
            header,
            serial: 0,
        }
    }

    /// Whether a packet came through after a silence; `None` if the server did not answer before.
    async fn run(mut self, silence_s: u64) -> io::Result<Option<bool>> {
        let silent = self.socket().await?;
        if !self.ask(&silent, &silent, 1).await? {
            return Ok(None);
        }
        sleep(Duration::from_secs(silence_s)).await;
        // What came meanwhile says nothing of now.
        let mut buffer = [0; PACKET_MAX];
        while silent.try_recv(&mut buffer).is_ok() {}
        let other = self.socket().await?;
        self.ask(&other, &silent, 2).await.map(Some)
    }

    async fn socket(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(any(self.peer)).await?;
        socket.connect(self.peer).await?;
        Ok(socket)
    }

    /// Makes a call from one socket until something comes to another, and says whether it did. The first call is
    /// over with its abort; before that a server may ask whether we are there.
    async fn ask(&mut self, from: &UdpSocket, at: &UdpSocket, call: u32) -> io::Result<bool> {
        let end = Instant::now() + ANSWER;
        let mut buffer = [0; PACKET_MAX];
        while Instant::now() < end {
            let body = NO_OPERATION.to_be_bytes();
            let header = Header {
                call_number: CallNumber(call),
                ..self.header
            };
            self.send(from, header, &body).await;
            let until = end.min(Instant::now() + EVERY);
            while Instant::now() < until {
                let Ok(came) = timeout_at(until, at.recv(&mut buffer)).await else {
                    break;
                };
                let Ok(length) = came else {
                    // The socket is connected: an ICMP message.
                    break;
                };
                let Ok(header) = Header::decode(&buffer[..length]) else {
                    continue;
                };
                if call > 1 || header.packet_type == PacketType::Abort && self.is_ours(&header) {
                    return Ok(true);
                }
                let body = buffer.get(HEADER_SIZE..length).unwrap_or_default();
                if header.packet_type == PacketType::Ack
                    && self.is_ours(&header)
                    && Ack::decode(body).is_some_and(|ack| ack.reason == Reason::Ping)
                {
                    self.answer_ping(at, &header).await;
                }
            }
        }
        Ok(false)
    }

    fn is_ours(&self, header: &Header) -> bool {
        let same = header.epoch == self.header.epoch && header.cid == self.header.cid;
        same && !header.from_client()
    }

    // spec: rx#reach-check
    async fn answer_ping(&mut self, socket: &UdpSocket, ping: &Header) {
        let ack = Ack {
            first: 1,
            previous: 0,
            serial: ping.serial,
            reason: Reason::PingResponse,
            soft: SoftAcks::default(),
            trailer: Trailer {
                max_mtu: Some(1444),
                interface_mtu: Some(1444),
                window: Some(32),
                max_datagram_packets: Some(1),
            },
            extension: None,
        };
        let mut body = Vec::new();
        ack.encode(&mut body);
        let header = Header {
            call_number: ping.call_number,
            sequence: 0,
            packet_type: PacketType::Ack,
            flags: Flags::CLIENT_INITIATED.with(Flags::SLOW_START_OK),
            ..self.header
        };
        self.send(socket, header, &body).await;
    }

    async fn send(&mut self, socket: &UdpSocket, header: Header, body: &[u8]) {
        self.serial += 1;
        let header = Header {
            serial: self.serial,
            ..header
        };
        let mut packet = header.encode().to_vec();
        packet.extend(body);
        // What cannot leave is sent again as what was lost.
        socket.send(&packet).await.ok();
    }
}
