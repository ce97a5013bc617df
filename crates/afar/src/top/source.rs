//! Snapshots of a server: of this machine from the socket in its run directory, of others as far as they
//! tell.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afar_server::local_cell::{self, LocalCell};
use afar_server::view::{SOCKET, Snapshot, View};
use afar_types::CellName;
use anyhow::{Context, bail, ensure};

use super::far::{Far, Met};
use super::mounts::Mounts;
use super::remote::Remote;
use crate::output;

/// How long the server has for an answer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer, at most: of 1024 rows that are as large as can be.
pub(super) const ANSWER_MAX: u64 = 64 << 20;
/// How much longer than the interval a server counts files for us.
pub(super) const LEASE_MORE: u64 = 10;

/// A server, or the mounts of this machine.
#[derive(Debug)]
pub(super) enum Source {
    /// Of this machine.
    Socket(Socket),
    /// Elsewhere, as far as it tells everybody.
    Remote(Remote),
    /// Elsewhere, where we are an administrator.
    Far(Far),
    /// Mounts.
    Mounts(Mounts),
}

/// A server's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    limit: Duration,
}

impl Source {
    /// The socket at this path; otherwise of the server of this cell, or of the only one that runs here.
    ///
    /// # Errors
    /// There is none, or several.
    pub(super) fn find(path: Option<&Path>, cell: Option<&CellName>) -> anyhow::Result<Self> {
        if let Some(path) = path {
            return Ok(Self::Socket(Socket::at(path.to_owned())));
        }
        let mut cells = local_cell::all();
        if let Some(name) = cell {
            cells.retain(|found| found.entry.name == *name);
        }
        Ok(Self::Socket(Socket::of(&one(cells, cell)?.run)))
    }

    /// A server elsewhere, by its name or address, to look at this: as an administrator if it takes us for one, with
    /// `localauth` as its cell.
    ///
    /// # Errors
    /// There is none; with `localauth` it does not tell us all.
    pub(super) fn remote(
        name: &str,
        cell: Option<&CellName>,
        localauth: bool,
        view: View,
    ) -> anyhow::Result<Self> {
        let met = match Far::meet(name, cell, localauth, view) {
            Err(error) if !localauth => {
                tracing::debug!("{name} is not asked as an administrator: {error:#}");
                Met::Nobody
            }
            met => met?,
        };
        match met {
            Met::All(far) => return Ok(Self::Far(far)),
            Met::Refused => output::note(&format_args!(
                "{name} tells its administrators more; `afar login` as one, or use --localauth with its cell's keys"
            )),
            Met::Nobody => {}
        }
        ensure!(
            !localauth,
            "{name}: no server of afar answers there that --localauth administers"
        );
        Remote::new(name).map(Self::Remote)
    }

    /// Whether a server tells only what it tells everybody.
    pub(super) const fn is_for_everybody(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// The mount at this place; otherwise all of this machine.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn mounts(place: Option<&Path>) -> anyhow::Result<Self> {
        Mounts::find(place).map(Self::Mounts)
    }

    /// A table as it is now.
    ///
    /// # Errors
    /// The server does not answer, or not as one does.
    pub(super) fn fetch(&self, view: View, interval: Duration) -> anyhow::Result<Snapshot> {
        match self {
            Self::Socket(socket) => socket.fetch(view, interval),
            Self::Remote(remote) => remote.fetch(view),
            Self::Far(far) => far.fetch(view, interval),
            Self::Mounts(mounts) => mounts.fetch(),
        }
    }
}

impl Socket {
    /// The socket in a run directory.
    pub(crate) fn of(run: &Path) -> Self {
        Self::at(run.join(SOCKET))
    }

    fn at(path: PathBuf) -> Self {
        Self { path, limit: LIMIT }
    }

