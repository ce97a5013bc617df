//! Snapshots of servers elsewhere, also of OpenAFS's: as much as they tell `rxdebug`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_rx::packet::debug::{CONNECTION_SIZE, PEER_SIZE, Question, flag, mode, state};
use afar_rx::packet::{Flags, HEADER_SIZE, Header, PacketType};
use afar_rx::{CallNumber, Cid, Epoch, SecurityIndex, ServiceId};
use afar_server::view::{Number, Row, Snapshot, View};
use anyhow::{Context, bail};

/// The UDP port of file servers.
const PORT: u16 = 7000;
/// Questions on their way at a time, and how often each is asked.
const BATCH: u32 = 32;
const TRIES: u32 = 4;
/// How long an answer takes at most.
const LIMIT: Duration = Duration::from_secs(1);
/// Connections and peers that are asked for, at most.
const MOST: u32 = 2048;
/// An answer with this number is behind the last one.
const END: u32 = u32::MAX;

/// A server elsewhere.
#[derive(Debug)]
pub(super) struct Remote {
    name: String,
    socket: UdpSocket,
    /// When it was asked first.
    began: Instant,
}

impl Remote {
    /// The server of this name or address, at port 7000 if none is named.
    ///
    /// # Errors
    /// There is no such host, or no way to it.
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let found = name
            .to_socket_addrs()
            .or_else(|_| (name, PORT).to_socket_addrs());
        let mut found = found.with_context(|| format!("cannot find the server {name}"))?;
        let address = found.find(SocketAddr::is_ipv4);
        let address = address.with_context(|| format!("{name} has no IPv4 address"))?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            // Answers of others are none.
            socket.connect(address)?;
            Ok(socket)
        });
        Ok(Self {
            name: name.to_owned(),
            socket: socket.with_context(|| format!("cannot reach the server {name}"))?,
            began: Instant::now(),
        })
    }

    /// What a table cannot show of such a server.
    pub(super) fn missing(view: View) -> &'static str {
        match view {
            View::Clients => "users and operations",
            View::Calls => "users, operations, files, and since when they run",
            View::Volumes | View::Files => "everything",
        }
    }

    /// A table as it is now.
    ///
    /// # Errors
    /// The server does not answer, or tells nothing of that.
    pub(super) fn fetch(&self, view: View) -> anyhow::Result<Snapshot> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let rows = match view {
            View::Clients => self.clients(),
            View::Calls => self.calls(),
            View::Volumes | View::Files => bail!(
                "servers tell rxdebug nothing of {}; ask {} for clients or calls, or run `afar top` there",
                view.name(),
                self.name
            ),
        };
        let rows =
            rows.with_context(|| format!("{} does not answer rxdebug's questions", self.name))?;
        Ok(Snapshot {
            cell: self.name.clone(),
            time: now.unwrap_or_default().as_secs_f64(),
            // Of the server's own nothing is known.
            uptime: self.began.elapsed().as_secs_f64(),
            rows,
            ..Snapshot::default()
        })
    }

    fn clients(&self) -> io::Result<Vec<Row>> {
        let mut rows = BTreeMap::<IpAddr, Totals>::new();
        for answer in self.walk(|index| Question::Peer { index }, 0, PEER_SIZE)? {
            let totals = rows.entry(address(&answer, 0)).or_default();
            totals.ports += 1;
            totals.received = totals.received.wrapping_add(long(&answer, 84));
            totals.sent = totals.sent.wrapping_add(long(&answer, 76));
            let packet = u64::from(short(&answer, 6));
            totals.window = totals.window.max(u64::from(short(&answer, 70)) * packet);
            // In eighths of a millisecond.
            totals.rtt = totals.rtt.max(word(&answer, 24));
        }
        let ask = |index| Question::Connection { index, all: true };
        for answer in self.walk(ask, 4, CONNECTION_SIZE)? {
            let Some(totals) = rows.get_mut(&address(&answer, 0)) else {
                continue;
            };
            // Each call has the next number on its channel.
            let calls = (0..4).map(|channel| u64::from(word(&answer, 12 + 4 * channel)));
            totals.calls = totals.calls.wrapping_add(calls.sum());
        }
        Ok(rows
            .into_iter()
            .map(|(address, totals)| totals.row(address))
            .collect())
    }

    fn calls(&self) -> io::Result<Vec<Row>> {
        let ask = |index| Question::Connection { index, all: false };
        let mut rows = Vec::new();
        for answer in self.walk(ask, 4, CONNECTION_SIZE)? {
            let is_server = answer.get(35) == Some(&1);
            for channel in 0..4 {
                let at = |place: usize| answer.get(place + channel).copied().unwrap_or(0);
                let waits = match (at(40), at(44), at(48)) {
                    (state::PRECALL, _, _) => "thread",
                    (state::ACTIVE, _, flags) if flags & flag::WAIT_WINDOW_SEND != 0 => "window",
                    (state::ACTIVE, mode::RECEIVING, _) => "data",
                    (state::ACTIVE, _, _) => "",
                    _ => continue,
                };
                if !is_server {
                    continue;
                }
                let peer = SocketAddr::new(address(&answer, 0), short(&answer, 32));
                let labels = [("peer", peer.to_string()), ("waits", waits.to_owned())];
                rows.push(Row {
                    labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
                    ..Row::default()
                });
            }
        }
        Ok(rows)
    }

    /// All answers to a question by number, up to one whose word at `end` says that it is behind the last.
    fn walk(
        &self,
        question: impl Fn(u32) -> Question,
        end: usize,
        size: usize,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        for first in (0..MOST).step_by(BATCH as usize) {
            for answer in self.batch(first, &question)? {
                if answer.len() < size || word(&answer, end) == END {
                    return Ok(found);
                }
                found.push(answer);
            }
        }
        Ok(found)
    }

    /// The answers to some questions, in their order.
    fn batch(&self, first: u32, question: &impl Fn(u32) -> Question) -> io::Result<Vec<Vec<u8>>> {
        let mut answers: Vec<Option<Vec<u8>>> = vec![None; BATCH as usize];
        // Answers carry the question's call number, which differs from batch to batch.
        let random = RandomState::new().build_hasher().finish();
        let base = u32::try_from(random >> 33).unwrap_or(1);
        for _ in 0..TRIES {
            for (number, answer) in (0..).zip(&answers) {
                if answer.is_none() {
                    self.ask(base + number, question(first + number))?;
                }
            }
            let end = Instant::now() + LIMIT;
            while answers.iter().any(Option::is_none) {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let Some((number, body)) = self.answer(left)? else {
                    continue;
                };
                let place = number
                    .checked_sub(base)
                    .and_then(|number| usize::try_from(number).ok());
                if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                    *answer = Some(body);
                }
            }
            if answers.iter().all(Option::is_some) {
                return Ok(answers.into_iter().flatten().collect());
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn ask(&self, number: u32, question: Question) -> io::Result<()> {
        let header = Header {
            epoch: Epoch(0),
            cid: Cid(0),
            call_number: CallNumber(number),
            sequence: 0,
            serial: 0,
            packet_type: PacketType::Debug,
            flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
            user_status: 0,
            security_index: SecurityIndex(0),
            checksum: 0,
            service_id: ServiceId(0),
        };
        let packet = [&header.encode()[..], &question.encode()[..]].concat();
        self.socket.send(&packet).map(|_| ())
    }

    /// The next answer, with its number; `None` if none comes in time, or something else.
    fn answer(&self, limit: Duration) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut packet = [0; 2048];
        self.socket.set_read_timeout(Some(limit))?;
        let length = match self.socket.recv(&mut packet) {
            Ok(length) => length,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let packet = packet.get(..length).unwrap_or_default();
        let header = Header::decode(packet).ok();
        let header = header.filter(|header| header.packet_type == PacketType::Debug);
        let body = packet.get(HEADER_SIZE..).unwrap_or_default();
        Ok(header.map(|header| (header.call_number.0, body.to_vec())))
    }
}

/// What is known of an address.
#[derive(Debug, Default)]
struct Totals {
    ports: u64,
    calls: u64,
    received: u64,
    sent: u64,
    window: u64,
    rtt: u32,
}

impl Totals {
    fn row(&self, address: IpAddr) -> Row {
        let mut numbers = vec![
            ("ports", Number::Count(self.ports)),
            (
                "afar_client_received_bytes_total",
                Number::Count(self.received),
            ),
            ("afar_client_sent_bytes_total", Number::Count(self.sent)),
            ("window_bytes", Number::Count(self.window)),
        ];
        // Servers do not tell strangers the numbers of calls.
        if self.calls > 0 {
            numbers.push(("afar_client_calls_total", Number::Count(self.calls)));
        }
        if self.rtt > 0 {
            numbers.push(("rtt_seconds", Number::Level(f64::from(self.rtt) / 8000.0)));
        }
        let numbers = numbers.into_iter();
        Row {
            labels: BTreeMap::from([("address".to_owned(), address.to_string())]),
            numbers: numbers
                .map(|(name, number)| (name.to_owned(), number))
                .collect(),
        }
    }
}

fn bytes<const N: usize>(answer: &[u8], at: usize) -> [u8; N] {
    let found = answer.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; N])
}

fn short(answer: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(answer, at))
}

fn word(answer: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(answer, at))
}

/// A number in two words, the high one first.
fn long(answer: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(answer, at))
}

fn address(answer: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::from(bytes::<4>(answer, at)).into()
}
