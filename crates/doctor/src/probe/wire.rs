//! A socket for packets that belong to no call: questions that every server answers at once.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use afar_rx::packet::{Flags, HEADER_SIZE, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// The largest answer that is of use: nothing larger is looked at.
const ANSWER_MAX: usize = 2048;

/// A socket that hears one server only.
#[derive(Debug)]
pub(super) struct Wire {
    socket: UdpSocket,
    /// Nobody else knows it, so that what has it is an answer.
    epoch: Epoch,
    buffer: Vec<u8>,
}

/// What came.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    /// A packet with our epoch that a server sent.
    Packet(Header, &'a [u8]),
    /// The server's system says that nothing listens there.
    Refused,
    /// The system says that a packet was too large.
    TooLarge,
    /// Nothing until the time given.
    Nothing,
}

impl Wire {
    /// A socket at a free port.
    pub(super) async fn open(peer: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(any(peer)).await?;
        socket.connect(peer).await?;
        Ok(Self {
            socket,
            epoch: Epoch(fastrand::u32(..) | 1 << 31),
            buffer: vec![0; ANSWER_MAX],
        })
    }

    /// The socket, for its options.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a question with this number and body.
    pub(super) async fn ask(
        &self,
        packet_type: PacketType,
        number: u32,
        body: &[u8],
    ) -> io::Result<()> {
        let header = Header {
            epoch: self.epoch,
            cid: Cid(0),
            call_number: CallNumber(number),
            sequence: 0,
            serial: 0,
            packet_type,
            flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: ServiceId(0),
        };
        let mut packet = Vec::with_capacity(HEADER_SIZE + body.len());
        packet.extend(header.encode());
        packet.extend(body);
        self.socket.send(&packet).await.map(drop)
    }

    /// What comes until then. Packets that are no answers are passed over.
    pub(super) async fn hear(&mut self, until: Instant) -> Heard<'_> {
        let (header, length) = loop {
            // What comes without a pause does not hold us up.
            if Instant::now() >= until {
                return Heard::Nothing;
            }
            let received = match timeout_at(until, self.socket.recv(&mut self.buffer)).await {
                Err(_late) => return Heard::Nothing,
                Ok(Ok(length)) => length,
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Heard::Refused;
                }
                Ok(Err(error)) if is_too_large(&error) => return Heard::TooLarge,
                // Of other errors there is one for each ICMP message: they end with these.
                Ok(Err(_)) => continue,
            };
            let Some(packet) = self.buffer.get(..received) else {
                continue;
            };
            if let Ok(header) = Header::decode(packet)
                && header.epoch == self.epoch
                && !header.from_client()
            {
                break (header, received);
            }
        };
        Heard::Packet(
            header,
            self.buffer.get(HEADER_SIZE..length).unwrap_or_default(),
        )
    }
}

/// Any address of the same family.
pub(super) fn any(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Whether a packet was larger than the system, or a router, lets through.
pub(super) fn is_too_large(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::MSGSIZE)
}
