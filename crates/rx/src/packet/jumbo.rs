//! Jumbograms: several DATA packets of one call in one datagram. Received, never sent.
//!
//! All parts but the last carry exactly 1,412 bytes; a 4-byte header (flags, 0, checksum) stands
//! before each part but the first, whose header is the packet's own. Sequence and serial count on.

use bytes::Bytes;

use super::{Flags, HEADER_SIZE, Header, PacketError};

/// Bytes of payload in every part but the last.
// spec: rx#jumbograms
pub const PART_SIZE: usize = 1412;
/// Bytes of the header between two parts.
const PART_HEADER_SIZE: usize = 4;

/// The packets of one DATA datagram, in order: one, unless it is a jumbogram.
#[derive(Debug)]
pub struct Parts {
    next: Option<(Header, Bytes)>,
    index: usize,
}

impl Parts {
    /// Begins with the datagram's own header and all that follows it.
    #[must_use]
    pub const fn new(header: Header, body: Bytes) -> Self {
        Self {
            next: Some((header, body)),
            index: 0,
        }
    }

    /// Splits a whole datagram.
    ///
    /// # Errors
    /// If the header is malformed.
    pub fn of_datagram(datagram: Bytes) -> Result<Self, PacketError> {
        let header = Header::decode(&datagram)?;
        Ok(Self::new(header, datagram.slice(HEADER_SIZE..)))
    }
}

impl Iterator for Parts {
    type Item = Result<(Header, Bytes), PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut header, mut body) = self.next.take()?;
        if !header.flags.has(Flags::JUMBO_PACKET) {
            return Some(Ok((header, body)));
        }
        self.index += 1;
        if body.len() < PART_SIZE + PART_HEADER_SIZE {
            return Some(Err(PacketError::Jumbogram(self.index)));
        }
        let rest = body.split_off(PART_SIZE);
        let following = Header {
            flags: Flags(rest[0])
                .without(Flags::CLIENT_INITIATED)
                .with(if header.from_client() {
                    Flags::CLIENT_INITIATED
                } else {
                    Flags::default()
                }),
            checksum: u16::from_be_bytes([rest[2], rest[3]]),
            sequence: header.sequence.wrapping_add(1),
            serial: header.serial.wrapping_add(1),
            ..header
        };
        self.next = Some((following, rest.slice(PART_HEADER_SIZE..)));
        header.flags = header.flags.without(Flags::JUMBO_PACKET);
        Some(Ok((header, body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketType;
    use crate::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};

    fn header(flags: u8) -> Header {
        Header {
            epoch: Epoch(0x9a5b_3c21),
            cid: Cid(0x4c6d_8e70),
            call_number: CallNumber(1),
            sequence: 5,
            serial: 9,
            packet_type: PacketType::Data,
            flags: Flags(flags),
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: ServiceId(1),
        }
    }

    #[test]
    fn three_parts_count_on() {
        let mut body = vec![1; PART_SIZE];
        body.extend([0x20, 0, 0, 7]);
        body.extend(vec![2; PART_SIZE]);
        body.extend([0x04, 0, 0, 8]);
        body.extend(vec![3; 10]);
        let parts: Result<Vec<_>, _> = Parts::new(header(0x21), body.into()).collect();
        let parts = parts.unwrap();
        let seen: Vec<_> = parts
            .iter()
            .map(|(h, b)| (h.sequence, h.serial, h.flags.0, h.checksum, b.len(), b[0]))
            .collect();
        assert_eq!(
            seen,
            [
                (5, 9, 0x01, 0, PART_SIZE, 1),
                (6, 10, 0x01, 7, PART_SIZE, 2),
                (7, 11, 0x05, 8, 10, 3)
            ]
        );
    }

    #[test]
    fn a_part_that_does_not_fit_ends_it() {
        let mut parts = Parts::new(header(0x21), vec![0; PART_SIZE + 3].into());
        assert_eq!(parts.next().unwrap(), Err(PacketError::Jumbogram(1)));
        assert!(parts.next().is_none());
    }
}
