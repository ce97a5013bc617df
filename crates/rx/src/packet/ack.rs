//! The body of ACK packets, with afar's extension.
//!
//! A classic ACK has 18 bytes, a soft-ack byte for each packet from `first` on (at most 255), three
//! zero bytes, and up to four trailer words: largest packet, interface MTU, window, packets a
//! datagram. Bytes after these are ignored by every peer known (OpenAFS pads its MTU probes there),
//! so afar puts its extension there; docs/protocol/rx-extension.md describes it.

/// Why an acknowledgement was sent. Informational, but for PING, which wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A DATA packet asked for it.
    Requested = 1,
    /// A DATA packet came twice.
    Duplicate = 2,
    /// A DATA packet came out of order.
    OutOfSequence = 3,
    /// A DATA packet was beyond the window and dropped.
    ExceedsWindow = 4,
    /// A DATA packet was dropped for want of memory.
    NoSpace = 5,
    /// Asks for an answer: keep-alive, reachability, MTU probe.
    Ping = 6,
    /// The answer.
    PingResponse = 7,
    /// Sent after a delay.
    Delay = 8,
    /// Sent when nothing else was.
    Idle = 9,
}

impl Reason {
    /// The reason with that number; unknown ones count as [`Reason::Idle`].
    #[must_use]
    pub const fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::Requested,
            2 => Self::Duplicate,
            3 => Self::OutOfSequence,
            4 => Self::ExceedsWindow,
            5 => Self::NoSpace,
            6 => Self::Ping,
            7 => Self::PingResponse,
            8 => Self::Delay,
            _ => Self::Idle,
        }
    }
}

/// The trailer words; a peer may leave out the later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Largest Rx packet the sender of the ACK takes, header included.
    pub max_mtu: Option<u32>,
    /// Its interface's MTU towards us, less IP and UDP headers.
    pub interface_mtu: Option<u32>,
    /// Its receive window in packets.
    pub window: Option<u32>,
    /// Packets it takes in one jumbogram.
    pub max_datagram_packets: Option<u32>,
}

/// Received packets `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub start: u32,
    /// One past the last.
    pub end: u32,
}

/// afar's extension: what a window beyond 255 packets and modern loss recovery need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// Shares of the path that the sender of the ACK asks for; 0 is one.
    pub shares: u8,
    /// Receive window in packets from `first` on; at most 2^20.
    pub window: u32,
    /// Largest UDP payload the sender of the ACK takes.
    pub datagram_max: u32,
    /// Microseconds between the arrival of the packet named by the ACK's serial and this ACK.
    pub ack_delay_us: u32,
    /// DATA packets of this call that came twice, so far.
    pub duplicates: u32,
    /// DATA packets that came with ECT(0) from this peer, so far, modulo 2^32.
    pub ecn_ect0: u32,
    /// DATA packets that came with CE from this peer, so far, modulo 2^32.
    pub ecn_ce: u32,
    /// Received ranges as offsets from the ACK's `first`, highest first, [`RANGES_MAX`] at the most;
    /// those left out are not withdrawn.
    pub ranges: Vec<Range>,
}

/// The body of an ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Every packet before this one is acknowledged for good.
    pub first: u32,
    /// The highest DATA sequence received; old peers put other things here.
    pub previous: u32,
    /// Serial of the packet that caused this, or 0.
    pub serial: u32,
    /// Why it was sent.
    pub reason: Reason,
    /// For `first`, `first + 1`…: whether received. A later ACK may take it back.
    pub soft: SoftAcks,
    /// The trailer words.
    pub trailer: Trailer,
    /// afar's extension, if the peer has it.
    pub extension: Option<Extension>,
}

/// Up to 255 soft acknowledgements.
#[derive(Clone, PartialEq, Eq)]
pub struct SoftAcks {
    octets: [u8; 255],
    len: u8,
}

impl std::fmt::Debug for SoftAcks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(u8::from)).finish()
    }
}

impl Default for SoftAcks {
    fn default() -> Self {
        Self {
            octets: [0; 255],
            len: 0,
        }
    }
}

impl SoftAcks {
    /// How many packets they speak of.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the next packet; further ones than 255 are not kept.
    // spec: rx#what-acknowledgements-may-say
    pub const fn push(&mut self, received: bool) {
        if self.len < 255 {
            self.octets[self.len as usize] = received as u8;
            self.len += 1;
        }
    }

    /// In order from the ACK's `first` on.
    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        // spec: rx#ack-packets
        // Only bit 0 counts: bits 1 to 7 carry another vendor's extended acknowledgements.
        self.octets[..usize::from(self.len)]
            .iter()
            .map(|octet| octet & 1 == 1)
    }
}

/// First bytes of the extension.
const MAGIC: [u8; 4] = *b"afar";
const VERSION: u8 = 1;
/// Bytes of the extension before its ranges.
const EXTENSION_FIXED: usize = 34;
/// Ranges sent at the most, so that an ACK stays within one small datagram.
pub const RANGES_MAX: usize = 96;
/// The largest window the extension can tell, in packets.
pub const WINDOW_MAX: u32 = 1 << 20;

