//! `afar ls`, `stat`, `cat` and `cp` against a real OpenAFS cell, as its user sees them.
//!
//! `AFAR_TEST_OPENAFS` names the description of the cell, as `cargo xtask openafs up` prints it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The cell under test.
struct Cell {
    description: Value,
    /// All that its volumes hold.
    fixture: Vec<Value>,
}

impl Cell {
    fn load() -> Self {
        let path = std::env::var_os("AFAR_TEST_OPENAFS").expect("AFAR_TEST_OPENAFS names the cell");
        let read = |path: &Path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let description: Value = read(Path::new(&path));
        let fixture = read(Path::new(description["fixture"].as_str().unwrap()));
        let Value::Array(fixture) = fixture else {
            panic!("the fixture is a list")
        };
        Self {
            description,
            fixture,
        }
    }

    fn text(&self, key: &str) -> &str {
        self.description[key].as_str().unwrap()
    }

    /// Runs afar where the cell can be reached.
    fn afar(&self, words: &[&str]) -> Output {
        let exec = self.description["client_exec"].as_array().unwrap();
        let mut exec = exec.iter().map(|word| word.as_str().unwrap());
        Command::new(exec.next().unwrap())
            .args(exec)
            .arg(env!("CARGO_BIN_EXE_afar"))
            .args(words)
            // Cells of this machine are none of this test's.
            .env("AFAR_RUN_DIR", "/proc/nonexistent")
            .env("AFAR_CELLSERVDB", self.text("cellservdb"))
            .output()
            .unwrap()
    }

    /// Runs afar, which must do well, and gives what it prints.
    fn ok(&self, words: &[&str]) -> Vec<u8> {
        let output = self.afar(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        output.stdout
    }

    /// Runs afar, which must fail, and gives its one line about it.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.afar(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        errors
    }

    /// `/afs/CELL/` and that.
    fn path(&self, rest: &str) -> String {
        format!("/afs/{}/{rest}", self.text("cell"))
    }

    /// What the fixture has in a volume that anyone may read.
    fn entries<'a>(&'a self, volume: &'a str) -> impl Iterator<Item = &'a Value> {
        self.fixture
            .iter()
            .filter(move |entry| entry["volume"] == volume && entry["allowed"] == true)
    }
}

