//! How others talk to a running emulator: requests from threads, and a socket for processes.
//!
//! The socket carries one line each way: `report`, `reset` or `stop`, answered by a
//! [`Report`] as JSON. A killed emulator leaves a socket that nobody answers, which is how its
//! death is noticed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    error::{Context, Error, Result},
    stats::Report,
};

/// How long an answer may take. An emulator looks at its requests between two packets.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const REQUEST_MAX: u64 = 64;

/// What an emulator can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Tell the counters.
    Report,
    /// Tell the counters, then set them to zero.
    Reset,
    /// Tell the counters, then end.
    Stop,
}

impl Request {
    const ALL: [(&'static str, Self); 3] = [
        ("report", Self::Report),
        ("reset", Self::Reset),
        ("stop", Self::Stop),
    ];
}

/// The handle by which threads reach an emulator.
#[derive(Debug)]
pub struct Control {
    wake: OwnedFd,
    waiting: AtomicBool,
    requests: Mutex<Vec<(Request, Sender<Report>)>>,
}

impl Control {
    /// A handle for an emulator yet to be run.
    ///
    /// # Errors
    ///
    /// What the system said about the event descriptor.
    pub fn new() -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("making an event descriptor")?;
        Ok(Self {
            wake,
            waiting: AtomicBool::new(false),
            requests: Mutex::default(),
        })
    }

    /// Asks, and waits for the answer for 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the emulator does not answer.
    pub fn ask(&self, request: Request) -> Result<Report> {
        self.post(request)?
            .recv_timeout(PATIENCE)
            .map_err(|_| Error::Io {
                what: "asking the emulator".to_owned(),
                source: std::io::ErrorKind::TimedOut.into(),
            })
    }

    fn post(&self, request: Request) -> Result<Receiver<Report>> {
        let (answer, answered) = channel();
        self.requests.lock().push((request, answer));
        // In this order, so that who finds `waiting` also finds the event to read: written later it
        // would stay readable, and end every sleep of the emulator at once.
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).context("waking the emulator")?;
        self.waiting.store(true, Ordering::Release);
        Ok(answered)
    }

    /// The requests since the last call. Costs one atomic load if there are none.
    pub(crate) fn take(&self) -> Vec<(Request, Sender<Report>)> {
        if !self.waiting.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        // Whatever the read says, the list is what counts.
        rustix::io::read(&self.wake, &mut [0_u8; 8]).ok();
        std::mem::take(&mut *self.requests.lock())
    }

    /// What becomes readable when a request waits.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Answers one connection after the other until the socket fails.
    pub fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming().flatten() {
            // A client that goes away, or says nothing useful, is its own affair.
            self.answer(stream).ok();
        }
    }

    fn answer(&self, mut stream: UnixStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&stream).take(REQUEST_MAX)).read_line(&mut line)?;
        let Some((_, request)) = Request::ALL.iter().find(|(name, _)| *name == line.trim()) else {
            return stream.write_all(b"unknown request\n");
        };
        match self.ask(*request) {
            Ok(report) => {
                let mut text = serde_json::to_vec(&report)?;
                text.push(b'\n');
                stream.write_all(&text)
            }
            Err(error) => writeln!(stream, "{error}"),
        }
    }
}

/// Asks the emulator behind a socket.
///
/// # Errors
///
/// [`Error::NotRunning`] with `link` if nobody listens, otherwise [`Error::Io`].
pub fn ask(link: &str, socket: &Path, request: Request) -> Result<Report> {
    let mut stream = UnixStream::connect(socket).map_err(|_| Error::NotRunning(link.to_owned()))?;
    let what = format!("asking the emulator of link {link}");
    let name = Request::ALL
        .iter()
        .find(|(_, r)| *r == request)
        .map_or("report", |(name, _)| name);
    let mut text = String::new();
    stream
        .set_read_timeout(Some(2 * PATIENCE))
        .and_then(|()| writeln!(stream, "{name}"))
        .and_then(|()| stream.read_to_string(&mut text))
        .context(&what)?;
    serde_json::from_str(&text).context(format_args!("{what}: it said '{}'", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(control: &Control) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::from_borrowed_fd(control.wake(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready == 1)
    }

    /// The emulator may take a request at any moment of its posting. The event that belongs to it is read
    /// then: one that stays readable, with nothing to take, would end each of its sleeps at once.
    #[test]
    fn no_event_is_left_behind() {
        let control = Control::new().expect("an event");
        for round in 0..2_000 {
            std::thread::scope(|scope| {
                let posting = scope.spawn(|| control.post(Request::Report).is_ok());
                while !posting.is_finished() {
                    control.take();
                }
            });
            control.take();
            assert!(!is_readable(&control), "round {round}");
        }
    }
}
