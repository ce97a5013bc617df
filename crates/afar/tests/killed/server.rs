//! A whole cell of `afar up` on an address of its own, that can be killed.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use afar_net::{Config, Endpoint, Local, RxNull};
use afar_rpc::{rxafs, vl};
use afar_types::{AclText, Fid, StoreVolumeStatus, VolumeId, VolumeName};
use afar_xdr::XdrString;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long a server may take to start or to stop, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);
const CELL: &str = "killed.example";
/// Told when the server is ready.
const READY: &str = " is up at ";

/// A cell, and its server while that runs.
pub(crate) struct Server {
    dir: TempDir,
    address: Ipv4Addr,
    arguments: &'static [&'static str],
    child: Option<Child>,
}

impl Server {
    /// A cell that has not been started yet, and what else to say to `afar up`.
    pub(crate) fn new(arguments: &'static [&'static str]) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let [a, b] = std::process::id().to_be_bytes()[2..] else {
            unreachable!("two bytes are left");
        };
        // The servers of one process have addresses of their own too.
        let own = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
        let address = Ipv4Addr::new(127, 64 | own, a, b.max(1));
        Self {
            dir: TempDir::new().unwrap(),
            address,
            arguments,
            child: None,
        }
    }

    /// Starts it and waits until it is ready. Returns how long that took.
    pub(crate) fn start(&mut self) -> Duration {
        assert!(self.child.is_none(), "it runs already");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let known = self.log().matches(READY).count();
        let begun = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_afar"))
            .arg("up")
            .arg(self.cell())
            .args(self.arguments)
            .args(["--cell", CELL, "--listen", &self.address.to_string()])
            .env("AFAR_RUN_DIR", self.dir.path().join("run"))
            .stdin(Stdio::null())
            .stdout(File::create(self.dir.path().join("out")).unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let child = self.child.insert(child);
        loop {
            let ended = child.try_wait().unwrap();
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
            if log.matches(READY).count() > known {
                return begun.elapsed();
            }
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "the server did not start: {ended:?}: {log}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it at once, whatever it is doing.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        let ended = child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "ended by itself: {ended:?}: {}",
            self.log()
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops it as Ctrl-C or a service manager does; it must end well.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "does not stop: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// `afar store check` of its partition, which must find everything in order, contents included.
    pub(crate) fn check_store(&self) {
        assert!(self.child.is_none(), "the server has the partition");
        let output = Command::new(env!("CARGO_BIN_EXE_afar"))
            .args(["store", "check", "--data"])
            .arg(self.cell().join("vicepa"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The directory of the cell.
    pub(crate) fn cell(&self) -> PathBuf {
        self.dir.path().join("cell")
    }

    /// Where it serves files.
    pub(crate) fn files(&self) -> SocketAddr {
        self.at(7000)
    }

    /// One of its services.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        (self.address, port).into()
    }

    /// Bytes of memory that the server has at the moment.
    pub(crate) fn memory(&self) -> u64 {
        let child = self.child.as_ref().unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = resident.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    }

    /// Lets everybody write to the cell's root volume without limit, and returns its root.
    pub(crate) async fn open_to_all(&self) -> Fid {
        let local = Local::client(&self.run_dir()).unwrap();
        let endpoint = Endpoint::with_socket(local, Config::default()).unwrap();
        let connect = |port, service| endpoint.connect(self.at(port), service, Arc::new(RxNull));
        let location = vl::Client::new(connect(7003, vl::SERVICE));
        let name = VolumeName::new("root.cell").unwrap();
        let found = location.get_entry_by_name_n(name).await.unwrap();
        let volume: VolumeId = found.entry.volume_id[0];
        let root = Fid::root(volume);
        let files = rxafs::Client::new(connect(7000, rxafs::SERVICE));
        let acl = AclText::new(&b"2\n0\nsystem:administrators\t127\nsystem:anyuser\t63\n\0"[..]);
        files.store_acl(root, acl.unwrap()).await.unwrap();
        let unlimited = StoreVolumeStatus {
            mask: StoreVolumeStatus::SET_MAX_QUOTA,
            ..StoreVolumeStatus::default()
        };
        let name = XdrString::new("").unwrap();
        let (offline, today) = (XdrString::new("").unwrap(), XdrString::new("").unwrap());
        let set = files.set_volume_status(volume, unlimited, name, offline, today);
        set.await.unwrap();
        endpoint.shutdown().await;
        root
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run").join(CELL)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it has logged in all its lives.
    pub(crate) fn log(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        read(&self.log_path())
    }
}

impl Drop for Server {
    #[expect(clippy::print_stderr, reason = "of a test that failed")]
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            child.kill().ok();
            child.wait().unwrap();
        }
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}
