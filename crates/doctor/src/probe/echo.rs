//! Round trips, loss and reordering, by VERSION packets: each server answers each of them at once, with the
//! header of the question.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use afar_rx::packet::PacketType;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::wire::{Heard, Wire};
use crate::measured::Path;

/// How long answers are awaited at the end, at least and at most.
const LAST_LEAST: Duration = Duration::from_millis(800);
const LAST_MOST: Duration = Duration::from_secs(3);
/// Characters of a version that are shown.
const VERSION_MAX: usize = 64;

/// How many packets to send, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bursts {
    /// How often.
    pub(crate) bursts: u32,
    /// Packets each time, one right after the other, so that reordering shows.
    pub(crate) size: u32,
    /// Time from one to the next.
    pub(crate) every: Duration,
}

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    pub(crate) path: Path,
    /// What the server calls itself.
    pub(crate) version: Option<String>,
}

/// The packets of one run.
struct Run {
    /// When each was sent, and whether it was answered.
    sent: Vec<(Instant, bool)>,
    rtts: Vec<f64>,
    /// The latest packet answered.
    highest: usize,
    echo: Echo,
}

/// Sends packets and counts their answers.
///
/// # Errors
/// Those of opening a socket.
pub(crate) async fn echo(peer: SocketAddr, plan: Bursts) -> io::Result<Echo> {
    let mut wire = Wire::open(peer).await?;
    let mut run = Run::new(plan);
    let mut ticks = interval(plan.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..plan.bursts {
        let next = ticks.tick().await + plan.every;
        for _ in 0..plan.size {
            run.send(&wire).await;
        }
        // An answer that takes longer comes while later packets are sent.
        while run.hear(&mut wire, next).await {}
    }
    let last = Instant::now();
    while !run.is_complete() && run.hear(&mut wire, last + run.patience()).await {}
    Ok(run.end())
}

impl Run {
    fn new(plan: Bursts) -> Self {
        let count = plan.bursts.saturating_mul(plan.size) as usize;
        Self {
            sent: Vec::with_capacity(count),
            rtts: Vec::with_capacity(count),
            highest: 0,
            echo: Echo::default(),
        }
    }

    async fn send(&mut self, wire: &Wire) {
        let number = u32::try_from(self.sent.len()).unwrap_or(u32::MAX);
        let now = Instant::now();
        // One that cannot leave, because an ICMP message came for an earlier one, is lost as others are.
        let left = wire.ask(PacketType::Version, number, &[0]).await;
        self.echo.path.refused |=
            left.is_err_and(|it| it.kind() == io::ErrorKind::ConnectionRefused);
        self.sent.push((now, false));
    }

    /// Takes what comes until then; `false` if nothing does.
    async fn hear(&mut self, wire: &mut Wire, until: Instant) -> bool {
        match wire.hear(until).await {
            Heard::Nothing => return false,
            Heard::Refused => self.echo.path.refused = true,
            Heard::TooLarge => {}
            Heard::Packet(header, body) => {
                if header.packet_type == PacketType::Version {
                    self.note(header.call_number.0 as usize, Instant::now());
                    if self.echo.version.is_none() {
                        self.echo.version = text(body);
                    }
                }
            }
        }
        // A server that sends without end does not hold us up.
        Instant::now() < until
    }

    fn note(&mut self, number: usize, now: Instant) {
        let path = &mut self.echo.path;
        let Some((sent, answered)) = self.sent.get_mut(number) else {
            return;
        };
        if std::mem::replace(answered, true) {
            path.duplicated = path.duplicated.saturating_add(1);
            return;
        }
        path.answered += 1;
        if number < self.highest {
            path.reordered += 1;
        }
        self.highest = self.highest.max(number);
        self.rtts.push(now.duration_since(*sent).as_secs_f64());
    }

    fn is_complete(&self) -> bool {
        self.rtts.len() == self.sent.len()
    }

    /// How long an answer to the last packet may take.
    fn patience(&self) -> Duration {
        let longest = self.rtts.iter().copied().fold(0.0, f64::max);
        Duration::from_secs_f64(longest * 3.0).clamp(LAST_LEAST, LAST_MOST)
    }

    fn end(mut self) -> Echo {
        self.rtts.sort_by(f64::total_cmp);
        let at = |part: usize| {
            let place = self.rtts.len() * part / 100;
            self.rtts
                .get(place.min(self.rtts.len().saturating_sub(1)))
                .copied()
        };
        let path = Path {
            sent: u32::try_from(self.sent.len()).unwrap_or(u32::MAX),
            rtt_min_s: at(0),
            rtt_median_s: at(50),
            rtt_p99_s: at(99),
            ..self.echo.path
        };
        Echo { path, ..self.echo }
    }
}

/// The version in an answer, as it may be shown.
fn text(body: &[u8]) -> Option<String> {
    let end = body
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(body.len());
    let shown: String = body[..end.min(VERSION_MAX)]
        .iter()
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '?',
        })
        .collect();
    let shown = shown.trim();
    (!shown.is_empty()).then(|| shown.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use afar_rx::packet::{Flags, HEADER_SIZE, Header};
    use tokio::net::UdpSocket;

    use super::*;

    const PLAN: Bursts = Bursts {
        bursts: 5,
        size: 4,
        every: Duration::from_millis(5),
    };

    /// A server that makes of each question what it likes.
    async fn server(
        mut answers: impl FnMut(u32, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
    ) -> SocketAddr {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            let mut count = 0;
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                for answer in answers(count, buffer[..length].to_vec()) {
                    socket.send_to(&answer, from).await.unwrap();
                }
                count += 1;
            }
        });
        address
    }

    /// The question as its answer.
    fn answer(question: &[u8], text: &[u8]) -> Vec<u8> {
        let header = Header::decode(question).unwrap();
        let flags = header.flags.without(Flags::CLIENT_INITIATED);
        let mut packet = Header { flags, ..header }.encode().to_vec();
        packet.extend(text);
        packet
    }

    #[tokio::test]
    async fn a_good_server_answers_all() {
        let at = server(|_, question| vec![answer(&question, b" OpenAFS 1.8.9\0\0")]).await;
        let echo = echo(at, PLAN).await.unwrap();
        assert_eq!((echo.path.sent, echo.path.answered), (20, 20));
        assert_eq!((echo.path.reordered, echo.path.duplicated), (0, 0));
        assert_eq!(echo.version.as_deref(), Some("OpenAFS 1.8.9"));
        assert!(echo.path.rtt_min_s.unwrap() < 0.5);
    }

    #[tokio::test]
    async fn loss_repetition_and_disorder_are_counted() {
        let mut held = None;
        let at = server(move |count, question| {
            let this = answer(&question, b"x");
            match count {
                3 => vec![],
                7 => vec![this.clone(), this],
                8 => {
                    held = Some(this);
                    vec![]
                }
                9 => [Some(this), held.take()].into_iter().flatten().collect(),
                _ => vec![this],
            }
        })
        .await;
        let path = echo(at, PLAN).await.unwrap().path;
        assert_eq!((path.sent, path.answered), (20, 19));
        assert_eq!((path.duplicated, path.reordered), (1, 1));
    }

    #[tokio::test]
    async fn lies_are_passed_over() {
        let at = server(|count, question| {
            let mut other = answer(&question, b"lie");
            other[0] ^= 0x40;
            // A number that was not asked, the question itself, and no packet at all.
            let mut beyond = answer(&question, b"\x1b[2Jevil\0");
            beyond[8] = 0xff;
            let short = question[..HEADER_SIZE - 1].to_vec();
            let mut all = vec![other, beyond, question.clone(), short];
            if count == 0 {
                all.push(answer(&question, b"ok"));
            }
            all
        })
        .await;
        let echo = echo(at, PLAN).await.unwrap();
        assert_eq!(echo.path.answered, 1);
        assert_eq!(echo.version.as_deref(), Some("?[2Jevil"));
    }

    #[tokio::test]
    async fn nothing_listens_there() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        drop(socket);
        let path = echo(at, PLAN).await.unwrap().path;
        assert!(path.refused && path.answered == 0, "{path:?}");
    }
}
