//! A server of afar.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::net::Net;
use crate::openafs::OpenAfs;
use crate::place::{CELL, inside};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// `afar server` in a member's namespace.
pub(crate) struct Server {
    dir: TempDir,
    child: Child,
}

impl Server {
    /// Starts a server with all roles and two partitions, or with those that `more` says: lines of
    /// TOML before the first table.
    pub(crate) fn start(net: &Net, member: &str, more: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "cell = {CELL:?}\ndata = {:?}\nrun = {:?}\nlisten = {:?}\n{more}\n\
             [partition.a]\npath = {:?}\n[partition.b]\npath = {:?}\n",
            at("data"),
            at("run"),
            net.address(member),
            at("vicepa"),
            at("vicepb"),
        );
        fs::write(at("afar.toml"), config).unwrap();
        let child = spawn(net, member, dir.path());
        let mut server = Self { dir, child };
        server.wait_until_ready();
        server
    }

    /// Stops it, and starts it again on what it has kept.
    pub(crate) fn restart(mut self, net: &Net, member: &str) -> Self {
        self.end();
        fs::remove_file(self.run_dir().join("CellServDB")).unwrap();
        self.child = spawn(net, member, self.dir.path());
        self.wait_until_ready();
        self
    }

    fn wait_until_ready(&mut self) {
        let ready = self.run_dir().join("CellServDB");
        let begun = Instant::now();
        while !ready.exists() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "the server did not start: {ended:?}: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The directory of its sockets for administration.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path().join("run")
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Stops it as a service manager would; it must end well and in time.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "does not stop: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}: {}", self.log());
    }
}

fn spawn(net: &Net, member: &str, dir: &Path) -> Child {
    let mut log = OpenOptions::new();
    let log = log.create(true).append(true).open(dir.join("log")).unwrap();
    inside(&net.namespace(member))
        .args([env!("CARGO_BIN_EXE_afar"), "server", "--config"])
        .arg(dir.join("afar.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}

/// The servers under test: afar's, or to see which rows need a mask OpenAFS's once more.
pub(crate) enum Ours {
    Afar(Server),
    OpenAfs(OpenAfs),
}

impl Ours {
    /// Starts them with all roles, everybody an administrator if `noauth`.
    pub(crate) fn start(net: &Net, noauth: bool) -> Self {
        if std::env::var_os("AFAR_TEST_SELF").is_some() {
            return Self::OpenAfs(OpenAfs::start(net, "srv", noauth));
        }
        let line = format!("insecure_noauth = {noauth}");
        Self::Afar(Server::start(net, "srv", &line))
    }

    /// Stops them, and starts them again on what they have kept.
    pub(crate) fn restart(self, net: &Net) -> Self {
        match self {
            Self::Afar(server) => Self::Afar(server.restart(net, "srv")),
            Self::OpenAfs(cell) => Self::OpenAfs(cell),
        }
    }

    /// The socket where it shows its metrics, if it has one.
    pub(crate) fn metrics(&self) -> Option<PathBuf> {
        match self {
            Self::Afar(server) => Some(server.run_dir().join("metrics.sock")),
            Self::OpenAfs(_) => None,
        }
    }

    pub(crate) fn stop(self) {
        match self {
            Self::Afar(server) => server.stop(),
            Self::OpenAfs(cell) => drop(cell),
        }
    }
}
