//! Snapshots of servers elsewhere, also of OpenAFS's: as much as they tell `rxdebug`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_rx::packet::debug::{BAD_TYPE, PeerAnswer, Question, Row as Told, flag, mode, state};
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

/// The address of the file server of this name or address, at port 7000 if none is named.
///
/// # Errors
/// There is no such host, or it has no address of IPv4.
pub(crate) fn server_address(name: &str) -> anyhow::Result<SocketAddr> {
    let found = name
        .to_socket_addrs()
        .or_else(|_| (name, PORT).to_socket_addrs());
    let mut found = found.with_context(|| format!("cannot find the server {name}"))?;
    let address = found.find(SocketAddr::is_ipv4);
    address.with_context(|| format!("{name} has no IPv4 address"))
}

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
        let address = server_address(name)?;
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
            View::Volumes | View::Files | View::Disks | View::Mounts => "everything",
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
            View::Volumes | View::Files | View::Disks | View::Mounts => bail!(
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
        for peer in self.walk(|index| Question::Peer { index }, PeerAnswer::decode)? {
            let totals = rows.entry(peer.address.ip()).or_default();
            totals.ports += 1;
            totals.received = totals.received.wrapping_add(peer.bytes_received);
            totals.sent = totals.sent.wrapping_add(peer.bytes_sent);
            let window = peer.window_packets.saturating_mul(peer.packet_size as u64);
            totals.window = totals.window.max(window);
            totals.rtt = totals.rtt.max(peer.rtt);
        }
        let ask = |index| Question::Connection { index, all: true };
        for connection in self.walk(ask, Connection::decode)? {
            if let Some(totals) = rows.get_mut(&connection.peer.ip()) {
                totals.calls = totals.calls.wrapping_add(connection.calls);
            }
        }
        let rows = rows.into_iter();
        Ok(rows.map(|(address, totals)| totals.row(address)).collect())
    }

    fn calls(&self) -> io::Result<Vec<Row>> {
        let ask = |index| Question::Connection { index, all: false };
        let mut rows = Vec::new();
        for connection in self.walk(ask, Connection::decode)? {
            for waits in connection.running {
                let peer = connection.peer.to_string();
                let labels = [("peer", peer), ("waits", waits.to_owned())];
                rows.push(Row {
                    labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
                    ..Row::default()
                });
            }
        }
        Ok(rows)
    }

    /// All answers to a question by number, up to the end of the table.
    fn walk<T>(
        &self,
        question: impl Fn(u32) -> Question,
        decode: impl Fn(&[u8]) -> Option<Told<T>>,
    ) -> io::Result<Vec<T>> {
        let mut found = Vec::new();
        for first in (0..MOST).step_by(BATCH as usize) {
            for answer in self.batch(first, &question)? {
                match decode(&answer) {
                    Some(Told::Entry(entry)) => found.push(entry),
                    Some(Told::End) | None => return Ok(found),
                }
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
    rtt: Duration,
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
        if !self.rtt.is_zero() {
            numbers.push(("rtt_seconds", Number::Level(self.rtt.as_secs_f64())));
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

/// What is told of a connection. Answers to strangers may be cut short: then it has no calls.
struct Connection {
    peer: SocketAddr,
    /// Calls so far, of which each has the next number on its channel.
    calls: u64,
    /// What each call that runs waits for.
    running: Vec<&'static str>,
}

impl Connection {
    /// Reads an answer; `None` if it is none.
    // spec: rx#debug
    fn decode(answer: &[u8]) -> Option<Told<Self>> {
        let byte = |at: usize| answer.get(at).copied().unwrap_or(0);
        let word =
            |at: usize| u32::from_be_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
        if answer.len() < 8 || answer.starts_with(&BAD_TYPE) {
            return None;
        }
        if word(4) == u32::MAX {
            return Some(Told::End);
        }
        let port = u16::from_be_bytes([byte(32), byte(33)]);
        // The other side's calls, not those that the server makes itself.
        let is_server = byte(35) == 1;
        let running = (0..4).filter(|_| is_server).filter_map(|channel| {
            match (byte(40 + channel), byte(44 + channel), byte(48 + channel)) {
                (state::PRECALL, _, _) => Some("thread"),
                (state::ACTIVE, _, flags) if flags & flag::WAIT_WINDOW_SEND != 0 => Some("window"),
                (state::ACTIVE, mode::RECEIVING, _) => Some("data"),
                (state::ACTIVE, _, _) => Some(""),
                _ => None,
            }
        });
        Some(Told::Entry(Self {
            peer: SocketAddr::from((Ipv4Addr::from_bits(word(0)), port)),
            calls: (0..4)
                .map(|channel| u64::from(word(12 + 4 * channel)))
                .sum(),
            running: running.collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_any_length_are_read() {
        let mut answer = vec![0; 176];
        answer[..4].copy_from_slice(&[192, 0, 2, 7]);
        answer[12..16].copy_from_slice(&[0, 0, 1, 2]);
        answer[23] = 5;
        answer[32..36].copy_from_slice(&[27, 89, 0, 1]);
        answer[40..44].copy_from_slice(&[
            state::ACTIVE,
            state::PRECALL,
            state::DALLY,
            state::ACTIVE,
        ]);
        answer[44..48].copy_from_slice(&[mode::RECEIVING, 0, 0, mode::SENDING]);
        answer[51] = flag::WAIT_WINDOW_SEND;
        for length in 0..=answer.len() {
            let read = Connection::decode(&answer[..length]);
            assert_eq!(read.is_some(), length >= 8);
        }
        let Some(Told::Entry(read)) = Connection::decode(&answer) else {
            panic!("it is a connection");
        };
        assert_eq!(read.peer, "192.0.2.7:7001".parse().unwrap());
        assert_eq!(
            (read.calls, read.running),
            (263, vec!["data", "thread", "window"])
        );
        answer[4..8].fill(0xff);
        assert!(matches!(Connection::decode(&answer), Some(Told::End)));
        assert!(Connection::decode(&BAD_TYPE).is_none());
    }

    #[test]
    fn a_server_that_does_not_answer_is_told_of() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let remote = Remote::new(&silent.local_addr().unwrap().to_string()).unwrap();
        let error = remote.fetch(View::Files).unwrap_err().to_string();
        assert!(error.contains("nothing of files"), "{error}");
        // Nobody listens there any more.
        drop(silent);
        let error = remote.fetch(View::Calls).unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
    }
}
