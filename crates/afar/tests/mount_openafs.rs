//! A real OpenAFS cell, mounted by `afar mount`: what its users do, and what others do meanwhile.
//!
//! `AFAR_TEST_OPENAFS` names the description of the cell, as `cargo xtask openafs up` prints it. Its
//! volume test.open is one that anyone may change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    clippy::print_stderr,
    reason = "what is left out, and what helps to understand a failure, is shown"
)]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long until what others do is seen: a message of the server, and a thread nobody waits for.
const SOON: Duration = Duration::from_secs(10);

/// The cell, and a folder of a test on the local disk.
struct Cell {
    description: Value,
    local: PathBuf,
    name: String,
}

impl Cell {
    fn new(name: &str) -> Self {
        let path = std::env::var_os("AFAR_TEST_OPENAFS").expect("AFAR_TEST_OPENAFS names the cell");
        let name = format!("m-{name}-{}", std::process::id());
        let local = std::env::temp_dir().join(&name);
        fs::create_dir_all(&local).unwrap();
        Self {
            description: serde_json::from_slice(&fs::read(path).unwrap()).unwrap(),
            local,
            name,
        }
    }

    fn text(&self, key: &str) -> &str {
        self.description[key].as_str().unwrap()
    }

    fn command(&self, prefix: &str, program: impl AsRef<OsStr>) -> Command {
        let exec = self.description[prefix].as_array().unwrap();
        let mut exec = exec.iter().map(|word| word.as_str().unwrap());
        let mut command = Command::new(exec.next().unwrap());
        command.args(exec).arg(program);
        command
            .env("AFAR_CELLSERVDB", self.text("cellservdb"))
            // Cells of this machine are none of this test's.
            .env("AFAR_RUN_DIR", self.local.join("run"))
            .env("AFAR_TOKENS", self.local.join("tokens"))
            .env("KRB5CCNAME", "FILE:/proc/nonexistent");
        command
    }

    /// afar where the cell can be reached.
    fn afar(&self) -> Command {
        self.command("client_exec", env!("CARGO_BIN_EXE_afar"))
    }

    /// Runs afar as one of many users.
    fn ok(&self, words: &[&str]) {
        done(words, &self.afar().args(words).output().unwrap());
    }

    /// OpenAFS's `vos`.
    fn vos(&self, words: &[&str]) {
        let mut command = self.command("admin_exec", "vos");
        let output = command.args(words).arg("-localauth").output().unwrap();
        done(words, &output);
    }

    /// A path of AFS in this test's own folder.
    fn remote(&self, name: &str) -> String {
        let cell = self.text("cell");
        format!("/afs/{cell}/test.open/{}/{name}", self.name)
    }

    /// Mounts the cell, or a volume of it.
    fn mount(&self, name: &str, volume: &str) -> Mount {
        let place = self.local.join(name);
        fs::create_dir_all(&place).unwrap();
        let mut command = self.afar();
        command.args(["mount", "--foreground", "--cache"]);
        command.arg(self.local.join(format!("cache-{name}")));
        command
            .arg(format!("{}{volume}", self.text("cell")))
            .arg(&place);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let line = lines.next().expect("it says that it is mounted").unwrap();
            eprintln!("{line}");
            if line.contains("is mounted on") {
                break;
            }
        }
        // Whatever it says later must not block it.
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("{line}"))
        });
        Mount { place, child }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // The test has failed already if this fails.
        let folder = self.remote("");
        let _removed = self.afar().args(["rm", "-r", "-f", &folder]).output();
        let _removed = fs::remove_dir_all(&self.local);
    }
}

fn done(words: &[&str], output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {told}");
}

/// A mount, unmounted when it is dropped.
struct Mount {
    place: PathBuf,
    child: Child,
}

impl Mount {
    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let umount = Command::new("umount").arg("-l").arg(&self.place).status();
        if !umount.is_ok_and(|status| status.success()) {
            // It has ended already, or never ends by itself.
            let _gone = self.child.kill();
        }
        let _gone = self.child.wait();
    }
}

fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "not soon: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn mounts_here() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs /dev/fuse");
    }
    can
}

#[test]
#[ignore = "needs an OpenAFS cell, root and /dev/fuse"]
fn files_are_used_through_a_mount() {
    if !mounts_here() {
        return;
    }
    let cell = Cell::new("files");
    let mount = cell.mount("mnt", "");
    let dir = mount.path("test.open").join(&cell.name);
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name);
    // Data of several calls, read back past the cache that wrote it.
    let data: Vec<u8> = (0..3_000_000_u32)
        .map(|at| ((at * 7) >> 3).to_le_bytes()[0])
        .collect();
    fs::write(at("large"), &data).unwrap();
    assert!(fs::read(at("large")).unwrap() == data);
    let other = cell.mount("other", "");
    let there = |name: &str| other.path("test.open").join(&cell.name).join(name);
    assert!(fs::read(there("large")).unwrap() == data);
    let file = OpenOptions::new().write(true).open(at("large")).unwrap();
    file.write_all_at(b"changed", 1_000_000).unwrap();
    file.set_len(2_000_000).unwrap();
    drop(file);
    soon("the change", || {
        fs::metadata(there("large")).unwrap().len() == 2_000_000
    });
    let mut part = [0; 7];
    let file = File::open(there("large")).unwrap();
    file.read_exact_at(&mut part, 1_000_000).unwrap();
    assert_eq!(&part, b"changed");
    // Names.
    fs::rename(at("large"), at("moved")).unwrap();
    fs::hard_link(at("moved"), at("second")).unwrap();
    assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 2);
    symlink("moved", at("link")).unwrap();
    soon("the link", || fs::read_link(there("link")).is_ok());
    assert_eq!(fs::metadata(there("link")).unwrap().len(), 2_000_000);
    fs::create_dir(at("sub")).unwrap();
    assert_eq!(
        fs::hard_link(at("moved"), at("sub/far"))
            .unwrap_err()
            .kind(),
        ErrorKind::CrossesDevices
    );
    assert_eq!(
        fs::remove_dir(&dir).unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    for name in ["moved", "second", "link"] {
        fs::remove_file(at(name)).unwrap();
    }
    fs::remove_dir(at("sub")).unwrap();
    soon("all are gone", || {
        fs::read_dir(there("")).unwrap().next().is_none()
    });
    // What nobody may read, nobody may read here.
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        0,
        "and nothing hidden is left behind"
    );
}

