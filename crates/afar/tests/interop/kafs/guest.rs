//! An emulated machine with Linux's own AFS client.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::net::Net;
use crate::place::{CELL, inside};

/// The guest's address.
const ADDRESS: &str = "10.97.0.9";
/// Where it takes scripts.
const PORT: u16 = 1;
/// How long it may take to start, which it does in 10 seconds on an idle machine.
const START: Duration = Duration::from_secs(120);
/// How long a script may run.
const PATIENCE: Duration = Duration::from_secs(90);
/// The kernel's own words for something that went wrong inside it.
const COMPLAINTS: [&str; 7] = [
    "BUG:",
    "Oops",
    "WARNING:",
    "general protection",
    "Assertion failed",
    "blocked for more than",
    "refcount_t",
];

/// A guest that runs.
pub(crate) struct Guest<'a> {
    net: &'a Net,
    dir: TempDir,
    child: Child,
}

/// The folder of the guest's kernel and archive; says so when there is none.
pub(crate) fn image() -> Option<PathBuf> {
    let found = std::env::var_os("AFAR_TEST_KAFS").map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: AFAR_TEST_KAFS names no guest; `cargo xtask kafs image` makes one");
    }
    found
}

impl<'a> Guest<'a> {
    /// Starts a guest beside the members of a network, whose cell has its servers at `srv`, and waits
    /// until it has mounted /afs.
    pub(crate) fn start(net: &'a Net, image: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        let tap = net.tap();
        let server = net.address("srv");
        let words = format!(
            "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off audit=0 apparmor=0 \
             random.trust_cpu=on cryptomgr.notests no_timer_check \
             AFAR_ADDRESS={ADDRESS}/24 AFAR_CELL={CELL} AFAR_SERVER={server}"
        );
        let console = format!(
            "file,id=console,path={}",
            dir.path().join("console").display()
        );
        let cable = format!("tap,id=cable,ifname={tap},script=no,downscript=no");
        let said = File::create(dir.path().join("emulator")).unwrap();
        let child = inside(&net.namespace("hub"))
            .args(["qemu-system-x86_64", "-nodefaults", "-no-user-config"])
            .args([
                "-display",
                "none",
                "-no-reboot",
                "-machine",
                "pc,hpet=off,usb=off",
            ])
            .args(["-accel", "tcg,thread=multi,tb-size=512"])
            .args(["-cpu", "max", "-smp", "1", "-m", "512"])
            .arg("-kernel")
            .arg(image.join("kernel"))
            .arg("-initrd")
            .arg(image.join("initrd"))
            .args(["-append", &words])
            .args(["-chardev", &console, "-serial", "chardev:console"])
            .args(["-netdev", &cable])
            .args(["-device", "virtio-net-pci,netdev=cable,romfile="])
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut guest = Self { net, dir, child };
        let begun = Instant::now();
        while guest.try_run("true").is_none() {
            let ended = guest.child.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < START,
                "the guest does not start: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        guest
    }

    /// Runs a script; its exit status and what it printed. Several can run at once.
    pub(crate) fn run(&self, script: &str) -> (i32, String) {
        let done = self.try_run(script);
        done.unwrap_or_else(|| panic!("the guest does not answer {script:?}"))
    }

    /// Runs a script that must do well; what it printed, without the end of the last line.
    pub(crate) fn ok(&self, script: &str) -> String {
        let (status, out) = self.run(script);
        assert_eq!(status, 0, "{script}: {out}");
        out.trim_end().to_owned()
    }

    /// None if nobody listens yet, or the answer has no end.
    fn try_run(&self, script: &str) -> Option<(i32, String)> {
        let to: SocketAddr = format!("{ADDRESS}:{PORT}").parse().unwrap();
        let line = format!("{}\n", base64(script.as_bytes()));
        let answer = self.net.inside("cli", move || {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(line.as_bytes()).ok()?;
            stream.shutdown(Shutdown::Write).ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).ok()?;
            Some(String::from_utf8_lossy(&answer).into_owned())
        })?;
        let (out, status) = answer.trim_end().rsplit_once("\nstatus ")?;
        Some((status.parse().ok()?, out.to_owned()))
    }

    /// What the kernel has said.
    fn console(&self) -> String {
        let text = fs::read(self.dir.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Ends it; its kernel must have nothing to complain of.
    pub(crate) fn stop(self) {
        let console = self.console();
        let complaint = |line: &&str| COMPLAINTS.iter().any(|words| line.contains(words));
        let found: Vec<&str> = console.lines().filter(complaint).collect();
        assert!(found.is_empty(), "the guest's kernel: {found:#?}");
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = fs::read_to_string(self.dir.path().join("emulator"));
            eprintln!("the guest's console:\n{}{said:?}", self.console());
        }
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}

/// What `base64 -d` takes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let whole = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = whole[0] << 16 | whole[1] << 8 | whole[2];
        let mut four =
            [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]));
        four[chunk.len() + 1..].fill('=');
        four
    });
    digits.collect()
}
