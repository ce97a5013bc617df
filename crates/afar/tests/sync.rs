//! `afar sync` as its users see it: up, down and within AFS, what it leaves alone, and what it does
//! after it was interrupted.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const AFAR: &str = env!("CARGO_BIN_EXE_afar");
const CELL: &str = "sync.example";
const MIB: u64 = 1 << 20;

/// A cell that runs, with a folder beside it.
struct Site {
    dir: TempDir,
    server: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn afs(path: &str) -> String {
    format!("/afs/.{CELL}/{path}")
}

impl Site {
    /// AFS's ports are fixed, so each test has a loopback address of its own.
    fn start(address: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mut server = Command::new(AFAR)
            .arg("up")
            .arg(dir.path().join("cell"))
            .args(["--cell", CELL, "--listen", address])
            .env("AFAR_RUN_DIR", dir.path().join("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(server.stderr.take().unwrap());
        let (keep, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                // Nobody listens any more once it is up.
                let _gone = keep.send(line);
            }
        });
        let site = Self { dir, server };
        let mut seen = Vec::new();
        while !seen
            .last()
            .is_some_and(|line: &String| line.contains("is up at"))
        {
            match lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) => seen.push(line),
                Err(_) => panic!("it does not come up: {seen:#?}"),
            }
        }
        site.say(&["fs", "setquota", &afs(""), "0"]);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn local(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(AFAR);
        command.env("AFAR_RUN_DIR", self.path("run"));
        command.args(words).arg("--localauth");
        command
    }

    /// Runs a command that must succeed; what it prints.
    fn say(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The totals of a run, and what was said on standard error.
    fn try_sync(&self, words: &[&str]) -> (Value, String) {
        let mut command = self.command(&["sync", "--json"]);
        let output = command.args(words).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let last = text.lines().last().unwrap_or_default();
        let report: Value = serde_json::from_str(last)
            .unwrap_or_else(|_| panic!("{words:?}: {text} {}", told(&output)));
        let failed = report["failed"] != 0;
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{words:?}");
        (report, told(&output))
    }

    /// The totals of a run in which nothing fails.
    fn sync(&self, words: &[&str]) -> Value {
        let (report, told) = self.try_sync(words);
        assert_eq!(told, "", "{words:?}");
        report
    }

    /// All that is in AFS below a path, as `ls` tells it.
    fn listed(&self, path: &str) -> String {
        self.say(&["ls", "-l", "-a", "-R", path])
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Interrupts a run once it has come as far as it is asked for.
    fn interrupt(&self, words: &[&str], signal: Signal, far_enough: impl Fn(&Child) -> bool) {
        let words = [&["sync"][..], words].concat();
        self.interrupt_any(&words, signal, far_enough);
    }

    /// The same for any command.
    fn interrupt_any(&self, words: &[&str], signal: Signal, far_enough: impl Fn(&Child) -> bool) {
        let mut command = self.command(words);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while !far_enough(&child) {
            assert!(child.try_wait().unwrap().is_none(), "it was done before");
            assert!(begin.elapsed() < Duration::from_secs(60), "it gets nowhere");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It comes no further, however long the signal takes.
        self.signal(Signal::STOP);
        kill_process(Pid::from_child(&child), signal).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        self.signal(Signal::CONT);
        assert!(!child.wait().unwrap().success());
    }
}

/// Writes a file with a time of its own.
fn write(path: &Path, contents: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
    set_time(path, seconds);
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 + seconds, 123);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Everything below a directory: kind, mode and time, and what it says.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let says = if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            // A symlink's own time is nobody's concern.
            let time = if metadata.is_symlink() {
                0
            } else {
                metadata.mtime()
            };
            let name = path.strip_prefix(dir).unwrap().to_owned();
            all.insert(name, (metadata.mode(), time, says));
        }
    }
    all
}

