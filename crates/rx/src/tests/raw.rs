//! One endpoint, and a peer whose every packet the test writes itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::pair::SERVICE;
use crate::packet::ack::{Ack, Extension, Reason, SoftAcks, Trailer};
use crate::packet::{Flags, HEADER_SIZE, Header, PacketType};
use crate::security::ClientSecurity;
use crate::{
    CallNumber, Cid, Config, ConnectionId, Endpoint, Epoch, Event, RxNull, SecurityIndex, Service,
};

pub(super) const EPOCH: Epoch = Epoch(0x9a5b_3c21);
pub(super) const CID: Cid = Cid(0x4c6d_8e70);
pub(super) const STRANGER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66)), 7001);

/// An endpoint and the state of the scripted peer.
pub(super) struct Raw {
    pub(super) endpoint: Endpoint,
    pub(super) now: Instant,
    pub(super) peer: SocketAddr,
    /// What the peer's headers begin with.
    pub(super) header: Header,
}

impl Raw {
    /// The endpoint serves; the peer is a client.
    pub(super) fn server(config: Config) -> Self {
        let mut raw = Self::new(config, Flags::CLIENT_INITIATED);
        raw.endpoint
            .add_service(Service::new(SERVICE, "test"), vec![Arc::new(RxNull)]);
        raw
    }

    /// The endpoint opens a connection; the peer is a server, whose headers fit once the endpoint
    /// has sent something that [`Self::take`] gave.
    pub(super) fn client(config: Config) -> (Self, ConnectionId) {
        let mut raw = Self::new(config, Flags(0));
        let connection = raw.endpoint.connect(raw.now, raw.peer, SERVICE, &rxnull());
        (raw, connection)
    }

    fn new(config: Config, flags: Flags) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "virtual time needs some beginning"
        )]
        let now = Instant::now();
        let header = Header {
            epoch: EPOCH,
            cid: CID,
            call_number: CallNumber(1),
            sequence: 0,
            serial: 0,
            packet_type: PacketType::Data,
            flags,
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: SERVICE,
        };
        let peer = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 7001));
        let mut endpoint = Endpoint::new(config, now);
        // Tests of what is asked of strangers take another address.
        endpoint.believe(now, peer.ip());
        Self {
            endpoint,
            now,
            peer,
            header,
        }
    }

    /// The same from an address that is not known.
    pub(super) fn stranger(mut self) -> Self {
        self.peer = STRANGER;
        self
    }

    /// Gives the endpoint a packet with the next serial.
    pub(super) fn put(
        &mut self,
        packet_type: PacketType,
        sequence: u32,
        flags: Flags,
        body: &[u8],
    ) {
        self.header.serial += 1;
        let header = Header {
            packet_type,
            sequence,
            flags: self.header.flags.with(flags),
            ..self.header
        };
        self.put_raw(&header, body);
    }

    pub(super) fn put_raw(&mut self, header: &Header, body: &[u8]) {
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(body);
        self.endpoint
            .handle(self.now, self.peer, None, None, datagram.into());
    }

    /// Gives it as if it came from there.
    pub(super) fn from<R>(&mut self, address: SocketAddr, give: impl FnOnce(&mut Self) -> R) -> R {
        let home = std::mem::replace(&mut self.peer, address);
        let given = give(self);
        self.peer = home;
        given
    }

    pub(super) fn data(&mut self, sequence: u32, flags: Flags, body: &[u8]) {
        self.put(PacketType::Data, sequence, flags, body);
    }

    /// Gives the endpoint an acknowledgement; `soft` has a digit for each packet from `first` on.
    pub(super) fn ack(&mut self, first: u32, soft: &str, reason: Reason, window: u32) {
        let mut body = Vec::new();
        ack(first, soft, reason, window, None).encode(&mut body);
        self.put(PacketType::Ack, 0, Flags::SLOW_START_OK, &body);
    }

    /// What the endpoint sends now.
    pub(super) fn take(&mut self) -> Vec<(Header, Bytes)> {
        let sent = self.take_all().into_iter();
        let packets: Vec<_> = sent
            .map(|(to, header, body)| {
                assert_eq!(to, self.peer);
                (header, body)
            })
            .collect();
        if let (Some((header, _)), false) = (packets.first(), self.header.from_client()) {
            let serial = self.header.serial;
            self.header = Header {
                serial,
                flags: Flags(0),
                ..*header
            };
        }
        packets
    }

    /// What the endpoint sends now, and where.
    pub(super) fn take_all(&mut self) -> Vec<(SocketAddr, Header, Bytes)> {
        let (mut packets, mut buf) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buf) {
            for datagram in buf.chunks(transmit.segment_size.unwrap_or(transmit.size)) {
                let header = Header::decode(datagram).unwrap();
                let body = Bytes::copy_from_slice(&datagram[HEADER_SIZE..]);
                packets.push((transmit.destination, header, body));
            }
        }
        packets
    }

    /// The packets of one type that the endpoint sends now.
    pub(super) fn take_of(&mut self, packet_type: PacketType) -> Vec<(Header, Bytes)> {
        let mut packets = self.take();
        packets.retain(|(header, _)| header.packet_type == packet_type);
        packets
    }

    /// Lets time pass, and gives what the endpoint sends meanwhile with the time since the start.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<(Duration, Header, Bytes)> {
        let (start, end) = (self.now, self.now + time);
        let mut packets = Vec::new();
        loop {
            let elapsed = self.now - start;
            packets.extend(
                self.take()
                    .into_iter()
                    .map(|(header, body)| (elapsed, header, body)),
            );
            let Some(next) = self.endpoint.poll_timeout().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
        }
        self.now = end;
        packets
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    /// The server call that the endpoint has just heard of.
    pub(super) fn incoming(&mut self) -> crate::CallId {
        let events = self.events();
        let call = events.iter().find_map(|event| match event {
            Event::Incoming { call, .. } => Some(*call),
            _ => None,
        });
        call.unwrap_or_else(|| panic!("no incoming call in {events:?}"))
    }
}

/// The class of connections that prove nothing.
pub(super) fn rxnull() -> Arc<dyn ClientSecurity> {
    Arc::new(RxNull)
}

/// An acknowledgement's body as old peers make it, or with afar's extension.
pub(super) fn ack(
    first: u32,
    soft: &str,
    reason: Reason,
    window: u32,
    extension: Option<Extension>,
) -> Ack {
    let mut acks = SoftAcks::default();
    soft.chars().for_each(|digit| acks.push(digit == '1'));
    Ack {
        first,
        previous: first - 1 + soft.len() as u32,
        serial: 0,
        reason,
        soft: acks,
        trailer: Trailer {
            max_mtu: Some(1444),
            interface_mtu: Some(1444),
            window: Some(window),
            max_datagram_packets: Some(1),
        },
        extension,
    }
}
