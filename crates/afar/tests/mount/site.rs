//! A cell, and its mounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
pub(crate) const CELL: &str = "mount.example";
/// How long anything may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long until one mount knows what another one has done: the promise is broken at once, and the
/// kernel is told by a thread nobody waits for.
const SOON: Duration = Duration::from_secs(5);

/// Whether things can be mounted here; says why not.
pub(crate) fn can_mount() -> bool {
    if Path::new("/dev/fuse").exists() && geteuid().is_root() {
        return true;
    }
    eprintln!("skipped: mounting needs /dev/fuse and root");
    false
}

/// Waits until something holds that another mount has brought about.
pub(crate) fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "not soon: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process and what it says on standard error.
pub(crate) struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Process {
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
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// Waits for a line with this in it.
    pub(crate) fn until(&mut self, text: &str) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(_) => panic!("no line with {text:?}: {:#?}", self.seen),
            }
            if self.seen.last().is_some_and(|line| line.contains(text)) {
                return;
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end; whether it was a success.
    pub(crate) fn end(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not end: {:#?}",
                self.told()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has said so far.
    pub(crate) fn told(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#?}", self.told());
        }
        // It has ended already when it was stopped.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// A cell in a folder, with an address of its own, as AFS's ports are fixed.
pub(crate) struct Site {
    // Dropped in this order: mounts are gone by then.
    pub(crate) server: Option<Process>,
    dir: TempDir,
    address: &'static str,
}

impl Site {
    pub(crate) fn new(address: &'static str) -> Self {
        let mut site = Self {
            server: None,
            dir: tempfile::tempdir().unwrap(),
            address,
        };
        site.start();
        // The root of a new cell may hold 5 MB.
        let root = format!("/afs/{CELL}");
        site.say(&["fs", "setquota", &root, "0", "--localauth"]);
        site
    }

    /// Starts the cell's server; again if it was stopped.
    pub(crate) fn start(&mut self) {
        let mut server = Process::start(self.up());
        server.until("is up at");
        self.server = Some(server);
    }

    /// Stops the cell's server in order.
    pub(crate) fn stop(&mut self) {
        let mut server = self.server.take().unwrap();
        server.signal(Signal::TERM);
        assert!(server.end(), "{:#?}", server.told());
    }

    pub(crate) fn up(&self) -> Command {
        let mut command = self.command();
        command.arg("up").arg(self.path("cell"));
        command.args(["--cell", CELL, "--listen", self.address]);
        command
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn address(&self) -> &str {
        self.address
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", self.path("run"));
        command
    }

    /// Runs a command that must succeed.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let output = self.command().args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The mountpoint of this name, made.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        let place = self.path(name);
        // What a killed mount left here is no directory any more.
        if !is_mounted(&place) {
            fs::create_dir_all(&place).unwrap();
        }
        place
    }

    /// `afar mount` of the cell, with a cache of its own.
    pub(crate) fn mount_command(&self, name: &str) -> Command {
        let mut command = self.command();
        command.args(["mount", "--localauth", "--cache"]);
        command.arg(self.path(&format!("cache-{name}")));
        command
    }

    /// Mounts the cell, served by a process of this test.
    pub(crate) fn mount(&self, name: &str) -> Mounted {
        self.mount_with(name, &[])
    }

    pub(crate) fn mount_with(&self, name: &str, more: &[&str]) -> Mounted {
        self.mount_source(Some(CELL), name, more)
    }

    /// Mounts the list of cells.
    pub(crate) fn mount_dynamic(&self, name: &str) -> Mounted {
        self.mount_source(None, name, &[])
    }

    fn mount_source(&self, source: Option<&str>, name: &str, more: &[&str]) -> Mounted {
        let place = self.place(name);
        let mut command = self.mount_command(name);
        command
            .arg("--foreground")
            .args(more)
            .args(source)
            .arg(&place);
        let mut process = Process::start(command);
        process.until("is mounted on");
        Mounted { process, place }
    }
}

pub(crate) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A mount. Dropped without an end of its own it is killed and taken away.
pub(crate) struct Mounted {
    pub(crate) process: Process,
    place: PathBuf,
}

impl Mounted {
    /// What a process has mounted here.
    pub(crate) fn of(process: Process, place: PathBuf) -> Self {
        Self { process, place }
    }

    /// A path in the mount.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join(name)
    }

    /// Tells it to stop, and waits until all is stored.
    pub(crate) fn stop(mut self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.end(), "{:#?}", self.process.told());
        assert!(!is_mounted(&self.place));
    }

    /// Kills its process; the mount stays, served by nobody.
    pub(crate) fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.end();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.place) {
            let _gone = self.process.child.kill();
            let _gone = self.process.child.wait();
            let mut umount = Command::new("umount");
            let _gone = umount.arg("-l").arg(&self.place).status();
        }
    }
}

/// Whether the kernel has something mounted here.
pub(crate) fn is_mounted(place: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let place = place.to_str().unwrap().replace(' ', "\\040");
    table
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&place))
}
