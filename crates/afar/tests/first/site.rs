//! A folder for a cell.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
pub(crate) const CELL: &str = "first.example";

/// A folder for a cell, and the address it is to have: AFS's ports are fixed, so each test has a
/// loopback address of its own.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) address: &'static str,
}

impl Site {
    pub(crate) fn new(address: &'static str) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            address,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", self.path("run"));
        command.env("AFAR_TOKENS", self.path("tokens"));
        command
    }

    pub(crate) fn up(&self, cell: &str) -> Command {
        let mut command = self.command();
        command.arg("up").arg(self.path("cell"));
        command.args(["--cell", cell, "--listen", self.address]);
        command
    }

    pub(crate) fn start(&self) -> Server {
        let server = Server::start(self.up(CELL));
        server.until("is up at");
        server
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    /// Runs a command that must succeed; what it prints.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail; what it says on standard error.
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}");
        told(&output)
    }
}

pub(crate) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (keep, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                // Nobody listens any more once the test has seen enough.
                let _gone = keep.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with this in it; all lines up to it.
    pub(crate) fn until(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with {text:?}: {seen:#?}"),
            }
            if seen.last().is_some_and(|line| line.contains(text)) {
                return seen;
            }
        }
    }

    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when it was stopped.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