#[test]
#[ignore = "needs an OpenAFS cell, root and /dev/fuse"]
fn what_others_do_is_seen_and_locks_hold_between_machines() {
    if !mounts_here() {
        return;
    }
    let cell = Cell::new("others");
    cell.ok(&["mkdir", &cell.remote("")]);
    let (here, there) = (cell.mount("here", ""), cell.mount("there", ""));
    let folder = Path::new("test.open").join(&cell.name);
    let file = here.path(&folder).join("file");
    fs::write(&file, b"first").unwrap();
    // One who writes without a mount: the server tells us.
    let text = cell.local.join("text");
    fs::write(&text, b"the second").unwrap();
    cell.ok(&["cp", text.to_str().unwrap(), &cell.remote("file")]);
    soon("what was written", || {
        fs::read(&file).unwrap() == b"the second"
    });
    cell.ok(&["mv", &cell.remote("file"), &cell.remote("moved")]);
    soon("the old name is gone", || !file.exists());
    let moved = |mount: &Mount| mount.path(&folder).join("moved");
    let open = |mount: &Mount| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open(moved(mount)).unwrap()
    };
    let (mine, others) = (open(&here), open(&there));
    mine.lock().unwrap();
    assert!(others.try_lock().is_err(), "one has it");
    mine.write_all_at(b"under the lock", 0).unwrap();
    mine.unlock().unwrap();
    soon("it is given up", || others.try_lock().is_ok());
    let mut seen = String::new();
    let mut reader = File::open(moved(&there)).unwrap();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "under the lock");
    others.unlock().unwrap();
}

#[test]
#[ignore = "needs an OpenAFS cell, root and /dev/fuse"]
fn rights_quotas_and_releases_are_those_of_the_cell() {
    if !mounts_here() {
        return;
    }
    let cell = Cell::new("volume");
    let volume = format!("t{}", std::process::id());
    cell.ok(&["mkdir", &cell.remote("")]);
    let address = cell.text("address");
    // With its access list, by which anyone may do anything.
    cell.vos(&["copy", "test.open", address, "a", &volume, address, "a"]);
    cell.vos(&["setfields", &volume, "-maxquota", "2000"]);
    let point = cell.remote("point");
    cell.ok(&["fs", "mkmount", &point, &volume, "-rw"]);
    let mount = cell.mount("mnt", "");
    let dir = mount.path("test.open").join(&cell.name).join("point");
    fs::write(dir.join("file"), b"one").unwrap();
    // 2,000 KiB are all there are.
    let mut full = File::create(dir.join("full")).unwrap();
    let error = full
        .write_all(&vec![1; 3 << 20])
        .and_then(|()| full.sync_all())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    full.set_len(0).unwrap();
    drop(full);
    fs::remove_file(dir.join("full")).unwrap();
    // What is released is seen by who looks at the copy.
    cell.vos(&["addsite", address, "a", &volume]);
    cell.vos(&["release", &volume]);
    let copy = cell.mount("copy", &format!(":{volume}.readonly"));
    assert_eq!(fs::read(copy.path("file")).unwrap(), b"one");
    let error = fs::write(copy.path("file"), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    fs::write(dir.join("file"), b"two, longer").unwrap();
    assert_eq!(fs::read(copy.path("file")).unwrap(), b"one");
    cell.vos(&["release", &volume]);
    soon("the release", || {
        fs::read(copy.path("file")).unwrap() == b"two, longer"
    });
    // What somebody is no more allowed to do, he cannot do though all of it is cached.
    cell.ok(&["fs", "setacl", &point, "system:anyuser", "l"]);
    soon("the access list", || fs::read(dir.join("file")).is_err());
    for denied in [
        fs::read(dir.join("file")).unwrap_err(),
        fs::write(dir.join("file"), b"x").unwrap_err(),
        fs::write(dir.join("other"), b"x").unwrap_err(),
    ] {
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
    }
    assert!(fs::metadata(dir.join("file")).unwrap().len() > 0);
    drop((mount, copy));
    cell.ok(&["fs", "rmmount", &point]);
    cell.vos(&["remove", address, "a", &format!("{volume}.readonly")]);
    cell.vos(&["remove", address, "a", &volume]);
}
