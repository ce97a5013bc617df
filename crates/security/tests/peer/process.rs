//! The program around the other implementations, and the messages to it and from it.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// Its sources, beside this file.
const SOURCES: [&str; 4] = ["peer.c", "packets.c", "tickets.c", "mit.c"];
/// What it is linked with, in this order.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/librxkad.a",
    "/usr/lib/libafsrfc3961.a",
    "/usr/lib/afs/libafscom_err.a",
    // Heimdal's, which OpenAFS uses and for which there is no package for developers beside MIT's.
    "-l:libhcrypto.so.5",
    "-l:libroken.so.19",
    "-lkrb5",
];
/// What must be there to build it.
const HEADERS: [&str; 3] = [
    "/usr/include/rx/rxkad.h",
    "/usr/include/krb5.h",
    "/usr/lib/librxkad.a",
];

/// Codes of Heimdal's ASN.1 library, which OpenAFS hands on for what is not DER or has another form.
pub(crate) const ASN1_ERRORS: std::ops::Range<i32> = 1_859_794_432..1_859_794_688;

/// What is asked for; the order is that of the table in `peer.c`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Cipher,
    Client,
    Server,
    Respond,
    CheckResponse,
    Seal,
    Open,
    OpenTicket,
    MakeTicket,
    Derive,
    Times,
    MitMake,
    MitOpen,
}

/// A request under construction.
pub(crate) struct Request(Vec<u8>);

impl Request {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(vec![0, 0, 0, 0, kind as u8])
    }

    pub(crate) fn int(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn octets(self, octets: &[u8]) -> Self {
        let mut this = self.int(octets.len().try_into().unwrap());
        this.0.extend(octets);
        this
    }

    fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len() - 4).unwrap();
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        self.0
    }
}

/// An answer, read from its front.
pub(crate) struct Answer(std::io::Cursor<Vec<u8>>);

impl Answer {
    pub(crate) fn int(&mut self) -> u32 {
        let mut word = [0; 4];
        self.0.read_exact(&mut word).unwrap();
        u32::from_be_bytes(word)
    }

    /// A result: 0 or the code of an error.
    pub(crate) fn code(&mut self) -> i32 {
        self.int().cast_signed()
    }

    pub(crate) fn octets(&mut self) -> Vec<u8> {
        let mut octets = vec![0; self.int().try_into().unwrap()];
        self.0.read_exact(&mut octets).unwrap();
        octets
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8(self.octets()).unwrap()
    }
}

/// The program, running.
pub(crate) struct Peer {
    child: Child,
    answers: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Peer {
    /// Builds and starts it. `None`, and a word about it, where it cannot be built.
    pub(crate) fn start() -> Option<Self> {
        let missing = HEADERS.iter().find(|path| !Path::new(path).exists());
        if let Some(path) = missing {
            eprintln!("SKIPPED: no {path}; install libopenafs-dev, libkrb5-dev and gcc");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("peer");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer");
        let built = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .args(SOURCES.map(|name| here.join(name)))
            .args(LIBRARIES)
            .output();
        let Ok(built) = built else {
            eprintln!("SKIPPED: no cc; install gcc");
            return None;
        };
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "building the peer: {errors}");
        let mut child = Command::new(program)
            // What it encrypts with must not depend on this machine's realms.
            .env("KRB5_CONFIG", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        Some(Self {
            child,
            answers,
            _folder: folder,
        })
    }

    /// Sends requests, all at once, and gives the answers in their order.
    pub(crate) fn ask(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<Answer> {
        let mut count = 0;
        let mut text = Vec::new();
        for request in requests {
            text.extend(request.finish());
            count += 1;
        }
        // An empty request: the batch is complete.
        text.extend([0; 4]);
        let pipe = self.child.stdin.as_mut().unwrap();
        let answers = &mut self.answers;
        // Both pipes may fill up, so one thread writes while the other reads.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pipe.write_all(&text).unwrap();
                pipe.flush().unwrap();
            });
            (0..count).map(|_| answer(answers)).collect()
        })
    }

    /// Sends one request.
    pub(crate) fn ask_one(&mut self, request: Request) -> Answer {
        self.ask([request]).pop().unwrap()
    }
}

fn answer(from: &mut impl Read) -> Answer {
    let mut word = [0; 4];
    from.read_exact(&mut word).expect("the peer has ended");
    let mut octets = vec![0; u32::from_be_bytes(word).try_into().unwrap()];
    from.read_exact(&mut octets).unwrap();
    Answer(std::io::Cursor::new(octets))
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Without input it ends.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}
