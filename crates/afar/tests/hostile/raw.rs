//! A peer whose packets are written one by one, and that reads nothing.

use std::net::{SocketAddr, UdpSocket};

use afar_net::ServiceId;
use afar_rx::packet::{Flags, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex};
use afar_xdr::{Encode, to_bytes};

/// A client without manners.
pub(crate) struct Raw {
    socket: UdpSocket,
    server: SocketAddr,
    epoch: Epoch,
}

impl Raw {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            socket: UdpSocket::bind("127.0.0.1:0").unwrap(),
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
        // What a full socket buffer loses is sent again later.
        self.socket.send_to(&datagram, self.server).unwrap();
    }
}

/// A request by its opcode and arguments.
pub(crate) fn request(opcode: u32, arguments: &impl Encode) -> Vec<u8> {
    let mut octets = opcode.to_be_bytes().to_vec();
    octets.extend_from_slice(&to_bytes(arguments));
    octets
}