/// A tree of all that there can be.
fn tree(dir: &Path) {
    write(&dir.join("a.txt"), b"a", 1);
    write(&dir.join("empty"), b"", 2);
    write(&dir.join("sub/b.bin"), &vec![7; 300_000], 3);
    write(&dir.join("sub/deep/c"), b"c", 4);
    write(&dir.join("sub/\u{e9} \n."), b"odd name", 5);
    fs::set_permissions(dir.join("a.txt"), Permissions::from_mode(0o750)).unwrap();
    fs::create_dir(dir.join("nothing")).unwrap();
    fs::set_permissions(dir.join("nothing"), Permissions::from_mode(0o700)).unwrap();
    symlink("sub/deep/c", dir.join("link")).unwrap();
    symlink("nowhere", dir.join("sub/dangling")).unwrap();
    for (directory, seconds) in [("nothing", 6), ("sub/deep", 7), ("sub", 8), ("", 9)] {
        set_time(&dir.join(directory), seconds);
    }
}

#[test]
fn a_tree_goes_up_and_comes_down_the_same() {
    let site = Site::start("127.83.1.1");
    let (here, back) = (site.path("here"), site.path("back"));
    tree(&here);
    let (up, down) = (site.local("here"), site.local("back"));
    let there = afs("tree");
    let report = site.sync(&[&up, &there]);
    assert_eq!(
        (&report["files"], &report["symlinks"]),
        (&5.into(), &2.into())
    );
    assert_eq!(report["directories"], 3);
    let again = site.sync(&[&up, &there]);
    for none in [
        "files",
        "symlinks",
        "directories",
        "attributes",
        "bytes",
        "deleted",
    ] {
        assert_eq!(again[none], 0, "{none}");
    }
    assert_eq!(again["unchanged"], 7);
    // Once more down, into a directory that is made, and from there into another one in AFS.
    assert_eq!(site.sync(&[&there, &down])["files"], 5);
    assert_eq!(snapshot(&here), snapshot(&back));
    assert_eq!(site.sync(&[&there, &down])["unchanged"], 7);
    let other = afs("other");
    assert_eq!(site.sync(&[&there, &other])["files"], 5);
    assert_eq!(site.sync(&[&there, &other])["unchanged"], 7);
    assert_eq!(site.sync(&[&up, &other, "--checksum"])["unchanged"], 7);

    // One other content, one other mode, and one other symlink.
    write(&here.join("sub/deep/c"), b"C", 100);
    fs::set_permissions(here.join("empty"), Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(here.join("link")).unwrap();
    symlink("sub/deep/d", here.join("link")).unwrap();
    let report = site.sync(&[&up, &there]);
    assert_eq!(
        (&report["files"], &report["symlinks"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        (&report["attributes"], &report["unchanged"]),
        (&1.into(), &4.into())
    );
    let report = site.sync(&[&there, &down]);
    assert_eq!(
        (&report["files"], &report["attributes"]),
        (&1.into(), &1.into())
    );
    assert_eq!(snapshot(&here), snapshot(&back));
    assert!(!site.listed(&afs("")).contains("afar-part"));
}

#[test]
fn nothing_is_deleted_or_excluded_that_is_not_named() {
    let site = Site::start("127.83.1.3");
    let (here, back) = (site.path("here"), site.path("back"));
    let (up, there, down) = (site.local("here"), afs("tree"), site.local("back"));
    tree(&here);
    site.sync(&[&up, &there]);
    site.sync(&[&there, &down]);
    fs::remove_dir_all(here.join("sub")).unwrap();
    write(&here.join("new/x"), b"x", 1);
    write(&here.join("new/x.o"), b"x", 1);

    let before = site.listed(&there);
    let dry = site.command(&["sync", "-n", "--delete", "--exclude", "*.o", &up, &there]);
    let dry = { dry }.output().unwrap();
    let text = String::from_utf8(dry.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    let totals = lines.pop().unwrap();
    lines.sort_unstable();
    assert_eq!(lines, ["copy   new/x", "delete sub", "make   new"]);
    assert!(
        totals.starts_with("would have copied 1 (1 B), unchanged 3"),
        "{totals}"
    );
    assert!(totals.contains("deleted 6, excluded 1"), "{totals}");
    assert_eq!(site.listed(&there), before);

    let report = site.sync(&[&up, &there, "--exclude", "*.o"]);
    assert_eq!(
        (&report["deleted"], &report["excluded"]),
        (&0.into(), &1.into())
    );
    assert!(site.listed(&there).contains("b.bin"));
    let report = site.sync(&[&up, &there, "--delete"]);
    assert_eq!(
        (&report["deleted"], &report["files"]),
        (&6.into(), &1.into())
    );
    // What is excluded stays where the rest goes.
    let keep = ["--exclude", "/sub/deep/", "--exclude", "link"];
    let report = site.sync(&[&[there.as_str(), &down, "--delete"], &keep[..]].concat());
    assert_eq!(report["deleted"], 3);
    assert!(back.join("sub/deep/c").exists() && !back.join("sub/b.bin").exists());
    let report = site.sync(&[&there, &down, "--delete"]);
    assert_eq!(report["deleted"], 3);
    assert_eq!(snapshot(&here), snapshot(&back));

    // A volume in DEST is none of what may go.
    site.say(&["fs", "mkmount", &format!("{there}/mounted"), "root.cell"]);
    let (report, told) = site.try_sync(&[&up, &there, "--delete"]);
    assert_eq!(
        (&report["failed"], &report["deleted"]),
        (&1.into(), &0.into())
    );
    assert!(
        told.contains("mounted: is a mount point; remove it with"),
        "{told}"
    );
}

#[test]
fn wrong_ways_are_told() {
    let site = Site::start("127.83.1.5");
    let root = afs("");
    for (words, says) in [
        (&["a", "b"] as &[&str], "neither a nor b is under /afs"),
        (&[&root, &afs("x")], "one is in the other"),
        (&["/dev/null", &root], "neither a directory nor a file"),
        (&["/afs", "here"], "copy from /afs/CELL"),
        (
            &[&root, "here", "--exclude", "[a"],
            "--exclude [a: a [ has no ]",
        ),
        (&[&afs("none"), "here"], "none"),
    ] {
        let mut command = site.command(&["sync"]);
        let output = command.args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(told(&output).contains(says), "{says}: {}", told(&output));
    }
}

fn random(length: u64) -> Vec<u8> {
    let mut data = vec![0; usize::try_from(length).unwrap()];
    fastrand::Rng::with_seed(1).fill(&mut data);
    data
}

/// Bytes on the disk of files in the making.
fn in_the_making(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let parts = entries.map_while(Result::ok).filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(b".afar-part.")
    });
    let blocks = parts.map_while(|entry| entry.metadata().ok());
    blocks.map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn an_interrupted_copy_from_afs_goes_on_where_it_was() {
    let site = Site::start("127.83.1.6");
    let back = site.path("back");
    let (up, there, down) = (site.local("here"), afs("tree"), site.local("back"));
    let mut data = random(192 * MIB);
    write(&site.path("here/big"), &data, 1);
    write(&site.path("here/small"), b"small", 1);
    site.sync(&[&up, &there]);
    let slowly = [&there, &down, "--piece", "1048576", "-j", "1"];
    let some = |_: &Child| in_the_making(&back) > 24 * MIB;

    site.interrupt(&slowly, Signal::INT, some);
    let report = site.sync(&[&there, &down]);
    let kept = report["kept"].as_u64().unwrap();
    assert!(kept > 16 * MIB, "{kept}");
    assert_eq!(report["bytes"].as_u64().unwrap() % (192 * MIB - kept), 0);
    assert_eq!(fs::read(back.join("big")).unwrap(), data);
    assert_eq!(in_the_making(&back), 0);
    assert_eq!(site.sync(&[&there, &down, "--delete"])["unchanged"], 2);

    // What is there of another version is worth nothing.
    fs::remove_file(back.join("big")).unwrap();
    site.interrupt(&slowly, Signal::INT, some);
    data[0] ^= 1;
    write(&site.path("here/big"), &data, 2);
    site.sync(&[&up, &there]);
    let report = site.sync(&[&there, &down]);
    assert_eq!(
        (&report["kept"], &report["bytes"]),
        (&0.into(), &(192 * MIB).into())
    );
    assert_eq!(fs::read(back.join("big")).unwrap(), data);
}

#[test]
fn an_interrupted_copy_into_afs_goes_on_where_it_was() {
    let site = Site::start("127.83.1.7");
    let here = site.path("here/big");
    let (up, there, copy) = (site.local("here"), afs("tree"), site.local("copy"));
    let data = random(160 * MIB);
    write(&here, &data, 1);
    let slowly = [&up, &there, "--piece", "1048576"];
    let some = |child: &Child| {
        let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.is_some_and(|read| read.parse::<u64>().unwrap() > 48 * MIB)
    };
    // Not even its end comes orderly.
    site.interrupt(&slowly, Signal::KILL, some);
    let listed = site.listed(&there);
    assert!(
        listed.contains(".afar-part.") && !listed.contains("big"),
        "{listed}"
    );
    let report = site.sync(&[&up, &there]);
    assert_eq!(
        (&report["kept"], &report["bytes"]),
        (&(32 * MIB).into(), &(128 * MIB).into())
    );
    site.say(&["cp", &format!("{there}/big"), &copy]);
    assert_eq!(fs::read(&copy).unwrap(), data);
    assert!(!site.listed(&there).contains("afar-part"));
    assert_eq!(site.sync(&[&up, &there])["unchanged"], 1);

    // What is there of another version is worth nothing, and goes.
    write(&here, &data, 2);
    site.interrupt(&slowly, Signal::KILL, some);
    write(&here, &data, 3);
    assert_eq!(site.sync(&[&up, &there])["kept"], 0);
    assert!(!site.listed(&there).contains("afar-part"));
}

#[test]
fn an_interrupted_cp_goes_on_where_it_was() {
    let site = Site::start("127.83.1.9");
    let (here, there, down) = (site.local("here/big"), afs("big"), site.local("down"));
    let mut data = random(160 * MIB);
    write(&site.path("here/big"), &data, 1);
    let some = |child: &Child| {
        let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.is_some_and(|read| read.parse::<u64>().unwrap() > 48 * MIB)
    };
    let slowly = ["cp", "--piece", "1048576"];
    site.interrupt_any(
        &[&slowly[..], &[here.as_str(), there.as_str()]].concat(),
        Signal::KILL,
        some,
    );
    assert!(
        !site.listed(&afs("")).contains("big"),
        "nobody sees half a file"
    );
    let cp = |words: &[&str]| -> Value {
        serde_json::from_str(&site.say(&[&["cp", "--json"][..], words].concat())).unwrap()
    };
    let report = cp(&[&here, &there]);
    assert_eq!(
        (&report["kept"], &report["bytes"]),
        (&(32 * MIB).into(), &(128 * MIB).into())
    );
    fs::create_dir(&down).unwrap();
    let slowly = [&slowly[..], &["-j", "1", there.as_str(), down.as_str()]].concat();
    let half = |_: &Child| in_the_making(&site.path("down")) > 24 * MIB;
    site.interrupt_any(&slowly, Signal::INT, half);
    assert!(!site.path("down/big").exists());
    let report = cp(&[&there, &down]);
    let kept = report["kept"].as_u64().unwrap();
    assert!(kept > 16 * MIB, "{kept}");
    assert_eq!(report["bytes"].as_u64().unwrap(), 160 * MIB - kept);
    assert!(fs::read(site.path("down/big")).unwrap() == data);
    assert_eq!(in_the_making(&site.path("down")), 0);
    // A new file has the mode of the other less the umask, and the time of now; one that is there keeps its mode.
    let metadata = fs::metadata(site.path("down/big")).unwrap();
    assert!(metadata.mtime() > 1_700_001_000, "{}", metadata.mtime());
    fs::set_permissions(site.path("down/big"), Permissions::from_mode(0o601)).unwrap();

    // What is there of another version is worth nothing.
    site.interrupt_any(&slowly, Signal::INT, half);
    data[0] ^= 1;
    write(&site.path("here/big"), &data, 2);
    site.say(&["cp", &here, &there]);
    assert_eq!(cp(&[&there, &down])["kept"], 0);
    assert!(fs::read(site.path("down/big")).unwrap() == data);
    let mode = fs::metadata(site.path("down/big")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o601);
}
