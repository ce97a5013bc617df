//! Changing files of a real OpenAFS cell without a mount, as its user sees it.
//!
//! `AFAR_TEST_OPENAFS` names the description of the cell, as `cargo xtask openafs up` prints it. Its
//! volume test.open is one that anyone may change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A folder in the volume that anyone may change, and one beside it on the local disk.
struct Place {
    description: Value,
    remote: String,
    local: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::var_os("AFAR_TEST_OPENAFS").expect("AFAR_TEST_OPENAFS names the cell");
        let description: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let unique = format!("afar-{name}-{}", std::process::id());
        let cell = description["cell"].as_str().unwrap();
        let local = std::env::temp_dir().join(&unique);
        fs::create_dir_all(&local).unwrap();
        let place = Self {
            remote: format!("/afs/{cell}/test.open/{unique}"),
            local,
            description,
        };
        place.ok(&["mkdir", &place.remote]);
        place
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
            .env(
                "AFAR_CELLSERVDB",
                self.description["cellservdb"].as_str().unwrap(),
            )
            .output()
            .unwrap()
    }

    /// Runs afar, which must do well, and gives what it prints.
    fn ok(&self, words: &[&str]) -> String {
        let output = self.afar(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs afar, which must fail, and gives what it says.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.afar(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn remote(&self, name: &str) -> String {
        format!("{}/{name}", self.remote)
    }

    fn local(&self, name: &str) -> String {
        self.local.join(name).to_str().unwrap().to_owned()
    }

    fn sha256_of(&self, name: &str) -> Vec<u8> {
        let output = self.afar(&["cat", &self.remote(name)]);
        assert!(output.status.success());
        Sha256::digest(&output.stdout).to_vec()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The test has failed already if this fails, or shows it the next time.
        let _removed = self.afar(&["rm", "-r", "-f", &self.remote]);
        fs::remove_dir_all(&self.local).unwrap();
    }
}

/// Bytes that do not compress and repeat late.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Makes a tree with a file of more than one part and an odd length, small files, and a link.
fn make_tree(place: &Place, files: u32) -> PathBuf {
    let tree = place.local.join("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("big"), noise((33 << 20) + 7)).unwrap();
    for number in 0..files {
        fs::write(tree.join(format!("sub/{number}")), number.to_string()).unwrap();
    }
    symlink("../big", tree.join("sub/link")).unwrap();
    tree
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn trees_are_copied_into_afs_and_back() {
    let place = Place::new("tree");
    let tree = make_tree(&place, 100);
    fs::write(tree.join("none"), "").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["sub/7", "sub"] {
        let file = fs::File::open(tree.join(name)).unwrap();
        file.set_modified(time).unwrap();
    }
    fs::set_permissions(tree.join("sub/7"), fs::Permissions::from_mode(0o400)).unwrap();
    let report = place.ok(&["cp", "-a", "--json", &place.local("tree"), &place.remote]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["files"], 102);
    assert_eq!(report["directories"], 3);
    assert_eq!(report["symlinks"], 1);
    let expected = Sha256::digest(fs::read(tree.join("big")).unwrap());
    assert_eq!(place.sha256_of("tree/big"), expected.as_slice());
    place.ok(&["cp", "-a", &place.remote("tree"), &place.local("back")]);
    place.ok(&["cp", "-a", &place.remote("tree"), &place.remote("second")]);
    place.ok(&["cp", "-a", &place.remote("second"), &place.local("third")]);
    for copy in ["back", "third"] {
        let same = Command::new("diff")
            .args(["-r", &place.local("tree"), &place.local(copy)])
            .status();
        assert!(same.unwrap().success(), "{copy}");
        let kept = |name: &str| fs::metadata(place.local.join(copy).join(name)).unwrap();
        assert_eq!(kept("sub/7").permissions().mode() & 0o777, 0o400);
        assert_eq!(kept("sub/7").modified().unwrap(), time);
        assert_eq!(kept("sub").modified().unwrap(), time);
    }
    // A shorter file in the place of a longer one, from a pipe.
    let target = place.remote("tree/big");
    let words = ["cp", "/dev/stdin", &target];
    let exec = place.description["client_exec"].as_array().unwrap();
    let exec: Vec<_> = exec.iter().map(|word| word.as_str().unwrap()).collect();
    let command = format!(
        "seq 300000 | {} {} {}",
        exec.join(" "),
        env!("CARGO_BIN_EXE_afar"),
        words.join(" ")
    );
    let piped = Command::new("sh")
        .args(["-c", &command])
        .env(
            "AFAR_CELLSERVDB",
            place.description["cellservdb"].as_str().unwrap(),
        )
        .status();
    assert!(piped.unwrap().success());
    let numbers: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        place.sha256_of("tree/big"),
        Sha256::digest(numbers).as_slice()
    );
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn directories_are_kept_the_same() {
    let place = Place::new("sync");
    let tree = make_tree(&place, 20);
    let sync = |words: &[&str]| -> Value {
        let said = place.ok(&[&["sync", "--json"], words].concat());
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    };
    let (up, there, down) = (
        place.local("tree"),
        place.remote("tree"),
        place.local("down"),
    );
    let report = sync(&[&up, &there]);
    assert_eq!(
        (&report["files"], &report["symlinks"]),
        (&21.into(), &1.into())
    );
    let report = sync(&[&up, &there]);
    assert_eq!(
        (&report["files"], &report["unchanged"]),
        (&0.into(), &22.into())
    );
    let expected = Sha256::digest(fs::read(tree.join("big")).unwrap());
    assert_eq!(place.sha256_of("tree/big"), expected.as_slice());

    // What is changed, gone, of another mode, and of another sort.
    fs::write(tree.join("sub/3"), "another three").unwrap();
    fs::remove_file(tree.join("sub/4")).unwrap();
    fs::set_permissions(tree.join("sub/5"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::remove_file(tree.join("sub/link")).unwrap();
    fs::create_dir(tree.join("sub/link")).unwrap();
    assert_eq!(sync(&[&up, &there, "--delete"])["files"], 1);
    let second = place.remote("second");
    sync(&[&there, &second]);
    sync(&[&second, &down]);
    let same = Command::new("diff").args(["-r", &up, &down]).status();
    assert!(same.unwrap().success());
    let mode = fs::metadata(place.local.join("down/sub/5")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o750);
    let report = sync(&[&there, &second, "--checksum", "--dry-run"]);
    assert_eq!(
        (&report["files"], &report["unchanged"]),
        (&0.into(), &20.into())
    );
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn names_are_made_moved_and_removed() {
    let place = Place::new("names");
    place.ok(&["mkdir", "-p", &place.remote("a/b/c")]);
    place.ok(&["mkdir", "-p", &place.remote("a/b/c")]);
    let error = place.fails(&["mkdir", &place.remote("a")]);
    assert!(error.contains("this name exists already"), "{error}");
    fs::write(place.local.join("file"), "data").unwrap();
    place.ok(&["cp", &place.local("file"), &place.remote("a")]);
    place.ok(&["mv", &place.remote("a/file"), &place.remote("a/b")]);
    place.ok(&["mv", &place.remote("a/b/file"), &place.remote("a/b/other")]);
    place.ok(&["ln", &place.remote("a/b/other"), &place.remote("a/b/hard")]);
    place.ok(&["ln", "-s", "other", &place.remote("a/b/soft")]);
    assert_eq!(place.ok(&["cat", &place.remote("a/b/soft")]), "data");
    assert_eq!(place.ok(&["cat", &place.remote("a/b/hard")]), "data");
    let error = place.fails(&["ln", &place.remote("a/b/other"), &place.remote("a/x")]);
    assert!(error.contains("-s"), "{error}");
    let error = place.fails(&["rmdir", &place.remote("a")]);
    assert!(error.contains("not empty"), "{error}");
    let error = place.fails(&["rm", &place.remote("a")]);
    assert!(error.contains("-r"), "{error}");
    assert_eq!(
        place.ok(&["ls", &place.remote("a/b")]),
        "c\nhard\nother\nsoft\n"
    );
    place.ok(&["rm", "-r", &place.remote("a")]);
    assert_eq!(place.ok(&["ls", &place.remote]), "");
    place.fails(&["rm", &place.remote("a")]);
    place.ok(&["rm", "-f", &place.remote("a")]);
    // Into a volume that nobody may change.
    let cell = place.description["cell"].as_str().unwrap();
    let error = place.fails(&["mkdir", &format!("/afs/{cell}/new")]);
    assert!(error.contains(&format!("/afs/.{cell}")), "{error}");
    let error = place.fails(&["mkdir", &format!("/afs/.{cell}/new")]);
    assert!(error.contains("permission denied"), "{error}");
    assert!(Path::new(&place.local).is_dir());
}

#[test]
#[ignore = "needs an OpenAFS cell"]
fn fs_answers_as_that_of_openafs() {
    let place = Place::new("fs");
    let here = place.remote.as_str();
    place.ok(&["fs", "sa", here, "system:authuser", "read"]);
    place.ok(&["fs", "sa", here, "system:authuser", "w+"]);
    let list = place.ok(&["fs", "la", here]);
    assert!(list.starts_with(&format!("Access list for {here} is\nNormal rights:\n")));
    assert!(list.contains("\n  system:authuser rlw\n"), "{list}");
    let error = place.fails(&["fs", "sa", here, "no.such.user", "rl"]);
    assert!(error.starts_with("fs: "), "{error}");
    let quota = place.ok(&["fs", "listquota", here]);
    let mut lines = quota.lines();
    assert_eq!(
        lines.next(),
        Some("Volume Name                    Quota       Used %Used   Partition")
    );
    assert!(lines.next().unwrap().starts_with("test.open "), "{quota}");
    let cell = place.description["cell"].as_str().unwrap();
    let fid = place.ok(&["fs", "getfid", here]);
    assert!(
        fid.ends_with(&format!(") located in cell {cell}\n")),
        "{fid}"
    );
    let mount = place.ok(&["fs", "lsmount", &format!("/afs/{cell}/test.open")]);
    assert_eq!(
        mount,
        format!("'/afs/{cell}/test.open' is a mount point for volume '#test.open'\n")
    );
    let error = place.fails(&["fs", "lsmount", here]);
    assert_eq!(error, format!("'{here}' is not a mount point.\n"));
    let error = place.fails(&["fs", "examine", "/tmp"]);
    assert_eq!(
        error,
        "fs: Invalid argument; it is possible that /tmp is not in AFS.\n"
    );
    let error = place.fails(&["fs", "setquota", here, "100"]);
    assert_eq!(
        error,
        format!("fs: You don't have the required access rights on '{here}'\n")
    );
}
