//! A cell of `afar up` with the key of which tickets are made here, as a KDC would make them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use afar_net::{ClientSecurity, RxNull};
use afar_security::keys::Key;
use afar_security::ticket::{self, Mint};
use afar_security::{EncryptionKey, EncryptionType, KeyRing, Level, Token, rxkad};
use tempfile::TempDir;

pub(crate) const CELL: &str = "rights.example";
pub(crate) const REALM: &str = "RIGHTS.EXAMPLE";
/// A realm that is not the cell's.
pub(crate) const ELSEWHERE: &str = "ELSEWHERE.EXAMPLE";

const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: u32 = 3600;

/// A cell that runs.
pub(crate) struct Cell {
    dir: TempDir,
    address: Ipv4Addr,
    server: Running,
}

/// A server, killed when dropped.
pub(crate) struct Running {
    child: Child,
    log: Arc<Mutex<String>>,
}

/// An address of loopback that nobody else uses.
fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [a, b] = std::process::id().to_be_bytes()[2..] else {
        unreachable!("two bytes are left");
    };
    // The servers of one process have addresses of their own too.
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    Ipv4Addr::new(127, 64 | own, a, b.max(1))
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<String>>::default();
        let (lines, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child, log }
    }

    /// Waits until it has said this, and gives the line.
    pub(crate) fn until(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = self.log.lock().unwrap().clone();
            if let Some(line) = log.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "no line with {text:?}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Cell {
    /// Starts one whose configuration has these lines in its section `[security]`, and more
    /// sections behind them.
    pub(crate) fn start(security: &str) -> Self {
        let (dir, address) = (TempDir::new().unwrap(), address());
        let path = |name: &str| dir.path().join(name);
        let text = format!(
            "cell = \"{CELL}\"\ndata = {:?}\nlisten = \"{address}\"\nlog = \"info\"\n\
             [partition.a]\npath = {:?}\n[security]\n{security}",
            path("cell/data"),
            path("cell/vicepa"),
        );
        fs::create_dir(path("cell")).unwrap();
        fs::write(path("cell/afar.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
        command.arg("up").arg(path("cell"));
        let server = Running::start(command.env("AFAR_RUN_DIR", path("run")));
        let cell = Self {
            dir,
            address,
            server,
        };
        cell.until(" is up at ");
        cell
    }

    /// Starts a file server of the cell as on another machine, with these files of keys.
    pub(crate) fn join(&self, keys: &[PathBuf]) -> (Ipv4Addr, Running) {
        let (other, address) = (self.dir.path().join("other"), address());
        let text = format!(
            "cell = \"{CELL}\"\nroles = [\"file\", \"vol\"]\ndata = {:?}\nlisten = \"{address}\"\n\
             [partition.a]\npath = {:?}\n[security]\nkeys = {keys:?}\n\
             [location]\nservers = [\"{here}\"]\n[protection]\nservers = [\"{here}\"]\n",
            other.join("data"),
            other.join("vicepa"),
            here = self.address,
        );
        fs::create_dir(&other).unwrap();
        fs::write(other.join("afar.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_afar"));
        command.args(["server", "--config"]);
        command.arg(other.join("afar.toml"));
        let server = Running::start(command.env("AFAR_RUN_DIR", other.join("run")));
        (address, server)
    }

    /// Waits until the server has said this, and gives the line.
    pub(crate) fn until(&self, text: &str) -> String {
        self.server.until(text)
    }

    /// Where its servers are.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.dir.path().join("cell/data/KeyFileExt")
    }

    pub(crate) fn keys(&self) -> KeyRing {
        KeyRing::open([self.key_file()]).unwrap()
    }

    /// Runs `afar` on this cell's machine.
    pub(crate) fn afar(&self, words: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_afar"))
            .args(words)
            .env("AFAR_RUN_DIR", self.dir.path().join("run"))
            .env_remove("KRB5CCNAME")
            .output()
            .unwrap()
    }

    /// A ticket for an hour from now on.
    pub(crate) fn token(&self, user: &str, realm: &str) -> Token {
        minted(&self.keys(), user, realm, (0, HOUR))
    }

    /// What servers print for themselves.
    pub(crate) fn localauth(&self) -> Token {
        ticket::print(&self.keys()).unwrap()
    }

    /// A ticket that does not open a server's door any more, or never did.
    pub(crate) fn bad_token(&self, how: Bad) -> Token {
        let keys = self.keys();
        let newest = keys.newest().unwrap();
        let ann = |keys: &KeyRing, times| minted(keys, "ann", REALM, times);
        let hours = HOUR.cast_signed();
        match how {
            Bad::Expired => {
                let mut token = ann(&keys, (-2 * hours, HOUR));
                // The client itself takes it for good.
                token.end = u32::MAX;
                token
            }
            Bad::NotYet => ann(&keys, (2 * hours, HOUR)),
            Bad::OtherKey => {
                let key = EncryptionKey::random(EncryptionType::Aes256Sha1);
                ann(&KeyRing::of([Key { key, ..newest }]), (0, HOUR))
            }
            Bad::OtherNumber => {
                let kvno = newest.kvno + 7;
                ann(&KeyRing::of([Key { kvno, ..newest }]), (0, HOUR))
            }
        }
    }
}

/// What may be wrong with a ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bad {
    Expired,
    NotYet,
    /// Made with another key of the number of the cell's.
    OtherKey,
    /// Made with a key whose number the cell does not have.
    OtherNumber,
}

/// A ticket that holds from so many seconds from now on, for so many.
fn minted(keys: &KeyRing, user: &str, realm: &str, (from, life): (i32, u32)) -> Token {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = u32::try_from(now.as_secs()).unwrap();
    let start = now.checked_add_signed(from).unwrap();
    let request = Mint {
        client: user,
        realm,
        cell: CELL,
        start,
        end: start + life,
    };
    ticket::mint(keys, &request).unwrap().token
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// How to show a token; without one, how to stay anonymous.
pub(crate) fn security(token: Option<&Token>, level: Level) -> Arc<dyn ClientSecurity> {
    match token {
        Some(token) => Arc::new(rxkad::Client::new(Arc::new(token.clone()), level)),
        None => Arc::new(RxNull),
    }
}