impl Ack {
    /// Reads the body of an ACK; `None` if it is too short for what it announces.
    #[must_use]
    // spec: rx#ack-packets
    pub fn decode(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(18)?;
        let count = usize::from(fixed[17]);
        let (flags, rest) = rest.split_at_checked(count)?;
        let mut soft = SoftAcks {
            len: fixed[17],
            ..SoftAcks::default()
        };
        soft.octets[..count].copy_from_slice(flags);
        // The three bytes of padding may be missing only together with the trailer.
        let mut words = rest.get(3..).unwrap_or_default().chunks_exact(4).map(word);
        let trailer = Trailer {
            max_mtu: words.next(),
            interface_mtu: words.next(),
            window: words.next(),
            max_datagram_packets: words.next(),
        };
        Some(Self {
            first: word(&fixed[4..8]),
            previous: word(&fixed[8..12]),
            serial: word(&fixed[12..16]),
            reason: Reason::from_wire(fixed[16]),
            soft,
            trailer,
            // spec: rx-extension#where-it-stands, rx-extension#why-old-peers-are-not-disturbed
            extension: rest.get(19..).and_then(Extension::decode),
        })
    }

    /// Bytes of the body with all words of the trailer.
    #[must_use]
    pub fn size(&self) -> usize {
        let extension = self.extension.as_ref();
        let block = |known: &Extension| EXTENSION_FIXED + 8 * known.ranges.len().min(RANGES_MAX);
        18 + usize::from(self.soft.len) + 3 + 16 + extension.map_or(0, block)
    }

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend([0; 4]);
        out.extend(self.first.to_be_bytes());
        out.extend(self.previous.to_be_bytes());
        out.extend(self.serial.to_be_bytes());
        out.extend([self.reason as u8, self.soft.len]);
        out.extend(&self.soft.octets[..usize::from(self.soft.len)]);
        out.extend([0; 3]);
        let Trailer {
            max_mtu,
            interface_mtu,
            window,
            max_datagram_packets,
        } = self.trailer;
        let words = [max_mtu, interface_mtu, window, max_datagram_packets];
        for value in words.iter().map_while(|value| *value) {
            out.extend(value.to_be_bytes());
        }
        if let (Some(extension), None) = (&self.extension, words.iter().position(Option::is_none)) {
            extension.encode(out);
        }
    }
}

impl Extension {
    // spec: rx-extension#layout
    /// Layout: magic "afar", version, shares, length of the whole block (u16); window, datagram_max,
    /// ack_delay_us, duplicates, ect0, ce (u32 each); number of ranges (u16); ranges as pairs of
    /// u32 (start and end, both relative to the ACK's `first`).
    fn encode(&self, out: &mut Vec<u8>) {
        let ranges = &self.ranges[..self.ranges.len().min(RANGES_MAX)];
        let length = EXTENSION_FIXED + 8 * ranges.len();
        out.extend(MAGIC);
        out.extend([VERSION, self.shares]);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "RANGES_MAX keeps it below 2^16"
        )]
        out.extend((length as u16).to_be_bytes());
        for value in [
            self.window,
            self.datagram_max,
            self.ack_delay_us,
            self.duplicates,
            self.ecn_ect0,
            self.ecn_ce,
        ] {
            out.extend(value.to_be_bytes());
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "RANGES_MAX keeps it below 2^16"
        )]
        out.extend((ranges.len() as u16).to_be_bytes());
        for range in ranges {
            out.extend(range.start.to_be_bytes());
            out.extend(range.end.to_be_bytes());
        }
    }

    // spec: rx-extension#reading
    fn decode(octets: &[u8]) -> Option<Self> {
        let head = octets.get(..EXTENSION_FIXED)?;
        if head[..4] != MAGIC || head[4] == 0 {
            return None;
        }
        let length = usize::from(u16::from_be_bytes([head[6], head[7]]));
        let count = usize::from(u16::from_be_bytes([head[32], head[33]]));
        // A later version may append fields, so the block may be longer than version 1 needs.
        if count > RANGES_MAX || length < EXTENSION_FIXED + 8 * count {
            return None;
        }
        let ranges = octets.get(EXTENSION_FIXED..EXTENSION_FIXED + 8 * count)?;
        Some(Self {
            shares: head[5],
            window: word(&head[8..12]).min(WINDOW_MAX),
            datagram_max: word(&head[12..16]),
            ack_delay_us: word(&head[16..20]),
            duplicates: word(&head[20..24]),
            ecn_ect0: word(&head[24..28]),
            ecn_ce: word(&head[28..32]),
            ranges: ranges
                .chunks_exact(8)
                .map(|pair| Range {
                    start: word(&pair[..4]),
                    end: word(&pair[4..]),
                })
                .collect(),
        })
    }

    /// The received ranges in sequence numbers, those that make sense: non-empty and within the
    /// largest window from `first`.
    pub(crate) fn ranges_from(&self, first: u32) -> impl Iterator<Item = Range> + '_ {
        self.ranges
            .iter()
            .filter(|range| range.start < range.end && range.end <= WINDOW_MAX)
            .map(move |range| Range {
                start: first.wrapping_add(range.start),
                end: first.wrapping_add(range.end),
            })
    }
}

fn word(octets: &[u8]) -> u32 {
    octets
        .first_chunk()
        .map_or(0, |octets| u32::from_be_bytes(*octets))
}