    /// The same with less time for answers.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// A table as it is now. The server counts what is in it for some time longer than `interval`, after which we
    /// ask again.
    ///
    /// # Errors
    /// The server does not answer, or not as one does.
    pub(crate) fn fetch(&self, view: View, interval: Duration) -> anyhow::Result<Snapshot> {
        let lease = interval.as_secs() + LEASE_MORE;
        let target = format!("{}?lease={lease}", view.path());
        let answer = self.ask(&target).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                anyhow::Error::new(error).context("only the user that runs the server may ask it")
            }
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                anyhow::Error::new(error).context("no server listens there; is it running?")
            }
            _ => error.into(),
        });
        let answer = answer.with_context(|| self.name())?;
        let json = body(&answer).with_context(|| self.name())?;
        serde_json::from_slice(json).with_context(|| {
            format!(
                "{}: the answer is not one of afar's; is it another version?",
                self.name()
            )
        })
    }

    fn name(&self) -> String {
        format!("cannot ask the server at {}", self.path.display())
    }

    /// The whole answer to a request.
    fn ask(&self, target: &str) -> std::io::Result<Vec<u8>> {
        let end = Instant::now() + self.limit;
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_write_timeout(Some(self.limit))?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || answer.len() as u64 > ANSWER_MAX {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut piece) {
                Ok(0) => return Ok(answer),
                Ok(length) => answer.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What follows the head of an answer that says 200.
fn body(answer: &[u8]) -> anyhow::Result<&[u8]> {
    let mut windows = answer.windows(4);
    let end = windows.position(|four| four == b"\r\n\r\n");
    let end = end.context("it does not answer as a web server does")?;
    let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default());
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => {}
        Some("404") => bail!("it does not know this table; is it an older version?"),
        _ => bail!(
            "it answers {:?}",
            status.chars().take(80).collect::<String>()
        ),
    }
    let body = answer.get(end + 4..).unwrap_or_default();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        value.trim().parse::<usize>().ok().filter(|_| is_length)
    });
    let whole = length.is_none_or(|length| length == body.len());
    ensure!(whole, "its answer is truncated");
    Ok(body)
}

/// The only one of these cells that has a server to ask.
fn one(cells: Vec<LocalCell>, named: Option<&CellName>) -> anyhow::Result<LocalCell> {
    let mut served: Vec<LocalCell> = (cells.into_iter())
        .filter(|cell| cell.run.join(SOCKET).exists())
        .collect();
    if served.len() > 1 {
        let names = served.iter().map(|cell| cell.entry.name.to_string());
        bail!(
            "several cells run on this machine ({}); choose one with --cell",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    served.pop().with_context(|| match named {
        Some(name) => format!(
            "no server of {name} runs on this machine that this user may ask; try again as root"
        ),
        None => {
            "no server runs on this machine that this user may ask; try again as root, or name \
                 its socket with --socket"
                .to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_answer_has_a_head_and_a_body_of_the_length_that_it_says() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-type: x\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(body(format!("{ok}{{}}").as_bytes()).unwrap(), b"{}");
        let error = |text: &str| body(text.as_bytes()).unwrap_err().to_string();
        assert!(error(&format!("{ok}{{")).contains("truncated"));
        assert!(error("HTTP/1.1 404 Not Found\r\n\r\n").contains("older version"));
        assert!(error("HTTP/1.1 500 \u{1b}[2J\r\n\r\n").contains("\\u{1b}"));
        assert!(error("SSH-2.0-OpenSSH\r\n").contains("web server"));
        assert!(error("").contains("web server"));
    }

    #[test]
    fn a_server_that_answers_nonsense_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[1,2").unwrap();
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        let source = Socket::at(path);
        let error = source
            .fetch(View::Files, Duration::from_secs(2))
            .unwrap_err();
        assert!(
            format!("{error:#}").contains("another version"),
            "{error:#}"
        );
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /top/files?lease=12 HTTP/1.1\r\n"),
            "{request}"
        );
        let missing = Socket::at(dir.path().join("b"));
        let error = missing
            .fetch(View::Calls, Duration::from_secs(2))
            .unwrap_err();
        assert!(format!("{error:#}").contains("is it running"), "{error:#}");
    }
}
