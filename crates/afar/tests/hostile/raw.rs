//! A peer whose packets are written one by one, and that takes nothing of what it asks for.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use afar_net::ServiceId;
use afar_rx::packet::ack::{Ack, Reason};
use afar_rx::packet::{Flags, HEADER_SIZE, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex};
use afar_xdr::{Encode, to_bytes};

/// A client without manners.
pub(crate) struct Raw {
    socket: UdpSocket,
    server: SocketAddr,
    epoch: Epoch,
}

impl Raw {
    /// One of a host with an address of its own: those of one address share what there is for it.
    pub(crate) fn new(server: SocketAddr, host: u16) -> Self {
        let [high, low] = host.to_be_bytes();
        let address = Ipv4Addr::new(127, 32, high, low);
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            server,
            epoch: Epoch(fastrand::u32(1..1 << 31)),
        }
    }

    /// Begins a call on a channel of its own; with `last` the request ends here.
    pub(crate) fn begin(&self, index: u32, service: ServiceId, request: &[u8], last: bool) {
        let flags = if last { Flags::LAST_PACKET } else { Flags(0) };
        let header = Header {
            epoch: self.epoch,
            cid: Cid(0x0100_0000 + index),
            call_number: CallNumber(1),
            sequence: 1,
            serial: 1,
            packet_type: PacketType::Data,
            flags: Flags::CLIENT_INITIATED.with(flags),
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: service,
        };
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(request);
        self.send(&datagram);
    }

    /// Answers what asks whether it is there, and drops the rest of what has come.
    pub(crate) fn show_up(&self) {
        let mut datagram = vec![0; 1 << 16];
        while let Ok(size) = self.socket.recv(&mut datagram) {
            let (Ok(header), Some(ack)) = (
                Header::decode(&datagram[..size]),
                datagram[..size].get(HEADER_SIZE..).and_then(Ack::decode),
            ) else {
                continue;
            };
            if header.packet_type != PacketType::Ack || ack.reason != Reason::Ping {
                continue;
            }
            let header = Header {
                serial: header.serial + 1,
                flags: Flags::CLIENT_INITIATED,
                ..header
            };
            let answer = Ack {
                serial: header.serial - 1,
                reason: Reason::PingResponse,
                first: 1,
                previous: 0,
                extension: None,
                ..ack
            };
            let mut datagram = header.encode().to_vec();
            answer.encode(&mut datagram);
            self.send(&datagram);
        }
    }

    fn send(&self, datagram: &[u8]) {
        // What a full socket buffer loses is sent again later, or not: it is no good client.
        let _sent = self.socket.send_to(datagram, self.server);
    }
}

/// A request by its opcode and arguments.
pub(crate) fn request(opcode: u32, arguments: &impl Encode) -> Vec<u8> {
    let mut octets = opcode.to_be_bytes().to_vec();
    octets.extend_from_slice(&to_bytes(arguments));
    octets
}