/// A folder of its own for a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("afar-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Names in it.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        entries.map(name).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Other tests load the server meanwhile, so it has done no less.
#[test]
#[ignore = "needs an OpenAFS cell"]
fn metrics_of_a_file_server_are_what_it_did() {
    let cell = Cell::load();
    let servers = fs::read_to_string(cell.text("cellservdb")).unwrap();
    let mut lines = servers.lines().skip_while(|line| !line.starts_with('>'));
    let server = lines.nth(1).unwrap().split_whitespace().next().unwrap();
    let value = |text: &str, metric: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(metric));
        let line = line.unwrap_or_else(|| panic!("no {metric} in {text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let look = || String::from_utf8(cell.ok(&["metrics", server])).unwrap();
    let before = look();
    let up = format!("afs_up{{server=\"{server}\"}}");
    assert!((value(&before, &up) - 1.0).abs() < 0.1);
    assert!(value(&before, "afs_start_time_seconds{") > 1e9);
    assert!(value(&before, "afs_partition_size_bytes{") > 1e6);
    assert!(value(&before, "afs_threads_idle{") >= 1.0);
    let large = cell.entries("test.pub").filter_map(|entry| {
        let length = entry["length"].as_f64()?;
        let path = entry["path"].as_str()?.trim_start_matches('/');
        (length > 100_000.0 && path.is_ascii()).then(|| (path.to_owned(), length))
    });
    let (path, length) = large.last().unwrap();
    cell.ok(&["cat", &cell.path(&format!("test.pub/{path}"))]);
    let after = look();
    let grew = |metric: &str| value(&after, metric) - value(&before, metric);
    let operation =
        |name: &str| format!("afs_calls_total{{server=\"{server}\",operation=\"{name}\"}}");
    assert!(grew(&operation("fetch_data")) >= 1.0, "{after}");
    assert!(grew(&operation("get_x_stats")) >= 1.0, "{after}");
    assert!(
        grew("afs_fetched_bytes_total{") >= length - 1024.0,
        "{after}"
    );
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn a_volume_is_copied_with_all_in_it() {
    let cell = Cell::load();
    let folder = Folder::new("copy");
    let source = cell.path("test.pub");
    let output = cell.afar(&["cp", "-a", "--json", &source, &folder.join("copy")]);
    // Some of it nobody may read, and some mount points lead nowhere.
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(report["failed"], errors.lines().count());
    for expected in ["mounts/missing", "no-rights", "list-only/unreadable"] {
        assert!(errors.contains(expected), "{expected} in {errors}");
    }
    let mut files = 0;
    for entry in cell.entries("test.pub") {
        // Names that are no text cannot be compared here. Mount points were crossed, where they lead
        // anywhere.
        if entry["path_hex"].is_string() || entry["kind"] == "mount_point" {
            continue;
        }
        let relative = entry["path"].as_str().unwrap();
        let path = folder.0.join("copy").join(relative);
        let metadata = fs::symlink_metadata(&path);
        let metadata = metadata.unwrap_or_else(|error| panic!("{relative}: {error}"));
        match entry["kind"].as_str().unwrap() {
            "file" => {
                files += 1;
                let data = fs::read(&path).unwrap();
                assert_eq!(metadata.len(), entry["length"], "{relative}");
                assert_eq!(sha256(&data), entry["sha256"], "{relative}");
                let mode = metadata.permissions().mode() & 0o7777;
                assert_eq!(mode, entry["mode"], "{relative}");
                assert_eq!(metadata.mtime(), 1_700_000_000, "{relative}");
            }
            "directory" => assert!(metadata.is_dir(), "{relative}"),
            kind => {
                assert_eq!(kind, "symlink", "{relative}");
                let target = fs::read_link(&path).unwrap();
                assert_eq!(target.to_str(), entry["target"].as_str(), "{relative}");
            }
        }
    }
    assert!(files > 3000, "{files}");
    let leaf = fs::read(folder.0.join("copy/mounts/plain/leaf")).unwrap();
    assert_eq!(leaf.len(), 1000);
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn files_are_written_to_standard_output_in_order() {
    let cell = Cell::load();
    let big = cell.path("test.pub/links/directory/8388608");
    let small = cell.path("test.pub/hello.txt");
    let data = cell.ok(&["cat", &big, &small]);
    let hash = |path: &str| {
        let entry = cell.entries("test.pub").find(|entry| entry["path"] == path);
        entry.unwrap()["sha256"].clone()
    };
    let (first, second) = data.split_at(8 << 20);
    assert_eq!(sha256(first), hash("sizes/8388608"));
    assert_eq!(sha256(second), hash("hello.txt"));
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn directories_are_listed() {
    let cell = Cell::load();
    let list = cell.ok(&["ls", &cell.path("test.pub/many")]);
    let list = String::from_utf8(list).unwrap();
    assert_eq!(list.lines().count(), 3000);
    assert_eq!(list.lines().next(), Some("file-0000"));
    let long = cell.ok(&["ls", "-l", &cell.path("")]);
    let long = String::from_utf8(long).unwrap();
    let line = |name: &str| {
        let line = long.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{name} in {long}"))
    };
    assert!(line(" test.pub -> #test.pub.").starts_with('m'));
    assert!(line(" pub -> test.pub").starts_with('l'));
    let cells = cell.ok(&["ls", "/afs"]);
    assert_eq!(String::from_utf8(cells).unwrap().trim(), cell.text("cell"));
    // Names that are no text, in JSON.
    let names = cell.ok(&["ls", "--json", &cell.path("test.pub/names")]);
    let names = String::from_utf8(names).unwrap();
    assert!(names.lines().any(|line| {
        let object: Value = serde_json::from_str(line).unwrap();
        object["name_hex"]
            .as_str()
            .is_some_and(|name| name.ends_with("6c6174696e312de9"))
    }));
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn everything_known_of_a_file_is_told() {
    let cell = Cell::load();
    let stat = |path: &str| -> Value {
        serde_json::from_slice(&cell.ok(&["stat", "--json", &cell.path(path)])).unwrap()
    };
    let volumes = cell.description["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "test.pub");
    let volume = volume.unwrap();
    let read_only = stat("test.pub/hello.txt");
    assert_eq!(read_only["volume_id"], volume["read_only"]);
    assert_eq!(read_only["volume_type"], "read-only");
    assert_eq!(
        (&read_only["length"], &read_only["type"]),
        (&12.into(), &"file".into())
    );
    assert_eq!(read_only["anonymous_access"], "rl");
    assert_eq!(
        read_only["server"],
        format!("{}:7000", cell.text("address"))
    );
    let read_write = stat(".test.pub/hello.txt");
    assert_eq!(read_write["volume_id"], volume["read_write"]);
    assert_eq!(stat("test.pub")["mount_point"], "#test.pub.");
    assert_eq!(stat("pub")["target"], "test.pub");
    assert_eq!(stat("test.pub/links/through-mount")["type"], "symlink");
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn what_cannot_be_had_is_said_in_one_line_and_leaves_nothing() {
    let cell = Cell::load();
    let folder = Folder::new("errors");
    for (path, why) in [
        ("test.pub/none", "no such file or directory"),
        ("test.pub/hello.txt/x", "not a directory"),
        ("test.pub/links/loop-a", "too many levels of symbolic links"),
        ("test.pub/links/dangling", "no such file or directory"),
        ("test.pub/sizes", "is a directory"),
        ("no-such-volume/x", "has no volume test.missing"),
        ("no-such-cell/x", "cell nowhere.invalid is not known"),
        ("test.private/secret", "permission denied"),
        ("test.pub/list-only/unreadable", "permission denied"),
    ] {
        let path = cell.path(path);
        let words = ["cp", "--no-dns", &path, &folder.join("copy")];
        let error = cell.fails(&words);
        assert!(error.contains(why), "{path}: {error}");
        assert!(error.contains(&path), "{path}: {error}");
        assert_eq!(folder.names(), [""; 0], "{path}");
    }
    let error = cell.fails(&["ls", "--no-dns", "/afs/no.such.cell"]);
    assert!(error.contains("cell no.such.cell is not known"), "{error}");
    let usage = cell.afar(&["cp", "--no-such-flag"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn several_sources_go_into_a_directory_and_the_rest_goes_on() {
    let cell = Cell::load();
    let folder = Folder::new("several");
    let sources = ["test.pub/hello.txt", "test.pub/none", "test.pub/sizes/4097"];
    let sources = sources.map(|source| cell.path(source));
    let [one, none, other] = sources.each_ref().map(String::as_str);
    let destination = folder.join("");
    let error = cell.fails(&["cp", one, none, other, &destination]);
    assert!(error.contains(none), "{error}");
    let mut names = folder.names();
    names.sort_unstable();
    assert_eq!(names, ["4097", "hello.txt"]);
    // A device is written to, not replaced.
    cell.ok(&["cp", one, "/dev/null"]);
    let metadata = fs::metadata("/dev/null").unwrap();
    assert!(!metadata.is_file());
}
